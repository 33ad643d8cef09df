import { copyBytes } from '../../runtime/bytes.ts';
import type { JsonBuffer } from './buffer.ts';
import { PART_BYTES, type Parts, type ValueEncoder } from './value-encoder.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const ZERO = 0x30;
const HEX = Buffer.from('0123456789abcdef');

/** 0: no escape; 'u': \u00XX; else the letter after the backslash. */
const ESCAPES = escapes();

function escapes(): Uint8Array {
  const table = new Uint8Array(256);
  table.fill(LETTER_U, 0, 0x20);
  const letters: Readonly<Record<string, string>> = { '\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\' };
  for (const [character, letter] of Object.entries(letters)) table[character.charCodeAt(0)] = letter.charCodeAt(0);
  return table;
}

/** Writes any text as a JSON string. Both the server's text and the JSON are UTF-8. */
export const encodeText: ValueEncoder = Object.assign(
  (out: JsonBuffer, source: Uint8Array, start: number, end: number) => {
    out.byte(QUOTE);
    escapeText(out, source, start, end);
    out.byte(QUOTE);
  },
  { inParts: textInParts },
);

function* textInParts(out: JsonBuffer, source: Uint8Array, start: number, end: number): Parts {
  out.byte(QUOTE);
  for (let at = start; at < end; at += PART_BYTES) {
    escapeText(out, source, at, Math.min(at + PART_BYTES, end));
    yield;
  }
  out.byte(QUOTE);
}

/** Eight bytes are checked together, as two 32-bit words, because a number has no 64-bit operations. */
const STRIDE_BYTES = 8;
/** The length of the longest escape of a byte. */
const ESCAPE_BYTES = 6;

function escapeText(out: JsonBuffer, source: Uint8Array, start: number, end: number): void {
  out.reserve(end - start);
  let at = start;
  while (end - at >= STRIDE_BYTES) {
    at = copyStrides(out, source, at, end);
    if (end - at < STRIDE_BYTES) break;
    escapeBytes(out, source, at, at + STRIDE_BYTES, end);
    at += STRIDE_BYTES;
  }
  escapeBytes(out, source, at, end, end);
}

/**
 * Copies bytes that need no escape. Space for all of them must be reserved.
 * @returns the offset of the first stride with a byte that needs an escape, or of an incomplete stride
 */
function copyStrides(out: JsonBuffer, source: Uint8Array, start: number, end: number): number {
  let at = start;
  let { length } = out;
  const from = out.viewOf(source);
  const to = out.view;
  for (const last = end - STRIDE_BYTES; at <= last; at += STRIDE_BYTES, length += STRIDE_BYTES) {
    const first = from.getInt32(at, true);
    const second = from.getInt32(at + 4, true);
    if ((escapesIn(first) | escapesIn(second)) !== 0) break;
    to.setInt32(length, first, true);
    to.setInt32(length + 4, second, true);
  }
  out.length = length;
  return at;
}

/** Writes byte by byte. Reserves space for the rest of the value too. */
function escapeBytes(out: JsonBuffer, source: Uint8Array, start: number, stop: number, end: number): void {
  out.reserve(ESCAPE_BYTES * (stop - start) + end - stop);
  const { bytes } = out;
  let { length } = out;
  for (let at = start; at < stop; at++) {
    const byte = source[at] ?? 0;
    const letter = ESCAPES[byte] ?? 0;
    if (letter === 0) {
      bytes[length++] = byte;
      continue;
    }
    bytes[length++] = BACKSLASH;
    bytes[length++] = letter;
    if (letter !== LETTER_U) continue;
    bytes[length++] = ZERO;
    bytes[length++] = ZERO;
    bytes[length++] = HEX[byte >> 4] ?? ZERO;
    bytes[length++] = HEX[byte & 15] ?? ZERO;
  }
  out.length = length;
}

/**
 * Checks four bytes at once. A borrow may mark a further byte, but only after one that is marked correctly.
 * @returns 0 if none of them is a control character, a quote or a backslash
 * @see https://graphics.stanford.edu/~seander/bithacks.html#HasLessInWord
 */
function escapesIn(word: number): number {
  const controls = (word - 0x20202020) | 0;
  const quotes = ((word ^ 0x22222222) - 0x01010101) | 0;
  const backslashes = ((word ^ 0x5c5c5c5c) - 0x01010101) | 0;
  return (controls | quotes | backslashes) & ~word & 0x80808080;
}

/** The text is JSON already: json, jsonb, int2, int4. */
export const encodeVerbatim: ValueEncoder = Object.assign(
  (out: JsonBuffer, source: Uint8Array, start: number, end: number) => out.copy(source, start, end),
  { inParts: verbatimInParts },
);

function* verbatimInParts(out: JsonBuffer, source: Uint8Array, start: number, end: number): Parts {
  for (let at = start; at < end; at += PART_BYTES) {
    out.copy(source, at, Math.min(at + PART_BYTES, end));
    yield;
  }
}

/** Text that needs no escapes is written in quotes: int8, numeric, uuid, date. */
export const encodeQuoted: ValueEncoder = (out, source, start, end) => {
  out.reserve(end - start + 2);
  out.bytes[out.length++] = QUOTE;
  copyBytes(source, start, end, out.bytes, out.length);
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
