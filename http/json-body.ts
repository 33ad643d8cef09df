import { isUtf8 } from 'node:buffer';
import { randomBytes } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { isLosslessNumber, LosslessNumber } from 'lossless-json';
import { ServiceError } from '../src/errors.ts';
import type { DisconnectSignal } from '../src/router/lease.ts';
import { TimeSlices } from '../src/runtime/event-loop.ts';
import { changesAsDouble, keepSource } from '../src/sql/parameters.ts';
import { takeIdempotencyFingerprint } from './idempotency-key.ts';
import type { RequestContext } from './request-context.ts';

/** Bodies up to this size are parsed at once, which takes a few milliseconds at most. */
const AT_ONCE_MAX_BYTES = 256 * 1_024;
/** How much is parsed between two looks at the clock. */
const TOKENS_AT_ONCE = 1_024;

/** Accepts only `application/json`; for other types Fastify answers 415. */
export function acceptJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    try {
      request.call.traffic.bytesIn = body.length;
      takeIdempotencyFingerprint(request, body);
      refuseEncodings(request.headers['content-type'], request.headers['content-encoding']);
      // Some clients send this type with every request. Where a body is needed, validation reports that it is missing.
      if (body.length === 0) done(null, undefined);
      else readJson(body, request.call, done);
    } catch (error) {
      done(error instanceof Error ? error : new Error('the body could not be read', { cause: error }));
    }
  });
}

/** @see https://www.rfc-editor.org/rfc/rfc8259#section-8.1 */
export function refuseEncodings(contentType = '', contentEncoding = 'identity'): void {
  if (contentEncoding.toLowerCase() !== 'identity') {
    throw new ServiceError('unsupported_media_type', `a body with Content-Encoding ${contentEncoding.slice(0, 40)} is not accepted`);
  }
  const charset = /;\s*charset\s*=\s*"?([^\s";]+)/i.exec(contentType)?.[1] ?? 'utf-8';
  if (!/^utf-?8$/i.test(charset)) throw new ServiceError('unsupported_media_type', 'JSON must be sent as UTF-8');
}

/**
 * The value of a JSON body, as of {@link parseJson}; a large one is parsed in time slices.
 * @throws ServiceError `invalid_request`
 */
export function readJson(body: Buffer, call: RequestContext, done: (error: Error | null, value?: unknown) => void): void {
  if (body.length <= AT_ONCE_MAX_BYTES) {
    done(null, parseJson(body));
    return;
  }
  const reading = readJsonInSlices(body, call.disconnect);
  call.work = reading;
  reading.then((value) => done(null, value), done);
}

/** @throws ServiceError `invalid_request`, `query_canceled` */
export async function readJsonInSlices(body: Buffer, disconnect?: DisconnectSignal): Promise<unknown> {
  const reader = new JsonReader(body, startOfText(body));
  const slices = new TimeSlices();
  while (!reader.run(TOKENS_AT_ONCE)) {
    await slices.pause();
    if (disconnect?.reason !== undefined) throw disconnect.reason;
  }
  await slices.pause();
  return reader.value;
}

/**
 * The value of a JSON text. Numbers that a double cannot represent exactly, and those in `params` that it would write otherwise (`1.10`,
 * `1e5`), are LosslessNumbers, so that their digits reach Postgres unchanged; all others are plain numbers. The text of arrays and objects
 * in `params` is {@link keepSource kept}.
 * @throws ServiceError `invalid_request`
 */
export function parseJson(body: Buffer): unknown {
  if (body.length === 0) throw new ServiceError('invalid_request', 'the request has no body; a JSON document is expected');
  const { depth, lossy, sources } = scan(body);
  checkDepth(depth);
  const text = body.toString('utf8', startOfText(body));
  let value = parse(text);
  if (/\\u[dD][89a-fA-F]/.test(text)) refuseLoneSurrogates(value);
  if (lossy.length > 0) value = parseWithDigits(body, lossy);
  if (sources.length > 0) keepSources(value, body, sources);
  return value;
}

/** @param sources as in {@link Scan}. A body in which they cannot be told apart has a member twice, and keeps none */
function keepSources(value: unknown, body: Buffer, sources: readonly number[]): void {
  const structures: object[] = [];
  addStructures(value, structures);
  if (2 * structures.length !== sources.length) return;
  // The bytes may be read into again.
  for (const [i, structure] of structures.entries()) keepSource(structure, body.toString('utf8', sources[2 * i], sources[2 * i + 1]));
}

/** Adds the arrays and objects in `params`, in the order of the text. */
function addStructures(value: unknown, structures: object[]): void {
  if (typeof value !== 'object' || value === null) return;
  for (const [name, inner] of Object.entries(value)) {
    if (name !== 'params' || !Array.isArray(inner)) addStructures(inner, structures);
    else for (const one of inner) if (typeof one === 'object' && one !== null && !isLosslessNumber(one)) structures.push(one);
  }
}

interface Scan {
  readonly depth: number;
  /** The offsets of numbers that a double would change: start and end of each, in order. There may be millions. */
  readonly lossy: readonly number[];
  /** The offsets of the arrays and objects that are parameters: start and end of each, in order. */
  readonly sources: readonly number[];
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Scans the bytes once. For text that is no JSON the result is arbitrary; the parser then refuses it. */
function scan(body: Buffer): Scan {
  const lossy: number[] = [];
  const sources: number[] = [];
  let depth = 0;
  let deepest = 0;
  /** The depth within the array of parameters; 0: outside. */
  let params = 0;
  /** Whether the value has the members in the order of the text, and no `params` that is written otherwise. */
  let isClear = true;
  for (let at = 0; at < body.length; at += 1) {
    const byte = body[at] ?? 0;
    if (byte === QUOTE) {
      const end = endOfString(body, at);
      if (params === 0 && body[endOfSpace(body, end + 1)] === COLON) {
        if (end - at === PARAMS.length - 1 && opensParams(body, at)) params = depth + 1;
        else isClear &&= !isDigit(body[at + 1] ?? 0) && !body.subarray(at, end).includes(BACKSLASH);
      }
      at = end;
    } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      if (depth === params && depth > 0) sources.push(at);
      depth += 1;
      if (depth > deepest) deepest = depth;
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      depth -= 1;
      if (depth === params && depth > 0) sources.push(at + 1);
      else if (depth < params) params = 0;
    } else if (byte === 0x2d || isDigit(byte)) {
      const end = endOfNumber(body, at);
      if (end - at > 3 - Math.sign(params)) {
        const literal = body.toString('latin1', at, end);
        if (changesAsDouble(literal) || (params > 0 && isWrittenOtherwise(literal))) lossy.push(at, end);
      }
      at = end - 1;
    }
  }
  return { depth: deepest, lossy, sources: isClear ? sources : [] };
}

const PARAMS = '"params"';

/** Whether the string of that length is `params`, and the name of an array. */
function opensParams(body: Buffer, start: number): boolean {
  if (body.toString('latin1', start, start + PARAMS.length) !== PARAMS) return false;
  const colon = endOfSpace(body, start + PARAMS.length);
  return body[colon] === COLON && body[endOfSpace(body, colon + 1)] === OPEN_BRACKET;
}

function endOfSpace(bytes: Buffer, start: number): number {
  let at = start;
  for (let byte = bytes[at]; byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09; byte = bytes[at]) at += 1;
  return at;
}

/** Whether JavaScript writes the number with other digits. -0 it writes without its sign, but keeps. */
function isWrittenOtherwise(literal: string): boolean {
  return literal !== '-0' && String(Number(literal)) !== literal;
}

function endOfString(body: Buffer, start: number): number {
  let at = start + 1;
  while (at < body.length && body[at] !== QUOTE) at += body[at] === BACKSLASH ? 2 : 1;
  return at;
}

function endOfNumber(body: Buffer, start: number): number {
  let at = start + 1;
  while (at < body.length && isNumberByte(body[at] ?? 0)) at += 1;
  return at;
}

const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

/**
 * The offset at which the text begins in a body.
 * @throws ServiceError `invalid_request`
 */
function startOfText(body: Buffer): number {
  if (!isUtf8(body)) throw new ServiceError('invalid_request', 'the body is not valid UTF-8');
  return hasMark(body) ? BYTE_ORDER_MARK.length : 0;
}

/** A byte order mark is ignored, as RFC 8259 section 8.1 allows. */
function hasMark(body: Buffer): boolean {
  return body[0] === BYTE_ORDER_MARK[0] && body[1] === BYTE_ORDER_MARK[1] && body[2] === BYTE_ORDER_MARK[2];
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw malformed(reasonOf(error));
  }
}

/** Replaces each number that would change by a string with a random prefix, parses the text, and finds these strings again. */
function parseWithDigits(body: Buffer, lossy: Scan['lossy']): unknown {
  const tag = randomBytes(12).toString('base64');
  const marked = Buffer.allocUnsafe(body.length + (lossy.length / 2) * (tag.length + 2));
  let length = 0;
  let done = 0;
  for (let i = 0; i < lossy.length; i += 2) {
    const [start = 0, end = 0] = [lossy[i], lossy[i + 1]];
    length += body.copy(marked, length, done, start);
    length += marked.write(`"${tag}`, length, 'latin1');
    length += body.copy(marked, length, start, end);
    marked[length++] = QUOTE;
    done = end;
  }
  length += body.copy(marked, length, done);
  return withDigits(JSON.parse(marked.toString('utf8', startOfText(marked), length)), tag);
}

function withDigits(value: unknown, tag: string): unknown {
  if (typeof value === 'string') return value.startsWith(tag) ? new LosslessNumber(value.slice(tag.length)) : value;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) value[i] = withDigits(value[i], tag);
  } else if (typeof value === 'object' && value !== null) {
    const members = value as Record<string, unknown>;
    for (const key in members) members[key] = withDigits(members[key], tag);
  }
  return value;
}

function refuseLoneSurrogates(value: unknown): void {
  if (typeof value === 'string') refuseUnpairedSurrogates(value);
  else if (Array.isArray(value)) value.forEach(refuseLoneSurrogates);
  else if (typeof value === 'object' && value !== null) {
    for (const [key, inner] of Object.entries(value)) {
      refuseUnpairedSurrogates(key);
      refuseLoneSurrogates(inner);
    }
  }
}

/** Deeper than any real request. Recursive functions on the value stay far from a stack overflow. */
const MAX_DEPTH = 100;
/** Limited, because each needs more memory than its bytes. */
export const MAX_VALUES = 1_000_000;
/** Objects with more members are slow, and no request has so many. */
const MEMBERS_MAX = 100_000;
/** The limit for the outermost object, which is a request with known fields. */
const FIELDS_MAX = 1_000;
/** More digits than any number of Postgres has. */
const NUMBER_MAX_BYTES = 150_000;

const [COMMA, COLON] = [0x2c, 0x3a];
const [OPEN_BRACKET, CLOSE_BRACKET, OPEN_BRACE, CLOSE_BRACE] = [0x5b, 0x5d, 0x7b, 0x7d];

const WORDS: ReadonlyMap<number, readonly [text: string, value: unknown]> = new Map([
  [0x74, ['true', true]],
  [0x66, ['false', false]],
  [0x6e, ['null', null]],
]);

/** @see https://www.rfc-editor.org/rfc/rfc8259#section-6 */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const SAFE_DIGITS = 15;

type Awaited = 'value' | 'first value' | 'name' | 'first name' | 'more' | 'nothing' | 'rest of a string';

/** An array or object that has not been read completely. */
interface Container {
  /** Where it begins. */
  readonly start: number;
  readonly items: unknown[] | undefined;
  readonly members: Record<string, unknown>;
  /** The name of the member being read. */
  name: string;
  count: number;
}

/**
 * Reads a JSON text in parts, so that a large one does not block the event loop. Numbers that a double cannot
 * represent exactly are LosslessNumbers.
 */
class JsonReader {
  value: unknown;
  readonly #bytes: Buffer;
  #at: number;
  #awaits: Awaited = 'value';
  readonly #containers: Container[] = [];
  /** How many containers there are around a parameter; 0: outside of `params`. */
  #params = 0;
  /** The part of a long string read so far. */
  #parts: string[] = [];
  /** That string is the name of a member. */
  #isName = false;
  #values = 0;

  /** @param bytes valid UTF-8 */
  constructor(bytes: Buffer, start: number) {
    this.#bytes = bytes;
    this.#at = start;
  }

  /**
   * Reads up to so many further tokens, fewer if they are long.
   * @returns whether everything has been read
   * @throws ServiceError `invalid_request`
   */
  run(tokens: number): boolean {
    const until = this.#at + AT_ONCE_BYTES;
    for (let left = tokens; left > 0 && this.#at < until; left -= 1) {
      const byte = this.#awaits === 'rest of a string' ? this.#bytes[this.#at] : this.#next();
      if (byte === undefined) {
        if (this.#awaits === 'nothing') return true;
        throw malformed('it ends too early');
      }
      this.#read(byte);
    }
    return false;
  }

  #read(byte: number): void {
    switch (this.#awaits) {
      case 'value':
        this.#readValue(byte);
        return;
      case 'first value':
        if (byte === CLOSE_BRACKET) this.#close();
        else this.#readValue(byte);
        return;
      case 'name':
        this.#readName(byte);
        return;
      case 'first name':
        if (byte === CLOSE_BRACE) this.#close();
        else this.#readName(byte);
        return;
      case 'more':
        this.#readMore(byte);
        return;
      case 'rest of a string':
        this.#readString();
        return;
      case 'nothing':
        throw this.#unexpected();
    }
  }

  #readValue(byte: number): void {
    this.#values += 1;
    if (this.#values > MAX_VALUES) throw new ServiceError('invalid_request', `the JSON body holds more than ${MAX_VALUES} values`);
    if (byte === QUOTE) this.#beginString(false);
    else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) this.#open(byte);
    else if (byte === 0x2d || (byte >= 0x30 && byte <= 0x39)) this.#add(this.#number());
    else this.#add(this.#word(byte));
  }

  #readName(byte: number): void {
    if (byte !== QUOTE) throw this.#unexpected();
    this.#beginString(true);
  }

  #beginString(isName: boolean): void {
    this.#at += 1;
    this.#isName = isName;
    this.#readString();
  }

  /** Reads on to the string's end, or as much as is read at once. */
  #readString(): void {
    const bytes = this.#bytes;
    const start = this.#at;
    const plain = endOfPlain(bytes, start);
    const isPlain = bytes[plain] === QUOTE;
    const end = isPlain ? plain : endOfPart(bytes, plain, start + AT_ONCE_BYTES);
    const part = isPlain ? bytes.toString('utf8', start, end) : unescaped(`"${bytes.toString('utf8', start, end)}"`);
    this.#at = end;
    if (bytes[end] !== QUOTE) {
      this.#parts.push(part);
      this.#awaits = 'rest of a string';
      return;
    }
    this.#at += 1;
    this.#endString(this.#parts.length === 0 ? part : this.#whole(part));
  }

  #whole(last: string): string {
    const parts = this.#parts;
    this.#parts = [];
    parts.push(last);
    return parts.join('');
  }

  #endString(text: string): void {
    if (!this.#isName) {
      this.#add(text);
      return;
    }
    const container = this.#containers.at(-1) as Container;
    container.name = text;
    if (this.#next() !== COLON) throw this.#unexpected();
    this.#at += 1;
    this.#awaits = 'value';
  }

  #readMore(byte: number): void {
    const isArray = this.#containers.at(-1)?.items !== undefined;
    if (byte === COMMA) {
      this.#at += 1;
      this.#awaits = isArray ? 'value' : 'name';
    } else if (byte === (isArray ? CLOSE_BRACKET : CLOSE_BRACE)) this.#close();
    else throw this.#unexpected();
  }

  #open(byte: number): void {
    const isArray = byte === OPEN_BRACKET;
    const isParams = isArray && this.#params === 0 && this.#containers.at(-1)?.name === 'params';
    this.#containers.push({ start: this.#at, items: isArray ? [] : undefined, members: {}, name: '', count: 0 });
    if (isParams) this.#params = this.#containers.length;
    checkDepth(this.#containers.length);
    this.#at += 1;
    this.#awaits = isArray ? 'first value' : 'first name';
  }

  #close(): void {
    this.#at += 1;
    const container = this.#containers.pop() as Container;
    const value = container.items ?? container.members;
    if (this.#containers.length < this.#params) this.#params = 0;
    else if (this.#containers.length === this.#params && this.#params > 0)
      keepSource(value, this.#bytes.subarray(container.start, this.#at));
    this.#add(value);
  }

  /** Called when a value is complete. */
  #add(value: unknown): void {
    const container = this.#containers.at(-1);
    if (container === undefined) {
      this.value = value;
      this.#awaits = 'nothing';
      return;
    }
    if (container.items === undefined) setMember(container, value, this.#containers.length === 1 ? FIELDS_MAX : MEMBERS_MAX);
    else container.items.push(value);
    this.#awaits = 'more';
  }

  /** @returns the next byte that is not white space */
  #next(): number | undefined {
    const bytes = this.#bytes;
    let byte = bytes[this.#at];
    while (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
      this.#at += 1;
      byte = bytes[this.#at];
    }
    return byte;
  }

  #number(): number | LosslessNumber {
    const bytes = this.#bytes;
    const start = this.#at;
    let at = start;
    let whole = 0;
    for (let byte = bytes[at] ?? 0; byte >= 0x30 && byte <= 0x39 && at - start < SAFE_DIGITS; byte = bytes[at] ?? 0) {
      whole = whole * 10 + byte - 0x30;
      at += 1;
    }
    if (at > start && !isNumberByte(bytes[at] ?? 0) && (bytes[start] !== 0x30 || at === start + 1)) {
      this.#at = at;
      return whole;
    }
    while (isNumberByte(bytes[at] ?? 0)) at += 1;
    if (at - start > NUMBER_MAX_BYTES)
      throw new ServiceError('invalid_request', `a number of the JSON body has more than ${NUMBER_MAX_BYTES} digits`);
    const literal = bytes.toString('latin1', start, at);
    if (!NUMBER.test(literal)) throw this.#unexpected();
    this.#at = at;
    const isKept = changesAsDouble(literal) || (this.#params > 0 && isWrittenOtherwise(literal));
    return isKept ? new LosslessNumber(literal) : Number(literal);
  }

  #word(byte: number): unknown {
    const [text, value] = WORDS.get(byte) ?? [];
    if (text === undefined || this.#bytes.toString('latin1', this.#at, this.#at + text.length) !== text) throw this.#unexpected();
    this.#at += text.length;
    return value;
  }

  #unexpected(): ServiceError {
    return malformed(this.#at < this.#bytes.length ? `unexpected character at byte ${this.#at}` : 'it ends too early');
  }
}

function setMember(container: Container, value: unknown, most: number): void {
  const { members, name } = container;
  container.count += 1;
  if (container.count > most) throw new ServiceError('invalid_request', `an object of the JSON body has more than ${most} members`);
  // An assignment to `__proto__` would set the prototype.
  if (name === '__proto__') Object.defineProperty(members, name, { value, enumerable: true, configurable: true, writable: true });
  else members[name] = value;
}

/** @throws ServiceError `invalid_request` */
function checkDepth(levels: number): void {
  if (levels > MAX_DEPTH) throw new ServiceError('invalid_request', `the JSON body is nested deeper than ${MAX_DEPTH} levels`);
}

/** About this much is parsed in a millisecond. */
const AT_ONCE_BYTES = 65_536;

/** @returns the offset of the first quote, backslash or control character, or the end of the part to read */
function endOfPlain(bytes: Buffer, start: number): number {
  const end = Math.min(bytes.length, start + AT_ONCE_BYTES);
  let at = start;
  while (at < end) {
    const byte = bytes[at] as number;
    if (byte === QUOTE || byte === BACKSLASH || byte < 0x20) break;
    at += 1;
  }
  return at;
}

/** By its first two digits, `d8` to `db`. */
function isHighHalf(first: number, second: number): boolean {
  const letter = second | 0x20;
  return (first | 0x20) === 0x64 && (second === 0x38 || second === 0x39 || letter === 0x61 || letter === 0x62);
}

/** Backslash, `u` and four digits. */
const UNICODE_ESCAPE_BYTES = 6;

/**
 * @returns the offset of the closing quote, or an offset after the limit that is neither within a character nor between the
 * halves of a surrogate pair. Errors before it are found when that part is parsed
 */
function endOfPart(bytes: Buffer, start: number, limit: number): number {
  let isHalf = false;
  let at = start;
  while (at < bytes.length) {
    const byte = bytes[at] as number;
    if (byte === QUOTE) return at;
    if (byte < 0x20) break;
    const mayEnd = (byte & 0xc0) !== 0x80 && (!isHalf || at > limit + UNICODE_ESCAPE_BYTES);
    if (at >= limit && mayEnd) return at;
    const isUnicode = byte === BACKSLASH && bytes[at + 1] === 0x75;
    isHalf = isUnicode && isHighHalf(bytes[at + 2] ?? 0, bytes[at + 3] ?? 0);
    at += isUnicode ? UNICODE_ESCAPE_BYTES : byte === BACKSLASH ? 2 : 1;
  }
  throw malformed(`a string is not closed where it should be, at byte ${Math.min(at, bytes.length)}`);
}

/** @param text a JSON string, with its quotes */
function unescaped(text: string): string {
  let value: string;
  try {
    value = JSON.parse(text) as string;
  } catch (error) {
    throw malformed(reasonOf(error));
  }
  if (/\\u[dD][89a-fA-F]/.test(text)) refuseUnpairedSurrogates(value);
  return value;
}

/**
 * Refuses an unpaired surrogate, which would silently become U+FFFD in UTF-8.
 * @throws ServiceError `invalid_request`
 */
function refuseUnpairedSurrogates(text: string): void {
  if (/\p{Surrogate}/u.test(text))
    throw new ServiceError('invalid_request', 'the body holds half of a surrogate pair (\\ud800 to \\udfff)');
}

/** @param error of JSON.parse */
function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 200) : '';
}

function malformed(reason: string): ServiceError {
  return new ServiceError('invalid_request', `the body is not valid JSON: ${reason}`);
}

const isDigit = (byte: number) => byte >= 0x30 && byte <= 0x39;

/** Digits and `.`, `e`, `E`, `+`, `-`. */
const isNumberByte = (byte: number) => isDigit(byte) || byte === 0x2e || byte === 0x65 || byte === 0x45 || byte === 0x2b || byte === 0x2d;
