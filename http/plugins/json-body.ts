import { isUtf8 } from 'node:buffer';
import { randomBytes } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { LosslessNumber } from 'lossless-json';
import { ServiceError } from '../../src/errors.ts';
import { takeFingerprint } from './idempotency.ts';

/** Deeper nesting than any honest request has; what walks a value recursively stays far from the end of the stack. */
const MAX_DEPTH = 100;

/** Takes `application/json` and nothing else; everything else is a 415 of Fastify's. */
export function acceptJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    try {
      takeFingerprint(request, body);
      refuseEncodings(request.headers['content-type'], request.headers['content-encoding']);
      done(null, parseJson(body));
    } catch (error) {
      done(error instanceof Error ? error : new Error('the body could not be read', { cause: error }));
    }
  });
}

/** @see https://www.rfc-editor.org/rfc/rfc8259#section-8.1 */
function refuseEncodings(contentType = '', contentEncoding = 'identity'): void {
  if (contentEncoding.toLowerCase() !== 'identity') {
    throw new ServiceError('unsupported_media_type', `a body with Content-Encoding ${contentEncoding.slice(0, 40)} is not accepted`);
  }
  const charset = /;\s*charset\s*=\s*"?([^\s";]+)/i.exec(contentType)?.[1] ?? 'utf-8';
  if (!/^utf-?8$/i.test(charset)) throw new ServiceError('unsupported_media_type', 'JSON must be sent as UTF-8');
}

/**
 * The value of a JSON text. Numbers that a double cannot hold as written come as LosslessNumber, so that their digits
 * reach Postgres unchanged; all others are plain numbers.
 * @throws ServiceError `invalid_request`
 */
export function parseJson(body: Buffer): unknown {
  if (body.length === 0) throw new ServiceError('invalid_request', 'the request has no body; a JSON document is expected');
  const { depth, lossy } = scan(body);
  if (depth > MAX_DEPTH) throw new ServiceError('invalid_request', `the JSON body is nested deeper than ${MAX_DEPTH} levels`);
  const text = decode(body);
  const value = parse(text);
  if (/\\u[dD][89a-fA-F]/.test(text)) refuseLoneSurrogates(value);
  return lossy.length === 0 ? value : parseWithDigits(body, lossy);
}

interface Scan {
  readonly depth: number;
  /** Where the numbers stand that a double would change: start and end of one after the other. There may be millions. */
  readonly lossy: readonly number[];
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** One pass over the bytes. Text that is no JSON may come out as anything: the parser that follows refuses it. */
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

const isDigit = (byte: number) => byte >= 0x30 && byte <= 0x39;

/** Digits and `.`, `e`, `E`, `+`, `-`. */
const isNumberByte = (byte: number) => isDigit(byte) || byte === 0x2e || byte === 0x65 || byte === 0x45 || byte === 0x2b || byte === 0x2d;

/** A double keeps 15 significant digits of any number in its range, and all that a program has written of one itself. */
function changesAsDouble(literal: string): boolean {
  const value = Number(literal);
  if (String(value) === literal) return false;
  if (!Number.isFinite(value)) return true;
  const mantissa = literal.replace(/[eE].*$/, '');
  const digits = mantissa.replace(/^-?[0.]*/, '').replace('.', '');
  return digits.length > 15 || (value === 0 && digits !== '');
}

const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

function decode(body: Buffer): string {
  if (!isUtf8(body)) throw new ServiceError('invalid_request', 'the body is not valid UTF-8');
  return body.toString('utf8', hasMark(body) ? BYTE_ORDER_MARK.length : 0);
}

/** It is no part of the text (RFC 8259 section 8.1 lets it be ignored). */
function hasMark(body: Buffer): boolean {
  return body[0] === BYTE_ORDER_MARK[0] && body[1] === BYTE_ORDER_MARK[1] && body[2] === BYTE_ORDER_MARK[2];
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const reason = error instanceof Error ? error.message.slice(0, 200) : '';
    throw new ServiceError('invalid_request', `the body is not valid JSON: ${reason}`);
  }
}

/** Makes each number that would change a string that begins as nobody can guess, parses that, and looks for those. */
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
  return withDigits(JSON.parse(decode(marked.subarray(0, length))), tag);
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

/** Half of a surrogate pair is no character: written as UTF-8 it would silently become U+FFFD. */
function refuseLoneSurrogates(value: unknown): void {
  if (typeof value === 'string') {
    if (/\p{Surrogate}/u.test(value))
      throw new ServiceError('invalid_request', 'the body holds half of a surrogate pair (\\ud800 to \\udfff)');
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, inner] of Object.entries(value)) {
      refuseLoneSurrogates(key);
      refuseLoneSurrogates(inner);
    }
  }
}
