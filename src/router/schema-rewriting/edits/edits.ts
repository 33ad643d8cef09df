/** One token, or part of one, replaced. Offsets count what the text is made of: UTF-16 units of a string, bytes of a Buffer. */
export interface Edit {
  readonly start: number;
  readonly end: number;
  /** For a Buffer: bytes, as latin1. */
  readonly text: string;
  /** Where the edit stands as Postgres counts: in characters, from 1, in the original text. */
  readonly position: number;
  /** Characters taken out, and put in. */
  readonly removed: number;
  readonly inserted: number;
}

/** @param edits in the order of the text, not overlapping */
export function applyEdits(text: string, edits: readonly Edit[]): string {
  let edited = '';
  let at = 0;
  for (const edit of edits) {
    edited += text.slice(at, edit.start) + edit.text;
    at = edit.end;
  }
  return edited + text.slice(at);
}

/** As {@link applyEdits}, on bytes. Yields after each edit, to be continued; returns the edited copy. */
export function* applyEditsToBytes(bytes: Buffer, edits: readonly Edit[]): Generator<void, Buffer, void> {
  const edited = Buffer.allocUnsafe(edits.reduce((length, { start, end, text }) => length + text.length - (end - start), bytes.length));
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
 * Where in the original text something is that Postgres reports at `position` of the rewritten text. Both count
 * characters from 1, as the P field of an error does; inside a replaced token, the result is inside the original one.
 */
export function originalPosition(edits: readonly Edit[], position: number): number {
  let growth = 0;
  for (const edit of edits) {
    const into = position - (edit.position + growth);
    if (into < 0) break;
    if (into < edit.inserted) return edit.position + Math.min(into, Math.max(edit.removed - 1, 0));
    growth += edit.inserted - edit.removed;
  }
  return position - growth;
}

/** Where something at `position` of the original text is in the rewritten one: {@link originalPosition} the other way. */
export function rewrittenPosition(edits: readonly Edit[], position: number): number {
  let growth = 0;
  for (const edit of edits) {
    const into = position - edit.position;
    if (into < 0) break;
    if (into < edit.removed) return edit.position + growth + Math.min(into, Math.max(edit.inserted - 1, 0));
    growth += edit.inserted - edit.removed;
  }
  return position + growth;
}

/** Collects edits from left to right and counts characters on the way. */
export class EditList {
  readonly edits: Edit[] = [];
  readonly #text: string;
  readonly #bytes: boolean;
  #offset = 0;
  #position = 1;

  /** @param bytes the text is bytes, decoded as latin1 */
  constructor(text: string, bytes: boolean) {
    this.#text = text;
    this.#bytes = bytes;
  }

  /** Not before the end of the last one added. */
  add(start: number, end: number, text: string): Edit {
    this.#position += this.#characters(this.#text, this.#offset, start);
    this.#offset = start;
    const removed = this.#characters(this.#text, start, end);
    const edit = { start, end, text, position: this.#position, removed, inserted: this.#characters(text, 0, text.length) };
    this.edits.push(edit);
    return edit;
  }

  /** Takes some of the latest edits back. */
  remove(edits: ReadonlySet<Edit>): void {
    const kept: Edit[] = [];
    for (let left = edits.size; left > 0; ) {
      const edit = this.edits.pop();
      if (edit === undefined) break;
      if (edits.has(edit)) left--;
      else kept.push(edit);
    }
    for (const edit of kept.reverse()) this.edits.push(edit);
  }

  /** Bytes that continue a UTF-8 character, and the second halves of surrogate pairs, are no characters of their own. */
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
