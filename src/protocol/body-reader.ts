import { stringEnd } from './null-terminated-strings.ts';
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
