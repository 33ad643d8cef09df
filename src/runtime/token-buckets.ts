import { BoundedMap } from './bounded-map.ts';

/** How many a key had left at a time. A part of one counts. */
interface Bucket {
  left: number;
  at: number;
}

/** How a bucket fills. */
export interface Filling {
  /** How many there are at most, and in the beginning. */
  readonly size: number;
  readonly perSecond: number;
}

interface TokenBucketOptions {
  /** Beyond that the one that was made first is forgotten, and full again. */
  readonly maxEntries: number;
  /** Milliseconds on a monotonic clock. */
  readonly now: () => number;
}

/** What may happen so often: each key has a bucket, which fills with time up to its size. */
export class TokenBuckets {
  readonly #now: () => number;
  readonly #buckets: BoundedMap<string, Bucket>;

  constructor({ maxEntries, now }: TokenBucketOptions) {
    this.#now = now;
    this.#buckets = new BoundedMap({ maxEntries });
  }

  get now(): number {
    return this.#now();
  }

  /** The bucket as it is now; whoever takes some out of it lowers what is left. */
  of(key: string, { size, perSecond }: Filling): { left: number } {
    const now = this.#now();
    const bucket = this.#buckets.get(key);
    if (bucket === undefined) {
      const full = { left: size, at: now };
      this.#buckets.set(key, full);
      return full;
    }
    bucket.left = Math.min(size, bucket.left + ((now - bucket.at) * perSecond) / 1_000);
    bucket.at = now;
    return bucket;
  }
}

/** How often something may happen on average: requests of an organization in a second. */
export interface RateLimit {
  /** Takes one. @returns how many are left; -1: there was none; undefined: not known at once, {@link take} tells */
  tryTake(key: string, perSecond: number): number | undefined;
  /** As {@link tryTake}, when it is known. */
  take(key: string, perSecond: number): Promise<number>;
}

const BURST_MIN = 10;

/** So many may happen at once, after a while without any. */
export function burstOf(perSecond: number): number {
  return Math.max(BURST_MIN, 2 * perSecond);
}

const RATES_MAX = 100_000;

/** The limit of one process. */
export class LocalRate implements RateLimit {
  readonly #buckets: TokenBuckets;

  /** @param now milliseconds on a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#buckets = new TokenBuckets({ maxEntries: RATES_MAX, now });
  }

  tryTake(key: string, perSecond: number): number {
    const [taken, left] = this.takeUpTo(1, key, perSecond);
    return taken === 0 ? -1 : left;
  }

  async take(key: string, perSecond: number): Promise<number> {
    return this.tryTake(key, perSecond);
  }

  /** @returns how many have been taken, and how many are left */
  takeUpTo(count: number, key: string, perSecond: number): readonly [taken: number, left: number] {
    const bucket = this.#buckets.of(key, { size: burstOf(perSecond), perSecond });
    const taken = Math.min(count, Math.floor(bucket.left));
    bucket.left -= taken;
    return [taken, Math.floor(bucket.left)];
  }

  /** Some have been taken and are not used. */
  giveBack(count: number, key: string, perSecond: number): void {
    this.#buckets.of(key, { size: burstOf(perSecond), perSecond }).left += count;
  }
}
