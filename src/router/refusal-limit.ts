import { rateLimitAddress } from '../auth/tokens.ts';
import { ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import { TokenBuckets } from '../runtime/token-buckets.ts';

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

/**
 * Counts the requests without a valid key of each address, at both doors. Beyond its limit an address is refused
 * slowly. Requests with a valid key are not limited, because other clients may use the same address.
 */
export class RefusalLimit {
  readonly #options: RefusalLimitOptions;
  /** How many refusals each address has left. */
  readonly #buckets: TokenBuckets;
  #warnedAt = Number.NEGATIVE_INFINITY;

  constructor(options: RefusalLimitOptions) {
    this.#options = options;
    this.#buckets = new TokenBuckets({ maxEntries: MAX_ADDRESSES, now: options.now ?? (() => performance.now()) });
  }

  /** Counts a refusal. @returns the error to send instead, after {@link HOLD_MS}, if there are too many */
  count(sourceIp: string): ServiceError | undefined {
    const { perMinute, share } = this.#options;
    const address = rateLimitAddress(sourceIp);
    const bucket = this.#bucketOf(address);
    if (bucket.left >= 1) {
      bucket.left -= 1;
      share?.(address);
      return undefined;
    }
    this.#warn(sourceIp, this.#buckets.now);
    return new ServiceError('rate_limited', 'too many requests without a valid API key have come from this address', {
      retryAfterS: Math.ceil(((1 - bucket.left) * MINUTE_MS) / perMinute / 1_000),
    });
  }

  /** Other processes have refused requests of this address. */
  countElsewhere(address: string, count: number): void {
    const bucket = this.#bucketOf(address);
    bucket.left = Math.max(0, bucket.left - count);
  }

  #bucketOf(address: string) {
    const { perMinute } = this.#options;
    return this.#buckets.of(address, { size: perMinute, perSecond: perMinute / 60 });
  }

  #warn(sourceIp: string, now: number): void {
    if (now - this.#warnedAt < WARN_EVERY_MS) return;
    this.#warnedAt = now;
    const message = `${sourceIp} has been refused more often than POSTERN_REFUSALS_PER_MINUTE allows: it is refused slowly, and so are other addresses beyond the limit`;
    this.#options.observe({ name: 'service.warning', message });
  }
}
