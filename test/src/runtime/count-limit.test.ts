import { expect, it } from 'vitest';
import { BothLimits, type CountLimit, LocalLimit, SharedLimit } from '../../../src/runtime/count-limit.ts';

async function letIn(limit: CountLimit, count: number, key: string): Promise<number> {
  let entered = 0;
  for (let n = 0; n < count; n += 1) if (limit.tryEnter(key) || (await limit.enter(key))) entered += 1;
  return entered;
}

it('of a shared limit no key has more than it leaves for the others', async () => {
  const limit = new SharedLimit(12);
  expect(await letIn(limit, 12, 'acme')).toBe(6);
  expect(await letIn(limit, 12, 'other')).toBe(3);
  expect([limit.isFull('acme'), limit.isFull('other'), limit.isFull('third')]).toEqual([true, true, false]);
  for (let n = 0; n < 6; n += 1) limit.leave('acme');
  expect(await letIn(limit, 12, 'other')).toBe(3);
});

it('of two limits that both apply, nothing is taken of one where the other has nothing left', async () => {
  const [local, other] = [new LocalLimit(4), new LocalLimit(2)];
  const both = new BothLimits(local, other);
  expect(await letIn(both, 4, 'acme')).toBe(2);
  expect(both.isFull('acme')).toBe(true);
  expect(await letIn(local, 4, 'acme')).toBe(2);
  other.leave('acme');
  expect(both.isFull('acme')).toBe(true);
  expect(await letIn(both, 1, 'acme')).toBe(0);
  local.leave('acme');
  expect(await letIn(both, 2, 'acme')).toBe(1);
  both.leave('acme');
  expect(await letIn(both, 2, 'acme')).toBe(1);
});
