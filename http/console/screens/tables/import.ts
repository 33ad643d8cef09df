import { type ApiError, asApiError, call, newIdempotencyKey } from '../../api/client.ts';
import type { SchemaTable } from '../../api/database-schema.ts';
import { me } from '../../session/session.ts';
import type { OpenTable } from './open-table.ts';
import { importSql, isWritable, type TableColumn } from './sql.ts';

/** Which field of a record goes into which column. */
interface Target {
  readonly field: number;
  readonly column: TableColumn;
}

export interface ImportPlan {
  readonly table: SchemaTable;
  readonly targets: readonly Target[];
  /** How many fields each record has. */
  readonly fieldCount: number;
  readonly timeoutMs: number;
}

interface Progress {
  readonly rows: number;
  readonly bytesRead: number;
}

/** An import that has ended before the end of the file. */
export class ImportError extends Error {
  override readonly name = 'ImportError';
  override readonly cause: unknown;
  /** Where it failed, as far as that is known. */
  readonly lines: readonly [first: number, last: number] | undefined;

  constructor(cause: unknown, lines?: readonly [number, number]) {
    super(asApiError(cause).message);
    this.cause = cause;
    this.lines = lines;
  }
}

/** One statement inserts so many rows. */
export const BATCH_ROWS = 500;

/** Inserts part after part, each in a transaction of its own. */
export class ImportRun {
  readonly #plan: ImportPlan;
  readonly #parts: FileParts;
  #part: Part;
  /** The same part is stored once, however often it is sent. */
  #requestKey = newIdempotencyKey();
  #rows = 0;

  constructor(plan: ImportPlan, first: Part, parts: FileParts) {
    this.#plan = plan;
    this.#part = first;
    this.#parts = parts;
  }

  /** How many rows are stored. */
  get rows(): number {
    return this.#rows;
  }

  /**
   * Goes on with the first part that is not stored.
   * @param onProgress called when a part is stored
   * @throws ImportError @throws DOMException AbortError
   */
  async go(onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      const { records, isLast, bytesRead } = this.#part;
      await importPart(this.#plan, records, this.#requestKey, signal);
      this.#rows += records.length;
      onProgress({ rows: this.#rows, bytesRead });
      if (isLast) return;
      // A part that cannot be read is not sent, and the one before it is not sent again.
      this.#part = { records: [], isLast: false, bytesRead };
      this.#part = await nextOf(this.#parts);
      this.#requestKey = newIdempotencyKey();
    }
  }
}

async function nextOf(parts: FileParts): Promise<Part> {
  try {
    return await parts.next();
  } catch (error) {
    throw error instanceof CsvError ? new ImportError(error, [error.line, error.line]) : new ImportError(error);
  }
}

async function importPart(plan: ImportPlan, records: readonly CsvRecord[], requestKey: string, signal: AbortSignal): Promise<void> {
  checkFieldCounts(records, plan.fieldCount);
  const batches = batchesOf(records);
  if (batches.length === 0) return;
  try {
    await send(plan, batches, { signal, headers: { 'idempotency-key': requestKey } });
  } catch (thrown) {
    if (signal.aborted) throw thrown;
    const error = asApiError(thrown);
    const batch = batches[error.problem.statementIndex ?? -1];
    throw batch === undefined || !isAboutValues(error) ? new ImportError(error) : await findRecord(plan, batch, error, signal);
  }
}

function checkFieldCounts(records: readonly CsvRecord[], fieldCount: number): void {
  const wrong = records.find(({ fields }) => fields.length !== fieldCount);
  if (wrong === undefined) return;
  const { line, fields } = wrong;
  throw new ImportError(new CsvError(line, `the record has ${fields.length} fields, and the first one ${fieldCount}`), [line, line]);
}

/** Data exceptions and integrity constraint violations. @see https://www.postgresql.org/docs/current/errcodes-appendix.html */
function isAboutValues({ problem: { sqlstate } }: ApiError): boolean {
  return sqlstate?.startsWith('22') === true || sqlstate?.startsWith('23') === true;
}

/** Finds the first record that fails, by trials that are rolled back. */
async function findRecord(plan: ImportPlan, batch: readonly CsvRecord[], error: ApiError, signal: AbortSignal): Promise<ImportError> {
  const failureOf = async (count: number): Promise<ApiError | undefined> => {
    try {
      await send(plan, [batch.slice(0, count)], { signal, isTrial: true });
      return undefined;
    } catch (thrown) {
      signal.throwIfAborted();
      return asApiError(thrown);
    }
  };
  const whole = [batch[0]?.line ?? 0, batch.at(-1)?.line ?? 0] as const;
  let found = await failureOf(batch.length);
  // It fails only together with what came before.
  if (found === undefined || !isAboutValues(found)) return new ImportError(error, whole);
  let [passes, fails] = [0, batch.length];
  while (fails - passes > 1) {
    const middle = Math.floor((passes + fails) / 2);
    const failure = await failureOf(middle);
    if (failure === undefined) passes = middle;
    else {
      fails = middle;
      found = failure;
    }
  }
  const line = batch[passes]?.line ?? whole[0];
  return new ImportError(found, [line, line]);
}

interface SendOptions {
  readonly signal: AbortSignal;
  readonly headers?: Readonly<Record<string, string>>;
  readonly isTrial?: boolean;
}

async function send(
  { table, targets, timeoutMs }: ImportPlan,
  batches: readonly (readonly CsvRecord[])[],
  options: SendOptions,
): Promise<void> {
  const { signal, headers, isTrial = false } = options;
  const sql = importSql(
    table,
    targets.map(({ column }) => column),
  );
  const statements = batches.map((records) => ({
    sql,
    params: targets.map(({ field }) => records.map(({ fields }) => fields[field] ?? null)),
  }));
  await call('POST', 'api/transaction', {
    body: { statements, timeoutMs, rollback: isTrial },
    signal,
    isSafe: true,
    ...(headers === undefined ? {} : { headers }),
  });
}

function batchesOf(records: readonly CsvRecord[]): readonly (readonly CsvRecord[])[] {
  const count = Math.ceil(records.length / BATCH_ROWS);
  return Array.from({ length: count }, (_, index) => records.slice(index * BATCH_ROWS, (index + 1) * BATCH_ROWS));
}

/** What is known of a file before anything of it is imported. */
export interface Preview {
  readonly file: File;
  readonly isHeaderless: boolean;
  /** What the fields are called. */
  readonly names: readonly string[];
  /** The place of the column that each field goes into; undefined: it is left out. */
  readonly places: readonly (number | undefined)[];
  readonly first: Part;
  readonly parts: FileParts;
}

/** Well below what the server takes: a character may have three bytes. @see http/README.md, Limits */
const PART_CHARACTERS = 4_000_000;
const PART_VALUES = 500_000;
const TIMEOUT_MS = 30_000;

function limits(): PartLimits {
  return { characters: PART_CHARACTERS, values: PART_VALUES, records: BATCH_ROWS * (me.peek()?.limits.maxStatements ?? 1) };
}

/** @throws CsvError */
export async function readPreview(file: File, { columns }: OpenTable, isHeaderless: boolean): Promise<Preview> {
  const parts = await FileParts.open(file, limits());
  const header = isHeaderless ? undefined : await parts.takeFirst();
  const first = await parts.next();
  const model = header ?? first.records[0];
  if (model === undefined || first.records.length === 0) throw new CsvError(1, 'the file has no rows');
  const names = model.fields.map((field, index) => (isHeaderless ? `field ${index + 1}` : (field ?? '')));
  const writable = columns.map((column, place) => (isWritable(column) ? place : undefined));
  const places = isHeaderless
    ? names.map((_, index) => writable.filter((place) => place !== undefined)[index])
    : names.map((name) => writable.find((place) => place !== undefined && isNamed(columns[place]?.name, name)));
  return { file, isHeaderless, names, places, first, parts };
}

function isNamed(column: string | undefined, name: string): boolean {
  return column?.toLowerCase() === name.trim().toLowerCase();
}

export function planOf(preview: Preview, open: OpenTable, timeoutMs = TIMEOUT_MS): ImportPlan {
  return { table: open.table, targets: targetsOf(preview, open), fieldCount: preview.names.length, timeoutMs };
}

/** The columns that fields go into. */
export function targetsOf({ places }: Preview, { columns }: OpenTable): readonly Target[] {
  return places.flatMap((place, field) => {
    const column = place === undefined ? undefined : columns[place];
    return column === undefined ? [] : [{ field, column }];
  });
}

/** A record: its fields, where NULL is an empty field without quotes, and the line that it begins in. */
export interface CsvRecord {
  readonly line: number;
  readonly fields: readonly (string | null)[];
}

/** What is not CSV. */
export class CsvError extends Error {
  override readonly name = 'CsvError';
  readonly line: number;

  constructor(line: number, message: string) {
    super(message);
    this.line = line;
  }
}

const QUOTE = '"';

/** What the last character was part of. */
type State = 'start' | 'bare' | 'quoted' | 'after-quote';

/**
 * Reads CSV that comes in parts, split anywhere. Lines end with LF, CR LF or CR; empty ones between records are left out.
 * @see https://www.rfc-editor.org/rfc/rfc4180
 */
export class CsvReader {
  readonly #separator: string;
  #state: State = 'start';
  /** The part of the field that has been read. */
  #field = '';
  #fields: (string | null)[] = [];
  #line = 1;
  #firstLine = 1;
  #wasCr = false;

  constructor(separator = ',') {
    this.#separator = separator;
  }

  /** @returns the records that end in this part @throws CsvError */
  push(text: string): CsvRecord[] {
    const records: CsvRecord[] = [];
    let at = 0;
    while (at < text.length) at = this.#state === 'quoted' ? this.#readQuoted(text, at) : this.#readBare(text, at, records);
    return records;
  }

  /** The text has ended. @returns its last record, where no line end follows it @throws CsvError */
  end(): CsvRecord[] {
    if (this.#state === 'quoted') throw new CsvError(this.#firstLine, 'the quotes that begin in this record do not end');
    const records: CsvRecord[] = [];
    this.#endRecord(records);
    return records;
  }

  /** Inside of quotes all is text but a quote, which is written twice. */
  #readQuoted(text: string, at: number): number {
    const quote = text.indexOf(QUOTE, at);
    const end = quote < 0 ? text.length : quote;
    for (let index = at; index < end; index += 1) this.#countLine(text.charAt(index));
    this.#field += text.slice(at, end);
    if (quote < 0) return end;
    this.#state = 'after-quote';
    this.#wasCr = false;
    return quote + 1;
  }

  #readBare(text: string, at: number, records: CsvRecord[]): number {
    const character = text.charAt(at);
    if (character === '\n' || character === '\r') {
      // The LF of a CR LF belongs to the line that has ended.
      if (character === '\r' || !this.#wasCr) this.#endRecord(records);
      this.#countLine(character);
      this.#firstLine = this.#line;
    } else {
      this.#wasCr = false;
      if (character === this.#separator) this.#endField();
      else if (character === QUOTE) this.#quote();
      else return this.#readPlain(text, at);
    }
    return at + 1;
  }

  /** Reads ordinary characters, up to the next separator, quote or line end. */
  #readPlain(text: string, at: number): number {
    if (this.#state === 'after-quote') throw new CsvError(this.#line, 'there is text behind the quotes of a field');
    let end = at + 1;
    while (end < text.length && !this.#hasMeaning(text.charAt(end))) end += 1;
    this.#field += text.slice(at, end);
    this.#state = 'bare';
    return end;
  }

  #hasMeaning(character: string): boolean {
    return character === this.#separator || character === QUOTE || character === '\n' || character === '\r';
  }

  #quote(): void {
    if (this.#state === 'bare') throw new CsvError(this.#line, 'a field that has quotes must begin with them');
    if (this.#state === 'after-quote') this.#field += QUOTE;
    this.#state = 'quoted';
  }

  #endField(): void {
    this.#fields.push(this.#state === 'start' ? null : this.#field);
    this.#field = '';
    this.#state = 'start';
  }

  #endRecord(records: CsvRecord[]): void {
    if (this.#state === 'start' && this.#fields.length === 0) return;
    this.#endField();
    records.push({ line: this.#firstLine, fields: this.#fields });
    this.#fields = [];
  }

  #countLine(character: string): void {
    if (character === '\r' || (character === '\n' && !this.#wasCr)) this.#line += 1;
    this.#wasCr = character === '\r';
  }
}

/** The separator that the first line has most of. */
export function guessSeparator(beginning: string): string {
  const [first = ''] = beginning.split(/\r|\n/, 1);
  const counts = [',', ';', '\t', '|'].map((separator) => [separator, first.split(separator).length] as const);
  return counts.reduce((best, one) => (one[1] > best[1] ? one : best))[0];
}

/** What becomes one transaction: as many records as the server takes in one request. */
interface Part {
  readonly records: readonly CsvRecord[];
  /** The file ends with it. */
  readonly isLast: boolean;
  /** So much of the file has been read. */
  readonly bytesRead: number;
}

export interface PartLimits {
  readonly records: number;
  readonly values: number;
  readonly characters: number;
}

/** Quotes and comma of a value in JSON. */
const VALUE_CHARACTERS = 3;

/** Reads a file in parts, and never more of it than one of them. */
export class FileParts {
  readonly separator: string;
  readonly #chunks: AsyncGenerator<readonly [text: string, bytesRead: number]>;
  readonly #reader: CsvReader;
  readonly #limits: PartLimits;
  #waiting: CsvRecord[] = [];
  #bytesRead = 0;
  #isAtEnd = false;

  private constructor(separator: string, chunks: AsyncGenerator<readonly [string, number]>, limits: PartLimits) {
    this.separator = separator;
    this.#chunks = chunks;
    this.#reader = new CsvReader(separator);
    this.#limits = limits;
  }

  /** @param separator undefined: the one that the first line has most of @throws CsvError @throws TypeError for what is not UTF-8 */
  static async open(file: Blob, limits: PartLimits, separator?: string): Promise<FileParts> {
    const chunks = textOf(file);
    const first = await chunks.next();
    const [text, bytesRead] = first.done ? ['', 0] : first.value;
    const parts = new FileParts(separator ?? guessSeparator(text), chunks, limits);
    parts.#push(text, bytesRead);
    return parts;
  }

  /** The first record, which is then not part of what follows. */
  async takeFirst(): Promise<CsvRecord | undefined> {
    while (this.#waiting.length === 0 && (await this.#readMore()));
    return this.#waiting.shift();
  }

  /** @throws CsvError */
  async next(): Promise<Part> {
    let taken = 0;
    let size = { records: 0, values: 0, characters: 0 };
    for (;;) {
      for (; taken < this.#waiting.length; taken += 1) {
        const record = this.#waiting[taken];
        if (record === undefined) break;
        const next = grown(size, record);
        if (taken > 0 && exceeds(next, this.#limits)) return this.#take(taken);
        size = next;
      }
      if (!(await this.#readMore())) return this.#take(taken);
    }
  }

  async close(): Promise<void> {
    await this.#chunks.return(undefined);
  }

  #take(count: number): Part {
    const records = this.#waiting.slice(0, count);
    this.#waiting = this.#waiting.slice(count);
    return { records, isLast: this.#isAtEnd && this.#waiting.length === 0, bytesRead: this.#bytesRead };
  }

  /** @returns whether there may be more */
  async #readMore(): Promise<boolean> {
    if (this.#isAtEnd) return false;
    const { done, value } = await this.#chunks.next();
    if (done) {
      this.#waiting.push(...this.#reader.end());
      this.#isAtEnd = true;
    } else this.#push(...value);
    return true;
  }

  #push(text: string, bytesRead: number): void {
    for (const record of this.#reader.push(text)) this.#waiting.push(record);
    this.#bytesRead = bytesRead;
  }
}

async function* textOf(file: Blob): AsyncGenerator<readonly [string, number]> {
  // A byte order mark is left out by it.
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const reader = file.stream().getReader();
  let bytesRead = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      bytesRead += value.length;
      yield [decoder.decode(value, { stream: true }), bytesRead];
    }
    yield [decoder.decode(), bytesRead];
  } finally {
    await reader.cancel();
  }
}

function grown({ records, values, characters }: PartLimits, { fields }: CsvRecord): PartLimits {
  const length = fields.reduce((sum, field) => sum + (field?.length ?? 0) + VALUE_CHARACTERS, 0);
  return { records: records + 1, values: values + fields.length, characters: characters + length };
}

function exceeds(size: PartLimits, limits: PartLimits): boolean {
  return size.records > limits.records || size.values > limits.values || size.characters > limits.characters;
}
