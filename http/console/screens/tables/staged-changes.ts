import { ApiError, asApiError, callText, newIdempotencyKey, rowsOf } from '../../api/client.ts';
import type { SchemaTable } from '../../api/database-schema.ts';
import { elementsOf, membersOf } from '../../api/raw-json.ts';
import { formatCount } from '../../format.ts';
import {
  type ColumnValue,
  deleteSql,
  insertSql,
  isStaleRow,
  type KnownRow,
  ofOneRow,
  returning,
  rowSql,
  type Sql,
  type TableColumn,
  updateSql,
  type ValueText,
  valueTextOf,
} from './sql.ts';

/*
 * Changes that wait to be saved, as values that are never changed themselves: what is sent is what was shown. Columns are named by their
 * places in the table.
 */

/** What is to become of a row that the database has. */
export interface StagedRow {
  readonly id: string;
  /** Its cells as they were read, as JSON. */
  readonly base: readonly string[];
  readonly changes: ReadonlyMap<number, ValueText>;
  readonly isDeleted: boolean;
  /** Somebody has changed it meanwhile; undefined in it: somebody has deleted it. */
  readonly conflict?: { readonly current: readonly string[] | undefined };
}

export interface StagedInsert {
  readonly id: number;
  /** Columns that are not here get their defaults. */
  readonly values: ReadonlyMap<number, ValueText>;
}

export interface Staged {
  readonly rows: ReadonlyMap<string, StagedRow>;
  readonly inserts: readonly StagedInsert[];
}

export const NOTHING: Staged = { rows: new Map(), inserts: [] };

export function countChanges({ rows, inserts }: Staged): { inserted: number; updated: number; deleted: number } {
  const deleted = [...rows.values()].filter(({ isDeleted }) => isDeleted).length;
  return { inserted: inserts.length, updated: rows.size - deleted, deleted };
}

/** `2 rows changed, 1 deleted` */
export function summaryOf(staged: Staged): string {
  const { inserted, updated, deleted } = countChanges(staged);
  const parts = (
    [
      [updated, 'changed'],
      [inserted, 'new'],
      [deleted, 'deleted'],
    ] as const
  ).filter(([count]) => count > 0);
  return parts.map(([count, what], index) => `${formatCount(count)}${index > 0 ? '' : count === 1 ? ' row' : ' rows'} ${what}`).join(', ');
}

export function isNothing({ rows, inserts }: Staged): boolean {
  return rows.size === 0 && inserts.length === 0;
}

export function conflictsIn({ rows }: Staged): readonly StagedRow[] {
  return [...rows.values()].filter(({ conflict }) => conflict !== undefined);
}

/** A row as it was read. */
export interface ReadRow {
  readonly id: string;
  readonly cells: readonly string[];
}

/** @param isSame the text is the one that the row has: then there is nothing to change */
export function stageCell(staged: Staged, row: ReadRow, column: number, text: ValueText, isSame: boolean): Staged {
  const known = staged.rows.get(row.id) ?? unchanged(row);
  const changes = new Map(known.changes);
  if (isSame) changes.delete(column);
  else changes.set(column, text);
  return withRow(staged, { ...known, changes });
}

export function stageDelete(staged: Staged, row: ReadRow, isDeleted: boolean): Staged {
  return withRow(staged, { ...(staged.rows.get(row.id) ?? unchanged(row)), isDeleted });
}

/** Forgets what was to become of a row. */
export function unstageRow(staged: Staged, id: string): Staged {
  const rows = new Map(staged.rows);
  rows.delete(id);
  return { ...staged, rows };
}

export function stageInsert(staged: Staged, values: ReadonlyMap<number, ValueText> = new Map()): Staged {
  const id = 1 + Math.max(0, ...staged.inserts.map((insert) => insert.id));
  return { ...staged, inserts: [{ id, values }, ...staged.inserts] };
}

/** @param text undefined: the default */
export function stageInsertValue(staged: Staged, id: number, column: number, text: ValueText | undefined): Staged {
  const inserts = staged.inserts.map((insert) => {
    if (insert.id !== id) return insert;
    const values = new Map(insert.values);
    if (text === undefined) values.delete(column);
    else values.set(column, text);
    return { id, values };
  });
  return { ...staged, inserts };
}

export function unstageInsert(staged: Staged, id: number): Staged {
  return { ...staged, inserts: staged.inserts.filter((insert) => insert.id !== id) };
}

/** @param current rows as they are now, by the id of those that were read; undefined: there is none any more */
export function withConflicts(staged: Staged, current: ReadonlyMap<string, readonly string[] | undefined>): Staged {
  const rows = new Map(staged.rows);
  for (const [id, cells] of current) {
    const row = rows.get(id);
    if (row !== undefined) rows.set(id, { ...row, conflict: { current: cells } });
  }
  return { ...staged, rows };
}

/** The own changes stand, now on top of what somebody else has made of the row. */
export function overwrite(staged: Staged, { conflict, ...row }: StagedRow): Staged {
  if (conflict?.current === undefined) return staged;
  return withRow(staged, { ...row, base: conflict.current });
}

function unchanged({ id, cells }: ReadRow): StagedRow {
  return { id, base: cells, changes: new Map(), isDeleted: false };
}

function withRow(staged: Staged, row: StagedRow): Staged {
  if (row.changes.size === 0 && !row.isDeleted) return unstageRow(staged, row.id);
  return { ...staged, rows: new Map(staged.rows).set(row.id, row) };
}

/** A table whose rows have a key. */
export interface EditableTable {
  readonly table: SchemaTable;
  readonly columns: readonly TableColumn[];
  /** The places of the key's columns. */
  readonly key: readonly number[];
}

/** One staged change. */
interface Change {
  /** As people read it. */
  readonly shown: Sql;
  /** As it runs. */
  readonly run: Sql;
  readonly of: { readonly row: StagedRow } | { readonly insert: StagedInsert };
}

/** What is freed comes first, what may need it last. */
export function changesOf(table: EditableTable, { rows, inserts }: Staged): readonly Change[] {
  const [deleted, updated] = [[...rows.values()].filter((row) => row.isDeleted), [...rows.values()].filter((row) => !row.isDeleted)];
  return [
    ...deleted.map((row) => deletion(table, row)),
    ...updated.map((row) => update(table, row)),
    ...inserts.map((one) => insertion(table, one)),
  ];
}

/** Reads a row by the key that it had, or has when it is saved. */
function rereadSql(table: EditableTable, row: StagedRow, isSaved: boolean): Sql {
  const key = keyOf(table, row).map(({ column, text }, index) => {
    const changed = isSaved ? row.changes.get(table.key[index] ?? -1) : undefined;
    return { column, text: changed === undefined ? text : changed };
  });
  return rowSql(table.table, table.columns, key);
}

/** The places of the columns that decide whether somebody else has changed the row. */
function watchedColumns({ columns }: EditableTable, { isDeleted, changes }: StagedRow): readonly number[] {
  return isDeleted ? columns.flatMap((column, index) => (column.generated === null ? [index] : [])) : [...changes.keys()];
}

function deletion(table: EditableTable, row: StagedRow): Change {
  const shown = deleteSql(table.table, known(table, row));
  return { shown, run: ofOneRow(shown), of: { row } };
}

function update(table: EditableTable, row: StagedRow): Change {
  const shown = updateSql(table.table, valuesOf(table, row.changes), known(table, row));
  return { shown, run: ofOneRow(shown), of: { row } };
}

function insertion(table: EditableTable, insert: StagedInsert): Change {
  const shown = insertSql(table.table, valuesOf(table, insert.values));
  return { shown, run: returning(shown, table.columns), of: { insert } };
}

function known(table: EditableTable, row: StagedRow): KnownRow {
  return { key: keyOf(table, row), former: watchedColumns(table, row).flatMap((place) => formerValue(table, row, place)) };
}

function keyOf(table: EditableTable, row: StagedRow): readonly ColumnValue[] {
  return table.key.flatMap((place) => formerValue(table, row, place));
}

function formerValue({ columns }: EditableTable, { base }: StagedRow, place: number): readonly ColumnValue[] {
  const column = columns[place];
  return column === undefined ? [] : [{ column, text: valueTextOf(column, base[place] ?? 'null') }];
}

function valuesOf({ columns }: EditableTable, values: ReadonlyMap<number, ValueText>): readonly ColumnValue[] {
  return [...values].flatMap(([place, text]) => {
    const column = columns[place];
    return column === undefined ? [] : [{ column, text }];
  });
}

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
