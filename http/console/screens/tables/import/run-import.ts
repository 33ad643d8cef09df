import { type ApiError, asApiError } from '../../../api/api-error.ts';
import { call } from '../../../api/client.ts';
import type { SchemaTable } from '../../../api/database-schema.ts';
import { newIdempotencyKey } from '../../../api/idempotency-key.ts';
import { importSql } from '../sql/import-sql.ts';
import type { TableColumn } from '../sql/table-column.ts';
import { CsvError, type CsvRecord } from './csv.ts';
import type { FileParts, Part } from './file-parts.ts';

/** Which field of a record goes into which column. */
export interface Target {
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

export interface Progress {
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
