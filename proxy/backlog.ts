/** What a client has said that cannot be gone on with yet, in the order in which it came. */
export class Backlog {
  #bytes: Buffer[] | undefined;
  #isWaiting = false;

  /** There is none: what comes can be gone on with. */
  get isClear(): boolean {
    return this.#bytes === undefined;
  }

  /** Something else has to happen first than that what was said before is answered. */
  get isWaiting(): boolean {
    return this.#isWaiting;
  }

  /** What waits, if that is one chunk. */
  get only(): Buffer | undefined {
    return this.#bytes?.length === 1 ? this.#bytes[0] : undefined;
  }

  /** From now on all has to wait, and this before the rest of it. */
  wait(bytes: Buffer): void {
    this.#isWaiting = true;
    this.hold();
    this.#bytes?.unshift(bytes);
  }

  /** From now on what comes has to wait for an answer. */
  hold(): void {
    this.#bytes ??= [];
  }

  add(bytes: Buffer): void {
    this.hold();
    this.#bytes?.push(bytes);
  }

  /** The wait is over. */
  take(): readonly Buffer[] {
    const bytes = this.#bytes ?? [];
    this.#bytes = undefined;
    this.#isWaiting = false;
    return bytes;
  }
}
