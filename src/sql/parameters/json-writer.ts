import { isLosslessNumber } from 'lossless-json';
import { TimeSlices } from '../../runtime/event-loop.ts';
import type { JsonValue } from './json-value.ts';

/** Writes a text, and yields now and then, so that others can have their turn. */
export type Writing = Generator<void, string>;

const PIECES_MAX = 1_024;
const CHARACTERS_MAX = 65_536;

/** A text that is put together from many pieces. */
export class JsonText {
  #text = '';
  #pieces: string[] = [];
  /** In pieces. */
  #characters = 0;

  add(piece: string): void {
    this.#pieces.push(piece);
    this.#characters += piece.length;
  }

  /** It is time to let others have their turn. */
  get isDue(): boolean {
    if (this.#pieces.length < PIECES_MAX && this.#characters < CHARACTERS_MAX) return false;
    this.#text += this.#pieces.join('');
    this.#pieces = [];
    this.#characters = 0;
    return true;
  }

  toString(): string {
    return this.#text + this.#pieces.join('');
  }
}

export function atOnce(writing: Writing): string {
  for (;;) {
    const { done, value } = writing.next();
    if (done) return value;
  }
}

export async function inSlices(writing: Writing): Promise<string> {
  const slices = new TimeSlices();
  for (;;) {
    const { done, value } = writing.next();
    if (done) return value;
    await slices.pause();
  }
}

/** As JSON, with the digits of numbers as they were written. */
export function* writeJson(value: JsonValue, text: JsonText): Generator<void, void> {
  if (typeof value !== 'object' || value === null || isLosslessNumber(value)) text.add(scalarJson(value));
  else if (Array.isArray(value)) yield* writeItems(value, text);
  else yield* writeMembers(value as Members, text);
}

type Members = { readonly [name: string]: JsonValue };

function* writeItems(items: readonly JsonValue[], text: JsonText): Generator<void, void> {
  text.add('[');
  for (let at = 0; at < items.length; at += 1) {
    const item = items[at] as JsonValue;
    if (at > 0) text.add(',');
    if (typeof item === 'object' && item !== null) yield* writeJson(item, text);
    else text.add(scalarJson(item));
    if (text.isDue) yield;
  }
  text.add(']');
}

function* writeMembers(members: Members, text: JsonText): Generator<void, void> {
  let mark = '{';
  // Of many members, their names alone are told in a third of the time.
  for (const name of Object.keys(members)) {
    text.add(`${mark}${JSON.stringify(name)}:`);
    yield* writeJson(members[name] as JsonValue, text);
    if (text.isDue) yield;
    mark = ',';
  }
  text.add(mark === '{' ? '{}' : '}');
}

function scalarJson(value: JsonValue): string {
  return isLosslessNumber(value) ? value.toString() : JSON.stringify(value);
}
