/** What a client has said that cannot be gone on with yet, in the order in which it came. */
export class InputQueue {
  /** Undefined: what comes can be gone on with. */
  #bytes: Buffer[] | undefined;
  #isWaiting = false;

  /** There is none, and what comes does not have to wait. */
  get isClear(): boolean {
    return this.#bytes === undefined;
  }

  /** It waits for something else than the answer to what was said before. */
  get isWaiting(): boolean {
    return this.#isWaiting;
  }

  /** How much waits. */
  get bytes(): number {
    return this.#bytes?.reduce((sum, { length }) => sum + length, 0) ?? 0;
  }

  /** What waits, if that is one chunk. */
  get only(): Buffer | undefined {
    return this.#bytes?.length === 1 ? this.#bytes[0] : undefined;
  }

  /** From now on all has to wait, and this comes before what has waited already. */
  wait(bytes: Buffer): void {
    this.#isWaiting = true;
    if (this.#bytes === undefined) this.#bytes = [bytes];
    else this.#bytes.unshift(bytes);
  }

  /** From now on what comes has to wait, if only for an answer. */
  hold(): void {
    this.#bytes ??= [];
  }

  /** Puts something behind what waits. */
  add(bytes: Buffer): void {
    if (this.#bytes === undefined) this.#bytes = [bytes];
    else this.#bytes.push(bytes);
  }

  /** The wait is over: takes out what there is. */
  take(): readonly Buffer[] {
    const bytes = this.#bytes ?? [];
    this.#bytes = undefined;
    this.#isWaiting = false;
    return bytes;
  }
}
