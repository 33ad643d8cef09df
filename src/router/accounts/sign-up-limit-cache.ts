import { rateLimitAddress } from '../../auth/tokens.ts';
import { ServiceError } from '../../errors.ts';
import { BoundedMap } from '../../runtime/bounded-map.ts';

/** After this time the control database, which counts for all processes, is asked again. */
const REMEMBERED_MS = 10_000;
/** How many addresses are remembered. Beyond that the oldest is forgotten, so that an attacker cannot fill the memory. */
const MAX_ADDRESSES = 10_000;

/**
 * Addresses that have used up their sign-ups of the hour. Further attempts are refused from memory, without a session of the
 * control database, which has few and needs them for logins.
 */
export class SignUpLimitCache {
  readonly #now: () => number;
  readonly #refusals = new BoundedMap<string, { readonly error: ServiceError; readonly at: number }>({ maxEntries: MAX_ADDRESSES });

  /** @param now milliseconds on a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @throws ServiceError `rate_limited`, the remembered one, with the remaining time */
  check(sourceIp: string): void {
    const refusal = this.#refusals.get(rateLimitAddress(sourceIp));
    if (refusal === undefined) return;
    const { error, at } = refusal;
    const passedMs = this.#now() - at;
    const retryAfterS = Math.ceil((error.retryAfterS ?? 0) - passedMs / 1_000);
    if (passedMs < REMEMBERED_MS && retryAfterS > 0) throw new ServiceError(error.kind, error.message, { retryAfterS });
  }

  /** @param error the error of a sign-up from there; only `rate_limited` is remembered */
  remember(sourceIp: string, error: unknown): void {
    if (!(error instanceof ServiceError) || error.kind !== 'rate_limited') return;
    this.#refusals.set(rateLimitAddress(sourceIp), { error, at: this.#now() });
  }
}
