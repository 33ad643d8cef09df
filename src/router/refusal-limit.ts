import { rateLimitAddress } from '../auth/tokens.ts';
import { ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';

/** How long an address beyond its limit waits for each refusal. */
export const HOLD_MS = 1_000;
/** How many addresses are remembered. Beyond that the oldest is forgotten, so that an attacker cannot fill the memory. */
const MAX_ADDRESSES = 10_000;
const WARN_EVERY_MS = 60_000;
const MINUTE_MS = 60_000;

interface RefusalLimitOptions {
  /** The size of an address's token bucket, which refills within a minute. */
  readonly perMinute: number;
  readonly observe: Observe;
  /** Told of each address that was refused, for {@link RefusalLimit.countElsewhere} in other processes. */
  readonly share?: (address: string) => void;
  /** Milliseconds on a monotonic clock. */
  readonly now?: () => number;
}

/** A token bucket: how many refusals an address had left at a time. */
interface Bucket {
  left: number;
  at: number;
}

/**
 * Counts the requests without a valid key of each address, at both doors. Beyond its limit an address is refused
 * slowly. Requests with a valid key are not limited, because other clients may use the same address.
 */
export class RefusalLimit {
  readonly #options: RefusalLimitOptions;
  readonly #now: () => number;
  readonly #buckets = new BoundedMap<string, Bucket>({ maxEntries: MAX_ADDRESSES });
  #warnedAt = Number.NEGATIVE_INFINITY;

  constructor(options: RefusalLimitOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** Counts a refusal. @returns the error to send instead, after {@link HOLD_MS}, if there are too many */
  count(sourceIp: string): ServiceError | undefined {
    const { perMinute, share } = this.#options;
    const address = rateLimitAddress(sourceIp);
    const bucket = this.#refilled(address);
    if (bucket.left >= 1) {
      bucket.left -= 1;
      share?.(address);
      return undefined;
    }
    this.#warn(sourceIp, bucket.at);
    return new ServiceError('rate_limited', 'too many requests without a valid API key have come from this address', {
      retryAfterS: Math.ceil(((1 - bucket.left) * MINUTE_MS) / perMinute / 1_000),
    });
  }

  /** Other processes have refused requests of this address. */
  countElsewhere(address: string, count: number): void {
    const bucket = this.#refilled(address);
    bucket.left = Math.max(0, bucket.left - count);
  }

  #refilled(address: string): Bucket {
    const { perMinute } = this.#options;
    const bucket = this.#bucketOf(address);
    const now = this.#now();
    bucket.left = Math.min(perMinute, bucket.left + ((now - bucket.at) * perMinute) / MINUTE_MS);
    bucket.at = now;
    return bucket;
  }

  #bucketOf(address: string): Bucket {
    let bucket = this.#buckets.get(address);
    if (bucket !== undefined) return bucket;
    bucket = { left: this.#options.perMinute, at: this.#now() };
    this.#buckets.set(address, bucket);
    return bucket;
  }

  #warn(sourceIp: string, now: number): void {
    if (now - this.#warnedAt < WARN_EVERY_MS) return;
    this.#warnedAt = now;
    const message = `${sourceIp} has been refused more often than POSTERN_REFUSALS_PER_MINUTE allows: it is refused slowly, and so are other addresses beyond the limit`;
    this.#options.observe({ name: 'service.warning', message });
  }
}
