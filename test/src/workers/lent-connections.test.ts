import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ConnectionCount } from '../../../src/runtime/count-limit.ts';
import { SeededRandom } from '../../support/random.ts';
import { Workers } from './workers.ts';

/** A worker's connections, the oldest first. Those that are not known may be closed. */
class Door {
  readonly open: { isKnown: boolean }[] = [];
  readonly #count: ConnectionCount<{ isKnown: boolean }>;

  constructor(workers: Workers, worker: number) {
    this.#count = new ConnectionCount((evict) => workers.start(worker, evict), {
      evict: (isCounted) => {
        const oldest = this.open.find((one) => !one.isKnown && isCounted(one));
        if (oldest !== undefined) this.close(oldest);
        return oldest !== undefined;
      },
      refuse: (one) => this.close(one),
    });
  }

  async come(count: number, isKnown = false): Promise<void> {
    for (let n = 0; n < count; n += 1) {
      const one = { isKnown };
      this.open.push(one);
      this.#count.came(one);
      await vi.advanceTimersByTimeAsync(0);
    }
  }

  close(one: { isKnown: boolean } | undefined): void {
    if (one === undefined) return;
    this.open.splice(this.open.indexOf(one), 1);
    this.#count.left(one);
  }
}

function doors(max: number, count: number): { workers: Workers; all: Door[]; sizes(): number[] } {
  const workers = new Workers(max, count);
  const all = Array.from({ length: count }, (_, index) => new Door(workers, index + 1));
  return { workers, all, sizes: () => all.map(({ open }) => open.length) };
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

describe('connections to several workers', () => {
  it('can all be at one of them', async () => {
    const { all, sizes } = doors(12, 3);
    await all[0]?.come(12);
    expect(sizes()).toEqual([12, 0, 0]);
    await all[0]?.come(3);
    expect(sizes()).toEqual([12, 0, 0]);
  });

  it('at the limit, those of the worker go for who comes there', async () => {
    const { all, sizes } = doors(12, 3);
    for (const door of all) await door.come(4);
    const [first] = all[1]?.open ?? [];
    await all[1]?.come(1);
    expect(sizes()).toEqual([4, 4, 4]);
    expect(all[1]?.open).not.toContain(first);
  });

  it('at the limit, those of other workers go for who comes to one that has none to close', async () => {
    const { all, sizes } = doors(12, 3);
    await all[0]?.come(10);
    await all[1]?.come(2, true);
    await all[2]?.come(1);
    expect(sizes()).toEqual([9, 2, 1]);
    await all[1]?.come(1, true);
    expect(sizes()).toEqual([8, 3, 1]);
    await all[1]?.come(2);
    expect(sizes()).toEqual([7, 4, 1]);
  });

  it('who comes is refused if none may be closed at any worker', async () => {
    const { all, sizes } = doors(6, 2);
    await all[0]?.come(6, true);
    for (const door of all) await door.come(1, true);
    expect(sizes()).toEqual([6, 0]);
    all[0]?.close(all[0].open[0]);
    await all[1]?.come(1, true);
    expect(sizes()).toEqual([5, 1]);
  });

  it('a worker that is killed leaves what it had to the others', async () => {
    const { workers, all, sizes } = doors(6, 2);
    await all[0]?.come(6, true);
    workers.kill(1);
    await all[1]?.come(7, true);
    expect(sizes()).toEqual([6, 6]);
    all[0] = new Door(workers, 1);
    await all[0].come(1, true);
    expect(sizes()).toEqual([0, 6]);
  });

  it('are never more than the limit once all is told, and can be as many, whoever comes and leaves where', async () => {
    const seeded = new SeededRandom(20261127);
    const random = (limit: number) => seeded.below(limit);
    for (let run = 0; run < 30; run += 1) {
      const max = 1 + random(run < 15 ? 12 : 300);
      const { workers, all, sizes } = doors(max, 2 + random(3));
      const sum = () => sizes().reduce((total, size) => total + size, 0);
      for (let step = 0; step < 300; step += 1) {
        const at = random(all.length);
        const door = all[at];
        const what = random(60);
        if (what === 0) {
          workers.kill(at + 1);
          all[at] = new Door(workers, at + 1);
        } else if (what < 25) door?.close(door.open[random(door.open.length)]);
        else void door?.come(1 + random(3), random(3) === 0);
        if (random(3) === 0) await vi.advanceTimersByTimeAsync(random(4));
        if (random(20) > 0) continue;
        await vi.advanceTimersByTimeAsync(50);
        expect(sum()).toBeLessThanOrEqual(max);
      }
      await vi.advanceTimersByTimeAsync(3_000);
      for (const door of all) while (door.open.length > 0) door.close(door.open[0]);
      await all[random(all.length)]?.come(max + 1, true);
      expect(sum()).toBe(max);
    }
  });
});
