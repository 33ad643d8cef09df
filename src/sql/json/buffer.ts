import { takeChunk, takeMemory } from './memory.ts';

const INITIAL_BYTES = 1_024;
const DOUBLING_UNTIL_BYTES = 1_048_576;

/** Bytes being written; grows as needed. Encoders `reserve` first and then write to `bytes` directly. */
export class JsonBuffer {
  bytes: Buffer;
  length = 0;

  /** @param expectedBytes what will probably be written */
  constructor(expectedBytes = INITIAL_BYTES) {
    this.bytes = takeMemory(expectedBytes);
  }

  /** Makes room for so many more bytes. */
  reserve(count: number): void {
    const needed = this.length + count;
    if (needed <= this.bytes.length) return;
    const size = this.bytes.length < DOUBLING_UNTIL_BYTES ? this.bytes.length * 2 : this.bytes.length + this.bytes.length / 2;
    const grown = Buffer.allocUnsafe(Math.max(needed, Math.ceil(size)));
    this.bytes.copy(grown, 0, 0, this.length);
    this.bytes = grown;
  }

  byte(value: number): void {
    this.reserve(1);
    this.bytes[this.length++] = value;
  }

  /** @param end exclusive */
  copy(source: Uint8Array, start = 0, end = source.length): void {
    this.reserve(end - start);
    copyBytes(this.bytes, this.length, source, start, end);
    this.length += end - start;
  }

  text(text: string): void {
    const count = Buffer.byteLength(text);
    this.reserve(count);
    this.length += this.bytes.write(text, this.length, 'utf8');
  }

  /** What was written, where nothing more will be. */
  whole(): Buffer {
    return this.bytes.subarray(0, this.length);
  }

  /** Hands over what was written and begins anew, with a chunk. */
  take(): Buffer {
    const taken = this.whole();
    this.bytes = takeChunk();
    this.length = 0;
    return taken;
  }
}

/** For a few bytes a loop is several times faster than a call into the runtime. */
const LOOP_MAX_BYTES = 48;

export function copyBytes(target: Uint8Array, at: number, source: Uint8Array, start: number, end: number): void {
  if (end - start > LOOP_MAX_BYTES) {
    target.set(source.subarray(start, end), at);
    return;
  }
  for (let from = start, to = at; from < end; from++, to++) target[to] = source[from] ?? 0;
}
