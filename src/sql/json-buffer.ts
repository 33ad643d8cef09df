import { copyBytes } from '../runtime/bytes.ts';

const INITIAL_BYTES = 1_024;
const DOUBLING_UNTIL_BYTES = 1_048_576;

/** A growing buffer. Encoders call `reserve` first and then write to `bytes`, or through `view`, directly. */
export class JsonBuffer {
  bytes: Buffer;
  /** A view of `bytes`, for writing several of them at a time. */
  view: DataView;
  length = 0;
  #source: Uint8Array | undefined;
  #sourceView: DataView | undefined;

  /** @param expectedBytes how many bytes will probably be written */
  constructor(expectedBytes = INITIAL_BYTES) {
    this.bytes = takeMemory(expectedBytes);
    this.view = viewOf(this.bytes);
  }

  /** Grows the buffer for so many more bytes. */
  reserve(count: number): void {
    const needed = this.length + count;
    if (needed <= this.bytes.length) return;
    const size = this.bytes.length < DOUBLING_UNTIL_BYTES ? this.bytes.length * 2 : this.bytes.length + this.bytes.length / 2;
    // After a large value mostly little follows, so it grows by what is needed.
    const grown = Buffer.allocUnsafe(Math.max(needed + (needed >> 8), Math.ceil(size)));
    this.bytes.copy(grown, 0, 0, this.length);
    this.#goOnIn(grown);
  }

  /** A view for reading several source bytes at a time. Rows of one chunk share it, because making it takes as long as writing a row. */
  viewOf(source: Uint8Array): DataView {
    if (source !== this.#source || this.#sourceView === undefined) {
      this.#source = source;
      this.#sourceView = viewOf(source);
    }
    return this.#sourceView;
  }

  byte(value: number): void {
    this.reserve(1);
    this.bytes[this.length++] = value;
  }

  /** @param end exclusive */
  copy(source: Uint8Array, start = 0, end = source.length): void {
    this.reserve(end - start);
    copyBytes(source, start, end, this.bytes, this.length);
    this.length += end - start;
  }

  /** Also writes zeros after the bytes; the next write overwrites these. */
  words({ words, length }: Words): void {
    this.reserve(WORD_BYTES * words.length);
    for (let i = 0, at = this.length; i < words.length; i++, at += WORD_BYTES) this.view.setInt32(at, words[i] ?? 0, true);
    this.length += length;
  }

  text(text: string): void {
    const count = Buffer.byteLength(text);
    this.reserve(count);
    this.length += this.bytes.write(text, this.length, 'utf8');
  }

  /** The written bytes, when nothing more will be written. */
  whole(): Buffer {
    return this.bytes.subarray(0, this.length);
  }

  /** Returns the written bytes and continues in a new chunk. */
  take(): Buffer {
    const taken = this.whole();
    this.#goOnIn(takeChunk());
    this.length = 0;
    return taken;
  }

  #goOnIn(memory: Buffer): void {
    this.bytes = memory;
    this.view = viewOf(memory);
  }
}

const WORD_BYTES = 4;

/** A few bytes that are written often, as 32-bit words. */
export interface Words {
  /** The last word is padded with zeros. */
  readonly words: Int32Array;
  /** The length in bytes. */
  readonly length: number;
}

export function wordsOf(bytes: Uint8Array): Words {
  const words = new Int32Array(Math.ceil(bytes.length / WORD_BYTES));
  const padded = new Uint8Array(words.byteLength);
  padded.set(bytes);
  const view = viewOf(padded);
  return { words: words.map((_, index) => view.getInt32(WORD_BYTES * index, true)), length: bytes.length };
}

function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}

/** A chunk is sent as soon as about this much is written. */
export const CHUNK_BYTES = 65_536;
/** A chunk has additional space for the row that exceeds it. */
const CAPACITY_BYTES = 81_920;
/** Smaller buffers come from Node's pool (`Buffer.poolSize`). */
const SMALL_BYTES = 4_096;
const SPARE_MAX = 64;

/** The chunk released last is used first, because it is still in the processor's cache. */
const spare: Buffer[] = [];

/**
 * Returns memory for at least so many bytes. Larger buffers are outside V8's heap, and allocating many of them makes full
 * garbage collections more frequent. So chunks that have been sent are used again.
 */
export function takeMemory(bytes: number): Buffer {
  return bytes < SMALL_BYTES || bytes > CAPACITY_BYTES ? Buffer.allocUnsafe(bytes) : takeChunk();
}

/** Memory for a chunk of a reply. */
export function takeChunk(): Buffer {
  return spare.pop() ?? Buffer.allocUnsafeSlow(CAPACITY_BYTES);
}

/** Releases memory whose content is not needed any more. Calling this is optional. */
export function giveBack({ buffer }: Buffer): void {
  if (buffer.byteLength === CAPACITY_BYTES && spare.length < SPARE_MAX) spare.push(Buffer.from(buffer));
}
