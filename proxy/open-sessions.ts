import { abortReason, type ServiceError } from '../src/errors.ts';
import type { Relay } from './relay.ts';
import { Roster } from './roster.ts';

/** What may be done to a session that has done nothing itself. */
export type EndableSession = Pick<Relay, 'end' | 'endAtRest'>;

interface OpenSession {
  readonly session: EndableSession;
  /** Of the key that it was opened with. */
  readonly revoked: AbortSignal;
}

/**
 * The sessions that are open at the wire door, for when they have to end. A signal goes through all its listeners whenever
 * one is added or removed: so a key's signal has one for all of its sessions, and keeps it.
 */
export class OpenSessions {
  readonly #sessions = new Roster<OpenSession>();
  readonly #heard = new WeakSet<AbortSignal>();
  /** Why there are to be no sessions any more. */
  #closing: ServiceError | undefined;

  /**
   * @param revoked of the key that the session was opened with. It may be too late for it
   * @returns what {@link delete} takes
   */
  add(session: EndableSession, revoked: AbortSignal): number {
    const place = this.#sessions.add({ session, revoked });
    if (!this.#heard.has(revoked)) this.#listenTo(revoked);
    if (revoked.aborted) session.end(abortReason(revoked));
    if (this.#closing !== undefined) session.endAtRest(this.#closing);
    return place;
  }

  delete(place: number): void {
    this.#sessions.delete(place);
  }

  /** Ends them as each comes to rest, also those that are still to come. */
  endAtRest(reason: ServiceError): void {
    this.#closing = reason;
    for (const { session } of this.#sessions) session.endAtRest(reason);
  }

  endNow(reason: ServiceError): void {
    for (const { session } of this.#sessions) session.end(reason);
  }

  #listenTo(revoked: AbortSignal): void {
    this.#heard.add(revoked);
    const onRevoked = () => {
      for (const { session, revoked: own } of this.#sessions) if (own === revoked) session.end(abortReason(revoked));
    };
    revoked.addEventListener('abort', onRevoked, { once: true });
  }
}
