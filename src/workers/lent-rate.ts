import type { RateLimit } from '../runtime/token-buckets.ts';
import type { ToSupervisor } from './messages.ts';
import { tellSupervisor } from './shared-parts.ts';

interface LentRateOptions {
  readonly workers: number;
  /** Sends to the supervisor. */
  readonly tell?: (message: ToSupervisor) => void;
  /** Milliseconds on a monotonic clock. */
  readonly now?: () => number;
}

/** What the worker has of an organization's bucket, which the supervisor has. */
interface Purse {
  perSecond: number;
  /** How many have been taken from the bucket and not been used. */
  held: number;
  /** How many were left in the bucket the last time. */
  left: number;
  /** Until then nothing is left, as far as is known. */
  emptyUntil: number;
  isAsking: boolean;
  /** Those that wait for the supervisor's answer, in their order. */
  waiting: ((left: number) => void)[];
  /** Something has been taken since the last sweep. */
  isRecent: boolean;
}

/** The most that are taken from a bucket at once. */
const BLOCK_MAX = 64;
/** What is not used for so long is given back. */
const SWEEP_EVERY_MS = 1_000;

/**
 * A rate that is that of all workers together. The supervisor has the buckets. A worker takes some of a bucket at once, where it fills so
 * fast that this makes no difference, so that few requests wait for an answer.
 */
export class LentRate implements RateLimit {
  readonly #workers: number;
  readonly #tell: (message: ToSupervisor) => void;
  readonly #now: () => number;
  readonly #purses = new Map<string, Purse>();
  #timer: NodeJS.Timeout | undefined;

  constructor({ workers, tell = tellSupervisor, now = () => performance.now() }: LentRateOptions) {
    this.#workers = workers;
    this.#tell = tell;
    this.#now = now;
  }

  tryTake(key: string, perSecond: number): number | undefined {
    const purse = this.#of(key, perSecond);
    if (purse.waiting.length > 0) return undefined;
    if (purse.held === 0) return purse.emptyUntil > this.#now() ? -1 : undefined;
    purse.held -= 1;
    const block = this.#blockOf(perSecond);
    if (purse.held < block / 2 && block > 1 && purse.emptyUntil <= this.#now()) this.#ask(key, purse);
    return purse.held + purse.left;
  }

  take(key: string, perSecond: number): Promise<number> {
    const left = this.tryTake(key, perSecond);
    if (left !== undefined) return Promise.resolve(left);
    const purse = this.#of(key, perSecond);
    return new Promise((settle) => {
      purse.waiting.push(settle);
      this.#ask(key, purse);
    });
  }

  /** The supervisor has taken so many out of the bucket, in which so many are left. Those that wait for more are refused. */
  taken(key: string, count: number, left: number): void {
    const purse = this.#purses.get(key);
    if (purse === undefined) return;
    purse.isAsking = false;
    purse.held += count;
    purse.left = left;
    if (left === 0) purse.emptyUntil = this.#now() + 1_000 / purse.perSecond;
    const { waiting } = purse;
    purse.waiting = [];
    for (const settle of waiting) {
      if (purse.held > 0) {
        purse.held -= 1;
        settle(purse.held + left);
      } else if (left > 0) purse.waiting.push(settle);
      else settle(-1);
    }
    if (purse.waiting.length > 0) this.#ask(key, purse);
  }

  #ask(key: string, purse: Purse): void {
    if (purse.isAsking) return;
    purse.isAsking = true;
    const count = Math.max(this.#blockOf(purse.perSecond), purse.waiting.length);
    this.#tell({ kind: 'take', organizationId: key, perSecond: purse.perSecond, count });
  }

  #blockOf(perSecond: number): number {
    return Math.max(1, Math.min(BLOCK_MAX, Math.floor(perSecond / (8 * this.#workers))));
  }

  #of(key: string, perSecond: number): Purse {
    let purse = this.#purses.get(key);
    if (purse === undefined) {
      purse = { perSecond, held: 0, left: 0, emptyUntil: Number.NEGATIVE_INFINITY, isAsking: false, waiting: [], isRecent: true };
      this.#purses.set(key, purse);
      this.#timer ??= setTimeout(() => this.#sweep(), SWEEP_EVERY_MS).unref();
    }
    if (purse.perSecond !== perSecond) {
      // The limit has changed: what was taken before does not count.
      this.#giveBack(key, purse);
      Object.assign(purse, { perSecond, left: 0, emptyUntil: Number.NEGATIVE_INFINITY });
    }
    purse.isRecent = true;
    return purse;
  }

  #giveBack(key: string, purse: Purse): void {
    const { held: count, perSecond } = purse;
    purse.held = 0;
    if (count > 0) this.#tell({ kind: 'give back', organizationId: key, perSecond, count });
  }

  #sweep(): void {
    for (const [key, purse] of this.#purses) {
      if (!purse.isRecent && !purse.isAsking) {
        this.#giveBack(key, purse);
        this.#purses.delete(key);
      }
      purse.isRecent = false;
    }
    this.#timer = this.#purses.size > 0 ? setTimeout(() => this.#sweep(), SWEEP_EVERY_MS).unref() : undefined;
  }
}
