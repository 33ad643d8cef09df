import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { LocalRate } from '../../../src/runtime/token-buckets.ts';
import { LentRate } from '../../../src/workers/lent-rate.ts';
import type { ToSupervisor } from '../../../src/workers/messages.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Workers whose supervisor hears and answers in later turns, in order. */
function open(count: number) {
  const buckets = new LocalRate();
  const messages: ToSupervisor[] = [];
  const workers = Array.from({ length: count }, () => {
    const rate: LentRate = new LentRate({
      workers: count,
      tell(message) {
        messages.push(message);
        queueMicrotask(() => {
          if (message.kind === 'give back') buckets.giveBack(message.count, message.organizationId, message.perSecond);
          if (message.kind !== 'take') return;
          const [taken, left] = buckets.takeUpTo(message.count, message.organizationId, message.perSecond);
          queueMicrotask(() => rate.taken(message.organizationId, taken, left));
        });
      },
    });
    return rate;
  });
  const of = (worker: number) => {
    const rate = workers[worker];
    if (rate === undefined) throw new Error(`there is no worker ${worker}`);
    return rate;
  };
  return { of, messages };
}

/** How many of so many requests that come one after the other are let in. */
async function letIn(rate: LentRate, count: number, perSecond: number): Promise<number> {
  let taken = 0;
  for (let n = 0; n < count; n += 1) if ((await rate.take('acme', perSecond)) >= 0) taken += 1;
  return taken;
}

it('is one for all workers, whichever the requests come to', async () => {
  const { of } = open(4);
  const taken = [];
  for (let n = 0; n < 20; n += 1) taken.push(await letIn(of(n % 4), 1, 5));
  expect(taken.reduce((sum, one) => sum + one, 0)).toBe(10);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await letIn(of(3), 10, 5)).toBe(5);
});

it('is the same for requests that come at once', async () => {
  const { of } = open(2);
  const all = await Promise.all(Array.from({ length: 30 }, (_, n) => of(n % 2).take('acme', 8)));
  expect(all.filter((left) => left >= 0)).toHaveLength(16);
});

it('a refusal is known for as long as nothing can have come back', async () => {
  const { of, messages } = open(2);
  expect(await letIn(of(0), 11, 1)).toBe(10);
  const before = messages.length;
  expect(await letIn(of(0), 1_000, 1)).toBe(0);
  expect(messages).toHaveLength(before);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await letIn(of(0), 2, 1)).toBe(1);
});

it('is taken in blocks where it is large, and what is not used goes back', async () => {
  const { of, messages } = open(2);
  expect(await letIn(of(0), 500, 10_000)).toBe(500);
  expect(messages.length).toBeLessThan(20);
  await vi.advanceTimersByTimeAsync(3_000);
  expect(messages.at(-1)).toMatchObject({ kind: 'give back' });
  expect(await of(1).take('acme', 10_000)).toBe(19_999);
});

it('another limit counts at once, and what was taken before does not', async () => {
  const { of } = open(2);
  expect(await letIn(of(0), 1, 10_000)).toBe(1);
  expect(await letIn(of(0), 100, 1)).toBe(10);
  expect(await letIn(of(1), 100, 1)).toBe(0);
  await vi.advanceTimersByTimeAsync(10);
  expect(await letIn(of(1), 1, 10_000)).toBe(1);
});

it('is never exceeded, whatever happens where', async () => {
  const { of } = open(3);
  const perSecond = 40;
  let taken = 0;
  for (let step = 0; step < 200; step += 1) {
    taken += await letIn(of((step * 7) % 3), step % 5, perSecond);
    await vi.advanceTimersByTimeAsync(step % 11);
  }
  const elapsedMs = Array.from({ length: 200 }, (_, step) => step % 11).reduce((sum, ms) => sum + ms, 0);
  expect(taken).toBeLessThanOrEqual(2 * perSecond + (perSecond * elapsedMs) / 1_000);
  expect(taken).toBeGreaterThanOrEqual(2 * perSecond + (perSecond * elapsedMs) / 1_000 - 12);
});
