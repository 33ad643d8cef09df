import type { FieldDescription } from '../protocol/backend.ts';
import { copyBytes } from '../runtime/bytes.ts';
import { type JsonBuffer, type Words, wordsOf } from './json-buffer.ts';

/**
 * Writes one value as JSON, given the bytes of its Postgres text. It is not called for NULL.
 * @param source its bytes between start and end may be overwritten
 * @param end exclusive
 */
export interface ValueEncoder {
  (out: JsonBuffer, source: Uint8Array, start: number, end: number): void;
  /** The same in parts, for types whose values may be large. */
  readonly inParts?: (out: JsonBuffer, source: Uint8Array, start: number, end: number) => Parts;
}

/** Yields after each part, so that the event loop can handle other events and the written bytes can be sent. */
export type Parts = Generator<void, void>;

/** The size of a part of a value, which takes some tenths of a millisecond to write. */
export const PART_BYTES = 32_768;

/** In parts, if that is more than one. */
function* partsOf(encode: ValueEncoder, out: JsonBuffer, source: Uint8Array, start: number, end: number): Parts {
  if (encode.inParts !== undefined && end - start > PART_BYTES) yield* encode.inParts(out, source, start, end);
  else encode(out, source, start, end);
}

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
const encodeQuoted: ValueEncoder = (out, source, start, end) => {
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

const [OPEN, CLOSE, EQUALS] = [0x7b, 0x7d, 0x3d];
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

/*
 * Times have DateStyle ISO (see output-settings.ts): `2024-01-02 03:04:05.123456+05:30 BC`, with up to six digits of
 * a second, an offset of hours, minutes and, for local mean times, seconds. Years have four digits or more. Other
 * values, such as `infinity`, are passed on as Postgres wrote them.
 * https://www.postgresql.org/docs/current/datatype-datetime.html#DATATYPE-DATETIME-OUTPUT
 */

/** RFC 3339 in UTC with microseconds: `"2024-01-02T03:04:05.123456Z"`. Beyond RFC 3339: longer years, and ` BC` at the end. */
export const encodeTimestamptz: ValueEncoder = (out, source, start, end) => {
  if (isUtc(source, end) && copyCommonTimestamp(out, source, start, end - UTC.length, Z)) return;
  const time = readTimestamp(source, start, end);
  if (time?.offsetS === undefined) encodeText(out, source, start, end);
  else out.text(format(shiftToUtc(time, time.offsetS), 'Z'));
};

/** As timestamptz, without a zone: `"2024-01-02T03:04:05.123456"`. */
export const encodeTimestamp: ValueEncoder = (out, source, start, end) => {
  if (copyCommonTimestamp(out, source, start, end, undefined)) return;
  const time = readTimestamp(source, start, end);
  if (time === undefined || time.offsetS !== undefined) encodeText(out, source, start, end);
  else out.text(format(time, ''));
};

const [DASH, COLON, SPACE, DOT, C, T, Z] = [0x2d, 0x3a, 0x20, 0x2e, 0x43, 0x54, 0x5a];
const UTC = Buffer.from('+00');
const SECONDS_BYTES = '2024-01-02 03:04:05'.length;
const MICROSECONDS_BYTES = '2024-01-02 03:04:05.123456'.length;

function isUtc(source: Uint8Array, end: number): boolean {
  return source[end - 3] === UTC[0] && source[end - 2] === ZERO && source[end - 1] === ZERO;
}

/** The common case: a year of four digits, AD, no offset. Copied byte by byte, and padded to six digits of a second. */
function copyCommonTimestamp(out: JsonBuffer, source: Uint8Array, start: number, end: number, zone: number | undefined): boolean {
  const length = end - start;
  if (length < SECONDS_BYTES || length > MICROSECONDS_BYTES || (length > SECONDS_BYTES && source[start + SECONDS_BYTES] !== DOT))
    return false;
  if (source[start + 4] !== DASH || source[start + 7] !== DASH || source[start + 10] !== SPACE) return false;
  // A time with ` BC` may be as long as one without and with more digits of a second.
  if (source[start + 13] !== COLON || source[start + 16] !== COLON || source[end - 1] === C) return false;
  out.reserve(MICROSECONDS_BYTES + 3);
  const at = out.length + 1;
  out.bytes[out.length] = QUOTE;
  copyBytes(source, start, end, out.bytes, at);
  out.bytes[at + 10] = T;
  out.bytes[at + SECONDS_BYTES] = DOT;
  for (let digit = at + Math.max(length, SECONDS_BYTES + 1); digit < at + MICROSECONDS_BYTES; digit++) out.bytes[digit] = ZERO;
  out.length = at + MICROSECONDS_BYTES;
  if (zone !== undefined) out.bytes[out.length++] = zone;
  out.bytes[out.length++] = QUOTE;
  return true;
}

interface Timestamp extends CivilDay {
  /** The time of day. */
  readonly second: number;
  readonly microsecond: string;
  /** Seconds east of Greenwich; undefined for a time without a zone. */
  readonly offsetS: number | undefined;
}

const LAYOUT = /^(\d{4,})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?( BC)?$/;
const LONGEST_BYTES = 48;

function readTimestamp(source: Uint8Array, start: number, end: number): Timestamp | undefined {
  if (end - start > LONGEST_BYTES) return undefined;
  const parts = LAYOUT.exec(String.fromCharCode(...source.subarray(start, end)));
  if (parts === null) return undefined;
  const [, year, month, day, hour, minute, second, fraction = '', sign, zoneHours, zoneMinutes = 0, zoneSeconds = 0, era] = parts;
  const zoneS = Number(zoneHours) * 3_600 + Number(zoneMinutes) * 60 + Number(zoneSeconds);
  return {
    year: era === undefined ? Number(year) : 1 - Number(year),
    month: Number(month),
    day: Number(day),
    second: Number(hour) * 3_600 + Number(minute) * 60 + Number(second),
    microsecond: fraction.padEnd(6, '0'),
    offsetS: sign === undefined ? undefined : sign === '-' ? -zoneS : zoneS,
  };
}

const DAY_S = 86_400;

function shiftToUtc(time: Timestamp, offsetS: number): Timestamp {
  const second = time.second - offsetS;
  const days = Math.floor(second / DAY_S);
  return { ...time, ...civilFromDays(daysFromCivil(time) + days), second: second - days * DAY_S };
}

function format({ year, month, day, second, microsecond }: Timestamp, zone: string): string {
  const shownYear = String(year > 0 ? year : 1 - year).padStart(4, '0');
  const clock = [second / 3_600, (second / 60) % 60, second % 60].map((part) => twoDigits(Math.floor(part))).join(':');
  return `"${shownYear}-${twoDigits(month)}-${twoDigits(day)}T${clock}.${microsecond}${zone}${year > 0 ? '' : ' BC'}"`;
}

function twoDigits(value: number): string {
  return String(value).padStart(2, '0');
}

/** A day of the proleptic Gregorian calendar; year 0 is 1 BC. */
interface CivilDay {
  readonly year: number;
  /** 1 to 12. */
  readonly month: number;
  readonly day: number;
}

/**
 * Days since 0000-03-01. Years are counted from March, so that a leap day is the last of its year.
 * JavaScript's own Date ends 18,000 years before Postgres' timestamps do.
 * @see https://howardhinnant.github.io/date_algorithms.html
 */
function daysFromCivil({ year, month, day }: CivilDay): number {
  const marchYear = month > 2 ? year : year - 1;
  const era = Math.floor(marchYear / 400);
  const yearOfEra = marchYear - era * 400;
  const dayOfYear = Math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1;
  return era * 146_097 + yearOfEra * 365 + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear;
}

function civilFromDays(days: number): CivilDay {
  const era = Math.floor(days / 146_097);
  const dayOfEra = days - era * 146_097;
  const yearOfEra = Math.floor(
    (dayOfEra - Math.floor(dayOfEra / 1_460) + Math.floor(dayOfEra / 36_524) - Math.floor(dayOfEra / 146_096)) / 365,
  );
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const marchMonth = Math.floor((5 * dayOfYear + 2) / 153);
  const month = marchMonth < 10 ? marchMonth + 3 : marchMonth - 9;
  return {
    year: yearOfEra + era * 400 + (month <= 2 ? 1 : 0),
    month,
    day: dayOfYear - Math.floor((153 * marchMonth + 2) / 5) + 1,
  };
}

/** By OID. int8, numeric and money are strings always: a type must not depend on the value. All other types: their text. */
const SCALARS: ReadonlyMap<number, ValueEncoder> = new Map([
  [16, encodeBoolean],
  [21, encodeVerbatim], // int2
  [23, encodeVerbatim], // int4
  [700, encodeFloat],
  [701, encodeFloat],
  [114, encodeVerbatim], // json
  [3802, encodeVerbatim], // jsonb
  [20, encodeQuoted], // int8
  [1700, encodeQuoted], // numeric
  [2950, encodeQuoted], // uuid
  [1114, encodeTimestamp],
  [1184, encodeTimestamptz],
]);

/** Returns the encoder for values of a type. Called once for each column of a result, not for each value. */
type EncoderChoice = (type: PostgresType) => ValueEncoder;

/** @param scalars encoders by OID; other types become strings, and arrays become JSON arrays of their encoded elements */
export function encodersBy(scalars: ReadonlyMap<number, ValueEncoder>): EncoderChoice {
  const encoderFor = ({ element, scalarOid }: PostgresType): ValueEncoder =>
    element ? arrayEncoder(encoderFor(element), element.delimiter) : (scalars.get(scalarOid) ?? encodeText);
  return encoderFor;
}

const encoderFor = encodersBy(SCALARS);

/** Larger rows are written in parts, between which the event loop handles other events. */
export const LARGE_ROW_BYTES = 131_072;

/** A column of a result. */
export interface Field extends FieldDescription {
  readonly type: PostgresType;
}

/**
 * Writes one row.
 * @param source holds the body of a DataRow message
 * @param start offset of that body
 */
export interface RowEncoder {
  (out: JsonBuffer, source: Buffer, start: number): void;
  /** The same in parts, for large rows. */
  readonly inParts: (out: JsonBuffer, source: Buffer, start: number) => Parts;
}

const [OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY] = [0x7b, 0x7d, 0x5b, 0x5d];

/** Rows as objects. Of columns with the same name only the last is kept; {@link repeatedNames} returns these names. */
export function objectRows(fields: readonly Field[], encoders: EncoderChoice = encoderFor): RowEncoder {
  const lastOf = new Map(fields.map(({ name }, index) => [name, index]));
  let separator = '';
  const keys = fields.map(({ name }, index) => {
    if (lastOf.get(name) !== index) return undefined;
    const key = wordsOf(Buffer.from(`${separator}${JSON.stringify(name)}:`));
    separator = ',';
    return key;
  });
  return rowEncoder(columns(fields, keys, encoders), OPEN_OBJECT, CLOSE_OBJECT);
}

/** Rows as arrays, with every column. */
export function arrayRows(fields: readonly Field[], encoders: EncoderChoice = encoderFor): RowEncoder {
  const keys = fields.map((_, index) => wordsOf(index === 0 ? Buffer.alloc(0) : Buffer.of(COMMA)));
  return rowEncoder(columns(fields, keys, encoders), OPEN_ARRAY, CLOSE_ARRAY);
}

export function repeatedNames(fields: readonly Field[]): readonly string[] {
  const names = fields.map(({ name }) => name);
  return [...new Set(names.filter((name, index) => names.indexOf(name) !== index))];
}

interface Column {
  /** The bytes before each value; undefined: the column is left out. */
  readonly key: Words | undefined;
  readonly encode: ValueEncoder;
}

function columns(fields: readonly Field[], keys: readonly (Words | undefined)[], encoders: EncoderChoice): readonly Column[] {
  return fields.map(({ type }, index) => ({ key: keys[index], encode: encoders(type) }));
}

function rowEncoder(columns: readonly Column[], open: number, close: number): RowEncoder {
  const whole = (out: JsonBuffer, source: Buffer, start: number) => {
    const lengths = out.viewOf(source);
    let at = start + 2;
    out.byte(open);
    for (const { key, encode } of columns) {
      const length = lengths.getInt32(at);
      at += 4;
      if (key !== undefined) {
        out.words(key);
        if (length < 0) out.copy(NULL);
        else encode(out, source, at, at + length);
      }
      if (length > 0) at += length;
    }
    out.byte(close);
  };
  return Object.assign(whole, {
    *inParts(out: JsonBuffer, source: Buffer, start: number): Parts {
      let at = start + 2;
      let due = at + PART_BYTES;
      out.byte(open);
      for (const { key, encode } of columns) {
        const length = source.readInt32BE(at);
        at += 4;
        if (key !== undefined) {
          out.words(key);
          if (length < 0) out.copy(NULL);
          else yield* partsOf(encode, out, source, at, at + length);
        }
        if (length > 0) at += length;
        if (at < due) continue;
        due = at + PART_BYTES;
        yield;
      }
      out.byte(close);
    },
  });
}

/**
 * What must be known of a data type to read its text form. `scalarOid` is the type that determines the text form: for a domain its
 * base type, for most types the type itself.
 */
export interface PostgresType {
  readonly oid: number;
  /** `int4`, `timestamptz`, `text[]`. */
  readonly name: string;
  readonly scalarOid: number;
  /** The element type of an array. */
  readonly element?: PostgresType;
  /** The delimiter between such values in an array literal. */
  readonly delimiter: string;
}

/** Name, OID and OID of the array type: fixed for all versions (src/include/catalog/pg_type.dat). */
const TABLE = `
bool 16 1000, bytea 17 1001, char 18 1002, name 19 1003, int8 20 1016, int2 21 1005, int2vector 22 1006, int4 23 1007, regproc 24 1008,
text 25 1009, oid 26 1028, tid 27 1010, xid 28 1011, cid 29 1012, oidvector 30 1013, json 114 199, xml 142 143, pg_node_tree 194 0,
point 600 1017, lseg 601 1018, path 602 1019, box 603 1020, polygon 604 1027, line 628 629, cidr 650 651, float4 700 1021, float8 701 1022,
unknown 705 0, circle 718 719, macaddr8 774 775, money 790 791, macaddr 829 1040, inet 869 1041, aclitem 1033 1034, bpchar 1042 1014,
varchar 1043 1015, date 1082 1182, time 1083 1183, timestamp 1114 1115, timestamptz 1184 1185, interval 1186 1187, timetz 1266 1270,
bit 1560 1561, varbit 1562 1563, numeric 1700 1231, refcursor 1790 2201, regprocedure 2202 2207, regoper 2203 2208, regoperator 2204 2209,
regclass 2205 2210, regtype 2206 2211, record 2249 2287, cstring 2275 1263, anyarray 2277 0, void 2278 0, uuid 2950 2951,
txid_snapshot 2970 2949, pg_lsn 3220 3221, tsvector 3614 3643, tsquery 3615 3645, regconfig 3734 3735, regdictionary 3769 3770,
jsonb 3802 3807, int4range 3904 3905, numrange 3906 3907, tsrange 3908 3909, tstzrange 3910 3911, daterange 3912 3913, int8range 3926 3927,
jsonpath 4072 4073, regnamespace 4089 4090, regrole 4096 4097, regcollation 4191 4192, int4multirange 4451 6150, nummultirange 4532 6151,
tsmultirange 4533 6152, tstzmultirange 4534 6153, datemultirange 4535 6155, int8multirange 4536 6157, pg_snapshot 5038 5039, xid8 5069 271`;

const BOX = 603;

function read(): ReadonlyMap<number, PostgresType> {
  const types = new Map<number, PostgresType>();
  for (const row of TABLE.split(',')) {
    const [name = '', oid, arrayOid] = row.trim().split(' ');
    const element = { oid: Number(oid), name, scalarOid: Number(oid), delimiter: Number(oid) === BOX ? ';' : ',' };
    types.set(element.oid, element);
    if (arrayOid !== '0') types.set(Number(arrayOid), arrayOf(Number(arrayOid), element));
  }
  return types;
}

export function arrayOf(oid: number, element: PostgresType): PostgresType {
  return { oid, name: `${element.name}[]`, scalarOid: oid, element, delimiter: ',' };
}

/** The types that every database has, by OID. */
export const BUILTIN_TYPES = read();

export const JSON_OIDS: ReadonlySet<number> = new Set([114, 3802]);
