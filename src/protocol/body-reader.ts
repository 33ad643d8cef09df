import { type Sender, violation } from './protocol-violation.ts';

/**
 * Reads the fields of one message's body in order. Every read checks that enough bytes are left, and fails with Postgres' error text.
 * @see https://github.com/postgres/postgres/blob/master/src/backend/libpq/pqformat.c
 */
export class BodyReader {
  readonly #body: Buffer;
  readonly #sender: Sender;
  #position = 0;

  constructor(body: Buffer, sender: Sender) {
    this.#body = body;
    this.#sender = sender;
  }

  byte(): number {
    if (this.#position === this.#body.length) throw violation(this.#sender, 'no data left in message');
    return this.#body.readUInt8(this.#position++);
  }

  /** For counts, which go up to 65,535. */
  uint16(): number {
    return this.#body.readUInt16BE(this.#advance(2));
  }

  int16(): number {
    return this.#body.readInt16BE(this.#advance(2));
  }

  /** For OIDs, which are unsigned. */
  uint32(): number {
    return this.#body.readUInt32BE(this.#advance(4));
  }

  int32(): number {
    return this.#body.readInt32BE(this.#advance(4));
  }

  /** A string up to its zero byte. */
  string(): string {
    const end = stringEnd(this.#body, this.#position, this.#body.length);
    if (end === -1) throw violation(this.#sender, 'invalid string in message');
    const text = this.#body.toString('utf8', this.#position, end);
    this.#position = end + 1;
    return text;
  }

  /** A view, not a copy. */
  bytes(length: number): Buffer {
    const start = this.#advance(length);
    return this.#body.subarray(start, start + length);
  }

  /** A value after its length; null where the length is -1. */
  value(): Buffer | null {
    const length = this.int32();
    return length === -1 ? null : this.bytes(length);
  }

  /** A list after its 16-bit count. */
  list<T>(item: () => T): T[] {
    const items: T[] = [];
    for (let left = this.uint16(); left > 0; left--) items.push(item());
    return items;
  }

  /** All that is left, as a view. */
  rest(): Buffer {
    return this.bytes(this.#body.length - this.#position);
  }

  end(): void {
    if (this.#position !== this.#body.length) throw violation(this.#sender, 'invalid message format');
  }

  #advance(length: number): number {
    const start = this.#position;
    if (length < 0 || length > this.#body.length - start) throw violation(this.#sender, 'insufficient data left in message');
    this.#position = start + length;
    return start;
  }
}

/** Up to this many bytes, a loop is faster than a call into the runtime. */
const NEAR_BYTES = 64;

/**
 * Finds the zero byte that ends the string beginning at `from`.
 * @returns its offset in `buffer`, or -1 when there is none before `to`
 */
export function stringEnd(buffer: Uint8Array, from: number, to: number): number {
  const limit = Math.min(to, buffer.length);
  const near = Math.min(limit, from + NEAR_BYTES);
  for (let i = from; i < near; i++) if (buffer[i] === 0) return i;
  if (near === limit) return -1;
  const found = buffer.subarray(near, limit).indexOf(0);
  return found < 0 ? -1 : near + found;
}

/** The string beginning at `from`, as Latin-1; without a zero byte, everything before `to`. */
export function latin1String(buffer: Buffer, from: number, to: number): string {
  const end = stringEnd(buffer, from, to);
  return buffer.toString('latin1', from, end < 0 ? to : end);
}
