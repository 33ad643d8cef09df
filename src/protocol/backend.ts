import { BodyReader } from './body-reader.ts';
import { type ErrorFields, errorFieldTexts } from './error-fields.ts';
import { violation } from './protocol-violation.ts';

/** Type bytes of backend messages. */
export const BackendType = {
  ParseComplete: 0x31,
  BindComplete: 0x32,
  CloseComplete: 0x33,
  NotificationResponse: 0x41,
  CommandComplete: 0x43,
  DataRow: 0x44,
  ErrorResponse: 0x45,
  CopyInResponse: 0x47,
  CopyOutResponse: 0x48,
  EmptyQueryResponse: 0x49,
  BackendKeyData: 0x4b,
  NoticeResponse: 0x4e,
  Authentication: 0x52,
  ParameterStatus: 0x53,
  RowDescription: 0x54,
  FunctionCallResponse: 0x56,
  CopyBothResponse: 0x57,
  ReadyForQuery: 0x5a,
  CopyDone: 0x63,
  CopyData: 0x64,
  NoData: 0x6e,
  PortalSuspended: 0x73,
  ParameterDescription: 0x74,
  NegotiateProtocolVersion: 0x76,
} as const;

/** Idle, in a transaction, in a failed transaction. */
export type TransactionStatus = 'I' | 'T' | 'E';

/** The messages that Postern itself sends to clients. @see https://www.postgresql.org/docs/current/protocol-message-formats.html */
export type BackendMessage =
  | { readonly name: 'AuthenticationOk' | 'AuthenticationCleartextPassword' }
  | { readonly name: 'AuthenticationSASL'; readonly mechanisms: readonly string[] }
  | { readonly name: 'AuthenticationSASLContinue' | 'AuthenticationSASLFinal'; readonly data: Uint8Array }
  | { readonly name: 'ParameterStatus'; readonly parameter: string; readonly value: string }
  | { readonly name: 'BackendKeyData'; readonly processId: number; readonly secretKey: Uint8Array }
  /** `minorVersion`: the minor version of protocol 3 that this connection will use. */
  | { readonly name: 'NegotiateProtocolVersion'; readonly minorVersion: number; readonly unsupportedOptions: readonly string[] }
  | { readonly name: 'NotificationResponse'; readonly processId: number; readonly channel: string; readonly payload: string }
  | { readonly name: 'ParameterDescription'; readonly body: Uint8Array }
  | { readonly name: 'ReadyForQuery'; readonly status: TransactionStatus }
  | { readonly name: 'ErrorResponse' | 'NoticeResponse'; readonly fields: ErrorFields }
  | { readonly name: 'CommandComplete'; readonly tag: string }
  | { readonly name: 'EmptyQueryResponse' | 'ParseComplete' | 'BindComplete' | 'CloseComplete' | 'NoData' | 'PortalSuspended' };

/* Messages without a body, and ReadyForQuery for an idle session. */

export const PARSE_COMPLETE = Buffer.from([0x31, 0, 0, 0, 4]);
export const CLOSE_COMPLETE = Buffer.from([0x33, 0, 0, 0, 4]);
export const READY_IDLE = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

export function encodeBackendMessage(message: BackendMessage): Buffer {
  switch (message.name) {
    case 'AuthenticationOk':
      return encode(BackendType.Authentication, int32(0));
    case 'AuthenticationCleartextPassword':
      return encode(BackendType.Authentication, int32(3));
    case 'AuthenticationSASL':
      return encode(BackendType.Authentication, int32(10), ...message.mechanisms.map(string), string(''));
    case 'AuthenticationSASLContinue':
      return encode(BackendType.Authentication, int32(11), message.data);
    case 'AuthenticationSASLFinal':
      return encode(BackendType.Authentication, int32(12), message.data);
    case 'NotificationResponse':
      return encode(BackendType.NotificationResponse, int32(message.processId), string(message.channel), string(message.payload));
    case 'ParameterStatus':
      return encode(BackendType.ParameterStatus, string(message.parameter), string(message.value));
    case 'BackendKeyData':
      return encode(BackendType.BackendKeyData, int32(message.processId), message.secretKey);
    case 'NegotiateProtocolVersion':
      return encodeNegotiation(message.minorVersion, message.unsupportedOptions);
    case 'ReadyForQuery':
      return encode(BackendType.ReadyForQuery, Buffer.from(message.status));
    case 'ErrorResponse':
    case 'NoticeResponse':
      return encode(BackendType[message.name], ...errorFieldTexts(message.fields).map(string));
    case 'ParameterDescription':
      return encode(BackendType.ParameterDescription, message.body);
    case 'CommandComplete':
      return encode(BackendType.CommandComplete, string(message.tag));
    case 'EmptyQueryResponse':
    case 'ParseComplete':
    case 'BindComplete':
    case 'CloseComplete':
    case 'NoData':
    case 'PortalSuspended':
      return encode(BackendType[message.name]);
  }
}

/** A column of a result. */
export interface FieldDescription {
  readonly name: string;
  /** 0 where the column is not a table's. */
  readonly tableOid: number;
  readonly columnNumber: number;
  readonly dataTypeOid: number;
  /** In bytes; negative for types of variable width. */
  readonly dataTypeSize: number;
  readonly typeModifier: number;
  /** 0 text, 1 binary. */
  readonly format: number;
}

/** A command tag such as `INSERT 0 3` or `CREATE TABLE`. */
export interface CommandTag {
  readonly tag: string;
  /** The tag without its numbers. */
  readonly command: string;
  /** Rows returned or affected; undefined where the tag has no number. */
  readonly rowCount: number | undefined;
}

// All decoders take a body without type and length, and throw ServiceError `backend_lost` when it is malformed.

export function decodeRowDescription(body: Buffer): FieldDescription[] {
  return decodeWhole(body, (reader) =>
    reader.list(() => ({
      name: reader.string(),
      tableOid: reader.uint32(),
      columnNumber: reader.int16(),
      dataTypeOid: reader.uint32(),
      dataTypeSize: reader.int16(),
      typeModifier: reader.int32(),
      format: reader.int16(),
    })),
  );
}

/**
 * Postgres accepts statements with more parameters than the 16-bit count can tell, and sends the types of all of them.
 * @returns the parameters' type OIDs
 */
export function decodeParameterDescription(body: Buffer): number[] {
  return decodeWhole(body, (reader) => {
    const counted = reader.uint16();
    const sent = (body.length - 2) / 4;
    const types: number[] = [];
    for (let left = sent % 65_536 === counted ? sent : counted; left > 0; left--) types.push(reader.uint32());
    return types;
  });
}

/**
 * Reads the columns of a DataRow in text format, for Postern's own statements.
 * @param start of the message's body
 */
export function decodeTextRow(source: Buffer, start: number): (string | null)[] {
  const columns: (string | null)[] = [];
  let at = start + 2;
  for (let left = source.readUInt16BE(start); left > 0; left--) {
    const length = source.readInt32BE(at);
    at += 4;
    columns.push(length < 0 ? null : source.toString('utf8', at, at + length));
    if (length > 0) at += length;
  }
  return columns;
}

/**
 * A DataRow with one column, with another value in it.
 * @param body of the message
 * @returns the whole message
 */
export function withOnlyValue(body: Buffer, change: (value: Buffer) => Uint8Array): Buffer {
  const value = change(body.subarray(2 + 4));
  return encode(BackendType.DataRow, body.subarray(0, 2), int32(value.length), value);
}

export function decodeCommandComplete(body: Buffer): CommandTag {
  const tag = decodeWhole(body, (reader) => reader.string());
  const numbers = /(?: \d{1,20})? (\d{1,20})$/.exec(tag);
  if (numbers === null) return { tag, command: tag, rowCount: undefined };
  return { tag, command: tag.slice(0, numbers.index), rowCount: Number(numbers[1]) };
}

export function decodeReadyForQuery(body: Buffer): TransactionStatus {
  const status = decodeWhole(body, (reader) => reader.byte());
  if (status === 0x49) return 'I';
  if (status === 0x54) return 'T';
  if (status === 0x45) return 'E';
  throw violation('backend', `invalid transaction status ${status}`);
}

export function decodeParameterStatus(body: Buffer): { readonly parameter: string; readonly value: string } {
  return decodeWhole(body, (reader) => ({ parameter: reader.string(), value: reader.string() }));
}

export function decodeNotification(body: Buffer): { readonly processId: number; readonly channel: string; readonly payload: string } {
  return decodeWhole(body, (reader) => ({ processId: reader.int32(), channel: reader.string(), payload: reader.string() }));
}

function encodeNegotiation(minorVersion: number, unsupportedOptions: readonly string[]): Buffer {
  const version = int32((3 << 16) | minorVersion);
  return encode(BackendType.NegotiateProtocolVersion, version, int32(unsupportedOptions.length), ...unsupportedOptions.map(string));
}

function encode(type: number, ...parts: readonly Uint8Array[]): Buffer {
  const length = parts.reduce((sum, part) => sum + part.length, 4);
  const bytes = Buffer.allocUnsafe(1 + length);
  let at = bytes.writeInt32BE(length, bytes.writeUInt8(type));
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

function int32(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeInt32BE(value);
  return bytes;
}

/** A zero byte within a text would end it early, and the rest would be read as other fields. */
function string(text: string): Buffer {
  return Buffer.from(`${text.replaceAll('\0', '')}\0`);
}

function decodeWhole<T>(body: Buffer, decode: (reader: BodyReader) => T): T {
  const reader = new BodyReader(body, 'backend');
  const decoded = decode(reader);
  reader.end();
  return decoded;
}
