import { Buffer } from 'node:buffer';
import { ServiceError } from '../errors.ts';
import { copyBytes } from '../runtime/bytes.ts';
import { BodyReader, HEADER_BYTES, stringEnd, violation } from './framing.ts';

/** Type bytes of frontend messages after the startup message. */
export const FrontendType = {
  Bind: 0x42,
  Close: 0x43,
  Describe: 0x44,
  Execute: 0x45,
  FunctionCall: 0x46,
  Flush: 0x48,
  Parse: 0x50,
  Query: 0x51,
  Sync: 0x53,
  Terminate: 0x58,
  CopyDone: 0x63,
  CopyData: 0x64,
  CopyFail: 0x66,
  /** PasswordMessage, SASLInitialResponse or SASLResponse: only the state of the exchange tells which. */
  Password: 0x70,
} as const;

/** @see https://www.postgresql.org/docs/current/protocol-message-formats.html */
export type FrontendMessage =
  | { readonly name: 'Query'; readonly sql: string }
  | { readonly name: 'Parse'; readonly statement: string; readonly sql: string; readonly parameterTypes: readonly number[] }
  | {
      readonly name: 'Bind';
      readonly portal: string;
      readonly statement: string;
      /** 0 text, 1 binary. No entry: all text; one: for all; otherwise one for each. */
      readonly parameterFormats: readonly number[];
      /** Views of the message; null is SQL's NULL. */
      readonly parameters: readonly (Buffer | null)[];
      readonly resultFormats: readonly number[];
    }
  | { readonly name: 'Describe' | 'Close'; readonly kind: 'statement' | 'portal'; readonly target: string }
  /** `maxRows` 0: no limit. */
  | { readonly name: 'Execute'; readonly portal: string; readonly maxRows: number }
  | { readonly name: 'Sync' | 'Flush' | 'CopyDone' | 'Terminate' }
  | { readonly name: 'CopyData'; readonly data: Buffer }
  | { readonly name: 'CopyFail'; readonly reason: string }
  | {
      readonly name: 'FunctionCall';
      readonly functionOid: number;
      readonly argumentFormats: readonly number[];
      readonly arguments: readonly (Buffer | null)[];
      readonly resultFormat: number;
    };

/**
 * Decodes one whole message.
 * @param body without type and length
 * @throws ServiceError protocol_violation, in the cases in which Postgres reports one
 */
export function decodeFrontendMessage(type: number, body: Buffer): FrontendMessage {
  const reader = new BodyReader(body, 'frontend');
  const message = decodeFields(type, reader);
  reader.end();
  return message;
}

/** The text of a whole Query message, as Latin-1. */
export function queryText(message: Buffer): string {
  return message.toString('latin1', HEADER_BYTES, message.length - 1);
}

/**
 * @returns the password in an answer to AuthenticationCleartextPassword
 * @throws ServiceError protocol_violation, or unauthorized (28P01) when it is empty
 */
export function decodePasswordMessage(body: Buffer): string {
  if (body.length === 0 || body.indexOf(0) !== body.length - 1) throw violation('frontend', 'invalid password packet size');
  if (body.length === 1) throw new ServiceError('unauthorized', 'empty password returned by client');
  return body.toString('utf8', 0, body.length - 1);
}

/** The client's first message in a SASL exchange. A SASLResponse holds data only. */
interface SaslInitialResponse {
  readonly mechanism: string;
  /** Undefined when the client waits for an empty challenge before it sends data. */
  readonly data: Buffer | undefined;
}

/** @throws ServiceError protocol_violation */
export function decodeSaslInitialResponse(body: Buffer): SaslInitialResponse {
  const reader = new BodyReader(body, 'frontend');
  const mechanism = reader.string();
  const data = reader.value() ?? undefined;
  reader.end();
  return { mechanism, data };
}

function decodeFields(type: number, reader: BodyReader): FrontendMessage {
  switch (type) {
    case FrontendType.Query:
      return { name: 'Query', sql: reader.string() };
    case FrontendType.Parse:
      return { name: 'Parse', statement: reader.string(), sql: reader.string(), parameterTypes: reader.list(() => reader.uint32()) };
    case FrontendType.Bind:
      return decodeBind(reader);
    case FrontendType.Describe:
      return { name: 'Describe', ...decodeTarget(reader, 'DESCRIBE') };
    case FrontendType.Close:
      return { name: 'Close', ...decodeTarget(reader, 'CLOSE') };
    case FrontendType.Execute:
      return { name: 'Execute', portal: reader.string(), maxRows: Math.max(0, reader.int32()) };
    case FrontendType.CopyData:
      return { name: 'CopyData', data: reader.rest() };
    case FrontendType.CopyFail:
      return { name: 'CopyFail', reason: reader.string() };
    case FrontendType.FunctionCall:
      return decodeFunctionCall(reader);
    case FrontendType.Sync:
      return { name: 'Sync' };
    case FrontendType.Flush:
      return { name: 'Flush' };
    case FrontendType.CopyDone:
      return { name: 'CopyDone' };
    case FrontendType.Terminate:
      return { name: 'Terminate' };
    default:
      throw violation('frontend', `invalid frontend message type ${type}`);
  }
}

function decodeBind(reader: BodyReader): FrontendMessage {
  return {
    name: 'Bind',
    portal: reader.string(),
    statement: reader.string(),
    parameterFormats: reader.list(() => reader.int16()),
    parameters: reader.list(() => reader.value()),
    resultFormats: reader.list(() => reader.int16()),
  };
}

function decodeFunctionCall(reader: BodyReader): FrontendMessage {
  return {
    name: 'FunctionCall',
    functionOid: reader.uint32(),
    argumentFormats: reader.list(() => reader.int16()),
    arguments: reader.list(() => reader.value()),
    resultFormat: reader.int16(),
  };
}

function decodeTarget(reader: BodyReader, message: 'DESCRIBE' | 'CLOSE'): { kind: 'statement' | 'portal'; target: string } {
  const subtype = reader.byte();
  const target = reader.string();
  if (subtype === STATEMENT) return { kind: 'statement', target };
  if (subtype === PORTAL) return { kind: 'portal', target };
  throw violation('frontend', `invalid ${message} message subtype ${subtype}`);
}

/** The kinds of target in Describe and Close. */
const STATEMENT = 0x53;
const PORTAL = 0x50;

/**
 * Finds the prepared statement's name in the message (or its head, see FrameRules) at `buffer[start..end)`, for a relay
 * that does not decode messages. The name ends at `stringEnd(buffer, nameStart, end)`; in Parse, SQL text and parameter
 * types follow it.
 * @param start offset of the message's type byte
 * @returns the name's offset in `buffer`, or -1 when the message has no statement name, or none before `end`
 */
export function statementNameStart(buffer: Buffer, start: number, end: number): number {
  const body = start + HEADER_BYTES;
  if (body >= end) return -1;
  switch (buffer[start]) {
    case FrontendType.Parse:
      return body;
    case FrontendType.Bind: {
      const portalEnd = stringEnd(buffer, body, end);
      return portalEnd === -1 ? -1 : portalEnd + 1;
    }
    case FrontendType.Describe:
    case FrontendType.Close:
      return buffer[body] === STATEMENT ? body + 1 : -1;
    default:
      return -1;
  }
}

const STATEMENT_BYTE = Buffer.from('S');
const PORTAL_BYTE = Buffer.from('P');
const NUL = Buffer.alloc(1);

export const SYNC = message(FrontendType.Sync);
export const FLUSH = message(FrontendType.Flush);
export const CLOSE_UNNAMED_PORTAL = message(FrontendType.Close, PORTAL_BYTE, NUL);

/** An empty query without parameters, for {@link parseMessage}. */
export const EMPTY_DEFINITION = Buffer.alloc(3);

/** @see https://www.postgresql.org/docs/current/protocol-message-formats.html */
export function message(type: number, ...parts: readonly Uint8Array[]): Buffer {
  const header = Buffer.allocUnsafe(HEADER_BYTES);
  header[0] = type;
  header.writeInt32BE(HEADER_BYTES - 1 + parts.reduce((sum, part) => sum + part.length, 0), 1);
  return Buffer.concat([header, ...parts]);
}

/** @param sql without a NUL */
export function queryMessage(sql: string | Buffer): Buffer {
  return message(FrontendType.Query, typeof sql === 'string' ? Buffer.from(sql) : sql, NUL);
}

/** @param definition query text, NUL and parameter types, as in a Parse message */
export function parseMessage(name: Buffer, definition: Buffer): Buffer {
  return message(FrontendType.Parse, name, NUL, definition);
}

export function closeStatementMessage(name: Buffer): Buffer {
  return message(FrontendType.Close, STATEMENT_BYTE, name, NUL);
}

export function describeStatementMessage(name: Buffer): Buffer {
  return message(FrontendType.Describe, STATEMENT_BYTE, name, NUL);
}

/** Bind to the unnamed portal, without parameters or formats. */
export function bindMessage(statement: Buffer): Buffer {
  return message(FrontendType.Bind, NUL, statement, Buffer.alloc(7));
}

/**
 * Runs a statement of Postern's own in the middle of a client's pipeline, whose unnamed statement and portals remain: Parse, Bind, Execute,
 * Close of the portal and Close of the statement. The backend sends a reply to each.
 * @param name reserved for it
 */
export function ownStatement(name: string, sql: string): Buffer {
  const own = Buffer.from(`${name}\0`);
  return Buffer.concat([
    message(FrontendType.Parse, own, Buffer.from(`${sql}\0`), Buffer.alloc(2)),
    message(FrontendType.Bind, own, own, Buffer.alloc(6)),
    message(FrontendType.Execute, own, Buffer.alloc(4)),
    message(FrontendType.Close, PORTAL_BYTE, own),
    message(FrontendType.Close, STATEMENT_BYTE, own),
  ]);
}

export const DISCARD_SEQUENCES: Buffer = ownStatement('postern_discard', 'DISCARD SEQUENCES');

/** With Flush: asks for the value of a setting. */
export const SHOW_STANDARD_CONFORMING_STRINGS: Buffer = Buffer.concat([
  ownStatement('postern_show', 'SHOW standard_conforming_strings'),
  FLUSH,
]);

const NO_NAME = Buffer.alloc(0);
/** Execute of the unnamed portal, without a row limit, and Sync. */
const EXECUTE_AND_SYNC = Buffer.concat([message(FrontendType.Execute, Buffer.alloc(5)), SYNC]);
/** Fixed bytes of a Bind: type, length, the zero bytes of two names, and three counts. */
const BIND_BYTES = 13;

/**
 * Bind, Execute and Sync: runs a parsed statement to its end. Parameters and results are text. This runs for every query
 * over HTTP, so it is written into one buffer.
 * @see https://www.postgresql.org/docs/current/protocol-message-formats.html#PROTOCOL-MESSAGE-FORMATS-BIND
 */
export function bindAndExecute(values: readonly (string | null)[], statement: Uint8Array = NO_NAME): Buffer {
  let length = BIND_BYTES + statement.length;
  for (const value of values) length += 4 + (value === null ? 0 : Buffer.byteLength(value));
  const bytes = Buffer.allocUnsafe(length + EXECUTE_AND_SYNC.length);
  bytes[0] = FrontendType.Bind;
  bytes.writeInt32BE(length - 1, 1);
  bytes[HEADER_BYTES] = 0;
  bytes.set(statement, HEADER_BYTES + 1);
  // No parameter formats: all parameters are text.
  bytes.fill(0, 6 + statement.length, 9 + statement.length);
  let at = bytes.writeUInt16BE(values.length, 9 + statement.length);
  for (const value of values) at = writeValue(bytes, at, value);
  at = bytes.writeInt16BE(0, at);
  bytes.set(EXECUTE_AND_SYNC, at);
  return bytes;
}

function writeValue(bytes: Buffer, at: number, value: string | null): number {
  const written = value === null ? 0 : bytes.write(value, at + 4);
  bytes.writeInt32BE(value === null ? -1 : written, at);
  return at + 4 + written;
}

/**
 * The message (or its head) at `buffer[start..end)` with another statement name and its length adjusted. The bytes
 * after `end` in the stream follow the result unchanged.
 * @throws ServiceError protocol_violation when there is no statement name in it
 */
export function withStatementName(buffer: Buffer, start: number, end: number, name: Uint8Array): Buffer {
  const nameStart = statementNameStart(buffer, start, end);
  const nameEnd = nameStart === -1 ? -1 : stringEnd(buffer, nameStart, end);
  if (nameEnd === -1) throw violation('frontend', 'invalid string in message');
  const grown = name.length - (nameEnd - nameStart);
  const renamed = Buffer.allocUnsafe(end - start + grown);
  copyBytes(buffer, start, nameStart, renamed, 0);
  copyBytes(name, 0, name.length, renamed, nameStart - start);
  copyBytes(buffer, nameEnd, end, renamed, nameStart - start + name.length);
  renamed.writeInt32BE(buffer.readInt32BE(start + 1) + grown, 1);
  return renamed;
}

const CANCEL_REQUEST_CODE = 80_877_102;

/** @see https://www.postgresql.org/docs/current/protocol-message-formats.html#PROTOCOL-MESSAGE-FORMATS-CANCELREQUEST */
export function cancelRequest(processId: number, secretKey: number): Buffer {
  const request = Buffer.alloc(16);
  request.writeInt32BE(request.length, 0);
  request.writeInt32BE(CANCEL_REQUEST_CODE, 4);
  request.writeInt32BE(processId, 8);
  request.writeInt32BE(secretKey, 12);
  return request;
}
