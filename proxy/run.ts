/** Where a run goes. */
export interface Sink {
  write(bytes: Buffer): void;
  /** What is written between these goes out as one. */
  cork?(): void;
  uncork?(): void;
}

/**
 * What goes to one peer in one turn, as one write. Neighbouring messages of one buffer are one piece, so that a chunk full
 * of them costs what one costs.
 */
export class Run {
  /** How often something has been written. */
  writes = 0;
  readonly #sink: Sink;
  readonly #pieces: Buffer[] = [];
  #buffer: Buffer | undefined;
  #start = 0;
  #end = 0;
  #bytes = 0;

  constructor(sink: Sink) {
    this.#sink = sink;
  }

  /** What has not been written. */
  get bytes(): number {
    return this.#bytes + (this.#buffer === undefined ? 0 : this.#end - this.#start);
  }

  add(buffer: Buffer, start: number, end: number): void {
    if (this.#buffer === buffer && this.#end === start) {
      this.#end = end;
      return;
    }
    this.#endPiece();
    this.#buffer = buffer;
    this.#start = start;
    this.#end = end;
  }

  /** Adds a message that is not part of what is passed through. */
  insert(bytes: Buffer): void {
    this.add(bytes, 0, bytes.length);
  }

  /** Forgets what has not been written. */
  clear(): void {
    this.#buffer = undefined;
    this.#pieces.length = 0;
    this.#bytes = 0;
  }

  flush(): void {
    if (this.#pieces.length > 0) {
      this.#endPiece();
      this.#writePieces();
    } else if (this.#buffer !== undefined) {
      const piece = this.#buffer.subarray(this.#start, this.#end);
      this.#buffer = undefined;
      this.writes += 1;
      this.#sink.write(piece);
    }
  }

  /** Small pieces are cheaper to join than to hand over one by one; what is large is not copied. */
  #writePieces(): void {
    const pieces = this.#pieces.splice(0);
    const bytes = this.#bytes;
    this.#bytes = 0;
    this.writes += 1;
    if (bytes <= MAX_JOINED_BYTES) {
      this.#sink.write(Buffer.concat(pieces, bytes));
      return;
    }
    this.#sink.cork?.();
    for (const piece of pieces) this.#sink.write(piece);
    this.#sink.uncork?.();
  }

  #endPiece(): void {
    if (this.#buffer === undefined) return;
    this.#pieces.push(this.#buffer.subarray(this.#start, this.#end));
    this.#bytes += this.#end - this.#start;
    this.#buffer = undefined;
  }
}

const MAX_JOINED_BYTES = 8_192;
