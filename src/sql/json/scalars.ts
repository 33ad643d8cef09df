import type { JsonBuffer } from './buffer.ts';
import { copyBytes } from './buffer.ts';

/**
 * Writes one value, given as the bytes of its Postgres text, as JSON. NULL never gets here.
 * @param end exclusive
 */
export type ValueEncoder = (out: JsonBuffer, source: Uint8Array, start: number, end: number) => void;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const ZERO = 0x30;
const HEX = Buffer.from('0123456789abcdef');

/** 0: stands for itself; 'u': \u00XX; else the letter after the backslash. */
const ESCAPES = escapes();

function escapes(): Uint8Array {
  const table = new Uint8Array(256);
  table.fill(LETTER_U, 0, 0x20);
  const letters: Readonly<Record<string, string>> = { '\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\' };
  for (const [character, letter] of Object.entries(letters)) table[character.charCodeAt(0)] = letter.charCodeAt(0);
  return table;
}

/** Any text as a JSON string. The server sends UTF-8, and so do we. */
export const encodeText: ValueEncoder = (out, source, start, end) => {
  out.reserve(end - start + 2);
  out.bytes[out.length++] = QUOTE;
  for (let at = copyPlain(out, source, start, end); at < end; at = copyPlain(out, source, at + 1, end)) {
    writeEscape(out, source[at] ?? 0, end - at);
  }
  out.bytes[out.length++] = QUOTE;
};

const STRIDE_BYTES = 8;

/**
 * Copies what stands for itself, eight bytes at a time for as long as it can: two words of four, for eight are no number.
 * There must be room for all of it.
 * @returns where the first byte stands that needs an escape, or the end
 */
function copyPlain(out: JsonBuffer, source: Uint8Array, start: number, end: number): number {
  let at = start;
  let { length } = out;
  if (end - start >= STRIDE_BYTES) {
    const from = out.viewOf(source);
    const to = out.view;
    for (const last = end - STRIDE_BYTES; at <= last; at += STRIDE_BYTES, length += STRIDE_BYTES) {
      const first = from.getInt32(at, true);
      const second = from.getInt32(at + 4, true);
      if ((escapesIn(first) | escapesIn(second)) !== 0) break;
      to.setInt32(length, first, true);
      to.setInt32(length + 4, second, true);
    }
  }
  const { bytes } = out;
  for (; at < end; at++) {
    const byte = source[at] ?? 0;
    if (ESCAPES[byte] !== 0) break;
    bytes[length++] = byte;
  }
  out.length = length;
  return at;
}

/**
 * Looks at four bytes at once. A borrow may mark a byte too many, but only behind one that is marked rightly.
 * @returns 0 if none of them is a control character, a quote or a backslash
 * @see https://graphics.stanford.edu/~seander/bithacks.html#HasLessInWord
 */
function escapesIn(word: number): number {
  const controls = (word - 0x20202020) | 0;
  const quotes = ((word ^ 0x22222222) - 0x01010101) | 0;
  const backslashes = ((word ^ 0x5c5c5c5c) - 0x01010101) | 0;
  return (controls | quotes | backslashes) & ~word & 0x80808080;
}

/** @param left how many bytes of the value are still to come, which must find room with the closing quote */
function writeEscape(out: JsonBuffer, byte: number, left: number): void {
  const letter = ESCAPES[byte] ?? 0;
  out.reserve(6 + left + 1);
  out.bytes[out.length++] = BACKSLASH;
  out.bytes[out.length++] = letter;
  if (letter !== LETTER_U) return;
  out.bytes[out.length++] = ZERO;
  out.bytes[out.length++] = ZERO;
  out.bytes[out.length++] = HEX[byte >> 4] ?? ZERO;
  out.bytes[out.length++] = HEX[byte & 15] ?? ZERO;
}

/** The text is JSON already: json, jsonb, int2, int4. */
export const encodeVerbatim: ValueEncoder = (out, source, start, end) => {
  out.copy(source, start, end);
};

/** Text that needs no escapes, in quotes: int8, numeric, uuid, date. */
export const encodeQuoted: ValueEncoder = (out, source, start, end) => {
  out.reserve(end - start + 2);
  out.bytes[out.length++] = QUOTE;
  copyBytes(out.bytes, out.length, source, start, end);
  out.length += end - start;
  out.bytes[out.length++] = QUOTE;
};

const TRUE = Buffer.from('true');
const FALSE = Buffer.from('false');
const LETTER_T = 0x74;

export const encodeBoolean: ValueEncoder = (out, source, start) => {
  out.copy(source[start] === LETTER_T ? TRUE : FALSE);
};

const LETTER_N = 0x4e;
const LETTER_I = 0x49;

/** JSON has no NaN, Infinity and -Infinity: those become strings. */
export const encodeFloat: ValueEncoder = (out, source, start, end) => {
  const isWord = source[start] === LETTER_N || source[start] === LETTER_I || source[start + 1] === LETTER_I;
  if (isWord) encodeQuoted(out, source, start, end);
  else out.copy(source, start, end);
};
