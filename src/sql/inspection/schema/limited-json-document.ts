import { JsonBuffer } from '../../json/buffer.ts';

const [COMMA, OPEN_ARRAY, CLOSE_ARRAY] = [0x2c, 0x5b, 0x5d];

/**
 * A JSON document that grows by arrays whose items are JSON documents of PostgreSQL's, which are copied as they are. What
 * exceeds the limit is left out.
 */
export class LimitedJsonDocument {
  readonly #out = new JsonBuffer();
  readonly #maxBytes: number;
  readonly #spend: (bytes: number) => boolean;
  #itemsMax = 0;
  #items = 0;
  #isFull = false;

  /** @param spend asked before so many bytes are added: whether there is memory for them */
  constructor(maxBytes: number, spend: (bytes: number) => boolean) {
    this.#maxBytes = maxBytes;
    this.#spend = spend;
  }

  /** Begins an array. Items beyond the maximum are left out. */
  open(before: string, itemsMax: number): void {
    this.#out.text(before);
    this.#out.byte(OPEN_ARRAY);
    this.#itemsMax = itemsMax;
    this.#items = 0;
  }

  /** Adds the JSON document in `source[start..end)`. */
  add(source: Buffer, start = 0, end = source.length): void {
    this.#items += 1;
    if (!this.#mayAdd(end - start)) return;
    if (this.#items > 1) this.#out.byte(COMMA);
    this.#out.copy(source, start, end);
  }

  /** Ends the array. @returns whether it has all items */
  close(): boolean {
    this.#out.byte(CLOSE_ARRAY);
    return !this.#isFull && this.#items <= this.#itemsMax;
  }

  /** Ends the document. */
  end(text: string): Buffer {
    this.#out.text(text);
    return this.#out.whole();
  }

  #mayAdd(bytes: number): boolean {
    if (this.#isFull || this.#items > this.#itemsMax) return false;
    this.#isFull = this.#out.length + bytes > this.#maxBytes || !this.#spend(bytes);
    return !this.#isFull;
  }
}
