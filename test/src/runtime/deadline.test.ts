import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Deadline } from '../../../src/runtime/event-loop.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** The names of those that have expired. */
function watch(...timeoutsMs: readonly number[]) {
  const expired: number[] = [];
  const deadlines = timeoutsMs.map((timeoutMs) => new Deadline(timeoutMs, () => expired.push(timeoutMs)));
  return { expired, deadlines };
}

test('each expires in its time, once, in whatever order they began', () => {
  const { expired } = watch(500, 100, 30_000, 300, 0);
  const after = (ms: number) => {
    vi.advanceTimersByTime(ms);
    return [...expired];
  };
  expect(after(99)).toEqual([]);
  expect(after(2)).toEqual([100]);
  expect(after(250)).toEqual([100, 300]);
  expect(after(200)).toEqual([100, 300, 500]);
  expect(after(60_000)).toEqual([100, 300, 500, 30_000]);
});

test('one that is cleared never expires, and those behind it do all the same', () => {
  const { expired, deadlines } = watch(100, 200);
  deadlines[0]?.clear();
  deadlines[0]?.resume();
  vi.advanceTimersByTime(1_000);
  expect(expired).toEqual([200]);
});

test('the time that one stands still does not count', () => {
  const { expired, deadlines } = watch(100);
  vi.advanceTimersByTime(60);
  deadlines[0]?.pause();
  deadlines[0]?.pause();
  vi.advanceTimersByTime(10_000);
  deadlines[0]?.resume();
  vi.advanceTimersByTime(35);
  expect(expired).toEqual([]);
  vi.advanceTimersByTime(10);
  expect(expired).toEqual([100]);
});

test('one that is put off expires then, and again where it has expired before', () => {
  const { expired, deadlines } = watch(100);
  const putOff = (ms: number) => deadlines[0]?.restart(performance.now() + ms);
  vi.advanceTimersByTime(60);
  putOff(100);
  vi.advanceTimersByTime(90);
  expect(expired).toEqual([]);
  vi.advanceTimersByTime(20);
  expect(expired).toEqual([100]);
  putOff(50);
  vi.advanceTimersByTime(60);
  expect(expired).toEqual([100, 100]);
});

test('one that is cleared by another that expires with it does not expire', () => {
  const expired: string[] = [];
  const deadlines = ['first', 'second'].map(
    (name) =>
      new Deadline(100, () => {
        expired.push(name);
        for (const deadline of deadlines) deadline.clear();
      }),
  );
  vi.advanceTimersByTime(200);
  expect(expired).toEqual(['first']);
});
