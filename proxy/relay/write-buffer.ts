import { Buffer } from 'node:buffer';
import { joined } from '../../src/runtime/bytes.ts';

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
export class WriteBuffer {
  /** How often something has been written. */
  writes = 0;
  readonly #sink: Sink;
  /** The pieces before the last one, and what they take. */
  #pieces: Buffer[] = [];
  #bytes = 0;
  /** What the last piece lies in, or begins in; undefined where there is none. */
  #buffer: Buffer | undefined;
  #start = 0;
  /** Beyond the buffer, where what lies behind it in memory belongs to the piece. */
  #end = 0;
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
    return this.#bytes + (this.#buffer === undefined ? 0 : this.#end - this.#start);
  }

  add(buffer: Buffer, start: number, end: number): void {
    if (this.#buffer === buffer && this.#end === start) {
      this.#end = end;
      return;
    }
    if (this.#buffer !== undefined) {
      const at = placeOf(this.#buffer, buffer, start);
      if (at === this.#end) {
        this.#end += end - start;
        return;
      }
      this.#endPiece();
    }
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
    this.#pieces = [];
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
    const last = this.#takeLast();
    if (last === undefined) return;
    this.writes += 1;
    if (this.#pieces.length === 0) {
      this.#sink.write(last);
      return;
    }
    const pieces = this.#pieces;
    pieces.push(last);
    const bytes = this.#bytes + last.length;
    this.#pieces = [];
    this.#bytes = 0;
    if (bytes <= MAX_JOINED_BYTES) this.#sink.write(joined(pieces, bytes));
    else this.#writeEach(pieces);
  }

  /** What is large is not copied. */
  #writeEach(pieces: readonly Buffer[]): void {
    this.#sink.cork?.();
    for (const piece of pieces) this.#sink.write(piece);
    this.#sink.uncork?.();
  }

  #endPiece(): void {
    const last = this.#takeLast();
    if (last === undefined) return;
    this.#pieces.push(last);
    this.#bytes += last.length;
  }

  #takeLast(): Buffer | undefined {
    const buffer = this.#buffer;
    this.#buffer = undefined;
    return buffer === undefined ? undefined : piece(buffer, this.#start, this.#end);
  }
}

/** Where the beginning of another buffer would be in this one; -1 in other memory. */
function placeOf(buffer: Buffer, other: Buffer, start: number): number {
  return buffer.buffer === other.buffer ? other.byteOffset + start - buffer.byteOffset : -1;
}

function piece(buffer: Buffer, start: number, end: number): Buffer {
  if (start === 0 && end === buffer.length) return buffer;
  return end <= buffer.length ? buffer.subarray(start, end) : Buffer.from(buffer.buffer, buffer.byteOffset + start, end - start);
}

/** Less is cheaper to join than to hand over one by one. */
const MAX_JOINED_BYTES = 8_192;
/** From here on an answer is read for its bulk, and not waited for. */
const STREAM_BYTES = 262_144;
/** PostgreSQL sends 8 kB at once; loopback carries 64 kB in one segment. */
const GATHERED_BYTES = 65_536;
const GATHERING_MS = 1;
