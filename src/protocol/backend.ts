import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';
import { BodyReader, stringEnd, violation } from './framing.ts';

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

export function encodeRowDescription(fields: readonly FieldDescription[]): Buffer {
  const parts = fields.map(({ name, tableOid, columnNumber, dataTypeOid, dataTypeSize, typeModifier, format }) => {
    const rest = Buffer.allocUnsafe(18);
    rest.writeUInt32BE(tableOid, 0);
    rest.writeInt16BE(columnNumber, 4);
    rest.writeUInt32BE(dataTypeOid, 6);
    rest.writeInt16BE(dataTypeSize, 10);
    rest.writeInt32BE(typeModifier, 12);
    rest.writeInt16BE(format, 16);
    return Buffer.concat([string(name), rest]);
  });
  return encode(BackendType.RowDescription, int16(fields.length), ...parts);
}

/** @param values null is SQL's NULL */
export function encodeDataRow(values: readonly (Uint8Array | null)[]): Buffer {
  const parts = values.flatMap((value) => (value === null ? [int32(-1)] : [int32(value.length), value]));
  return encode(BackendType.DataRow, int16(values.length), ...parts);
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
export function decodeTextRow(source: Buffer, start: number, encoding: 'utf8' | 'latin1' = 'utf8'): (string | null)[] {
  const columns: (string | null)[] = [];
  let at = start + 2;
  for (let left = source.readUInt16BE(start); left > 0; left--) {
    const length = source.readInt32BE(at);
    at += 4;
    columns.push(length < 0 ? null : source.toString(encoding, at, at + length));
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

/**
 * A DataRow with other values in some of its columns.
 * @param body of the message
 * @param change returns the same object for a value that stays; it is not asked about null
 * @returns the whole message
 */
export function withValues(body: Buffer, change: (value: Buffer) => Uint8Array): Buffer {
  const parts: Uint8Array[] = [body.subarray(0, 2)];
  let kept = 2;
  let at = 2;
  for (let left = body.readUInt16BE(0); left > 0; left--) {
    const length = body.readInt32BE(at);
    const from = at + 4;
    at = from + Math.max(length, 0);
    if (length <= 0) continue;
    const value = body.subarray(from, at);
    const changed = change(value);
    if (changed === value) continue;
    parts.push(body.subarray(kept, from - 4), int32(changed.length), changed);
    kept = at;
  }
  return encode(BackendType.DataRow, ...parts, body.subarray(kept));
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

function int16(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(2);
  bytes.writeInt16BE(value);
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

/** @see https://www.postgresql.org/docs/current/protocol-error-fields.html */
export interface ErrorFields {
  /** Not localized: ERROR, FATAL, PANIC; WARNING, NOTICE, DEBUG, INFO, LOG. */
  readonly severity: string;
  /** SQLSTATE. */
  readonly code: string;
  readonly message: string;
  readonly detail?: string;
  readonly hint?: string;
  /** In the statement, counted in characters from 1. */
  readonly position?: number;
  /** As `position`, but in `internalQuery`. */
  readonly internalPosition?: number;
  readonly internalQuery?: string;
  readonly where?: string;
  readonly schema?: string;
  readonly table?: string;
  readonly column?: string;
  readonly dataType?: string;
  readonly constraint?: string;
  readonly file?: string;
  readonly line?: number;
  readonly routine?: string;
}

/** Codes of the optional fields, in the order in which Postgres sends them. */
const FIELD_CODES = {
  detail: 'D',
  hint: 'H',
  where: 'W',
  schema: 's',
  table: 't',
  column: 'c',
  dataType: 'd',
  constraint: 'n',
  position: 'P',
  internalPosition: 'p',
  internalQuery: 'q',
  file: 'F',
  line: 'L',
  routine: 'R',
} as const satisfies Partial<Record<keyof ErrorFields, string>>;

const NUMERIC_FIELDS: ReadonlySet<string> = new Set<keyof ErrorFields>(['position', 'internalPosition', 'line']);

/** @param body of an ErrorResponse or NoticeResponse @throws ServiceError `backend_lost` when it is malformed */
export function decodeErrorFields(body: Buffer): ErrorFields {
  const reader = new ErrorFieldsReader(Number.POSITIVE_INFINITY);
  reader.push(body, 0, body.length);
  return reader.end();
}

/** Reads ErrorResponses and NoticeResponses one after another. A message may arrive in pieces; long fields are cut. */
export class ErrorFieldsReader {
  readonly #fieldMaxBytes: number;
  #values = new Map<number, string>();
  /** The code of the field that is being read; 0: the message's terminator has been read. */
  #code: number | undefined;
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #bytes = 0;

  constructor(fieldMaxBytes: number) {
    this.#fieldMaxBytes = fieldMaxBytes;
  }

  /** @throws ServiceError `backend_lost` for a malformed message */
  push(buffer: Buffer, start: number, end: number): void {
    let at = start;
    while (at < end) {
      if (this.#code === 0) throw violation('backend', 'invalid message format');
      if (this.#code === undefined) this.#code = buffer[at++] ?? 0;
      else at = this.#read(buffer, at, end);
    }
  }

  /** Called at the end of the message. @throws ServiceError `backend_lost` for a malformed message */
  end(): ErrorFields {
    const values = this.#values;
    if (this.#code === undefined) throw violation('backend', 'no data left in message');
    if (this.#code !== 0) throw violation('backend', 'invalid string in message');
    this.#values = new Map();
    this.#code = undefined;
    return errorFields(values);
  }

  /** @returns the offset after the field, or the end of the piece */
  #read(buffer: Buffer, start: number, end: number): number {
    const zero = stringEnd(buffer, start, end);
    const stop = zero < 0 ? end : zero;
    this.#keep(buffer, start, stop);
    if (zero < 0) return end;
    if (this.#code !== undefined) this.#values.set(this.#code, this.#text());
    this.#code = undefined;
    this.#kept = [];
    this.#keptBytes = 0;
    this.#bytes = 0;
    return zero + 1;
  }

  #keep(buffer: Buffer, start: number, end: number): void {
    const kept = Math.min(end - start, this.#fieldMaxBytes - this.#keptBytes);
    this.#bytes += end - start;
    if (kept === 0) return;
    // The caller reuses the buffer.
    this.#kept.push(Buffer.from(buffer.subarray(start, start + kept)));
    this.#keptBytes += kept;
  }

  #text(): string {
    const [first = Buffer.alloc(0)] = this.#kept;
    const bytes = this.#kept.length > 1 ? Buffer.concat(this.#kept) : first;
    if (this.#bytes === this.#keptBytes) return bytes.toString();
    return `${bytes.toString('utf8', 0, wholeCharacters(bytes))}… (cut: ${this.#keptBytes} of ${this.#bytes} bytes)`;
  }
}

/** @returns how many bytes of a text that was cut hold whole characters */
function wholeCharacters(bytes: Buffer): number {
  let at = bytes.length;
  while (at > 0 && bytes.length - at < 3 && ((bytes[at - 1] ?? 0) & 0xc0) === 0x80) at -= 1;
  const lead = bytes[at - 1] ?? 0;
  const wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  return bytes.length - at + 1 >= wanted ? bytes.length : at - 1;
}

/** Unknown fields are ignored, as the manual asks. */
function errorFields(values: ReadonlyMap<number, string>): ErrorFields {
  const field = (code: string) => values.get(code.charCodeAt(0));
  const optional = Object.entries(FIELD_CODES).flatMap(([name, code]) => {
    const value = field(code);
    if (value === undefined) return [];
    return [[name, NUMERIC_FIELDS.has(name) ? Number.parseInt(value, 10) : value]];
  });
  return {
    severity: field('V') ?? field('S') ?? 'ERROR',
    code: field('C') ?? 'XX000',
    message: field('M') ?? '',
    ...Object.fromEntries(optional),
  };
}

/**
 * The fields as an ErrorResponse or NoticeResponse has them, without the zero bytes; the last one is empty.
 * The severity is sent twice: `S` may be localized, `V` never is.
 */
function errorFieldTexts(fields: ErrorFields): string[] {
  const always = [`S${fields.severity}`, `V${fields.severity}`, `C${fields.code}`, `M${fields.message}`];
  const names = Object.keys(FIELD_CODES) as (keyof typeof FIELD_CODES)[];
  const present = names.filter((name) => fields[name] !== undefined).map((name) => `${FIELD_CODES[name]}${fields[name]}`);
  return [...always, ...present, ''];
}

/** The parameters and columns of a prepared statement, from the replies to a Describe of it or of a portal. */
export interface StatementShape {
  /** Equal for statements with the same columns; empty where these are not known. */
  readonly columnsDigest: string;
  /** Equal for statements with the same parameters; undefined where a portal was described. */
  readonly parametersDigest: string | undefined;
  /** Number and types of the parameters, as at the end of a Parse message; undefined where these are not known or too many to keep. */
  readonly parameters: Buffer | undefined;
  /** Whether it returns rows; true where that is not known. */
  readonly hasColumns: boolean;
}

/** The shape where the description was too long to be read. It equals no other. */
export const UNKNOWN_SHAPE: StatementShape = { columnsDigest: '', parametersDigest: undefined, parameters: undefined, hasColumns: true };

/** Bytes of a column after its name: table, number, type, size, modifier, format. */
const COLUMN_BYTES = 18;
const TYPE_OFFSET = 6;
const MODIFIER_OFFSET = 12;
const KEPT_PARAMETERS_BYTES = 1_024;

/**
 * Compares what PostgreSQL compares when it plans a statement again: the columns' names, types and type modifiers. A column's
 * table and number do not matter.
 * @param parameters body of a ParameterDescription; undefined for a portal, of which the server tells only the columns
 * @param columns body of a RowDescription; undefined for NoData
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/cache/plancache.c RevalidateCachedQuery
 */
export function statementShape(parameters: Buffer | undefined, columns: Buffer | undefined): StatementShape {
  return {
    columnsDigest: columns === undefined ? NO_COLUMNS : digestOf(comparedParts(columns)),
    parametersDigest: parameters === undefined ? undefined : digestOf(parameters),
    parameters: parameters !== undefined && parameters.length <= KEPT_PARAMETERS_BYTES ? Buffer.from(parameters) : undefined,
    hasColumns: columns !== undefined,
  };
}

/** Whether two statements have the same columns and, where both are known, the same parameters. */
export function isSameShape(some: StatementShape, other: StatementShape): boolean {
  const isSame = some.columnsDigest !== '' && some.columnsDigest === other.columnsDigest;
  const areKnown = some.parametersDigest !== undefined && other.parametersDigest !== undefined;
  return isSame && (!areKnown || some.parametersDigest === other.parametersDigest);
}

const NO_COLUMNS = 'none';

function digestOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('base64');
}

function comparedParts(columns: Buffer): Buffer {
  const parts = Buffer.allocUnsafe(columns.length);
  let length = 0;
  for (let at = 2; at < columns.length; ) {
    const nameEnd = columns.indexOf(0, at) + 1;
    if (nameEnd === 0) break;
    length += columns.copy(parts, length, at, nameEnd);
    length += columns.copy(parts, length, nameEnd + TYPE_OFFSET, nameEnd + TYPE_OFFSET + 4);
    length += columns.copy(parts, length, nameEnd + MODIFIER_OFFSET, nameEnd + MODIFIER_OFFSET + 4);
    at = nameEnd + COLUMN_BYTES;
  }
  return parts.subarray(0, length);
}

/** An error that Postgres raised, with all its fields. */
export class PostgresError extends Error {
  override readonly name = 'PostgresError';
  readonly fields: ErrorFields;

  constructor(fields: ErrorFields) {
    super(fields.message);
    this.fields = fields;
  }
}

/** SQLSTATE or errno name; empty when there is none. */
export function codeOf(error: unknown): string {
  if (error instanceof PostgresError) return error.fields.code;
  if (error instanceof AggregateError && !('code' in error)) return codeOf(error.errors[0]);
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
}

/** One line; an AggregateError (a name with several addresses) has no message of its own. */
export function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return textOf(error.errors[0]);
  const message = error instanceof Error ? error.message : String(error);
  return message.split('\n')[0] || codeOf(error);
}
