import type { SchemaTable } from '../../../api/database-schema.ts';
import { type ColumnValue, deleteSql, insertSql, type KnownRow, ofOneRow, returning, rowSql, updateSql } from '../sql/change-sql.ts';
import type { Sql, ValueText } from '../sql/parameterized-sql.ts';
import { type TableColumn, valueTextOf } from '../sql/table-column.ts';
import type { Staged, StagedInsert, StagedRow } from './staged-changes.ts';

/** A table whose rows have a key. */
export interface EditableTable {
  readonly table: SchemaTable;
  readonly columns: readonly TableColumn[];
  /** The places of the key's columns. */
  readonly key: readonly number[];
}

/** One staged change. */
export interface Change {
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
export function rereadSql(table: EditableTable, row: StagedRow, isSaved: boolean): Sql {
  const key = keyOf(table, row).map(({ column, text }, index) => {
    const changed = isSaved ? row.changes.get(table.key[index] ?? -1) : undefined;
    return { column, text: changed === undefined ? text : changed };
  });
  return rowSql(table.table, table.columns, key);
}

/** The places of the columns that decide whether somebody else has changed the row. */
export function watchedColumns({ columns }: EditableTable, { isDeleted, changes }: StagedRow): readonly number[] {
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
