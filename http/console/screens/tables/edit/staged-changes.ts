import { formatCount } from '../../../format.ts';
import type { ValueText } from '../sql/parameterized-sql.ts';

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
