/**
 * Signals that the client of a call has disconnected. Every call has one and few are ever triggered, so it costs much less than an
 * AbortSignal. It has one listener at a time: first the wait for a backend, then the statement that runs on it.
 */
export class DisconnectSignal {
  /** Called when the client disconnects. Whoever sets it must remove it again. */
  listener: (() => void) | undefined;
  #hasHappened = false;

  get hasHappened(): boolean {
    return this.#hasHappened;
  }

  happen(): void {
    if (this.#hasHappened) return;
    this.#hasHappened = true;
    this.listener?.();
  }
}
