import { abortReason, ServiceError } from '../src/errors.ts';
import { type Indexed, IndexedSet } from '../src/runtime/indexed-set.ts';
import type { Relay } from './relay.ts';

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

export interface WatchdogLimits {
  /** How long one request may run where the organization has no limit of its own; 0: no limit. */
  readonly statementTimeoutMs: number;
  /** How long a session may be idle in a transaction; 0: no limit. */
  readonly idleInTransactionTimeoutMs: number;
}

/** A session, as the watchdog uses it. */
export type WatchedSession = Pick<
  Relay,
  | 'index'
  | 'unsent'
  | 'taken'
  | 'halfClosed'
  | 'since'
  | 'completions'
  | 'activity'
  | 'abandon'
  | 'stop'
  | 'end'
  | 'terminate'
  | 'ownStatementMs'
  | 'idleSessionMs'
>;

const TICK_MS = 250;
/** If a request has not ended this long after it was canceled, its backend is terminated. */
const CANCEL_GRACE_MS = 5_000;
/** A client that has closed its side may read the rest of its reply, as long as it keeps reading. */
const HALF_CLOSED_GRACE_MS = 1_000;
/** A client that reads nothing for this long is disconnected. */
const SEND_TIMEOUT_MS = 60_000;

/**
 * Enforces the time limits of all wire sessions by Postern's own clock, because a session can change the server's timeouts. All share
 * one timer, because few sessions are near a limit at any time.
 */
export class Watchdog {
  readonly #limits: WatchdogLimits;
  readonly #watched = new IndexedSet<WatchedSession>();
  /** When the running requests of sessions were canceled, for those that have not ended yet. */
  readonly #canceledAt = new Map<WatchedSession, number>();
  /** Of sessions at work: how many statements had completed at the last look, and since when the next one may be running. */
  readonly #running = new Map<WatchedSession, { readonly completions: number; readonly since: number }>();
  /** Of sessions whose clients have something to read, or send no more: what they had read, and since when they have read no more. */
  readonly #reading = new Map<WatchedSession, { readonly taken: number; readonly since: number }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(limits: WatchdogLimits) {
    this.#limits = limits;
  }

  watch(session: WatchedSession): void {
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS);
    this.#watched.add(session);
  }

  forget(session: WatchedSession): void {
    this.#watched.delete(session);
    this.#canceledAt.delete(session);
    this.#running.delete(session);
    this.#reading.delete(session);
  }

  #tick(): void {
    if (this.#watched.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    const now = performance.now();
    for (const session of this.#watched.all()) this.#check(session, now);
  }

  #check(session: WatchedSession, now: number): void {
    const { statementTimeoutMs, idleInTransactionTimeoutMs } = this.#limits;
    const unreadMs = this.#unreadMs(session, now);
    if (unreadMs > SEND_TIMEOUT_MS) session.abandon();
    else if (session.halfClosed && Math.min(unreadMs, now - session.since) > HALF_CLOSED_GRACE_MS) session.abandon();
    else if (session.activity === 'active' || session.activity === 'waiting') {
      this.#checkStatement(session, now, session.ownStatementMs ?? statementTimeoutMs);
    } else {
      this.#canceledAt.delete(session);
      this.#running.delete(session);
      const { idleSessionMs } = session;
      if (session.activity === 'idle' && idleSessionMs > 0 && now - session.since > idleSessionMs) {
        session.end(new ServiceError('idle_session_timeout', 'terminating connection due to idle-session timeout'));
      } else if (
        idleInTransactionTimeoutMs > 0 &&
        session.activity === 'idle in transaction' &&
        now - session.since > idleInTransactionTimeoutMs
      ) {
        session.end(new ServiceError('idle_in_transaction_timeout', 'terminating connection due to idle-in-transaction timeout'));
      }
    }
  }

  /** For how long the client has read nothing, although there was something to read or it sends no more. */
  #unreadMs(session: WatchedSession, now: number): number {
    if (session.unsent === 0 && !session.halfClosed) {
      this.#reading.delete(session);
      return 0;
    }
    const { taken } = session;
    const before = this.#reading.get(session);
    if (before?.taken === taken) return now - before.since;
    this.#reading.set(session, { taken, since: now });
    return 0;
  }

  /** Since when the session runs the present one of several statements that were sent together; late by one look at most. */
  #runningSince(session: WatchedSession, now: number): number {
    const { completions, since } = session;
    const before = this.#running.get(session);
    if (before?.completions === completions) return Math.max(before.since, since);
    const known = { completions, since: before === undefined ? since : now };
    this.#running.set(session, known);
    return known.since;
  }

  #checkStatement(session: WatchedSession, now: number, timeoutMs: number): void {
    if (timeoutMs === 0 || now - this.#runningSince(session, now) < timeoutMs) {
      this.#canceledAt.delete(session);
      return;
    }
    const canceledAt = this.#canceledAt.get(session);
    if (canceledAt === undefined) {
      this.#canceledAt.set(session, now);
      session.stop();
    } else if (now - canceledAt > CANCEL_GRACE_MS) {
      session.terminate(new ServiceError('statement_timeout', 'terminating connection due to statement timeout'));
    }
  }
}
