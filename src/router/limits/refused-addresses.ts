import { limitedAddress } from '../../catalog/organizations/signups.ts';
import { ServiceError } from '../../errors.ts';
import { BoundedMap } from '../../runtime/bounded-map.ts';

/** The control database, which counts for all processes, is asked again after this long. */
const BELIEVED_MS = 10_000;
/** Addresses remembered at once; past that the oldest is forgotten, so that an attacker cannot fill memory. */
const MAX_ADDRESSES = 10_000;

/**
 * Addresses that have had their sign-ups for the hour: one that keeps trying is refused from memory, at no cost for the
 * control database, of whose few sessions logins need one.
 */
export class RefusedAddresses {
  readonly #now: () => number;
  readonly #refusals = new BoundedMap<string, { readonly error: ServiceError; readonly at: number }>({ maxEntries: MAX_ADDRESSES });

  /** @param now milliseconds on a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @throws ServiceError `rate_limited`, as it was heard, with the time that is left now */
  check(sourceIp: string): void {
    const refusal = this.#refusals.get(limitedAddress(sourceIp));
    if (refusal === undefined) return;
    const { error, at } = refusal;
    const passedMs = this.#now() - at;
    const retryAfterS = Math.ceil((error.retryAfterS ?? 0) - passedMs / 1_000);
    if (passedMs < BELIEVED_MS && retryAfterS > 0) throw new ServiceError(error.kind, error.message, { retryAfterS });
  }

  /** @param error what a sign-up from there has failed with; only a limit is remembered */
  heard(sourceIp: string, error: unknown): void {
    if (!(error instanceof ServiceError) || error.kind !== 'rate_limited') return;
    this.#refusals.set(limitedAddress(sourceIp), { error, at: this.#now() });
  }
}
