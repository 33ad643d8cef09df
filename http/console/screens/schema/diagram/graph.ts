import { type ForeignKey, isTable, type Schema, type SchemaColumn, type SchemaTable } from '../../../api/database-schema.ts';
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
/** Of more tables the layout would take too long. */
export const TABLES_MAX = 400;

export interface Box {
  readonly id: string;
  readonly table: SchemaTable;
  readonly columns: readonly SchemaColumn[];
  /** Columns that are not shown. */
  readonly hidden: number;
  readonly width: number;
  readonly height: number;
}

export interface Relation {
  readonly id: string;
  readonly from: Box;
  readonly to: Box;
  readonly key: ForeignKey;
  /** At most one row refers to each. */
  readonly isUnique: boolean;
}

export interface Graph {
  readonly boxes: readonly Box[];
  readonly relations: readonly Relation[];
  /** Tables that are left out, because there are too many. */
  readonly left: number;
}

export interface GraphOptions {
  /** Only the tables of this schema. */
  readonly schemaName?: string | undefined;
  /** Only this table, and those that it has relations with. */
  readonly focus?: SchemaTable | undefined;
  readonly onlyKeys: boolean;
}

export function graphOf(schema: Schema, { schemaName, focus, onlyKeys }: GraphOptions): Graph {
  const all = schema.tables.filter((table) => isTable(table) && table.partitionOf === null);
  const wanted = focus === undefined ? all.filter((table) => schemaName === undefined || table.schema === schemaName) : around(focus, all);
  const shown = wanted.length <= TABLES_MAX ? wanted : mostRelated(wanted);
  const boxes = shown.map((table) => boxOf(table, onlyKeys));
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const relations = boxes.flatMap((from) =>
    from.table.foreignKeys.flatMap((key) => {
      const to = byId.get(targetOf(key));
      return to === undefined ? [] : [{ id: `${from.id} ${key.name}`, from, to, key, isUnique: isUnique(from.table, key) }];
    }),
  );
  return { boxes, relations, left: wanted.length - shown.length };
}

function idOf({ schema, name }: SchemaTable): string {
  return qualifiedName(schema, name);
}

function targetOf({ referencedSchema, referencedTable }: ForeignKey): string {
  return qualifiedName(referencedSchema, referencedTable);
}

function around(focus: SchemaTable, all: readonly SchemaTable[]): readonly SchemaTable[] {
  const id = idOf(focus);
  const targets = new Set([id, ...focus.foreignKeys.map(targetOf)]);
  return all.filter((table) => targets.has(idOf(table)) || table.foreignKeys.some((key) => targetOf(key) === id));
}

function mostRelated(tables: readonly SchemaTable[]): readonly SchemaTable[] {
  const counts = new Map<string, number>();
  const count = (id: string) => counts.set(id, (counts.get(id) ?? 0) + 1);
  for (const table of tables) {
    for (const key of table.foreignKeys) {
      count(idOf(table));
      count(targetOf(key));
    }
  }
  return tables.toSorted((one, other) => (counts.get(idOf(other)) ?? 0) - (counts.get(idOf(one)) ?? 0)).slice(0, TABLES_MAX);
}

function isUnique({ primaryKey, unique }: SchemaTable, { columns }: ForeignKey): boolean {
  return [...(primaryKey === null ? [] : [primaryKey]), ...unique].some((key) => key.columns.every((column) => columns.includes(column)));
}

function boxOf(table: SchemaTable, onlyKeys: boolean): Box {
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

/** Those of its primary and foreign keys. */
export function keyColumns({ primaryKey, foreignKeys }: SchemaTable): ReadonlySet<string> {
  return new Set([...(primaryKey?.columns ?? []), ...foreignKeys.flatMap(({ columns }) => columns)]);
}

/** How far below the upper edge of a box a column is; the head for one that is not shown. */
export function rowOffset({ columns }: Box, name: string | undefined): number {
  const index = columns.findIndex((column) => column.name === name);
  return index < 0 ? HEAD_PX / 2 : HEAD_PX + index * ROW_PX + ROW_PX / 2 + 3;
}
