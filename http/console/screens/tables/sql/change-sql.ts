import type { ApiError } from '../../../api/api-error.ts';
import type { SchemaTable } from '../../../api/database-schema.ts';
import { join, type Sql, sql, type ValueText, value } from './parameterized-sql.ts';
import { selected, type TableColumn } from './table-column.ts';
import { tableName } from './table-name.ts';

/** A column with a value: what it is to become, or what it was when it was read. */
export interface ColumnValue {
  readonly column: TableColumn;
  readonly text: ValueText;
}

/** A row, by its key and by the values that it had when it was read. */
export interface KnownRow {
  readonly key: readonly ColumnValue[];
  readonly former: readonly ColumnValue[];
}

/** Changes the row as long as its key and the former values of what is changed are still the same. */
export function updateSql(table: SchemaTable, changes: readonly ColumnValue[], row: KnownRow): Sql {
  const set = changes.map(({ column, text }) => sql`${column.sqlName} = ${value(text)}`);
  return sql`UPDATE ${tableName(table)}\nSET ${join(set, ', ')}\nWHERE ${isUnchanged(row)}`;
}

/** Deletes the row as long as all of it is still the same. */
export function deleteSql(table: SchemaTable, row: KnownRow): Sql {
  return sql`DELETE FROM ${tableName(table)}\nWHERE ${isUnchanged(row)}`;
}

/** Columns that are left out get their defaults. @returns also the row as it is then */
export function insertSql(table: SchemaTable, values: readonly ColumnValue[]): Sql {
  if (values.length === 0) return sql`INSERT INTO ${tableName(table)} DEFAULT VALUES`;
  const names = values.map(({ column }) => column.sqlName).join(', ');
  const texts = values.map(({ text }) => value(text));
  return sql`INSERT INTO ${tableName(table)} (${names})\nVALUES (${join(texts, ', ')})`;
}

export function returning(statement: Sql, columns: readonly TableColumn[]): Sql {
  return sql`${statement}\nRETURNING ${columns.map(selected).join(', ') || '1'}`;
}

export function rowSql(table: SchemaTable, columns: readonly TableColumn[], key: readonly ColumnValue[]): Sql {
  return sql`SELECT ${columns.map(selected).join(', ')} FROM ${tableName(table)} WHERE ${isUnchanged({ key, former: [] })}`;
}

/** Stands in the error when a row is not what it was. */
const MARK = 'rows that are still the same: ';
/** `invalid_text_representation` */
const NOT_A_NUMBER = '22P02';

/**
 * An UPDATE or DELETE that fails unless it changes exactly one row, so that the transaction that it is part of is rolled back. The
 * message is read as a number then, which it is not.
 */
export function ofOneRow(statement: Sql): Sql {
  return sql`WITH changed AS (\n${statement}\nRETURNING 1)\nSELECT CASE count(*) WHEN 1 THEN 1 ELSE ('${MARK}' || count(*))::integer END FROM changed`;
}

/** Whether {@link ofOneRow} has failed because the row is not what it was. */
export function isStaleRow({ problem: { sqlstate, detail } }: ApiError): boolean {
  return sqlstate === NOT_A_NUMBER && detail.includes(MARK);
}

function isUnchanged({ key, former }: KnownRow): Sql {
  const keyNames = new Set(key.map(({ column }) => column.name));
  const others = former.filter(({ column }) => !keyNames.has(column.name));
  return join(
    [...key.map(({ column, text }) => sql`${column.sqlName} = ${value(text)}${column.cast}`), ...others.map(hasValue)],
    '\n  AND ',
  );
}

/** Where `=` is not exact, or is not there, the texts are compared: both written with the same settings. */
function hasValue({ column: { sqlName, isExact, isText, type }, text }: ColumnValue): Sql {
  if (text === null) return sql`${sqlName} IS NULL`;
  if (isExact) return sql`${sqlName} = ${value(text)}`;
  return isText ? sql`${sqlName}::text = ${value(text)}` : sql`${sqlName}::text = ${value(text)}::${type}::text`;
}
