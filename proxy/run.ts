/** Joins neighbouring messages of one buffer, so that a chunk full of them is one write. */
export class Run {
  readonly #write: (bytes: Buffer) => void;
  #buffer: Buffer | undefined;
  #start = 0;
  #end = 0;

  constructor(write: (bytes: Buffer) => void) {
    this.#write = write;
  }

  add(buffer: Buffer, start: number, end: number): void {
    if (this.#buffer === buffer && this.#end === start) {
      this.#end = end;
      return;
    }
    this.flush();
    this.#buffer = buffer;
    this.#start = start;
    this.#end = end;
  }

  /** Adds a message that is not part of what is passed through. */
  insert(bytes: Buffer): void {
    this.add(bytes, 0, bytes.length);
  }

  flush(): void {
    if (this.#buffer !== undefined) this.#write(this.#buffer.subarray(this.#start, this.#end));
    this.#buffer = undefined;
  }
}
