import { ServiceError } from '../errors.ts';

/**
 * Signals that the client of a call has disconnected, or that the call is to end for another reason. Every call has one and few are ever
 * triggered, so it costs much less than an AbortSignal. It has one listener at a time: first the wait for a backend, then the statement
 * that runs on it.
 */
export class DisconnectSignal {
  /** Called when the call is to end. Whoever sets it must remove it again. */
  listener: (() => void) | undefined;
  /** Since when the call has been waiting for a backend, and when it got one; undefined if it is not waiting, or has not been. */
  waitsSince: number | undefined;
  waitedUntil: number | undefined;
  #reason: ServiceError | undefined;

  /** Why the call is to end; undefined: it is not. */
  get reason(): ServiceError | undefined {
    return this.#reason;
  }

  get hasHappened(): boolean {
    return this.#reason !== undefined;
  }

  happen(reason = new ServiceError('query_canceled', 'the caller has gone away')): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.listener?.();
  }
}
