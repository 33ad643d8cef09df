import { wordOf } from './words.ts';

/** A message as it came from the server. */
export interface BackendMessage {
  /** The type byte as a character; empty for bytes that make no message. */
  readonly type: string;
  readonly body: Buffer;
}

/**
 * One backend message as a script writes it. What differs from run to run is left out here, and only here:
 *
 * - ErrorResponse, NoticeResponse: file, line and routine (V where it equals S, as it does in English);
 * - RowDescription: a table's OID (`@2` says: its second column); types from 16384 on, made by CREATE, are `new`;
 * - ParameterDescription: likewise; BackendKeyData: only the key's length; SASL: only that the step came.
 */
export function describeBackend({ type, body }: BackendMessage): string {
  if (type === '') return `Bytes ${JSON.stringify(body.toString('latin1'))}`;
  const describe = BACKEND[type];
  return describe ? describe(new Fields(body)) : `Unknown ${JSON.stringify(type)} \\x${body.toString('hex')}`;
}

const BACKEND: Record<string, (fields: Fields) => string> = {
  R: authentication,
  S: (fields) => `ParameterStatus ${fields.string()}=${fields.string()}`,
  K: (fields) => `BackendKeyData ${fields.skip(4).rest().length} bytes`,
  v: negotiate,
  Z: (fields) => `ReadyForQuery ${fields.character()}`,
  E: (fields) => `ErrorResponse ${report(fields)}`,
  N: (fields) => `NoticeResponse ${report(fields)}`,
  T: rowDescription,
  D: (fields) => ['DataRow', ...fields.repeat(() => wordOf(fields.value()))].join(' '),
  C: (fields) => `CommandComplete ${fields.string()}`,
  I: () => 'EmptyQueryResponse',
  '1': () => 'ParseComplete',
  '2': () => 'BindComplete',
  '3': () => 'CloseComplete',
  n: () => 'NoData',
  s: () => 'PortalSuspended',
  t: (fields) => ['ParameterDescription', ...fields.repeat(() => typeName(fields.int32()))].join(' '),
  A: (fields) => `NotificationResponse ${fields.signedInt32()} ${wordOf(fields.text())} ${wordOf(fields.text())}`,
  G: (fields) => `CopyInResponse ${copyFormats(fields)}`,
  H: (fields) => `CopyOutResponse ${copyFormats(fields)}`,
  d: (fields) => `CopyData ${wordOf(fields.rest())}`,
  c: () => 'CopyDone',
  V: (fields) => `FunctionCallResponse ${wordOf(fields.value())}`,
};

const AUTHENTICATION: Record<number, string> = { 0: 'Ok', 3: 'CleartextPassword', 10: 'SASL', 11: 'SASLContinue', 12: 'SASLFinal' };

function authentication(fields: Fields): string {
  const kind = fields.int32();
  const name = `Authentication${AUTHENTICATION[kind] ?? kind}`;
  return kind === 10 ? [name, ...fields.strings()].join(' ') : name;
}

function negotiate(fields: Fields): string {
  const version = `${fields.int16()}.${fields.int16()}`;
  const count = fields.int32();
  return ['NegotiateProtocolVersion', version, ...Array.from({ length: count }, () => fields.string())].join(' ');
}

const REPORT_FIELDS: Record<string, string> = {
  D: 'detail',
  H: 'hint',
  P: 'position',
  p: 'internalPosition',
  q: 'internalQuery',
  W: 'where',
  s: 'schema',
  t: 'table',
  c: 'column',
  d: 'dataType',
  n: 'constraint',
};

function report(fields: Fields): string {
  const values = new Map<string, string>();
  for (let code = fields.character(); code !== '\0'; code = fields.character()) values.set(code, fields.string());
  const [severity = 'none', sqlstate = 'none', message = 'none'] = ['S', 'C', 'M'].map((code) => values.get(code));
  const plainSeverity = values.get('V');
  const marks = plainSeverity === severity ? [] : [`V=${plainSeverity ?? 'none'}`];
  for (const code of ['V', 'S', 'C', 'M', 'F', 'L', 'R']) values.delete(code);
  const rest = [...values].map(([code, text]) => `${REPORT_FIELDS[code] ?? code}=${wordOf(Buffer.from(text))}`);
  return [severity, sqlstate, JSON.stringify(message), ...marks, ...rest].join(' ');
}

/** OID → name and length in bytes (-1: varying) of the types that scripts show by name. */
const TYPES: Record<number, readonly [name: string, length: number]> = {
  16: ['bool', 1],
  17: ['bytea', -1],
  19: ['name', 64],
  20: ['int8', 8],
  21: ['int2', 2],
  23: ['int4', 4],
  25: ['text', -1],
  26: ['oid', 4],
  114: ['json', -1],
  701: ['float8', 8],
  1007: ['int4[]', -1],
  1042: ['bpchar', -1],
  1043: ['varchar', -1],
  1082: ['date', 4],
  1184: ['timestamptz', 8],
  1700: ['numeric', -1],
  2278: ['void', 4],
  2950: ['uuid', 16],
  3802: ['jsonb', -1],
};

const FIRST_NEW_OID = 16384;

function typeName(oid: number): string {
  return oid >= FIRST_NEW_OID ? 'new' : (TYPES[oid]?.[0] ?? String(oid));
}

function rowDescription(fields: Fields): string {
  return `RowDescription ${fields.repeat(() => column(fields)).join(', ')}`.trimEnd();
}

function column(fields: Fields): string {
  const name = fields.text();
  const tableOid = fields.int32();
  const attribute = fields.int16();
  const type = fields.int32();
  const length = fields.signedInt16();
  const modifier = fields.signedInt32();
  const format = fields.int16();
  const parts = [wordOf(name), typeName(type)];
  if (length !== (TYPES[type]?.[1] ?? -1)) parts.push(`length=${length}`);
  if (modifier !== -1) parts.push(`modifier=${modifier}`);
  if (tableOid !== 0) parts.push(`@${attribute}`);
  if (format !== 0) parts.push(format === 1 ? 'binary' : `format=${format}`);
  return parts.join(' ');
}

function copyFormats(fields: Fields): string {
  const overall = fields.byte() === 1 ? 'binary' : 'text';
  const columns = fields.repeat(() => (fields.int16() === 1 ? 'binary' : 'text'));
  return `${overall} [${columns.join(' ')}]`;
}

/** A cursor over a message's body. */
class Fields {
  readonly #body: Buffer;
  #at = 0;

  constructor(body: Buffer) {
    this.#body = body;
  }

  skip(bytes: number): this {
    this.#at += bytes;
    return this;
  }

  byte(): number {
    return this.#body.readUInt8(this.skip(1).#at - 1);
  }

  character(): string {
    return String.fromCharCode(this.byte());
  }

  int16(): number {
    return this.#body.readUInt16BE(this.skip(2).#at - 2);
  }

  signedInt16(): number {
    return this.#body.readInt16BE(this.skip(2).#at - 2);
  }

  int32(): number {
    return this.#body.readUInt32BE(this.skip(4).#at - 4);
  }

  signedInt32(): number {
    return this.#body.readInt32BE(this.skip(4).#at - 4);
  }

  /** Up to the terminating NUL. */
  text(): Buffer {
    const end = this.#body.indexOf(0, this.#at);
    if (end < 0) throw new Error('a string has no end');
    const text = this.#body.subarray(this.#at, end);
    this.#at = end + 1;
    return text;
  }

  string(): string {
    return this.text().toString('utf8');
  }

  /** Strings up to an empty one. */
  strings(): string[] {
    const strings: string[] = [];
    for (let text = this.string(); text !== ''; text = this.string()) strings.push(text);
    return strings;
  }

  /** Int32 length (-1: null), then the bytes. */
  value(): Buffer | null {
    const length = this.signedInt32();
    return length < 0 ? null : this.#body.subarray(this.skip(length).#at - length, this.#at);
  }

  repeat<T>(item: () => T): T[] {
    return Array.from({ length: this.int16() }, item);
  }

  rest(): Buffer {
    return this.#body.subarray(this.#at);
  }
}
