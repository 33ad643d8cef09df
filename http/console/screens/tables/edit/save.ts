import { ApiError, asApiError } from '../../../api/api-error.ts';
import { callText } from '../../../api/client.ts';
import { newIdempotencyKey } from '../../../api/idempotency-key.ts';
import { elementsOf, membersOf } from '../../../api/raw-json.ts';
import { rowsOf } from '../../../api/reply-rows.ts';
import { isStaleRow } from '../sql/change-sql.ts';
import type { Sql } from '../sql/parameterized-sql.ts';
import type { Staged, StagedRow } from './staged-changes.ts';
import { type Change, changesOf, type EditableTable, rereadSql, watchedColumns } from './staged-statements.ts';

export type SaveResult =
  | { readonly state: 'saved'; readonly rows: SavedRows }
  /** Nothing is saved: these rows are not what they were; undefined: they are gone. */
  | { readonly state: 'conflict'; readonly current: ReadonlyMap<string, readonly string[] | undefined> }
  /** Nothing is saved, or it is not known. */
  | { readonly state: 'failed'; readonly error: ApiError; readonly change: Change | undefined };

/** The cells of rows as they are now. */
export interface SavedRows {
  readonly updated: ReadonlyMap<string, readonly string[] | undefined>;
  readonly inserted: readonly (readonly string[])[];
}

/** What is sent again is the same request: it happens once. */
const requestKeys = new WeakMap<Staged, string>();

/** Saves all in one transaction, or nothing. */
export async function save(table: EditableTable, staged: Staged, statementsMax: number): Promise<SaveResult> {
  const changes = changesOf(table, staged);
  const updated = [...staged.rows.values()].filter(({ isDeleted }) => !isDeleted);
  if (changes.length + updated.length > statementsMax) return failed(tooMany(statementsMax));
  try {
    const results = await runTransaction([...changes.map(({ run }) => run), ...updated.map((row) => rereadSql(table, row, true))], {
      headers: { 'idempotency-key': requestKeyOf(staged) },
    });
    const inserted = changes.flatMap(({ of }, index) => ('insert' in of ? (results[index] ?? []) : []));
    const read = updated.map((row, index) => [row.id, results[changes.length + index]?.[0]] as const);
    return { state: 'saved', rows: { updated: new Map(read), inserted } };
  } catch (thrown) {
    const error = asApiError(thrown);
    const change = changes[error.problem.statementIndex ?? -1];
    if (!isStaleRow(error) || change === undefined || !('row' in change.of)) return failed(error, change);
    return findConflicts(table, staged, change);
  }
}

/** Looks at all rows that are to be changed: where somebody has changed one, there may be more. */
async function findConflicts(table: EditableTable, staged: Staged, refused: Change): Promise<SaveResult> {
  const rows = [...staged.rows.values()];
  try {
    const results = await runTransaction(
      rows.map((row) => rereadSql(table, row, false)),
      { isReadOnly: true },
    );
    const current = rows.map((row, index) => [row, results[index]?.[0]] as const);
    const conflicts = current.filter(([row, cells]) => isConflict(table, row, cells)).map(([{ id }, cells]) => [id, cells] as const);
    return conflicts.length === 0 ? failed(leftAsItIs(), refused) : { state: 'conflict', current: new Map(conflicts) };
  } catch (thrown) {
    return failed(asApiError(thrown), undefined);
  }
}

function isConflict(table: EditableTable, row: StagedRow, cells: readonly string[] | undefined): boolean {
  return cells === undefined || watchedColumns(table, row).some((place) => cells[place] !== row.base[place]);
}

interface TransactionOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly isReadOnly?: boolean;
}

/** @returns the rows of each statement, their cells as JSON */
async function runTransaction(statements: readonly Sql[], { headers, isReadOnly = false }: TransactionOptions) {
  const text = await callText('POST', 'api/transaction', {
    body: { statements: statements.map((one) => one.toStatement()), rowMode: 'array', readOnly: isReadOnly },
    isSafe: isReadOnly || headers !== undefined,
    ...(headers === undefined ? {} : { headers }),
  });
  const [at = 0] = membersOf(text).get('results') ?? [];
  return elementsOf(text, at).map(rowsOf);
}

function requestKeyOf(staged: Staged): string {
  const known = requestKeys.get(staged) ?? newIdempotencyKey();
  requestKeys.set(staged, known);
  return known;
}

function failed(error: ApiError, change?: Change): SaveResult {
  return { state: 'failed', error, change };
}

function tooMany(statementsMax: number): ApiError {
  const detail = `at most ${statementsMax} statements run in one transaction, and a changed row needs two: save some of the changes first`;
  return notSaved(detail);
}

function leftAsItIs(): ApiError {
  const detail = 'the row is as it was, but PostgreSQL has not changed it: a trigger or a row-level security policy prevents that';
  return notSaved(detail);
}

function notSaved(detail: string): ApiError {
  return new ApiError({ status: 0, title: 'Not saved', detail, code: 'not_saved' });
}
