import type { ForeignKey, Schema, SchemaTable } from '../../../api/database-schema.ts';
import { goTo } from '../../../shell/route.ts';
import type { Filter } from '../sql/filter-conditions.ts';
import type { ValueText } from '../sql/parameterized-sql.ts';
import { tableName } from '../sql/table-name.ts';
import { showRows } from './recent-tables.ts';

export interface Reference {
  readonly title: string;
  readonly run: () => void;
}

/** @returns the value of a column in the row; undefined: there is none yet */
export type TextIn = (column: string) => ValueText | undefined;

/** Where the foreign keys of a row's column lead, and the rows of other tables that refer to the row. */
export function referencesOf({ tables }: Schema, table: SchemaTable, column: string, textIn: TextIn): readonly Reference[] {
  const outwards = table.foreignKeys.flatMap((key) => {
    const target = tables.find(({ schema, name }) => schema === key.referencedSchema && name === key.referencedTable);
    if (target === undefined || !key.columns.includes(column)) return [];
    return link(`Go to the row of ${shortName(table, target)}`, target, filtersOf(key.referencedColumns, key.columns, textIn));
  });
  const inwards = tables.flatMap((other) =>
    other.foreignKeys
      .filter((key) => refersTo(key, table))
      .flatMap((key) => link(titleOf(table, other, key), other, filtersOf(key.columns, key.referencedColumns, textIn))),
  );
  return [...outwards, ...inwards];
}

function titleOf(table: SchemaTable, other: SchemaTable, { columns }: ForeignKey): string {
  const isOnly = other.foreignKeys.filter((key) => refersTo(key, table)).length === 1;
  return `Rows of ${shortName(table, other)} that refer to this${isOnly ? '' : ` by ${columns.join(', ')}`}`;
}

function refersTo({ referencedSchema, referencedTable }: ForeignKey, { schema, name }: SchemaTable): boolean {
  return referencedSchema === schema && referencedTable === name;
}

/** A reference with a NULL in it leads nowhere. */
function filtersOf(columns: readonly string[], sources: readonly string[], textIn: TextIn): readonly Filter[] | undefined {
  const texts = sources.map(textIn);
  if (texts.some((text) => text === undefined || text === null)) return undefined;
  return columns.map((column, index) => ({ column, operator: 'equal', text: texts[index] ?? '' }));
}

function link(title: string, target: SchemaTable, filters: readonly Filter[] | undefined): readonly Reference[] {
  if (filters === undefined) return [];
  const run = () => {
    showRows(target, filters);
    goTo('tables', tableName(target));
  };
  return [{ title, run }];
}

function shortName(from: SchemaTable, { schema, name }: SchemaTable): string {
  return schema === from.schema ? name : `${schema}.${name}`;
}
