import { Buffer } from 'node:buffer';
import { joined } from '../src/runtime/bytes.ts';

/** Where the buffered bytes are written to. */
export interface Sink {
  write(bytes: Buffer): void;
  /** Writes between these calls go out together. */
  cork?(): void;
  uncork?(): void;
}

/**
 * Collects the bytes for one peer during a turn of the event loop and writes them at once. Messages that are adjacent in
 * memory become one piece, so that a chunk full of messages costs as much as one message.
 */
export class WriteBuffer {
  /** Bytes that have been written. */
  written = 0;
  readonly #sink: Sink;
  /** The pieces before the last one; undefined if there are none. */
  #pieces: Pieces | undefined;
  /** The buffer in which the last piece begins; undefined if there is none. */
  #buffer: Buffer | undefined;
  #start = 0;
  /** Lies beyond the buffer's end if the piece continues in the memory behind it. */
  #end = 0;
  /** The reply that has been written in part. */
  #streamed: StreamedReply | undefined;

  constructor(sink: Sink) {
    this.#sink = sink;
  }

  /** Bytes that have not been written. */
  get bytes(): number {
    return (this.#pieces === undefined ? 0 : this.#pieces.bytes) + (this.#buffer === undefined ? 0 : this.#end - this.#start);
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

  /** Adds a message that Postern has made. */
  insert(bytes: Buffer): void {
    this.add(bytes, 0, bytes.length);
  }

  /** Drops the bytes that have not been written. */
  clear(): void {
    this.#buffer = undefined;
    this.#pieces = undefined;
    this.#endWait();
  }

  flush(): void {
    this.#write();
    this.#streamed = undefined;
  }

  /** Writes a part of a reply. @param goesOn the part ends in the middle of a message, so more follows soon */
  flushPart(goesOn: boolean): void {
    this.#streamed ??= { bytes: 0, timer: undefined };
    // The bytes of a large reply are collected for a moment, so that the peer wakes up less often.
    if (goesOn && this.#streamed.bytes >= STREAM_BYTES && this.bytes < GATHERED_BYTES) {
      this.#streamed.timer ??= setTimeout(() => this.#write(), GATHERING_MS);
      return;
    }
    this.#streamed.bytes += this.bytes;
    this.#write();
  }

  #endWait(): void {
    if (this.#streamed?.timer === undefined) return;
    clearTimeout(this.#streamed.timer);
    this.#streamed.timer = undefined;
  }

  #write(): void {
    this.#endWait();
    const last = this.#takeLast();
    if (last === undefined) return;
    this.written += last.length;
    const pieces = this.#pieces;
    if (pieces === undefined) {
      this.#sink.write(last);
      return;
    }
    this.#pieces = undefined;
    this.written += pieces.bytes;
    addPiece(pieces, last);
    if (pieces.bytes <= MAX_JOINED_BYTES) this.#sink.write(joined(pieces.buffers, pieces.bytes));
    else this.#writeEach(pieces.buffers);
  }

  /** Writes large pieces without copying them. */
  #writeEach(pieces: readonly Buffer[]): void {
    this.#sink.cork?.();
    for (const piece of pieces) this.#sink.write(piece);
    this.#sink.uncork?.();
  }

  #endPiece(): void {
    const last = this.#takeLast();
    if (last === undefined) return;
    this.#pieces ??= { buffers: [], bytes: 0 };
    addPiece(this.#pieces, last);
  }

  #takeLast(): Buffer | undefined {
    const buffer = this.#buffer;
    this.#buffer = undefined;
    return buffer === undefined ? undefined : piece(buffer, this.#start, this.#end);
  }
}

interface Pieces {
  readonly buffers: Buffer[];
  bytes: number;
}

function addPiece(pieces: Pieces, piece: Buffer): void {
  pieces.buffers.push(piece);
  pieces.bytes += piece.length;
}

/** A reply that is not complete. */
interface StreamedReply {
  /** Those that have been written. */
  bytes: number;
  /** Set while the buffered bytes wait for more. */
  timer: NodeJS.Timeout | undefined;
}

/** Where the beginning of another buffer would be in this one; -1 in other memory. */
function placeOf(buffer: Buffer, other: Buffer, start: number): number {
  return buffer.buffer === other.buffer ? other.byteOffset + start - buffer.byteOffset : -1;
}

function piece(buffer: Buffer, start: number, end: number): Buffer {
  if (start === 0 && end === buffer.length) return buffer;
  return end <= buffer.length ? buffer.subarray(start, end) : Buffer.from(buffer.buffer, buffer.byteOffset + start, end - start);
}

/** Up to this size, joining pieces is cheaper than writing each. */
const MAX_JOINED_BYTES = 8_192;
/** After this many bytes of a reply, throughput matters more than latency. */
const STREAM_BYTES = 262_144;
/** PostgreSQL sends 8 kB at once; loopback carries 64 kB in one segment. */
const GATHERED_BYTES = 65_536;
const GATHERING_MS = 1;
