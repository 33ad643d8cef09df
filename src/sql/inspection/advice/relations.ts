import type { Placement } from '../../../catalog/organization.ts';

/**
 * What the rules select from, as the WITH list of one statement: the organization's own relations, indexes and counters. Postern's tables
 * and those of extensions are left out.
 *
 * Parameters of the statement: $1 the schema that clients know as `public`, or NULL; $2 counters as JSON, or NULL where the organization
 * may read its own; $3 the role of its readers, or NULL if there is no key for them.
 *
 * No size or definition is read by a function that would wait for a lock on the table: sizes are as VACUUM and ANALYZE have left them.
 */
export function relationsSql({ kind }: Placement): string {
  return `
    schemas AS MATERIALIZED (
      SELECT n.oid, CASE n.nspname WHEN $1::pg_catalog.name THEN 'public' ELSE n.nspname::pg_catalog.text END AS name,
        ${kind === 'schema' ? 'n.nspname = $1::pg_catalog.name' : OWN_DATABASE} AS is_own
      FROM pg_catalog.pg_namespace n
    ),
    relations AS MATERIALIZED (
      SELECT c.oid, CASE n.nspname WHEN $1::pg_catalog.name THEN 'public' ELSE n.nspname::pg_catalog.text END AS schema,
        c.relname::pg_catalog.text AS name, c.relkind AS kind, c.relispartition AS is_partition, c.reltuples AS row_estimate,
        c.reloftype <> 0 AS is_typed, c.relrowsecurity AS has_row_security
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE ${kind === 'schema' ? OWN_SCHEMA : OWN_DATABASE} AND c.relkind = ANY ('{r,p,m,S}') AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype = 'e')
    ),
    tables AS MATERIALIZED (SELECT * FROM relations WHERE kind = ANY ('{r,p}') AND NOT is_partition),
    columns AS MATERIALIZED (
      SELECT t.oid, t.schema, t.name AS table_name, a.attname::pg_catalog.text AS name, a.attnum AS number, a.atttypid AS type,
        a.atttypmod AS modifier
      FROM tables t JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid
      WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0 AND NOT t.is_typed
    ),
    indexes AS MATERIALIZED (
      SELECT i.indexrelid AS oid, i.indrelid AS table_oid, r.schema, r.name AS table_name, c.relname::pg_catalog.text AS name, c.relkind AS kind,
        c.relispartition AS is_partition, c.relpages::pg_catalog.int8 * 8192 AS bytes, i.indisunique AS is_unique, i.indisvalid AS is_valid,
        i.indisprimary AS is_primary, i.indisreplident AS is_identity,
        EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype = ANY ('{p,u,x,f}')) AS is_needed,
        i.indnkeyatts AS keys, i.indkey::pg_catalog.int2[] AS columns,
        i.indpred IS NOT NULL AS is_partial,
        pg_catalog.jsonb_build_array(c.relam::pg_catalog.text, i.indnkeyatts, i.indkey::pg_catalog.text, i.indclass::pg_catalog.text, i.indcollation::pg_catalog.text,
          i.indoption::pg_catalog.text, pg_catalog.pg_get_expr(i.indexprs, i.indrelid), pg_catalog.pg_get_expr(i.indpred, i.indrelid)) AS definition
      FROM pg_catalog.pg_index i JOIN relations r ON r.oid = i.indrelid JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    ),
    foreign_keys AS MATERIALIZED (
      SELECT k.oid, k.conname::pg_catalog.text AS name, k.conrelid AS table_oid, k.conkey AS columns
      FROM pg_catalog.pg_constraint k JOIN relations r ON r.oid = k.conrelid
      WHERE k.contype = 'f' AND k.conparentid = 0
    ),
    counters AS MATERIALIZED (${kind === 'schema' ? GIVEN_COUNTERS : OWN_COUNTERS})`;
}

const OWN_SCHEMA = "n.nspname = $1::pg_catalog.name AND c.relname !~ '^postern_'";
const OWN_DATABASE = "n.nspname !~ '^pg_' AND n.nspname <> ALL ('{information_schema,postern}')";

/** Scans of a table are those that read all of it. */
const OWN_COUNTERS = `
  SELECT c.oid, pg_catalog.pg_stat_get_numscans(c.oid) AS scans, pg_catalog.pg_stat_get_tuples_returned(c.oid) AS rows_read,
    pg_catalog.pg_stat_get_live_tuples(c.oid) AS live_rows
  FROM pg_catalog.pg_class c WHERE $2::pg_catalog.text IS NULL`;

const GIVEN_COUNTERS = `
  SELECT * FROM pg_catalog.jsonb_to_recordset($2::pg_catalog.jsonb)
    AS given (oid pg_catalog.oid, scans pg_catalog.int8, rows_read pg_catalog.int8, live_rows pg_catalog.int8)`;
