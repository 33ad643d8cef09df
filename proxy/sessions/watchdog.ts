import { ServiceError } from '../../src/errors.ts';
import { IndexedSet } from '../../src/runtime/indexed-set.ts';
import type { Relay } from '../relay/relay.ts';

export interface WatchdogLimits {
  /** How long one request may run; 0: no limit. */
  readonly statementTimeoutMs: number;
  /** How long a session may be idle in a transaction; 0: no limit. */
  readonly idleInTransactionTimeoutMs: number;
}

/** A session, as the watchdog uses it. */
export type WatchedSession = Pick<
  Relay,
  'index' | 'unsent' | 'lastTakenAt' | 'halfClosed' | 'since' | 'activity' | 'abandon' | 'stop' | 'end' | 'terminate'
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
    if (session.unsent > 0 && now - session.lastTakenAt > SEND_TIMEOUT_MS) session.abandon();
    else if (session.halfClosed && now - Math.max(session.since, session.lastTakenAt) > HALF_CLOSED_GRACE_MS) session.abandon();
    else if (session.activity === 'active' || session.activity === 'waiting') this.#checkStatement(session, now, statementTimeoutMs);
    else {
      this.#canceledAt.delete(session);
      if (
        idleInTransactionTimeoutMs > 0 &&
        session.activity === 'idle in transaction' &&
        now - session.since > idleInTransactionTimeoutMs
      ) {
        session.end(new ServiceError('idle_in_transaction_timeout', 'terminating connection due to idle-in-transaction timeout'));
      }
    }
  }

  #checkStatement(session: WatchedSession, now: number, timeoutMs: number): void {
    if (timeoutMs === 0 || now - session.since < timeoutMs) {
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
