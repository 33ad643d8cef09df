/** The replacement of a token, or of a part of one. Offsets count UTF-16 units of a string, or bytes of a Buffer. */
export interface Edit {
  readonly start: number;
  readonly end: number;
  /** For a Buffer, its bytes decoded as Latin-1. */
  readonly text: string;
  /** The position in the original text as PostgreSQL counts it: in characters, from 1. */
  readonly position: number;
  /** The number of characters by which the previous edits make the text longer. */
  readonly growth: number;
  /** The numbers of characters that the edit removes and inserts. */
  readonly removed: number;
  readonly inserted: number;
}

/** Edits in the order of the text, not overlapping. */
export interface Edits extends Iterable<Edit> {
  readonly length: number;
  at(index: number): Edit | undefined;
}

/** Of a text that stays as it is. */
export const NO_EDITS: Edits = [];

export function applyEdits(text: string, edits: Edits): string {
  let edited = '';
  let at = 0;
  for (const edit of edits) {
    edited += text.slice(at, edit.start) + edit.text;
    at = edit.end;
  }
  return edited + text.slice(at);
}

/** As {@link applyEdits}, on bytes. Yields at each edit, so that the caller can pause; returns the edited copy. */
export function* applyEditsToBytes(bytes: Buffer, edits: Edits): Generator<void, Buffer, void> {
  let length = bytes.length;
  for (const { start, end, text } of edits) {
    length += text.length - (end - start);
    yield;
  }
  const edited = Buffer.allocUnsafe(length);
  let from = 0;
  let to = 0;
  for (const edit of edits) {
    to += bytes.copy(edited, to, from, edit.start);
    to += edited.write(edit.text, to, 'latin1');
    from = edit.end;
    yield;
  }
  bytes.copy(edited, to, from);
  return edited;
}

/**
 * The position in the original text for a `position` in the rewritten text, as an error reports it. Both count characters from 1,
 * as the P field does. For a position inside a replacement, the result is inside the replaced token.
 */
export function originalPosition(edits: Edits, position: number): number {
  const edit = lastBefore(edits, (each) => each.position + each.growth <= position);
  if (edit === undefined) return position;
  const into = position - (edit.position + edit.growth);
  if (into < edit.inserted) return edit.position + Math.min(into, Math.max(edit.removed - 1, 0));
  return position - (edit.growth + edit.inserted - edit.removed);
}

/** The position in the rewritten text for a `position` in the original one: the reverse of {@link originalPosition}. */
export function rewrittenPosition(edits: Edits, position: number): number {
  const edit = lastBefore(edits, (each) => each.position <= position);
  if (edit === undefined) return position;
  const into = position - edit.position;
  if (into < edit.removed) return edit.position + edit.growth + Math.min(into, Math.max(edit.inserted - 1, 0));
  return position + edit.growth + edit.inserted - edit.removed;
}

/** @param isBefore is true for the first edits, and false for all that follow them */
function lastBefore(edits: Edits, isBefore: (edit: Edit) => boolean): Edit | undefined {
  let from = 0;
  let to = edits.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (isBefore(edits.at(middle) as Edit)) from = middle + 1;
    else to = middle;
  }
  return from === 0 ? undefined : edits.at(from - 1);
}

/** The sizes of the blocks, in edits, are 1, 2, 4 and so on up to this one. */
const BLOCK_BITS = 10;
const BLOCK_MAX = 2 ** BLOCK_BITS;
/** A block stores for each edit `start`, `end`, `position`, `growth`, `removed`, `inserted`, and the index of its text. */
const NUMBERS = 7;

/**
 * Collects edits from left to right and counts characters on the way. They are kept as numbers, because a text of 15 MB may need
 * more than a million of them.
 */
export class EditList implements Edits {
  length = 0;
  readonly #text: string;
  readonly #bytes: boolean;
  readonly #blocks: Int32Array[] = [];
  /** The inserted texts. Consecutive edits mostly share one. */
  readonly #texts: string[] = [];
  #offset = 0;
  #position = 1;

  /** @param bytes whether the text is bytes, decoded as Latin-1 */
  constructor(text: string, bytes: boolean) {
    this.#text = text;
    this.#bytes = bytes;
  }

  /** Adds an edit, which must not begin before the end of the previous one. @returns its index */
  add(start: number, end: number, text: string): number {
    this.#position += this.#characters(this.#text, this.#offset, start);
    this.#offset = start;
    const removed = this.#characters(this.#text, start, end);
    const inserted = this.#characters(text, 0, text.length);
    this.#push({ start, end, text, position: this.#position, removed, inserted });
    return this.length - 1;
  }

  #push({ start, end, text, position, removed, inserted }: Omit<Edit, 'growth'>): void {
    const before = this.at(this.length - 1);
    const growth = before === undefined ? 0 : before.growth + before.inserted - before.removed;
    if (this.#texts.at(-1) !== text) this.#texts.push(text);
    const { block, offset } = placeOf(this.length);
    this.#blocks[block] ??= new Int32Array(NUMBERS * Math.min(BLOCK_MAX, this.length + 1));
    this.#blocks[block].set([start, end, position, growth, removed, inserted, this.#texts.length - 1], offset);
    this.length += 1;
  }

  at(index: number): Edit | undefined {
    if (index < 0 || index >= this.length) return undefined;
    const { block, offset } = placeOf(index);
    const numbers = this.#blocks[block] as Int32Array;
    const number = (which: number) => numbers[offset + which] as number;
    return {
      start: number(0),
      end: number(1),
      position: number(2),
      growth: number(3),
      removed: number(4),
      inserted: number(5),
      text: this.#texts[number(6)] as string,
    };
  }

  *[Symbol.iterator](): Generator<Edit, void, void> {
    for (let i = 0; i < this.length; i += 1) yield this.at(i) as Edit;
  }

  /** Removes some of the latest edits. @param indexes as returned by {@link add} */
  remove(indexes: ReadonlySet<number>): void {
    const kept: Edit[] = [];
    for (let left = indexes.size; left > 0 && this.length > 0; ) {
      const last = this.at(this.length - 1) as Edit;
      this.length -= 1;
      if (indexes.has(this.length)) left -= 1;
      else kept.push(last);
    }
    for (const edit of kept.reverse()) this.#push(edit);
  }

  /** Counts characters: the continuation bytes of UTF-8 and the low surrogates of UTF-16 do not count. */
  #characters(text: string, start: number, end: number): number {
    const low = this.#bytes ? 0x80 : 0xdc00;
    const high = this.#bytes ? 0xbf : 0xdfff;
    let count = end - start;
    for (let at = start; at < end; at++) {
      const code = text.charCodeAt(at);
      if (code >= low && code <= high) count--;
    }
    return count;
  }
}

/** The block of an edit, and the offset of its numbers there. */
function placeOf(index: number): { readonly block: number; readonly offset: number } {
  const block = index + 1 < BLOCK_MAX ? 31 - Math.clz32(index + 1) : BLOCK_BITS + ((index + 1 - BLOCK_MAX) >> BLOCK_BITS);
  const first = index + 1 < BLOCK_MAX ? (1 << block) - 1 : BLOCK_MAX * (block - BLOCK_BITS + 1) - 1;
  return { block, offset: NUMBERS * (index - first) };
}
