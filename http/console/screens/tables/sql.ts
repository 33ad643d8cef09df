import type { ApiError } from '../../api/client.ts';
import type { SchemaColumn, SchemaTable } from '../../api/database-schema.ts';
import { textOf } from '../../grid/value-text.ts';
import { qualifiedName, quoteIdentifier, quoteLiteral } from '../../quoting.ts';

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

export const OPERATORS = {
  equal: '=',
  unequal: '≠',
  less: '<',
  lessOrEqual: '≤',
  greater: '>',
  greaterOrEqual: '≥',
  contains: 'contains',
  begins: 'begins with',
  overlaps: 'overlaps',
  null: 'is NULL',
  notNull: 'is not NULL',
} as const;

export type Operator = keyof typeof OPERATORS;

export function isOperator(text: string): text is Operator {
  return Object.hasOwn(OPERATORS, text);
}

/** Rows are shown for which all filters are true. */
export interface Filter {
  readonly column: string;
  readonly operator: Operator;
  readonly text: string;
}

export function needsText(operator: Operator): boolean {
  return operator !== 'null' && operator !== 'notNull';
}

/** `WHERE …`, or nothing. Filters of columns that are not there are left out. */
function whereSql(columns: readonly TableColumn[], filters: readonly Filter[], more: readonly Sql[] = []): Sql {
  const conditions = filters.flatMap((filter) => {
    const column = columns.find(({ name }) => name === filter.column);
    return column === undefined ? [] : [conditionOf(column, filter)];
  });
  const all = [...conditions, ...more];
  return all.length === 0 ? sql`` : sql`\nWHERE ${join(all, '\n  AND ')}`;
}

const COMPARISONS: Readonly<Partial<Record<Operator, string>>> = {
  equal: '=',
  less: '<',
  lessOrEqual: '<=',
  greater: '>',
  greaterOrEqual: '>=',
};

/** PostgreSQL gives the parameter the type of the column. */
function conditionOf(column: TableColumn, { operator, text }: Filter): Sql {
  const { sqlName } = column;
  switch (operator) {
    case 'null':
      return sql`${sqlName} IS NULL`;
    case 'notNull':
      return sql`${sqlName} IS NOT NULL`;
    case 'contains':
      return sql`${matched(column)} ILIKE ${value(`%${escapePattern(text)}%`)}`;
    case 'begins':
      return sql`${matched(column)} ILIKE ${value(`${escapePattern(text)}%`)}`;
    case 'overlaps':
      return sql`${sqlName} && ${value(text)}::${column.type}`;
    case 'unequal':
      return sql`${comparable(column)} IS DISTINCT FROM ${value(text)}${column.cast}`;
    default:
      return sql`${comparable(column)} ${COMPARISONS[operator] ?? '='} ${value(text)}${column.cast}`;
  }
}

/** No pattern is matched by a nondeterministic collation: then by the one of the database. */
function matched({ sqlName, isDeterministic }: TableColumn): string {
  return isDeterministic ? `${sqlName}::text` : `${sqlName}::text COLLATE pg_catalog."default"`;
}

/** json and the like have no operators, so their texts are compared. */
function comparable({ sqlName, isOrdered }: TableColumn): string {
  return isOrdered ? sqlName : `${sqlName}::text`;
}

function escapePattern(text: string): string {
  return text.replace(/[\\%_]/g, '\\$&');
}

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
  // That a key is equal is not always that it is the same.
  const others = former.filter(({ column }) => !keyNames.has(column.name) || !column.isExact);
  return join(
    [...key.map(({ column, text }) => sql`${column.sqlName} = ${value(text)}${column.cast}`), ...others.map(hasValue)],
    '\n  AND ',
  );
}

/** Where `=` is not exact, or is not there, the texts are compared: both written with the same settings. */
function hasValue({ column: { sqlName, isExact, isText, isDeterministic, type }, text }: ColumnValue): Sql {
  if (text === null) return sql`${sqlName} IS NULL`;
  if (isExact) return sql`${sqlName} = ${value(text)}`;
  const own = isDeterministic ? `${sqlName}::text` : `${sqlName}::text COLLATE pg_catalog."C"`;
  return isText ? sql`${own} = ${value(text)}` : sql`${own} = ${value(text)}::${type}::text`;
}

/**
 * Inserts many rows; each column is one array parameter. PostgreSQL reads each value for the type of its column, and refuses one that is
 * too long: a cast to `varchar(3)` would cut it, so the types have no modifiers. Arrays in arrays would be taken apart, so they come as text.
 */
export function importSql(table: SchemaTable, columns: readonly TableColumn[]): string {
  const names = columns.map(({ sqlName }) => sqlName).join(', ');
  const arrays = columns.map(({ type }, index) => `$${index + 1}::${isArray(type) ? 'text' : withoutModifier(type)}[]`);
  const aliases = columns.map((_, index) => `c${index + 1}`);
  const values = columns.map(({ type }, index) => (isArray(type) ? `${aliases[index]}::${withoutModifier(type)}` : aliases[index]));
  return `INSERT INTO ${tableName(table)} (${names})\nSELECT ${values.join(', ')}\nFROM unnest(${arrays.join(', ')}) AS c (${aliases.join(', ')})`;
}

function isArray(type: string): boolean {
  return type.endsWith('[]');
}

/** `numeric(10,2)` → `numeric`; a name in quotes stays as it is. */
export function withoutModifier(type: string): string {
  const array = isArray(type) ? '[]' : '';
  const element = type.slice(0, type.length - array.length);
  if (element === 'interval' || element.startsWith('interval ')) return `interval${array}`;
  // Without a length these would have the length 1.
  if (/^character(?:\(|$)/.test(element)) return `bpchar${array}`;
  if (/^bit(?:\(|$)/.test(element)) return `pg_catalog."bit"${array}`;
  return element.replace(/\([^()"]*\)(?=[^()"]*$)/, '').replace(/ {2,}/g, ' ') + array;
}

/** How rows are told apart; pages go on in this order where the last one has ended. */
export type RowIdentity =
  /** Columns that no two rows share, none of them ever NULL. */
  | { readonly kind: 'key'; readonly columns: readonly string[] }
  /** Where the row lies: a row that is changed moves. */
  | { readonly kind: 'ctid' }
  /** By counting: what is added or deleted meanwhile shifts the rest. */
  | { readonly kind: 'offset' };

export function rowIdentityOf({ kind, rowKey, hasChildren }: SchemaTable): RowIdentity {
  if (rowKey !== null) return { kind: 'key', columns: rowKey };
  // Rows of two tables may lie at the same place.
  return !hasChildren && (kind === 'table' || kind === 'materialized view') ? { kind: 'ctid' } : { kind: 'offset' };
}

/*
 * How a column is read, so that the text of each of its values is known exactly. JSON cannot say everything: it has one null for NULL and
 * the JSON value null, arrays without their bounds, and values of one's own types may be of any kind. Such columns are read as text.
 */

/** A column, and what follows from its type. */
export interface TableColumn extends SchemaColumn {
  /** Quoted. */
  readonly sqlName: string;
  /** It is read as text: its values are JSON strings, or null. */
  readonly isText: boolean;
  readonly isJson: boolean;
  /** `=` means that the values are the same: not so for json, which has none, citext, or texts by a nondeterministic collation. */
  readonly isExact: boolean;
  /** The type has an order. */
  readonly isOrdered: boolean;
  /** What a value that is compared is followed by: for one's own composite types PostgreSQL would not infer which one it is. */
  readonly cast: string;
}

const EXACT = /^(?:smallint|integer|bigint|numeric|boolean|text|character varying|uuid|date|time|timestamp|bytea|oid)(?![a-z_])/;
const JSON_TYPES: ReadonlySet<string> = new Set(['json', 'jsonb']);
const WITHOUT_ORDER: ReadonlySet<string> = new Set(
  'json xml point line lseg box path polygon circle xid cid aclitem txid_snapshot pg_snapshot jsonpath refcursor'.split(' '),
);

export function tableColumn(column: SchemaColumn): TableColumn {
  const { name, type } = column;
  const isJson = JSON_TYPES.has(type);
  const isArray = type.endsWith('[]');
  // One's own types are qualified, those of PostgreSQL never.
  const isOwn = type.includes('.');
  return {
    ...column,
    sqlName: quoteIdentifier(name),
    isText: isJson || isArray || isOwn,
    isJson,
    isExact: EXACT.test(type) && !isArray && column.isDeterministic,
    cast: isOwn && !isArray ? `::${type}` : '',
    isOrdered: !WITHOUT_ORDER.has(isArray ? type.slice(0, -2) : type),
  };
}

/** Whether a value may be given for a column. */
export function isWritable(column: TableColumn): boolean {
  return column.generated === null && column.identity !== 'always';
}

/** The column in a list of SELECT or RETURNING. */
function selected({ sqlName, isText }: TableColumn): string {
  return isText ? `${sqlName}::text` : sqlName;
}

/**
 * The text of a value as PostgreSQL has it: to compare it, and to send it back.
 * @param json as the API has sent it for {@link selected}
 */
export function valueTextOf({ isText, type }: TableColumn, json: string): ValueText {
  if (json === 'null') return null;
  return isText ? (JSON.parse(json) as string) : (textOf(json, type) ?? null);
}

/** What a grid shows for a text. */
export function shownJson({ isJson }: TableColumn, text: ValueText): string {
  if (text === null) return 'null';
  if (!isJson) return JSON.stringify(text);
  // White space tells the JSON value null from NULL.
  return text === 'null' ? ' null' : text;
}

/** As SQL and the address of a table's rows write it: `public.orders`. */
export function tableName({ schema, name }: SchemaTable): string {
  return qualifiedName(schema, name);
}

/*
 * SQL with its values. Values are parameters wherever it is run; where it is shown they stand in it as literals. Names are quoted by
 * whoever writes the text.
 */

/** The text that PostgreSQL reads for the type it gives to the place; null is NULL. */
export type ValueText = string | null;

type Piece = string | { readonly value: ValueText };

/** A statement of `POST /api/query` or `/api/transaction`. */
export interface Statement {
  readonly sql: string;
  readonly params: readonly ValueText[];
}

export class Sql {
  readonly #pieces: readonly Piece[];

  constructor(pieces: readonly Piece[]) {
    this.#pieces = pieces;
  }

  /** What it consists of, to become part of another text. */
  get pieces(): readonly Piece[] {
    return this.#pieces;
  }

  get isEmpty(): boolean {
    return this.#pieces.every((piece) => piece === '');
  }

  /** With `$1`, `$2` … */
  toStatement(): Statement {
    const params: ValueText[] = [];
    const texts = this.#pieces.map((piece) => (typeof piece === 'string' ? piece : `$${params.push(piece.value)}`));
    return { sql: texts.join(''), params };
  }

  /** With literals: to be read, copied, and run elsewhere. */
  toString(): string {
    return this.#pieces.map((piece) => (typeof piece === 'string' ? piece : quoteNullable(piece.value))).join('');
  }
}

/** SQL text; strings between its parts are SQL too: names, quoted already. */
function sql(texts: TemplateStringsArray, ...parts: readonly (string | Sql)[]): Sql {
  return new Sql(
    texts.flatMap((text, index) => {
      const part = parts[index];
      return part === undefined ? [text] : [text, ...piecesOf(part)];
    }),
  );
}

function value(text: ValueText): Sql {
  return new Sql([{ value: text }]);
}

function join(parts: readonly (string | Sql)[], separator: string): Sql {
  return new Sql(parts.flatMap((part, index) => [...(index === 0 ? [] : [separator]), ...piecesOf(part)]));
}

function piecesOf(part: string | Sql): readonly Piece[] {
  return typeof part === 'string' ? [part] : part.pieces;
}

/** As `quote_nullable`. */
function quoteNullable(text: ValueText): string {
  return text === null ? 'NULL' : quoteLiteral(text);
}
