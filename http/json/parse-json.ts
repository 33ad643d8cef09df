import { isUtf8 } from 'node:buffer';
import { randomBytes } from 'node:crypto';
import { LosslessNumber } from 'lossless-json';
import { ServiceError } from '../../src/errors.ts';
import { checkDepth } from './incremental-json-reader.ts';
import { changesAsDouble, isDigit, isNumberByte } from './number-literals.ts';
import { malformed, reasonOf, refuseUnpairedSurrogates } from './string-literals.ts';

/**
 * The value of a JSON text. Numbers that a double cannot represent exactly are LosslessNumbers, so that their digits
 * reach Postgres unchanged; all others are plain numbers.
 * @throws ServiceError `invalid_request`
 */
export function parseJson(body: Buffer): unknown {
  if (body.length === 0) throw new ServiceError('invalid_request', 'the request has no body; a JSON document is expected');
  const { depth, lossy } = scan(body);
  checkDepth(depth);
  const text = body.toString('utf8', startOfText(body));
  const value = parse(text);
  if (/\\u[dD][89a-fA-F]/.test(text)) refuseLoneSurrogates(value);
  return lossy.length === 0 ? value : parseWithDigits(body, lossy);
}

interface Scan {
  readonly depth: number;
  /** The offsets of numbers that a double would change: start and end of each, in order. There may be millions. */
  readonly lossy: readonly number[];
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Scans the bytes once. For text that is no JSON the result is arbitrary; the parser then refuses it. */
function scan(body: Buffer): Scan {
  const lossy: number[] = [];
  let depth = 0;
  let deepest = 0;
  for (let at = 0; at < body.length; at += 1) {
    const byte = body[at] ?? 0;
    if (byte === QUOTE) {
      at = endOfString(body, at);
    } else if (byte === 0x7b || byte === 0x5b) {
      depth += 1;
      if (depth > deepest) deepest = depth;
    } else if (byte === 0x7d || byte === 0x5d) {
      depth -= 1;
    } else if (byte === 0x2d || isDigit(byte)) {
      const end = endOfNumber(body, at);
      if (end - at > 3 && changesAsDouble(body.toString('latin1', at, end))) lossy.push(at, end);
      at = end - 1;
    }
  }
  return { depth: deepest, lossy };
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
export function startOfText(body: Buffer): number {
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
