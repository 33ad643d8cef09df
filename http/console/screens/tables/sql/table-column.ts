import type { SchemaColumn } from '../../../api/database-schema.ts';
import { textOf } from '../../../parts/grid/value-text.ts';
import { quoteIdentifier } from '../../../quoting/quote-identifier.ts';
import type { ValueText } from './parameterized-sql.ts';

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
  /** `=` means that the values are the same: not so for json, which has none, or citext. */
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
    isExact: EXACT.test(type) && !isArray,
    cast: isOwn && !isArray ? `::${type}` : '',
    isOrdered: !WITHOUT_ORDER.has(isArray ? type.slice(0, -2) : type),
  };
}

/** Whether a value may be given for a column. */
export function isWritable(column: TableColumn): boolean {
  return column.generated === null && column.identity !== 'always';
}

/** The column in a list of SELECT or RETURNING. */
export function selected({ sqlName, isText }: TableColumn): string {
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
