import { expect, it } from 'vitest';
import { LocalRate } from '../../../src/runtime/token-buckets.ts';

function rate() {
  const clock = { now: 0 };
  return { clock, rates: new LocalRate(() => clock.now) };
}

const times = (count: number, take: () => number) => Array.from({ length: count }, take);

it('twice as many as in a second, and ten at least, may come at once', () => {
  const { rates } = rate();
  expect(times(12, () => rates.tryTake('acme', 1))).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -1]);
  expect(times(41, () => rates.tryTake('other', 20)).slice(-3)).toEqual([1, 0, -1]);
});

it('so many come back in a second, and no more than there were', () => {
  const { rates, clock } = rate();
  times(20, () => rates.tryTake('acme', 10));
  clock.now = 99;
  expect(rates.tryTake('acme', 10)).toBe(-1);
  clock.now = 100;
  expect([rates.tryTake('acme', 10), rates.tryTake('acme', 10)]).toEqual([0, -1]);
  clock.now = 3_600_000;
  expect(rates.tryTake('acme', 10)).toBe(19);
});

it('another limit counts from then on', () => {
  const { rates, clock } = rate();
  expect(rates.tryTake('acme', 1_000)).toBe(1_999);
  expect(rates.tryTake('acme', 1)).toBe(9);
  clock.now = 1_000;
  expect(rates.tryTake('acme', 1_000)).toBe(999 + 9);
});

it('what was taken in advance is as if it had not been', () => {
  const { rates } = rate();
  expect(rates.takeUpTo(8, 'acme', 5)).toEqual([8, 2]);
  expect(rates.takeUpTo(8, 'acme', 5)).toEqual([2, 0]);
  rates.giveBack(3, 'acme', 5);
  expect(rates.tryTake('acme', 5)).toBe(2);
  rates.giveBack(100, 'acme', 5);
  expect(rates.tryTake('acme', 5)).toBe(9);
});
