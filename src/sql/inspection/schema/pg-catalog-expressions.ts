import type { Placement } from '../../../catalog/organization.ts';
import { posternObjects } from '../../postern-tables.ts';

/*
 * Parts of the statements that read the catalogs. The parameters of all these statements:
 *   $1 the oids of what is shown, mostly of schemas
 *   $2 the schema that clients know as `public`
 *   $3 a pattern that finds this schema where it qualifies a name
 * Every name is qualified, because an organization may have planted functions, operators and types in its schemas.
 */

/** How names and definitions are shown. */
export interface Spelling {
  /** @param namespace the alias of a pg_namespace */
  schema(namespace: string): string;
  /** @param text an expression for a definition: without a search path, every name in it is qualified */
  definition(text: string): string;
}

export function spellingOf({ kind }: Placement): Spelling {
  return {
    schema: (namespace) => `CASE WHEN ${namespace}.nspname = $2::pg_catalog.name THEN 'public' ELSE ${namespace}.nspname END`,
    definition: (text) => (kind === 'schema' ? `pg_catalog.regexp_replace(${text}, $3::pg_catalog.text, 'public', 'g')` : text),
  };
}

/** The values of the parameters. */
export function parametersOf({ schema }: Placement, oids: readonly string[]): string[] {
  return [`{${oids.join(',')}}`, schema, mentions(schema)];
}

/** Whether an oid is among those of $1. PostgreSQL wants to find every parameter in every statement. */
export function isListed(oid: string): string {
  return `(${oid} = ANY ($1::pg_catalog.oid[]) AND $2::pg_catalog.name IS NOT NULL AND $3::pg_catalog.text IS NOT NULL)`;
}

/** Matches the schema as a whole identifier that a dot follows, quoted or not. */
function mentions(schema: string): string {
  return String.raw`(?<![[:alnum:]_$\u0080-\uffff])${schema}(?="?[.])`;
}

/** The comment of an object, or of a column. */
export function comment(catalog: string, oid: string, column = '0'): string {
  return `(SELECT d.description FROM pg_catalog.pg_description d
    WHERE d.objoid = ${oid} AND d.classoid = ${catalogOid(catalog)} AND d.objsubid = ${column})`;
}

/** The names of columns as JSON, in the order of their numbers in an array. A number of 0 stands for an expression, which has no name. */
export function columnNames(table: string, numbers: string): string {
  return `(SELECT pg_catalog.json_agg(a.attname ORDER BY k.place) FROM pg_catalog.unnest(${numbers}) WITH ORDINALITY AS k (number, place)
    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = ${table} AND a.attnum = k.number AND k.number <> 0)`;
}

/** All rows of a query as a JSON array. */
export function jsonArray(query: string): string {
  return `(SELECT coalesce(pg_catalog.json_agg(pg_catalog.row_to_json(item)), '[]') FROM (${query}) AS item)`;
}

/** The first row of a query as a JSON object, or NULL. */
export function jsonObject(query: string): string {
  return `(SELECT pg_catalog.row_to_json(item) FROM (${query}) AS item)`;
}

/** The word for a letter in a catalog; NULL for any other letter. */
export function word(letter: string, words: Readonly<Record<string, string>>): string {
  const cases = Object.entries(words).map(([one, text]) => `WHEN '${one}' THEN '${text}'`);
  return `CASE ${letter} ${cases.join(' ')} END`;
}

/** Whether an object is part of an extension. @param also another kind of dependency that excludes it: `i` if it is part of another object */
export function isExtensions(catalog: string, oid: string, also = 'e'): string {
  return `EXISTS (SELECT FROM pg_catalog.pg_depend d
    WHERE d.classid = ${catalogOid(catalog)} AND d.objid = ${oid} AND d.deptype IN ('e', '${also}'))`;
}

/** Whether a relation is one of Postern's own. */
export function isPosterns(placement: Placement, relation: string): string {
  return `${relation}.relname = ANY ('{${posternObjects(placement).tables.join(',')}}'::pg_catalog.name[])`;
}

export function catalogOid(catalog: string): string {
  return `'pg_catalog.${catalog}'::pg_catalog.regclass`;
}
