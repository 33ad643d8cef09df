import type { SchemaTable } from '../../../api/database-schema.ts';
import { comparable, type Filter, whereSql } from './filter-conditions.ts';
import { join, type Sql, sql, type ValueText, value } from './parameterized-sql.ts';
import type { RowIdentity } from './row-identity.ts';
import { selected, type TableColumn } from './table-column.ts';
import { tableName } from './table-name.ts';

export interface Sort {
  readonly column: string;
  readonly isDescending: boolean;
}

/** Which rows are read, and in which order. */
export interface Browse {
  readonly table: SchemaTable;
  readonly columns: readonly TableColumn[];
  readonly identity: RowIdentity;
  readonly sort: Sort | undefined;
  readonly filters: readonly Filter[];
}

/** What the rows are sorted by, one after the other; all of it in one direction. */
interface Term {
  readonly expression: string;
  /** Behind the values that it is compared with. */
  readonly cast: string;
  readonly isNullable: boolean;
}

/** Where a page has ended: the values of the terms in its last row, or how many rows were read. */
export type Cursor = { readonly after: readonly ValueText[] } | { readonly offset: number };

/** A page of rows; behind the columns comes what {@link cursorColumns} says. */
export function pageSql(browse: Browse, cursor: Cursor | undefined, limit: number): Sql {
  const terms = termsOf(browse);
  const direction = browse.sort?.isDescending ? ' DESC' : '';
  const list = [...browse.columns.map(selected), ...(browse.identity.kind === 'ctid' ? ['ctid'] : [])].join(', ');
  const after = cursor !== undefined && 'after' in cursor ? [beyond(terms, cursor.after, direction !== '')] : [];
  // A name alone would mean what is selected, which may be a text.
  const order = terms.length === 0 ? '' : `\nORDER BY ${terms.map(({ expression }) => `t.${expression}${direction}`).join(', ')}`;
  const offset = cursor !== undefined && 'offset' in cursor && cursor.offset > 0 ? ` OFFSET ${cursor.offset}` : '';
  return sql`SELECT ${list}\nFROM ${tableName(browse.table)} AS t${whereSql(browse.columns, browse.filters, after)}${order}\nLIMIT ${String(limit)}${offset}`;
}

export function countSql({ table, columns, filters }: Browse): Sql {
  return sql`SELECT count(*) FROM ${tableName(table)}${whereSql(columns, filters)}`;
}

/** The same rows for somebody who goes on in an editor. */
export function editorSql(browse: Browse): string {
  const { table, columns, filters, sort } = browse;
  const sorted = columns.find(({ name }) => name === sort?.column);
  const keys = browse.identity.kind === 'key' ? termsOf(browse) : sorted === undefined ? [] : [{ expression: comparable(sorted) }];
  const order = keys.map(({ expression }) => `${expression}${sort?.isDescending ? ' DESC' : ''}`).join(', ');
  const list = columns.map(({ sqlName }) => sqlName).join(', ') || '*';
  return `${sql`SELECT ${list}\nFROM ${tableName(table)}${whereSql(columns, filters)}`}${order && `\nORDER BY ${order}`}\nLIMIT 100;`;
}

/**
 * Which values of a row the next page begins after, by their places among what {@link pageSql} selects.
 * @returns undefined where rows are counted
 */
export function cursorColumns({ columns, identity, sort }: Browse): readonly number[] | undefined {
  if (identity.kind === 'offset') return undefined;
  const names = sort === undefined ? [] : [sort.column];
  if (identity.kind === 'ctid') return [...names.map((name) => columns.findIndex((column) => column.name === name)), columns.length];
  const keys = identity.columns.filter((name) => name !== sort?.column);
  return [...names, ...keys].map((name) => columns.findIndex((column) => column.name === name));
}

function termsOf({ columns, identity, sort }: Browse): readonly Term[] {
  const named = (name: string): readonly Term[] => {
    const column = columns.find((one) => one.name === name);
    return column === undefined ? [] : [{ expression: comparable(column), cast: column.cast, isNullable: !column.notNull }];
  };
  const sorted = sort === undefined ? [] : named(sort.column);
  if (identity.kind === 'offset') return sorted;
  if (identity.kind === 'ctid') return [...sorted, { expression: 'ctid', cast: '', isNullable: false }];
  return [...sorted, ...identity.columns.filter((name) => name !== sort?.column).flatMap(named)];
}

/** The rows that come after these values. NULL comes last, or first when descending. */
function beyond(terms: readonly Term[], after: readonly ValueText[], isDescending: boolean): Sql {
  const sign = isDescending ? '<' : '>';
  if (terms.every(({ isNullable }) => !isNullable)) {
    const expressions = terms.map(({ expression }) => expression).join(', ');
    const values = join(
      terms.map(({ cast }, index) => sql`${value(after[index] ?? null)}${cast}`),
      ', ',
    );
    return terms.length === 1 ? sql`${expressions} ${sign} ${values}` : sql`(${expressions}) ${sign} (${values})`;
  }
  const ways = terms.flatMap((term, index) => {
    const further = furtherThan(term, after[index] ?? null, isDescending);
    const same = terms.slice(0, index).map((earlier, place) => equals(earlier, after[place] ?? null));
    return further === undefined ? [] : [join([...same, further], ' AND ')];
  });
  return sql`(${join(ways, ' OR ')})`;
}

function equals({ expression, cast }: Term, text: ValueText): Sql {
  return text === null ? sql`${expression} IS NULL` : sql`${expression} = ${value(text)}${cast}`;
}

/** @returns undefined where nothing comes after the value */
function furtherThan({ expression, cast, isNullable }: Term, text: ValueText, isDescending: boolean): Sql | undefined {
  if (text === null) return isDescending ? sql`${expression} IS NOT NULL` : undefined;
  if (isDescending) return sql`${expression} < ${value(text)}${cast}`;
  const greater = sql`${expression} > ${value(text)}${cast}`;
  return isNullable ? sql`(${greater} OR ${expression} IS NULL)` : greater;
}
