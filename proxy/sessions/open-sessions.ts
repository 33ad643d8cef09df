import { abortReason, type ServiceError } from '../../src/errors.ts';
import { type Indexed, IndexedSet } from '../../src/runtime/indexed-set.ts';
import type { Relay } from '../relay/relay.ts';

/** The operations that end a session from outside, and whether it would be interrupted. */
export type EndableSession = Pick<Relay, 'end' | 'endAtRest' | 'isAtRest'>;

/** A session in {@link OpenSessions}. */
export interface OpenSession extends Indexed {
  readonly session: EndableSession;
  /** The signal of the key that it was opened with. */
  readonly revoked: AbortSignal;
}

/**
 * The open sessions of the wire door, so that they can be ended. Adding or removing a listener of a signal takes time proportional to
 * their number, so a key's signal has one permanent listener for all its sessions.
 */
export class OpenSessions {
  readonly #sessions = new IndexedSet<OpenSession>();
  readonly #heard = new WeakSet<AbortSignal>();
  /** The reason for ending all sessions, once the door is closing. */
  #closing: ServiceError | undefined;

  /**
   * Adds a session. The signal of the key that it was opened with may already be aborted.
   */
  add(open: OpenSession): void {
    const { session, revoked } = open;
    this.#sessions.add(open);
    if (!this.#heard.has(revoked)) this.#listenTo(revoked);
    if (revoked.aborted) session.end(abortReason(revoked));
    if (this.#closing !== undefined) session.endAtRest(this.#closing);
  }

  delete(open: OpenSession): void {
    this.#sessions.delete(open);
  }

  /** How many are not idle. */
  get transactions(): number {
    return [...this.#sessions.all()].filter(({ session }) => !session.isAtRest).length;
  }

  /** Ends each session when it is idle, also new ones. */
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
