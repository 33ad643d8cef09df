import type { Rule } from '../rule.ts';

/** Whether index i finds the rows of a foreign key's table by its columns, in whatever order. */
const SUPPORTS_KEY = `i.is_valid AND NOT i.is_partial AND i.table_oid = k.table_oid AND i.keys >= pg_catalog.cardinality(k.columns)
  AND i.columns[0:pg_catalog.cardinality(k.columns) - 1] @> k.columns`;

/** The build of an index on a partitioned table cannot be concurrent. */
export const FOREIGN_KEY_WITHOUT_INDEX: Rule = {
  name: 'foreign_key_without_index',
  severity: 'warning',
  sql: `
    SELECT r.schema, r.name, k.name,
      pg_catalog.format('No index begins with the columns of the foreign key (%s): each DELETE and each change of a key in the table that it refers to reads all of this one.',
        named.columns),
      pg_catalog.format('CREATE INDEX %s ON %I.%I (%s)', CASE r.kind WHEN 'p' THEN '' ELSE 'CONCURRENTLY' END, r.schema, r.name, named.columns)
    FROM foreign_keys k JOIN relations r ON r.oid = k.table_oid JOIN LATERAL (
      SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname::pg_catalog.text), ', ' ORDER BY part.place) AS columns
      FROM pg_catalog.unnest(k.columns) WITH ORDINALITY AS part (number, place)
      JOIN pg_catalog.pg_attribute a ON a.attrelid = k.table_oid AND a.attnum = part.number) AS named ON true
    WHERE NOT EXISTS (SELECT FROM indexes i WHERE ${SUPPORTS_KEY})
    ORDER BY r.schema, r.name, k.name`,
};

/** An index whose concurrent build is still running looks the same. A rebuild that failed leaves its copy under such a name. */
export const INVALID_INDEX: Rule = {
  name: 'invalid_index',
  severity: 'warning',
  sql: `
    SELECT i.schema, i.table_name, i.name,
      'The index is not valid: queries do not use it, and writes go on to maintain it. Its concurrent build has failed, or is still running.',
      pg_catalog.format(CASE WHEN i.name ~ '_cc(new|old)\\d*$' THEN 'DROP INDEX CONCURRENTLY %I.%I' ELSE 'REINDEX INDEX CONCURRENTLY %I.%I' END,
        i.schema, i.name)
    FROM indexes i WHERE NOT i.is_valid AND i.kind = 'i'
    ORDER BY i.schema, i.name`,
};

/** Of two that are the same, the one to drop belongs to no constraint; else it is not unique, or the younger. */
export const DUPLICATE_INDEX: Rule = {
  name: 'duplicate_index',
  severity: 'warning',
  sql: `
    SELECT i.schema, i.table_name, i.name,
      pg_catalog.format('The index does what %I does too: it costs space and time with each write.', pg_catalog.min(other.name)),
      pg_catalog.format('DROP INDEX CONCURRENTLY %I.%I', i.schema, i.name)
    FROM indexes i JOIN indexes other ON other.table_oid = i.table_oid AND other.oid <> i.oid AND other.definition = i.definition
    WHERE i.kind = 'i' AND NOT i.is_partition AND NOT i.is_needed AND NOT i.is_identity AND other.is_valid
      AND (other.is_unique OR NOT i.is_unique)
      AND (other.is_needed OR (other.is_unique AND NOT i.is_unique) OR other.oid < i.oid)
    GROUP BY i.schema, i.table_name, i.name
    ORDER BY i.schema, i.name`,
};

/** Small ones are left alone, and those that a foreign key needs. */
export const UNUSED_INDEX: Rule = {
  name: 'unused_index',
  severity: 'info',
  sql: `
    SELECT i.schema, i.table_name, i.name,
      pg_catalog.format('The index (%s) was never used since the statistics began, while its table was read %s times. It costs space and time with each write.',
        pg_catalog.pg_size_pretty(i.bytes), reads.scans),
      pg_catalog.format('DROP INDEX CONCURRENTLY %I.%I', i.schema, i.name)
    FROM indexes i JOIN counters n ON n.oid = i.oid JOIN LATERAL (
      SELECT pg_catalog.sum(other.scans) AS scans FROM counters other
      WHERE other.oid = i.table_oid OR other.oid IN (SELECT beside.oid FROM indexes beside WHERE beside.table_oid = i.table_oid)) AS reads ON true
    WHERE n.scans = 0 AND reads.scans >= 100 AND i.bytes >= 524288 AND i.kind = 'i' AND NOT i.is_partition
      AND i.is_valid AND NOT i.is_unique AND NOT i.is_needed AND NOT i.is_identity
      AND NOT EXISTS (SELECT FROM foreign_keys k WHERE ${SUPPORTS_KEY})
    ORDER BY i.bytes DESC, i.schema, i.name`,
};
