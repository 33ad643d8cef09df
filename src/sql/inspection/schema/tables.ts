import type { Placement } from '../../../catalog/organization.ts';
import {
  columnNames,
  comment,
  isExtensions,
  isListed,
  isPosterns,
  jsonArray,
  jsonObject,
  type Spelling,
  spellingOf,
  word,
} from './pg-catalog-expressions.ts';

const KINDS = { r: 'table', p: 'partitioned table', v: 'view', m: 'materialized view', f: 'foreign table' };
const COMMANDS = { r: 'select', a: 'insert', w: 'update', d: 'delete', '*': 'all' };
const ACTIONS = { a: 'no action', r: 'restrict', c: 'cascade', n: 'set null', d: 'set default' };

/** What has a privilege of any kind for the role that asks. */
const VISIBLE = `(pg_catalog.pg_has_role(c.relowner, 'USAGE')
  OR pg_catalog.has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
  OR pg_catalog.has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))`;

/** The oids of tables, views and the like, in the order in which they are shown. */
export function tableOidsSql(placement: Placement, limit: number): string {
  return `
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE ${isListed('c.relnamespace')} AND c.relkind = ANY ('{r,p,v,m,f}'::pg_catalog."char"[])
      AND NOT ${isPosterns(placement, 'c')} AND NOT ${isExtensions('pg_class', 'c.oid')} AND ${VISIBLE}
    ORDER BY n.nspname, c.relname LIMIT ${limit}`;
}

/**
 * These tables, views and the like, each as a row with one JSON document. $1 has their oids in place of those of schemas. Sizes and
 * some definitions wait for whoever has locked a table exclusively; definitions of views lock the tables that they name.
 */
export function tablesSql(placement: Placement): string {
  const spelling = spellingOf(placement);
  return `
    SELECT pg_catalog.row_to_json(item) FROM (
      SELECT ${spelling.schema('n')} AS schema, c.relname AS name, ${word('c.relkind', KINDS)} AS kind, ${comment('pg_class', 'c.oid')} AS comment,
        ${ROW_ESTIMATE} AS "rowEstimate",
        parts.bytes AS "totalBytes", parts.bytes - parts.index_bytes AS "tableBytes", parts.index_bytes AS "indexBytes",
        ${jsonArray(columnsSql(spelling))} AS columns,
        ${jsonObject(`${keysSql('p', spelling)} LIMIT 1`)} AS "primaryKey",
        ${jsonArray(keysSql('u', spelling))} AS unique,
        ${jsonArray(checksSql(spelling))} AS checks,
        ${jsonArray(exclusionsSql(spelling))} AS exclusions,
        ${jsonArray(foreignKeysSql(spelling))} AS "foreignKeys",
        ${jsonArray(indexesSql(placement, spelling))} AS indexes,
        c.relrowsecurity AS "rowSecurity", c.relforcerowsecurity AS "isRowSecurityForced",
        ${jsonArray(policiesSql(spelling))} AS policies,
        ${jsonArray(triggersSql(spelling))} AS triggers,
        CASE WHEN c.relkind IN ('v', 'm') THEN ${spelling.definition('pg_catalog.pg_get_viewdef(c.oid)')} END AS definition,
        c.relpersistence = 'u' AS "isUnlogged", coalesce(pg_catalog.to_json(c.reloptions), '[]') AS options,
        CASE WHEN c.relkind = 'p' THEN ${spelling.definition('pg_catalog.pg_get_partkeydef(c.oid)')} END AS "partitionKey",
        CASE WHEN c.relispartition THEN ${jsonObject(parentSql(spelling))} END AS "partitionOf",
        CASE WHEN c.relispartition THEN '[]' ELSE ${jsonArray(inheritsSql(spelling))} END AS inherits
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL (${PARTS}) AS parts
      WHERE ${isListed('c.oid')} ORDER BY n.nspname, c.relname
    ) AS item`;
}

/** What ANALYZE has counted in a partitioned table itself, or else in its partitions: only these are analyzed automatically. */
const ROW_ESTIMATE = "CASE WHEN c.relkind = 'p' AND c.reltuples >= 0 THEN c.reltuples::pg_catalog.int8 ELSE parts.rows END";

/**
 * A partitioned table has no storage of its own: that of its partitions counts. The function for this, pg_partition_tree, would lock all of
 * them until the end.
 */
const PARTS = `
  WITH RECURSIVE tree (oid) AS (
    SELECT c.oid
    UNION ALL
    SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid WHERE c.relkind = 'p'
  )
  SELECT coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(part.oid)), 0)::pg_catalog.int8 AS bytes,
    coalesce(pg_catalog.sum(pg_catalog.pg_indexes_size(part.oid)), 0)::pg_catalog.int8 AS index_bytes,
    pg_catalog.sum(part.reltuples::pg_catalog.int8) FILTER (WHERE part.reltuples >= 0)::pg_catalog.int8 AS rows
  FROM tree CROSS JOIN LATERAL (
    SELECT one.oid, one.reltuples FROM pg_catalog.pg_class one WHERE one.oid = tree.oid AND one.relkind IN ('r', 'm', 'f') OFFSET 0
  ) AS part`;

function columnsSql({ definition }: Spelling): string {
  const expression = definition('pg_catalog.pg_get_expr(def.adbin, def.adrelid)');
  return `
    SELECT a.attname AS name, ${definition('pg_catalog.format_type(a.atttypid, a.atttypmod)')} AS type, a.attnotnull AS "notNull",
      CASE WHEN a.attgenerated = '' THEN ${expression} END AS default,
      ${word('a.attidentity', { a: 'always', d: 'by default' })} AS identity,
      CASE WHEN a.attgenerated <> '' THEN ${expression} END AS generated,
      ${word('a.attgenerated', { s: 'stored', v: 'virtual' })} AS generation,
      ${definition(COLLATION)} AS collation,
      ${comment('pg_class', 'c.oid', 'a.attnum')} AS comment
    FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef def ON def.adrelid = a.attrelid AND def.adnum = a.attnum
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`;
}

/** Where it is not that of the type. */
const COLLATION = `(
  SELECT pg_catalog.concat(pg_catalog.quote_ident(cn.nspname::pg_catalog.text), '.', pg_catalog.quote_ident(co.collname::pg_catalog.text))
  FROM pg_catalog.pg_collation co JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace JOIN pg_catalog.pg_type ct ON ct.oid = a.atttypid
  WHERE co.oid = a.attcollation AND a.attcollation <> ct.typcollation)`;

const CONSTRAINT = 'pg_catalog.pg_get_constraintdef(con.oid)';

function keysSql(type: 'p' | 'u', { definition }: Spelling): string {
  return `
    SELECT con.conname AS name, ${columnNames('con.conrelid', 'con.conkey')} AS columns, ${definition(CONSTRAINT)} AS definition
    FROM pg_catalog.pg_constraint con WHERE con.conrelid = c.oid AND con.contype = '${type}' ORDER BY con.conname`;
}

function checksSql({ definition }: Spelling): string {
  return `
    SELECT con.conname AS name, ${definition('pg_catalog.pg_get_expr(con.conbin, con.conrelid)')} AS expression,
      ${definition(CONSTRAINT)} AS definition
    FROM pg_catalog.pg_constraint con WHERE con.conrelid = c.oid AND con.contype = 'c' ORDER BY con.conname`;
}

function exclusionsSql({ definition }: Spelling): string {
  return `
    SELECT con.conname AS name, ${definition(CONSTRAINT)} AS definition
    FROM pg_catalog.pg_constraint con WHERE con.conrelid = c.oid AND con.contype = 'x' ORDER BY con.conname`;
}

/** A key that refers to a partitioned table has one more entry for each of its partitions, which only the server uses. */
function foreignKeysSql({ schema, definition }: Spelling): string {
  return `
    SELECT con.conname AS name, ${columnNames('con.conrelid', 'con.conkey')} AS columns,
      ${schema('target_schema')} AS "referencedSchema", target.relname AS "referencedTable",
      ${columnNames('con.confrelid', 'con.confkey')} AS "referencedColumns",
      ${word('con.confupdtype', ACTIONS)} AS "onUpdate", ${word('con.confdeltype', ACTIONS)} AS "onDelete",
      ${definition(CONSTRAINT)} AS definition
    FROM pg_catalog.pg_constraint con JOIN pg_catalog.pg_class target ON target.oid = con.confrelid
      JOIN pg_catalog.pg_namespace target_schema ON target_schema.oid = target.relnamespace
    WHERE con.conrelid = c.oid AND con.contype = 'f' AND NOT EXISTS (
      SELECT FROM pg_catalog.pg_constraint parent
      WHERE parent.oid = con.conparentid AND (parent.conrelid = con.conrelid OR parent.confrelid <> con.confrelid))
    ORDER BY con.conname`;
}

/** In a shared database nobody may read the statistics, which would be those of others too. */
function indexesSql({ kind }: Placement, { definition }: Spelling): string {
  return `
    SELECT ic.relname AS name, ${definition('pg_catalog.pg_get_indexdef(i.indexrelid)')} AS definition,
      ${columnNames('i.indrelid', '(i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1]')} AS columns,
      i.indisunique AS "isUnique", i.indisprimary AS "isPrimary", i.indisvalid AS "isValid", am.amname AS method,
      coalesce(pg_catalog.pg_relation_size(i.indexrelid), 0) AS bytes,
      ${kind === 'schema' ? 'NULL::pg_catalog.int8' : 'pg_catalog.pg_stat_get_numscans(i.indexrelid)'} AS scans
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid JOIN pg_catalog.pg_am am ON am.oid = ic.relam
    WHERE i.indrelid = c.oid ORDER BY ic.relname`;
}

function policiesSql({ definition }: Spelling): string {
  return `
    SELECT pol.polname AS name, ${word('pol.polcmd', COMMANDS)} AS command,
      (SELECT pg_catalog.json_agg(CASE r.oid WHEN 0 THEN 'public' ELSE pg_catalog.pg_get_userbyid(r.oid) END)
        FROM pg_catalog.unnest(pol.polroles) AS r (oid)) AS roles,
      pol.polpermissive AS "isPermissive", ${definition('pg_catalog.pg_get_expr(pol.polqual, pol.polrelid)')} AS using,
      ${definition('pg_catalog.pg_get_expr(pol.polwithcheck, pol.polrelid)')} AS check
    FROM pg_catalog.pg_policy pol WHERE pol.polrelid = c.oid ORDER BY pol.polname`;
}

function triggersSql({ definition }: Spelling): string {
  return `
    SELECT t.tgname AS name, ${definition('pg_catalog.pg_get_triggerdef(t.oid)')} AS definition, t.tgenabled <> 'D' AS "isEnabled"
    FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal ORDER BY t.tgname`;
}

function parentSql({ schema, definition }: Spelling): string {
  return `
    SELECT ${schema('parent_schema')} AS schema, parent.relname AS name, ${definition('pg_catalog.pg_get_expr(c.relpartbound, c.oid)')} AS bound
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class parent ON parent.oid = i.inhparent
      JOIN pg_catalog.pg_namespace parent_schema ON parent_schema.oid = parent.relnamespace
    WHERE i.inhrelid = c.oid LIMIT 1`;
}

/** The tables whose columns a table has by inheritance, in their order. */
function inheritsSql({ schema }: Spelling): string {
  return `
    SELECT ${schema('parent_schema')} AS schema, parent.relname AS name
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class parent ON parent.oid = i.inhparent
      JOIN pg_catalog.pg_namespace parent_schema ON parent_schema.oid = parent.relnamespace
    WHERE i.inhrelid = c.oid ORDER BY i.inhseqno`;
}
