import { ServiceError } from '../../src/errors.ts';
import { IndexedSet } from '../../src/runtime/indexed-set.ts';
import type { Relay } from '../relay/relay.ts';

export interface WatchdogLimits {
  /** Longest time one request may run; 0: no limit. */
  readonly statementTimeoutMs: number;
  /** Longest time a session may sit in an open transaction; 0: no limit. */
  readonly idleInTransactionTimeoutMs: number;
}

/** What the watchdog needs to know of a session, and may do to it. */
export type WatchedSession = Pick<
  Relay,
  'index' | 'unsent' | 'lastTakenAt' | 'halfClosed' | 'since' | 'activity' | 'abandon' | 'stop' | 'end' | 'terminate'
>;

const TICK_MS = 250;
/** A request that has not ended this long after it was canceled loses its backend. */
const CANCEL_GRACE_MS = 5_000;
/** A client that has closed its side may take the rest of its reply as long as it keeps taking it. */
const HALF_CLOSED_GRACE_MS = 1_000;
/** A client that takes nothing for this long is gone. */
const SEND_TIMEOUT_MS = 60_000;

/**
 * Keeps time for all wire sessions by our own clock, because a session can change the server's timeouts. One timer for
 * all: at any moment hardly any session is near a limit.
 */
export class Watchdog {
  readonly #limits: WatchdogLimits;
  readonly #watched = new IndexedSet<WatchedSession>();
  /** When sessions were told to cancel what they run, where it has not ended yet. */
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
