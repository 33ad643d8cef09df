import { type ForeignKey, isTable, type Schema, type SchemaTable } from '../../../api/database-schema.ts';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';
import { type Box, boxOf, idOf } from './table-box.ts';

/** Of more tables the layout would take too long. */
const TABLES_MAX = 400;

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
