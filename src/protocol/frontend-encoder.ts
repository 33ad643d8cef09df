import { copyBytes } from '../runtime/bytes.ts';
import { FrontendType, statementNameStart } from './frontend.ts';
import { HEADER_BYTES } from './message-framing.ts';
import { stringEnd } from './null-terminated-strings.ts';
import { violation } from './protocol-violation.ts';

const STATEMENT = Buffer.from('S');
const PORTAL = Buffer.from('P');
const NUL = Buffer.alloc(1);

export const SYNC = message(FrontendType.Sync);
export const FLUSH = message(FrontendType.Flush);
export const CLOSE_UNNAMED_PORTAL = message(FrontendType.Close, PORTAL, NUL);

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
  return message(FrontendType.Close, STATEMENT, name, NUL);
}

export function describeStatementMessage(name: Buffer): Buffer {
  return message(FrontendType.Describe, STATEMENT, name, NUL);
}

/** Bind to the unnamed portal, without parameters or formats. */
export function bindMessage(statement: Buffer): Buffer {
  return message(FrontendType.Bind, NUL, statement, Buffer.alloc(7));
}

const OWN_NAME = Buffer.from('postern_discard\0');

/** Parse, Bind, Execute, Close of the portal and Close of the statement, under a name reserved for Postern. */
export const DISCARD_SEQUENCES: Buffer = Buffer.concat([
  message(FrontendType.Parse, OWN_NAME, Buffer.from('DISCARD SEQUENCES\0'), Buffer.alloc(2)),
  message(FrontendType.Bind, OWN_NAME, OWN_NAME, Buffer.alloc(6)),
  message(FrontendType.Execute, OWN_NAME, Buffer.alloc(4)),
  message(FrontendType.Close, PORTAL, OWN_NAME),
  message(FrontendType.Close, STATEMENT, OWN_NAME),
]);

const SHOW_NAME = Buffer.from('postern_show\0');

/** As {@link DISCARD_SEQUENCES}, with Flush: asks for the value of a setting in the middle of a client's pipeline. */
export const SHOW_STANDARD_CONFORMING_STRINGS: Buffer = Buffer.concat([
  message(FrontendType.Parse, SHOW_NAME, Buffer.from('SHOW standard_conforming_strings\0'), Buffer.alloc(2)),
  message(FrontendType.Bind, SHOW_NAME, SHOW_NAME, Buffer.alloc(6)),
  message(FrontendType.Execute, SHOW_NAME, Buffer.alloc(4)),
  message(FrontendType.Close, PORTAL, SHOW_NAME),
  message(FrontendType.Close, STATEMENT, SHOW_NAME),
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
