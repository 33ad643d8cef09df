import { stringEnd } from './null-terminated-strings.ts';
import { violation } from './protocol-violation.ts';

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
export function errorFieldTexts(fields: ErrorFields): string[] {
  const always = [`S${fields.severity}`, `V${fields.severity}`, `C${fields.code}`, `M${fields.message}`];
  const names = Object.keys(FIELD_CODES) as (keyof typeof FIELD_CODES)[];
  const present = names.filter((name) => fields[name] !== undefined).map((name) => `${FIELD_CODES[name]}${fields[name]}`);
  return [...always, ...present, ''];
}
