/** A clock that can be stopped and started, and that calls once when its time is up. */
export class Deadline {
  readonly #expired: () => void;
  #leftMs: number;
  #startedAt = 0;
  #timer: NodeJS.Timeout | undefined;

  /** @param timeoutMs 0: never */
  constructor(timeoutMs: number, expired: () => void) {
    this.#leftMs = timeoutMs > 0 ? timeoutMs : Number.POSITIVE_INFINITY;
    this.#expired = expired;
    this.resume();
  }

  pause(): void {
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#leftMs = Math.max(1, this.#leftMs - (performance.now() - this.#startedAt));
  }

  resume(): void {
    if (this.#timer !== undefined || this.#leftMs === Number.POSITIVE_INFINITY) return;
    this.#startedAt = performance.now();
    this.#timer = setTimeout(this.#expired, this.#leftMs);
  }

  /** Stops it for good. */
  clear(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#leftMs = Number.POSITIVE_INFINITY;
  }
}
