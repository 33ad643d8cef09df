import { sha256 } from '../../auth/scram.ts';
import { ServiceError } from '../../errors.ts';
import { BoundedMap } from '../../runtime/bounded-map.ts';

const MAX_FAILURES = 10;
const WINDOW_MS = 150_000;
/** How many pairs are remembered. Beyond that the oldest is forgotten, so that an attacker cannot fill the memory. */
const MAX_PAIRS = 100_000;
const DIGEST_CHARACTERS = 22;

/**
 * Counts failed logins of each client address and organization. After ten in 150 s a wrong credential gets another error, which says when to
 * try again, and the right one still logs in: behind a balancer all clients have one address. A key has too many random bits to be guessed.
 * Other addresses and other organizations are not affected.
 */
export class LoginThrottle {
  readonly #now: () => number;
  readonly #failures = new BoundedMap<string, readonly number[]>({ maxEntries: MAX_PAIRS });

  /** @param now milliseconds on a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @returns what a wrong credential is answered instead if there have been too many, `too_many_login_failures` */
  refusal(sourceIp: string, user: string): ServiceError | undefined {
    if (this.#failures.size === 0) return undefined;
    const recent = this.#recent(pair(sourceIp, user));
    if (recent.length < MAX_FAILURES) return undefined;
    const waitMs = (recent[0] ?? 0) + WINDOW_MS - this.#now();
    return new ServiceError('too_many_login_failures', 'too many failed login attempts', {
      hint: 'Wait a few minutes, then try again with the right key.',
      retryAfterS: Math.max(1, Math.ceil(waitMs / 1_000)),
    });
  }

  isFull(sourceIp: string, user: string): boolean {
    return this.#recent(pair(sourceIp, user)).length >= MAX_FAILURES;
  }

  /** @returns the key for {@link failedElsewhere} in other processes */
  failed(sourceIp: string, user: string): string {
    const key = pair(sourceIp, user);
    this.failedElsewhere(key, 1);
    return key;
  }

  failedElsewhere(key: string, count: number): void {
    const failures = Array.from({ length: Math.min(count, MAX_FAILURES) }, () => this.#now());
    this.#failures.set(key, [...this.#recent(key), ...failures].slice(-MAX_FAILURES));
  }

  #recent(key: string): number[] {
    const since = this.#now() - WINDOW_MS;
    return (this.#failures.get(key) ?? []).filter((at) => at > since);
  }
}

/** A digest: other processes are told of it, and whatever a client sends as its user must not be long then. */
function pair(sourceIp: string, user: string): string {
  return sha256(Buffer.from(`${sourceIp} ${user}`))
    .toString('base64url')
    .slice(0, DIGEST_CHARACTERS);
}
