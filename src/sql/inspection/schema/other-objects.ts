import type { Placement } from '../../../catalog/organization.ts';
import { posternObjects } from '../../postern-tables.ts';
import { catalogOid, comment, isExtensions, isListed, isPosterns, jsonObject, spellingOf, word } from './pg-catalog-expressions.ts';

/**
 * The schemas that are shown, each as a row of oid and JSON document. Its only parameters: $1 the schema that clients know as `public`,
 * $2 the only schema to show, or NULL.
 */
export function schemasSql(placement: Placement, limit: number): string {
  const hidden = ['information_schema', ...posternObjects(placement).schemas];
  return `
    SELECT n.oid, ${jsonObject(`
      SELECT CASE WHEN n.nspname = $1::pg_catalog.name THEN 'public' ELSE n.nspname END AS name, ${comment('pg_namespace', 'n.oid')} AS comment`)}
    FROM pg_catalog.pg_namespace n
    WHERE ($2::pg_catalog.name IS NULL OR n.nspname = $2::pg_catalog.name) AND n.nspname !~ '^pg_'
      AND n.nspname <> ALL ('{${hidden.join(',')}}'::pg_catalog.name[]) AND NOT ${isExtensions('pg_namespace', 'n.oid')}
      AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
    ORDER BY n.nspname LIMIT ${limit}`;
}

const TYPE_KINDS = { e: 'enum', d: 'domain', c: 'composite', r: 'range' };

/** Types that were made as such: every table has a type too, every type an array, every range a multirange. */
export function typesSql(placement: Placement, limit: number): string {
  const { schema, definition } = spellingOf(placement);
  return `
    SELECT ${jsonObject(`
      SELECT ${schema('n')} AS schema, t.typname AS name, ${word('t.typtype', TYPE_KINDS)} AS kind,
        CASE t.typtype WHEN 'e' THEN (
          SELECT pg_catalog.json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid) END AS labels,
        ${definition(`CASE t.typtype WHEN 'd' THEN ${DOMAIN} WHEN 'c' THEN ${COMPOSITE} WHEN 'r' THEN ${RANGE} END`)} AS definition,
        ${comment('pg_type', 't.oid')} AS comment`)}
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
    WHERE ${isListed('t.typnamespace')} AND t.typtype = ANY ('{e,d,c,r}'::pg_catalog."char"[])
      AND (t.typtype <> 'c' OR c.relkind = 'c') AND NOT ${isExtensions('pg_type', 't.oid')}
    ORDER BY n.nspname, t.typname LIMIT ${limit}`;
}

const DOMAIN = `pg_catalog.concat(pg_catalog.format_type(t.typbasetype, t.typtypmod),
  ' DEFAULT ' || pg_catalog.pg_get_expr(t.typdefaultbin, 0), CASE WHEN t.typnotnull THEN ' NOT NULL' END,
  (SELECT pg_catalog.string_agg(' ' || pg_catalog.pg_get_constraintdef(con.oid), '' ORDER BY con.conname)
    FROM pg_catalog.pg_constraint con WHERE con.contypid = t.oid AND con.contype = 'c'))`;

const COMPOSITE = `pg_catalog.concat('(', (
  SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname::pg_catalog.text) || ' ' || pg_catalog.format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
  FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), ')')`;

const RANGE = `(SELECT 'range of ' || pg_catalog.format_type(r.rngsubtype, NULL) FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid)`;

export function sequencesSql(placement: Placement, limit: number): string {
  const { schema } = spellingOf(placement);
  return `
    SELECT ${jsonObject(`
      SELECT ${schema('n')} AS schema, c.relname AS name, pg_catalog.format_type(s.seqtypid, NULL) AS type,
        s.seqstart::pg_catalog.text AS start, s.seqincrement::pg_catalog.text AS increment, s.seqmin::pg_catalog.text AS "minValue",
        s.seqmax::pg_catalog.text AS "maxValue", s.seqcache::pg_catalog.text AS cache, s.seqcycle AS "isCycling",
        ${jsonObject(`SELECT ${schema('tn')} AS schema, t.relname AS table, a.attname AS column WHERE t.oid IS NOT NULL`)} AS "ownedBy"`)}
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_sequence s ON s.seqrelid = c.oid
      LEFT JOIN pg_catalog.pg_depend own ON own.classid = ${catalogOid('pg_class')} AND own.objid = c.oid AND own.objsubid = 0
        AND own.refclassid = ${catalogOid('pg_class')} AND own.refobjsubid > 0 AND own.deptype IN ('a', 'i')
      LEFT JOIN pg_catalog.pg_class t ON t.oid = own.refobjid LEFT JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
      LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = own.refobjid AND a.attnum = own.refobjsubid
    WHERE ${isListed('c.relnamespace')} AND c.relkind = 'S' AND NOT ${isExtensions('pg_class', 'c.oid')}
      AND (t.oid IS NULL OR NOT ${isPosterns(placement, 't')})
      AND (pg_catalog.pg_has_role(c.relowner, 'USAGE') OR pg_catalog.has_sequence_privilege(c.oid, 'USAGE, SELECT, UPDATE'))
    ORDER BY n.nspname, c.relname LIMIT ${limit}`;
}

const FUNCTION_KINDS = { f: 'function', p: 'procedure', a: 'aggregate', w: 'window' };
const VOLATILITIES = { i: 'immutable', s: 'stable', v: 'volatile' };

/** The oids of functions, in the order in which they are shown; without the constructors of ranges, which are parts of their types. */
export function functionOidsSql(limit: number): string {
  return `
    SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE ${isListed('p.pronamespace')} AND NOT ${isExtensions('pg_proc', 'p.oid', 'i')}
      AND (pg_catalog.pg_has_role(p.proowner, 'USAGE') OR pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
    ORDER BY n.nspname, p.proname, p.oid LIMIT ${limit}`;
}

/** These functions. $1 has their oids in place of those of schemas. Definitions of those written in the SQL standard's way lock the tables that they name. */
export function functionsSql(placement: Placement): string {
  const { schema, definition } = spellingOf(placement);
  return `
    SELECT ${jsonObject(`
      SELECT ${schema('n')} AS schema, p.proname AS name, ${word('p.prokind', FUNCTION_KINDS)} AS kind,
        ${definition('pg_catalog.pg_get_function_arguments(p.oid)')} AS arguments,
        ${definition('pg_catalog.pg_get_function_identity_arguments(p.oid)')} AS "identityArguments",
        ${definition('pg_catalog.pg_get_function_result(p.oid)')} AS returns,
        l.lanname AS language, ${word('p.provolatile', VOLATILITIES)} AS volatility, p.prosecdef AS "isSecurityDefiner",
        CASE WHEN p.prokind <> 'a' THEN ${definition(inOwnPath(placement, 'pg_catalog.pg_get_functiondef(p.oid)'))} END AS definition,
        ${comment('pg_proc', 'p.oid')} AS comment`)}
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace JOIN pg_catalog.pg_language l ON l.oid = p.prolang
    WHERE ${isListed('p.oid')} ORDER BY n.nspname, p.proname, p.oid`;
}

/** A function's definition, with the schema under its name for clients in the function's search path, where nothing follows the name. */
function inOwnPath({ kind }: Placement, text: string): string {
  const own = `pg_catalog.concat('^( SET search_path TO .*)''', $2::pg_catalog.text, '''')`;
  return kind === 'schema' ? String.raw`pg_catalog.regexp_replace(${text}, ${own}, '\1''public''', 'n')` : text;
}

/** Whatever schemas are shown: extensions may be in any that the role may use, except where one schema was asked for. */
export function extensionsSql(placement: Placement, limit: number, isOneSchema: boolean): string {
  const { schema } = spellingOf(placement);
  return `
    SELECT ${jsonObject(`SELECT e.extname AS name, e.extversion AS version, ${schema('n')} AS schema`)}
    FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
    WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND (${isListed('n.oid')} OR ${!isOneSchema})
    ORDER BY e.extname LIMIT ${limit}`;
}
