import { abortReason, type ServiceError } from '../../src/errors.ts';
import { type Indexed, IndexedSet } from '../../src/runtime/indexed-set.ts';
import type { Relay } from '../relay/relay.ts';

/** What may be done to a session that has done nothing itself. */
export type EndableSession = Pick<Relay, 'end' | 'endAtRest'>;

/** What {@link EndableSessions} knows of one. */
export interface OpenSession extends Indexed {
  readonly session: EndableSession;
  /** Of the key that it was opened with. */
  readonly revoked: AbortSignal;
}

/**
 * The sessions that are open at the wire door, for when they have to end. A signal goes through all its listeners whenever
 * one is added or removed: so a key's signal has one for all of its sessions, and keeps it.
 */
export class EndableSessions {
  readonly #sessions = new IndexedSet<OpenSession>();
  readonly #heard = new WeakSet<AbortSignal>();
  /** Why there are to be no sessions any more. */
  #closing: ServiceError | undefined;

  /**
   * @param revoked of the key that the session was opened with. It may be too late for it
   * @returns what {@link delete} takes
   */
  add(session: EndableSession, revoked: AbortSignal): OpenSession {
    const open = { session, revoked, index: -1 };
    this.#sessions.add(open);
    if (!this.#heard.has(revoked)) this.#listenTo(revoked);
    if (revoked.aborted) session.end(abortReason(revoked));
    if (this.#closing !== undefined) session.endAtRest(this.#closing);
    return open;
  }

  delete(open: OpenSession): void {
    this.#sessions.delete(open);
  }

  /** Ends them as each comes to rest, also those that are still to come. */
  endAtRest(reason: ServiceError): void {
    this.#closing = reason;
    for (const { session } of this.#sessions.all()) session.endAtRest(reason);
  }

  endNow(reason: ServiceError): void {
    for (const { session } of this.#sessions.all()) session.end(reason);
  }

  #listenTo(revoked: AbortSignal): void {
    this.#heard.add(revoked);
    const onRevoked = () => {
      for (const { session, revoked: own } of this.#sessions.all()) if (own === revoked) session.end(abortReason(revoked));
    };
    revoked.addEventListener('abort', onRevoked, { once: true });
  }
}
