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
  'index' | 'unsent' | 'taken' | 'halfClosed' | 'since' | 'activity' | 'abandon' | 'stop' | 'end' | 'terminate'
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
