/**
 * Tells that whoever has asked for something is gone. Every call has one and hardly any ever happens, so it has one listener
 * at a time, first who waits for a backend and then who works on one, and costs next to nothing where an AbortSignal would not.
 */
export class DisconnectSignal {
  /** Called when it happens; who sets it takes it away again. */
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
