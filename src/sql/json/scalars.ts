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

/**
 * Any text as a JSON string. The server sends UTF-8, and so do we. Looks at each byte as it copies it, which up to some
 * hundred bytes takes less than to look at all of them first and to have the runtime copy what needs no escape.
 */
export const encodeText: ValueEncoder = (out, source, start, end) => {
  out.reserve(end - start + 2);
  let { bytes, length } = out;
  bytes[length++] = QUOTE;
  for (let at = start; at < end; at++) {
    const byte = source[at] ?? 0;
    const letter = ESCAPES[byte] ?? 0;
    if (letter === 0) {
      bytes[length++] = byte;
      continue;
    }
    out.length = length;
    writeEscape(out, byte, letter, end - at);
    ({ bytes, length } = out);
  }
  bytes[length++] = QUOTE;
  out.length = length;
};

/** @param left how many bytes of the value are still to come, which must find room with the closing quote */
function writeEscape(out: JsonBuffer, byte: number, letter: number, left: number): void {
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
