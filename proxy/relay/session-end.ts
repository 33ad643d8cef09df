import { ServiceError } from '../../src/errors.ts';
import { errorResponse } from '../errors.ts';
import type { RelayEnd, SessionServices } from '../sessions/session-services.ts';
import type { BackendMessages } from './backend-messages.ts';
import type { Forwarding } from './forwarding.ts';
import type { WriteBuffer } from './write-buffer.ts';

/** What the end of a session needs of it. */
interface EndingSession {
  readonly services: SessionServices;
  readonly forwarding: Forwarding;
  readonly replies: BackendMessages;
  readonly toClient: WriteBuffer;
  giveBack(cancelFailed: boolean): Promise<void>;
}

const CLIENT_GONE: RelayEnd = { reason: 'client_gone' };

/** How a session ends: at once, as soon as it is at rest, or when what its client has asked has been answered. */
export class SessionEnd {
  /** The client has closed its sending side and may still be reading. */
  halfClosed = false;
  readonly #session: EndingSession;
  #isOver = false;
  #atRest: ServiceError | undefined;
  /** The client has said Terminate, or something that is no protocol: what came before that is still answered. */
  #afterReplies: RelayEnd | undefined;
  /** What the backend runs does not end when it is canceled. */
  #cancelFailed = false;

  constructor(session: EndingSession) {
    this.#session = session;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** What the client says now is not listened to. */
  get ignoresInput(): boolean {
    return this.#isOver || this.#afterReplies !== undefined;
  }

  /** Nothing is owed, and no transaction is open. */
  get isAtRest(): boolean {
    const { replies, forwarding } = this.#session;
    return replies.queue.length === 0 && replies.status === 'I' && !forwarding.unsynced;
  }

  now(end: RelayEnd): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#session.toClient.flush();
    void this.#leave(end);
  }

  /** From our side; the error is told only where it does not fall into the middle of a message. */
  byError(error: ServiceError): void {
    this.#nowBy(error, 'ended', this.#session.replies.betweenMessages);
  }

  /** As {@link byError}, and ends the statement that obeys no cancel request. */
  byForce(error: ServiceError): void {
    this.#cancelFailed = true;
    this.byError(error);
  }

  /** What the client has sent amid the data of a COPY leaves it open what is answered: in Postgres' own words for the like. */
  outOfStep(): void {
    this.byError(new ServiceError('protocol_violation', 'terminating connection because protocol synchronization was lost'));
  }

  backendLost(): void {
    const { betweenMessages, fatalSeen } = this.#session.replies;
    const error = new ServiceError('backend_lost', 'the connection to the database server was lost');
    this.#nowBy(error, 'backend_lost', betweenMessages && !fatalSeen);
  }

  #nowBy(error: ServiceError, reason: RelayEnd['reason'], isTold: boolean): void {
    this.now({ reason, ...(isTold ? { finalError: errorResponse(error, 'FATAL') } : {}) });
  }

  clientGone(): void {
    this.now(CLIENT_GONE);
  }

  /** Without a word: the client does not take what it is sent. */
  abandon(): void {
    this.now(this.#afterReplies ?? CLIENT_GONE);
  }

  /** As soon as the session is in no transaction and owed nothing. */
  atRest(error: ServiceError): void {
    this.#atRest = error;
    this.#endIfAtRest();
  }

  /** When what was asked before has been answered; like one whose client has closed its side, in good time. */
  afterReplies(end: RelayEnd): void {
    this.#afterReplies = end;
    this.halfClosed = true;
    if (this.#session.replies.queue.length === 0) this.now(end);
  }

  /** All that was asked has been answered: ends a session whose client has said its last. @returns whether it was one */
  answered(): boolean {
    if (this.#afterReplies === undefined) return false;
    this.now(this.#afterReplies);
    return true;
  }

  /**
   * The client may be at rest: ends a session that was to end then, or whose client says no more.
   * @param hasMore what the client has said before is still to be asked
   * @returns whether it was one
   */
  rested(hasMore: boolean): boolean {
    if (this.#endIfAtRest()) return true;
    if (!this.halfClosed || hasMore) return false;
    this.abandon();
    return true;
  }

  #endIfAtRest(): boolean {
    if (this.#atRest === undefined || !this.isAtRest) return false;
    this.byError(this.#atRest);
    return true;
  }

  /** Checks in what is checked out, and reports it. */
  async #leave(end: RelayEnd): Promise<void> {
    // The caller may still be at work on what is checked out.
    await undefined;
    let failure: unknown;
    try {
      await this.#session.giveBack(this.#cancelFailed);
    } catch (error) {
      failure = error;
    }
    this.#session.services.ended(end, failure);
  }
}
