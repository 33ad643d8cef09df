import type { Rule } from '../rule.ts';

/** A partitioned table's key must hold the columns that it is divided by, and a table of a type can have no column added. */
export const NO_PRIMARY_KEY: Rule = {
  name: 'no_primary_key',
  severity: 'warning',
  sql: `
    SELECT t.schema, t.name, NULL::pg_catalog.text,
      'The table has no primary key: its rows cannot be told apart, and logical replication cannot update them.',
      CASE WHEN t.kind = 'r' AND NOT t.is_typed AND free.name IS NOT NULL
        THEN pg_catalog.format('ALTER TABLE %I.%I ADD COLUMN %I bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY', t.schema, t.name, free.name) END
    FROM tables t LEFT JOIN LATERAL (
      SELECT wanted.name FROM (VALUES (1, 'id'), (2, 'row_id'), (3, t.name || '_id')) AS wanted (place, name)
      WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.oid AND a.attname::pg_catalog.text = wanted.name)
      ORDER BY wanted.place LIMIT 1) AS free ON true
    WHERE NOT EXISTS (SELECT FROM indexes i WHERE i.table_oid = t.oid AND i.is_primary)
    ORDER BY t.schema, t.name`,
};

/** Autovacuum analyzes tables, but not what is divided into partitions as a whole. */
export const NEVER_ANALYZED: Rule = {
  name: 'never_analyzed',
  severity: 'info',
  sql: `
    SELECT r.schema, r.name, NULL::pg_catalog.text,
      pg_catalog.format('The planner knows nothing of about %s rows: they have never been analyzed.', held.live_rows),
      pg_catalog.format('ANALYZE %I.%I', r.schema, r.name)
    FROM relations r JOIN LATERAL (
      SELECT pg_catalog.sum(n.live_rows) AS live_rows FROM counters n
      WHERE n.oid = r.oid OR n.oid IN (SELECT h.inhrelid FROM pg_catalog.pg_inherits h WHERE h.inhparent = r.oid AND r.kind = 'p')) AS held ON true
    WHERE r.kind = ANY ('{r,p,m}') AND r.row_estimate < 0 AND held.live_rows >= 1000
    ORDER BY held.live_rows DESC, r.schema, r.name`,
};

export const LARGE_SEQUENTIAL_SCANS: Rule = {
  name: 'large_sequential_scans',
  severity: 'info',
  sql: `
    SELECT r.schema, r.name, NULL::pg_catalog.text,
      pg_catalog.format('The table, of about %s rows, was read from its beginning %s times, %s rows each time. An index on the columns of the conditions may help; EXPLAIN shows which.',
        r.row_estimate::pg_catalog.int8, n.scans, n.rows_read / n.scans),
      NULL::pg_catalog.text
    FROM relations r JOIN counters n ON n.oid = r.oid
    WHERE r.kind = ANY ('{r,m}') AND r.row_estimate >= 10000 AND n.scans >= 50 AND n.rows_read / n.scans >= 10000
    ORDER BY n.rows_read DESC, r.schema, r.name`,
};

/** $3 is NULL if the organization has no read key. */
export const NO_ROW_SECURITY: Rule = {
  name: 'no_row_security_with_read_keys',
  severity: 'info',
  sql: `
    SELECT t.schema, t.name, NULL::pg_catalog.text,
      'Read keys see all rows of the table: it has no row security. With row security they see the rows that a policy lets them see, and without a policy none.',
      pg_catalog.format('ALTER TABLE %I.%I ENABLE ROW LEVEL SECURITY', t.schema, t.name)
    FROM tables t JOIN pg_catalog.pg_roles reader ON reader.rolname::pg_catalog.text = $3::pg_catalog.text
    WHERE NOT t.has_row_security AND pg_catalog.has_table_privilege(reader.oid, t.oid, 'SELECT')
    ORDER BY t.schema, t.name`,
};
