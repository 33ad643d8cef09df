import { describe, expect, it } from 'vitest';
import { diskStateOf, measureAgainMs } from '../../../src/router/disk-quotas.ts';

describe('the state of an organization', () => {
  it.each([
    [79, 'within', 'within'],
    [80, 'within', 'near'],
    [99, 'within', 'near'],
    [100, 'within', 'over'],
    [150, 'near', 'over'],
    [79, 'near', 'near'],
    [75, 'near', 'near'],
    [74, 'near', 'within'],
    [95, 'over', 'over'],
    [95, 'read_only', 'over'],
    [94, 'over', 'near'],
    [94, 'read_only', 'near'],
    [10, 'over', 'within'],
  ] as const)('with %i %% of its limit is, after %s, %s', (percent, before, state) => {
    expect(diskStateOf(percent * 1_000, 100_000, before)).toBe(state);
  });

  it('is within without a limit', () => {
    expect(diskStateOf(2 ** 50, undefined, 'over')).toBe('within');
  });
});

describe('an organization that writes is measured again', () => {
  const GIGABYTE = 1_000_000_000;

  it('when it can have reached its limit, in 2 to 60 seconds', () => {
    const afterS = (room: number) => measureAgainMs(100 * GIGABYTE - room, 100 * GIGABYTE) / 1_000;
    expect([20 * GIGABYTE, 6 * GIGABYTE, GIGABYTE, GIGABYTE / 5, 1, 0, -GIGABYTE].map(afterS)).toEqual([60, 60, 10, 2, 2, 2, 2]);
  });
});
