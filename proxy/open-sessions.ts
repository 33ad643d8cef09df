import { abortReason, type ServiceError } from '../src/errors.ts';
import type { Relay } from './relay.ts';

/** What may be done to a session that has done nothing itself. */
export type EndableSession = Pick<Relay, 'end' | 'endAtRest'>;

/** The sessions that were opened with one key. */
class KeyHolders {
  readonly sessions = new Set<EndableSession>();
  readonly #revoked: AbortSignal;
  readonly #onRevoked = () => {
    for (const session of this.sessions) session.end(abortReason(this.#revoked));
  };

  constructor(revoked: AbortSignal) {
    this.#revoked = revoked;
    revoked.addEventListener('abort', this.#onRevoked, { once: true });
  }

  leave(): void {
    this.#revoked.removeEventListener('abort', this.#onRevoked);
  }
}

/**
 * The sessions that are open at the wire door, for when they have to end. A signal goes through all its listeners whenever
 * one is added or removed: so a key's signal has one for all of its sessions.
 */
export class OpenSessions {
  readonly #holders = new Map<AbortSignal, KeyHolders>();
  /** Why there are to be no sessions any more. */
  #closing: ServiceError | undefined;

  /** @param revoked of the key that the session was opened with. It may be too late for it */
  add(session: EndableSession, revoked: AbortSignal): void {
    const holders = this.#holders.get(revoked) ?? new KeyHolders(revoked);
    this.#holders.set(revoked, holders);
    holders.sessions.add(session);
    if (revoked.aborted) session.end(abortReason(revoked));
    if (this.#closing !== undefined) session.endAtRest(this.#closing);
  }

  delete(session: EndableSession, revoked: AbortSignal): void {
    const holders = this.#holders.get(revoked);
    holders?.sessions.delete(session);
    if (holders === undefined || holders.sessions.size > 0) return;
    holders.leave();
    this.#holders.delete(revoked);
  }

  /** Ends them as each comes to rest, also those that are still to come. */
  endAtRest(reason: ServiceError): void {
    this.#closing = reason;
    for (const session of this.#all()) session.endAtRest(reason);
  }

  endNow(reason: ServiceError): void {
    for (const session of this.#all()) session.end(reason);
  }

  *#all(): Generator<EndableSession> {
    for (const { sessions } of this.#holders.values()) yield* sessions;
  }
}
