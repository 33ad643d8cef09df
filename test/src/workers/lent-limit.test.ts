import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { LentLimit } from '../../../src/workers/lent-limit.ts';
import { SeededRandom } from '../../support/random.ts';
import { Workers } from './workers.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** How many of so many are let in at one worker, who all come at once. */
async function letIn(limit: LentLimit, count: number, key = ''): Promise<number> {
  const entered = await Promise.all(Array.from({ length: count }, () => limit.tryEnter(key) || limit.enter(key)));
  return entered.filter((one) => one).length;
}

describe('a limit that is lent', () => {
  it('is all at the worker that needs it, if the others need nothing', async () => {
    const workers = new Workers(10, 2);
    expect(await letIn(workers.of(1), 12)).toBe(10);
    expect(await letIn(workers.of(2), 1)).toBe(0);
    workers.of(1).leave('');
    expect(await letIn(workers.of(2), 2)).toBe(1);
  });

  it('is taken from workers that have some unused', async () => {
    const workers = new Workers(1_000, 3);
    for (const worker of [1, 2, 3]) expect(await letIn(workers.of(worker), 100)).toBe(100);
    for (let n = 0; n < 100; n += 1) workers.of(2).leave('');
    expect(await letIn(workers.of(1), 1_000)).toBe(800);
    expect(await letIn(workers.of(3), 1)).toBe(0);
  });

  it('is of each key', async () => {
    const workers = new Workers(10, 2);
    expect(await letIn(workers.of(1), 12, 'acme')).toBe(10);
    expect(await letIn(workers.of(1), 5, 'other')).toBe(5);
    expect(await letIn(workers.of(2), 12, 'other')).toBe(5);
  });

  it('is lent in blocks: few who come wait for the allocator', async () => {
    const workers = new Workers(10_000, 2);
    let waited = 0;
    for (let n = 0; n < 1_000; n += 1) {
      if (workers.of(1).tryEnter('')) await Promise.resolve();
      else {
        waited += 1;
        expect(await workers.of(1).enter('')).toBe(true);
      }
    }
    expect(waited).toBe(1);
    expect(workers.messages).toBeLessThan(40);
  });

  it('may be another one for a key, less or more, whoever has come before', async () => {
    const workers = new Workers(1_000, 2);
    const enter = (worker: number, max: number | undefined) => {
      const limit = workers.of(worker);
      return limit.tryEnter('', max) ? Promise.resolve(true) : limit.enter('', { max });
    };
    const letInOf = async (worker: number, count: number, max?: number) => {
      let entered = 0;
      for (let n = 0; n < count; n += 1) if (await enter(worker, max)) entered += 1;
      return entered;
    };
    expect([await letInOf(1, 3), await letInOf(2, 3)]).toEqual([3, 3]);
    // Both have some unused, which are not theirs any more when the limit is less.
    const [here, there] = [await letInOf(1, 5, 8), await letInOf(2, 5, 8)];
    expect(here + there).toBe(2);
    expect([await letInOf(1, 5, 4), await letInOf(2, 5, 4)]).toEqual([0, 0]);
    for (let n = 0; n < 3 + here; n += 1) workers.of(1).leave('');
    for (let n = 0; n < there; n += 1) workers.of(2).leave('');
    await vi.advanceTimersByTimeAsync(0);
    expect([await letInOf(2, 5, 4), await letInOf(1, 5, 4)]).toEqual([1, 0]);
    expect(await letInOf(1, 2_000, 1_500)).toBe(1_496);
    expect(await letInOf(2, 1)).toBe(0);
    expect(await letIn(workers.of(2), 5, 'other')).toBe(5);
  });

  it('answers those who waited when it became less', async () => {
    const workers = new Workers(1_000, 2);
    const limit = workers.of(1);
    const all = Array.from({ length: 6 }, () => limit.enter(''));
    const later = limit.enter('', { max: 2 });
    expect((await Promise.all([...all, later])).filter((isLetIn) => isLetIn)).toHaveLength(2);
    expect(await letIn(workers.of(2), 1)).toBe(1);
  });

  it('goes back when it has not been used for a while', async () => {
    const workers = new Workers(10, 2);
    expect(await letIn(workers.of(1), 4)).toBe(4);
    for (let n = 0; n < 4; n += 1) workers.of(1).leave('');
    await vi.advanceTimersByTimeAsync(2_500);
    workers.hanging.add(1);
    expect(await letIn(workers.of(2), 10)).toBe(10);
  });

  it('is left to a worker that does not answer, and others are told in time', async () => {
    const workers = new Workers(10, 3);
    expect(await letIn(workers.of(1), 4)).toBe(4);
    workers.hanging.add(1);
    const others = letIn(workers.of(2), 10);
    await vi.advanceTimersByTimeAsync(3_000);
    // Besides what it uses, it may have kept what it had asked for in advance.
    expect(await others).toBeGreaterThanOrEqual(4);
    expect(await others).toBeLessThanOrEqual(6);
  });

  it('comes back from a worker that is killed', async () => {
    const workers = new Workers(10, 2);
    expect(await letIn(workers.of(1), 8)).toBe(8);
    workers.kill(1);
    expect(await letIn(workers.of(2), 12)).toBe(10);
    workers.start(1);
    expect(await letIn(workers.of(1), 1)).toBe(0);
  });

  it('is never exceeded, and all of it can be used, whoever comes and leaves where', async () => {
    const seeded = new SeededRandom(20261126);
    const random = (limit: number) => seeded.below(limit);
    for (let run = 0; run < 20; run += 1) {
      const count = 2 + random(3);
      const max = 1 + random(run < 10 ? 12 : 400);
      const workers = new Workers(max, count);
      const used = new Map<number, number>();
      const sum = () => [...used.values()].reduce((total, one) => total + one, 0);
      for (let step = 0; step < 200; step += 1) {
        const worker = 1 + random(count);
        const has = used.get(worker) ?? 0;
        const what = random(40);
        if (what === 0) {
          workers.kill(worker);
          used.delete(worker);
          workers.start(worker);
        } else if (what < 18 && has > 0) {
          workers.of(worker).leave('');
          used.set(worker, has - 1);
        } else {
          const limit = workers.of(worker);
          const enter = limit.tryEnter('') ? Promise.resolve(true) : limit.enter('');
          void enter.then((isLetIn) => {
            if (!isLetIn || workers.limits.get(worker) !== limit) return;
            used.set(worker, (used.get(worker) ?? 0) + 1);
            expect(sum()).toBeLessThanOrEqual(max);
          });
        }
        if (random(3) === 0) await vi.advanceTimersByTimeAsync(random(4));
      }
      await vi.advanceTimersByTimeAsync(3_000);
      const left = max - sum();
      expect(await letIn(workers.of(1 + random(count)), left + 1)).toBe(left);
    }
  });
});

describe('a limit of which no key has more than it leaves for the others', () => {
  it('is that of all workers together', async () => {
    const workers = new Workers(12, 2, true);
    expect(await letIn(workers.of(1), 12, 'acme')).toBe(6);
    expect(await letIn(workers.of(2), 1, 'acme')).toBe(0);
    expect(await letIn(workers.of(2), 12, 'other')).toBe(3);
    workers.of(1).leave('acme');
    expect(await letIn(workers.of(2), 1, 'acme')).toBe(0);
    for (let n = 0; n < 3; n += 1) workers.of(2).leave('other');
    expect(await letIn(workers.of(2), 2, 'acme')).toBe(1);
  });

  it('is not kept by a worker that does not use it', async () => {
    const workers = new Workers(12, 2, true);
    expect(await letIn(workers.of(1), 12, 'acme')).toBe(6);
    for (let n = 0; n < 6; n += 1) workers.of(1).leave('acme');
    workers.hanging.add(1);
    expect(await letIn(workers.of(2), 12, 'acme')).toBe(6);
    workers.kill(2);
    workers.start(2);
    expect(await letIn(workers.of(2), 12, 'acme')).toBe(6);
  });

  it('is never exceeded, and all of it can be used, whoever comes and leaves where', async () => {
    const seeded = new SeededRandom(20261128);
    const random = (limit: number) => seeded.below(limit);
    const keys = ['acme', 'other', 'third'];
    for (let run = 0; run < 20; run += 1) {
      const count = 2 + random(3);
      const max = 1 + random(run < 10 ? 12 : 100);
      const workers = new Workers(max, count, true);
      const used: { readonly limit: LentLimit; readonly key: string }[] = [];
      const isThere = ({ limit }: { readonly limit: LentLimit }) => [...workers.limits.values()].includes(limit);
      const sizeOf = (key: string) => used.filter((one) => one.key === key).length;
      const roomFor = (key: string) => Math.max(0, Math.floor((max - used.length - sizeOf(key)) / 2));
      for (let step = 0; step < 200; step += 1) {
        const worker = 1 + random(count);
        const what = random(40);
        if (what === 0) {
          workers.kill(worker);
          used.splice(0, used.length, ...used.filter(isThere));
          workers.start(worker);
        } else if (what < 15) {
          for (const { limit, key } of used.splice(random(used.length + 1), 1)) limit.leave(key);
        } else {
          const one = { limit: workers.of(worker), key: keys[random(3)] ?? '' };
          const enter = one.limit.tryEnter(one.key) ? Promise.resolve(true) : one.limit.enter(one.key);
          void enter.then((isLetIn) => {
            if (!isLetIn || !isThere(one)) return;
            expect(roomFor(one.key)).toBeGreaterThan(0);
            used.push(one);
          });
        }
        if (random(3) === 0) await vi.advanceTimersByTimeAsync(random(4));
      }
      await vi.advanceTimersByTimeAsync(3_000);
      const key = keys[random(3)] ?? '';
      const room = roomFor(key);
      expect(await letIn(workers.of(1 + random(count)), room + 1, key)).toBe(room);
    }
  });
});
