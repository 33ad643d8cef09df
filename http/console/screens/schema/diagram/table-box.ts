import type { SchemaColumn, SchemaTable } from '../../../api/database-schema.ts';
import { formatType } from '../../../format.ts';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';

export const ROW_PX = 19;
export const HEAD_PX = 28;
const TEXT_PX = 6.7;
const TITLE_PX = 7.6;
const [WIDTH_MIN_PX, WIDTH_MAX_PX] = [130, 300];
const PADDING_PX = 46;
/** More columns are only counted. */
const COLUMNS_MAX = 24;

/** A table as it is drawn, with its size in pixels. */
export interface Box {
  readonly id: string;
  readonly table: SchemaTable;
  readonly columns: readonly SchemaColumn[];
  /** Columns that are not shown. */
  readonly hidden: number;
  readonly width: number;
  readonly height: number;
}

export function boxOf(table: SchemaTable, onlyKeys: boolean): Box {
  const keys = keyColumns(table);
  const wanted = onlyKeys ? table.columns.filter(({ name }) => keys.has(name)) : table.columns;
  const columns = wanted.slice(0, COLUMNS_MAX);
  const hidden = table.columns.length - columns.length;
  const widest = Math.max(
    table.name.length * TITLE_PX,
    ...columns.map(({ name, type }) => (name.length + Math.min(formatType(type).length, 14) + 2) * TEXT_PX),
  );
  return {
    id: idOf(table),
    table,
    columns,
    hidden,
    width: Math.round(Math.min(Math.max(widest + PADDING_PX, WIDTH_MIN_PX), WIDTH_MAX_PX)),
    height: HEAD_PX + (columns.length + (hidden > 0 ? 1 : 0)) * ROW_PX + 6,
  };
}

export function idOf({ schema, name }: SchemaTable): string {
  return qualifiedName(schema, name);
}

/** Those of its primary and foreign keys. */
export function keyColumns({ primaryKey, foreignKeys }: SchemaTable): ReadonlySet<string> {
  return new Set([...(primaryKey?.columns ?? []), ...foreignKeys.flatMap(({ columns }) => columns)]);
}

/** How far below the upper edge of a box a column is; the head for one that is not shown. */
export function rowOffset({ columns }: Box, name: string | undefined): number {
  const index = columns.findIndex((column) => column.name === name);
  return index < 0 ? HEAD_PX / 2 : HEAD_PX + index * ROW_PX + ROW_PX / 2 + 3;
}
