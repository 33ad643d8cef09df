/** Where a run goes. */
export interface Sink {
  write(bytes: Buffer): void;
  /** What is written between these goes out as one. */
  cork?(): void;
  uncork?(): void;
}

/**
 * What goes to one peer in one turn, as one write. What lies side by side in memory is one piece, so that a chunk full of
 * messages costs what one costs.
 */
export class Run {
  /** How often something has been written. */
  writes = 0;
  readonly #sink: Sink;
  readonly #pieces: Buffer[] = [];
  /** What the last piece lies in; undefined where there is none. */
  #memory: ArrayBufferLike | undefined;
  #start = 0;
  #end = 0;
  /** Of the pieces before it. */
  #bytes = 0;
  /** What has gone out of an answer that is not over. */
  #streamed = 0;
  /** Whether what there is waits for more. */
  #gathering = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(sink: Sink) {
    this.#sink = sink;
  }

  /** What has not been written. */
  get bytes(): number {
    return this.#bytes + (this.#memory === undefined ? 0 : this.#end - this.#start);
  }

  add(buffer: Buffer, start: number, end: number): void {
    const memory = buffer.buffer;
    const at = buffer.byteOffset + start;
    if (this.#memory !== memory || this.#end !== at) {
      this.#endPiece();
      this.#memory = memory;
      this.#start = at;
    }
    this.#end = at + end - start;
  }

  /** Adds a message that is not part of what is passed through. */
  insert(bytes: Buffer): void {
    this.add(bytes, 0, bytes.length);
  }

  /** Forgets what has not been written. */
  clear(): void {
    this.#memory = undefined;
    this.#pieces.length = 0;
    this.#bytes = 0;
    this.#gathering = false;
  }

  flush(): void {
    this.#streamed = 0;
    this.#write();
  }

  /** Writes what there is of an answer that is not over. @param goesOn it ends in the middle of a message: more is at hand */
  flushPart(goesOn: boolean): void {
    if (goesOn && this.#streamed >= STREAM_BYTES && this.bytes < GATHERED_BYTES) {
      this.#gather();
      return;
    }
    this.#streamed += this.bytes;
    this.#write();
  }

  /** A peer that takes a lot is woken for much at a time, unless no more comes for a moment. */
  #gather(): void {
    this.#gathering = true;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (this.#gathering) this.#write();
    }, GATHERING_MS);
  }

  #write(): void {
    this.#gathering = false;
    if (this.#pieces.length > 0) {
      this.#endPiece();
      this.#writePieces();
    } else if (this.#memory !== undefined) {
      const piece = Buffer.from(this.#memory, this.#start, this.#end - this.#start);
      this.#memory = undefined;
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
    if (this.#memory === undefined) return;
    this.#pieces.push(Buffer.from(this.#memory, this.#start, this.#end - this.#start));
    this.#bytes += this.#end - this.#start;
    this.#memory = undefined;
  }
}

const MAX_JOINED_BYTES = 8_192;
/** From here on an answer is read for its bulk, and not waited for. */
const STREAM_BYTES = 262_144;
/** PostgreSQL sends 8 kB at once; loopback carries 64 kB in one segment. */
const GATHERED_BYTES = 65_536;
const GATHERING_MS = 1;
