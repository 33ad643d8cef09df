import type { JsonBuffer } from './buffer.ts';
import { encodeFloat, encodeText, encodeVerbatim } from './scalars.ts';
import { PART_BYTES, type Parts, partsOf, type ValueEncoder } from './value-encoder.ts';

const [OPEN, CLOSE, QUOTE, BACKSLASH, EQUALS] = [0x7b, 0x7d, 0x22, 0x5c, 0x3d];
const [LEFT_BRACKET, RIGHT_BRACKET, COMMA] = [0x5b, 0x5d, 0x2c];
const NULL = Buffer.from('null');

/**
 * Turns array literals into JSON arrays, element by element. Bounds before the braces (`[2:3]={a,b}`) are left out:
 * JSON arrays have none.
 * @param delimiter between elements: a comma for every type but box
 * @see https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
 */
export function arrayEncoder(element: ValueEncoder, delimiter = ','): ValueEncoder {
  const literal = new ArrayLiteral(element, delimiter.charCodeAt(0));
  return Object.assign((out: JsonBuffer, source: Uint8Array, start: number, end: number) => literal.write(out, source, start, end), {
    inParts: (out: JsonBuffer, source: Uint8Array, start: number, end: number) => literal.writeInParts(out, source, start, end),
  });
}

/** Reads the literals of one array type. */
class ArrayLiteral {
  readonly #element: ValueEncoder;
  readonly #separator: number;
  readonly #hasNumbers: boolean;

  constructor(element: ValueEncoder, separator: number) {
    this.#element = element;
    this.#separator = separator;
    this.#hasNumbers = separator === COMMA && (element === encodeVerbatim || element === encodeFloat);
  }

  write(out: JsonBuffer, source: Uint8Array, start: number, end: number): void {
    const at = skipBounds(source, start, end);
    if (source[at] === OPEN) this.#writeElements(out, source, at, end, end, Number.POSITIVE_INFINITY);
    else encodeText(out, source, start, end);
  }

  *writeInParts(out: JsonBuffer, source: Uint8Array, start: number, end: number): Parts {
    let at = skipBounds(source, start, end);
    if (source[at] !== OPEN) {
      yield* partsOf(encodeText, out, source, start, end);
      return;
    }
    while (at < end) {
      const next = this.#writeElements(out, source, at, Math.min(at + PART_BYTES, end), end, PART_BYTES);
      at = next > at ? next : yield* this.#writeLong(out, source, at, end);
      yield;
    }
  }

  /**
   * @param until no element that begins at or after this offset is written
   * @param longest an element that is longer is not written
   * @returns the offset to continue at, after the last written element
   */
  #writeElements(out: JsonBuffer, source: Uint8Array, start: number, until: number, end: number, longest: number): number {
    const separator = this.#separator;
    let at = start;
    while (at < until) {
      const byte = source[at] ?? 0;
      if (byte === OPEN) out.byte(LEFT_BRACKET);
      else if (byte === CLOSE) out.byte(RIGHT_BRACKET);
      else if (byte === separator) out.byte(COMMA);
      else {
        const numbersEnd = this.#hasNumbers ? copyNumbers(out, source, at, until) : at;
        const stop = numbersEnd > at ? numbersEnd : this.#writeElement(out, source, at, end, longest);
        if (stop === at) return at;
        at = stop;
        continue;
      }
      at += 1;
    }
    return at;
  }

  /** @returns the offset after the element; its own offset, if it is too long */
  #writeElement(out: JsonBuffer, source: Uint8Array, at: number, end: number, longest: number): number {
    const limit = Math.min(end, at + longest);
    if (source[at] === QUOTE) {
      const close = endOfQuoted(source, at + 1, limit);
      if (close >= limit && limit < end) return at;
      this.#element(out, source, at + 1, unescaped(source, at + 1, Math.min(close, end)));
      return close + 1;
    }
    const stop = this.#endOfPlain(source, at, limit);
    if (stop === limit && limit < end) return at;
    if (isNull(source, at, stop)) out.copy(NULL);
    else this.#element(out, source, at, stop);
    return stop;
  }

  /** @returns where the element ends */
  *#writeLong(out: JsonBuffer, source: Uint8Array, start: number, end: number): Generator<void, number> {
    const isQuoted = source[start] === QUOTE;
    const from = isQuoted ? start + 1 : start;
    let at = from;
    let to = from;
    for (let limit = from; at >= limit && at < end; yield) {
      limit = Math.min(at + PART_BYTES, end);
      const stop = isQuoted ? endOfQuoted(source, at, limit) : this.#endOfPlain(source, at, limit);
      to = isQuoted ? moveUnescaped(source, at, Math.min(stop, end), to) : stop;
      at = stop;
    }
    yield* partsOf(this.#element, out, source, from, to);
    return isQuoted ? at + 1 : at;
  }

  #endOfPlain(source: Uint8Array, start: number, limit: number): number {
    const separator = this.#separator;
    let at = start;
    while (at < limit && source[at] !== separator && source[at] !== CLOSE) at += 1;
    return at;
  }
}

function skipBounds(source: Uint8Array, start: number, end: number): number {
  if (source[start] !== LEFT_BRACKET) return start;
  const equals = source.indexOf(EQUALS, start);
  return equals < 0 || equals >= end ? start : equals + 1;
}

/** @returns the offset of the closing quote; if there is none before the limit, the limit or an offset after it */
function endOfQuoted(source: Uint8Array, start: number, limit: number): number {
  let at = start;
  while (at < limit && source[at] !== QUOTE) at += source[at] === BACKSLASH ? 2 : 1;
  return at;
}

/** NULL is not quoted; the string 'NULL' is. */
function isNull(source: Uint8Array, start: number, end: number): boolean {
  return end - start === 4 && isLetter(source, start, 0x6e) && isLetter(source, start + 1, 0x75) && isLL(source, start + 2);
}

function isLL(source: Uint8Array, at: number): boolean {
  return isLetter(source, at, 0x6c) && isLetter(source, at + 1, 0x6c);
}

/** @param lower the code of the lower-case letter */
function isLetter(source: Uint8Array, at: number, lower: number): boolean {
  return ((source[at] ?? 0) | 0x20) === lower;
}

/** Removes the backslashes of an element, in place. @returns its new end */
function unescaped(source: Uint8Array, start: number, end: number): number {
  let at = start;
  while (at < end && source[at] !== BACKSLASH) at += 1;
  return moveUnescaped(source, at, end, at);
}

/** A backslash makes the next character literal. @param to the offset to write to @returns the offset after the written bytes */
function moveUnescaped(source: Uint8Array, start: number, end: number, to: number): number {
  let length = to;
  for (let at = start; at < end; at++) {
    if (source[at] === BACKSLASH) at += 1;
    source[length++] = source[at] ?? 0;
  }
  return length;
}

/** Digits, signs, points and exponents, which are the same in JSON. */
const NUMERIC = new Uint8Array(256);
for (const character of '0123456789+-.eE') NUMERIC[character.charCodeAt(0)] = 1;

/**
 * Copies numbers together with the commas between them.
 * @returns the offset after the last complete number, or after its comma
 */
function copyNumbers(out: JsonBuffer, source: Uint8Array, start: number, until: number): number {
  out.reserve(until - start);
  const { bytes, length } = out;
  const shift = length - start;
  let whole = start;
  let at = start;
  for (; at < until; at += 1) {
    const byte = source[at] ?? 0;
    bytes[at + shift] = byte;
    if (byte === COMMA) whole = at + 1;
    else if (NUMERIC[byte] !== 1) break;
  }
  if (source[at] === CLOSE || source[at] === COMMA) whole = at;
  out.length = whole + shift;
  return whole;
}
