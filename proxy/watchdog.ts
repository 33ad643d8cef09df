import { ServiceError } from '../src/errors.ts';
import type { Relay } from './relay.ts';

export interface WatchdogLimits {
  /** Longest time one request may run; 0: no limit. */
  readonly statementTimeoutMs: number;
  /** Longest time a session may sit in an open transaction; 0: no limit. */
  readonly idleInTransactionTimeoutMs: number;
}

/** What the watchdog needs to know of a session, and may do to it. */
export type WatchedSession = Pick<
  Relay,
  'unsent' | 'lastTakenAt' | 'halfClosed' | 'since' | 'busy' | 'status' | 'abandon' | 'cancel' | 'end' | 'terminate'
>;

interface Watched {
  readonly session: WatchedSession;
  canceledAt: number | undefined;
}

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
  readonly #watched = new Set<Watched>();
  #timer: NodeJS.Timeout | undefined;

  constructor(limits: WatchdogLimits) {
    this.#limits = limits;
  }

  /** @returns a function that ends the watch */
  watch(session: WatchedSession): () => void {
    const entry: Watched = { session, canceledAt: undefined };
    this.#watched.add(entry);
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS);
    return () => {
      this.#watched.delete(entry);
      if (this.#watched.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }

  #tick(): void {
    const now = performance.now();
    for (const entry of this.#watched) this.#check(entry, now);
  }

  #check(entry: Watched, now: number): void {
    const { session } = entry;
    const { statementTimeoutMs, idleInTransactionTimeoutMs } = this.#limits;
    if (session.unsent > 0 && now - session.lastTakenAt > SEND_TIMEOUT_MS) session.abandon();
    else if (session.halfClosed && now - Math.max(session.since, session.lastTakenAt) > HALF_CLOSED_GRACE_MS) session.abandon();
    else if (session.busy) this.#checkStatement(entry, now, statementTimeoutMs);
    else {
      entry.canceledAt = undefined;
      if (idleInTransactionTimeoutMs > 0 && session.status !== 'I' && now - session.since > idleInTransactionTimeoutMs) {
        session.end(new ServiceError('idle_in_transaction_timeout', 'terminating connection due to idle-in-transaction timeout'));
      }
    }
  }

  #checkStatement(entry: Watched, now: number, timeoutMs: number): void {
    if (timeoutMs === 0 || now - entry.session.since < timeoutMs) {
      entry.canceledAt = undefined;
      return;
    }
    if (entry.canceledAt === undefined) {
      entry.canceledAt = now;
      void entry.session.cancel();
    } else if (now - entry.canceledAt > CANCEL_GRACE_MS) {
      entry.session.terminate(new ServiceError('statement_timeout', 'terminating connection due to statement timeout'));
    }
  }
}
