import type { Rule } from '../rule.ts';

/** From this part of their range on, numbers are said to come to an end. */
const NEAR_END = 0.7;

/** Sequences that the role may read and that count up, with the columns that they belong to. */
const SEQUENCES = `
  SELECT r.oid, r.schema, r.name, s.seqtypid AS type, s.seqmax AS last, used.value, owned.refobjid AS table_oid, owned.refobjsubid AS number,
    owned.deptype = 'i' AS is_identity
  FROM relations r JOIN pg_catalog.pg_sequence s ON s.seqrelid = r.oid
  JOIN LATERAL (
    SELECT CASE WHEN pg_catalog.has_sequence_privilege(r.oid, 'SELECT,USAGE') THEN pg_catalog.pg_sequence_last_value(r.oid) END AS value
  ) AS used ON true
  LEFT JOIN pg_catalog.pg_depend owned ON owned.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND owned.objid = r.oid
    AND owned.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND owned.deptype = ANY ('{a,i}')
  WHERE r.kind = 'S' AND s.seqincrement > 0 AND NOT s.seqcycle`;

export const INTEGER_KEY_NEAR_END: Rule = {
  name: 'integer_key_near_end',
  severity: 'warning',
  sql: `
    SELECT c.schema, c.table_name, c.name,
      pg_catalog.format('%s%% of the numbers of the column are used up, of type %s. Columns that refer to it have to change too.',
        pg_catalog.floor(100.0 * s.value / ends.last), pg_catalog.format_type(c.type, NULL)),
      pg_catalog.format('ALTER TABLE %I.%I ALTER COLUMN %I TYPE bigint', c.schema, c.table_name, c.name)
    FROM (${SEQUENCES}) AS s JOIN columns c ON c.oid = s.table_oid AND c.number = s.number
    JOIN (VALUES ('pg_catalog.int2'::pg_catalog.regtype, 32767), ('pg_catalog.int4'::pg_catalog.regtype, 2147483647)) AS ends (type, last)
      ON ends.type = c.type
    WHERE s.value >= ${NEAR_END} * ends.last
    ORDER BY c.schema, c.table_name, c.name`,
};

/** The sequence of an identity column changes with its column. */
export const SEQUENCE_NEAR_END: Rule = {
  name: 'sequence_near_end',
  severity: 'warning',
  sql: `
    SELECT s.schema, owner.name, s.name,
      pg_catalog.format('%s%% of the numbers of the sequence are used up.', pg_catalog.floor(100.0 * s.value / s.last)),
      CASE WHEN s.last < 9223372036854775807 THEN pg_catalog.format('ALTER SEQUENCE %I.%I AS bigint NO MAXVALUE', s.schema, s.name) END
    FROM (${SEQUENCES}) AS s LEFT JOIN relations owner ON owner.oid = s.table_oid
    WHERE s.last > 0 AND s.value >= ${NEAR_END} * s.last AND NOT (s.is_identity IS TRUE AND s.type <> 'pg_catalog.int8'::pg_catalog.regtype)
    ORDER BY s.schema, s.name`,
};

export const TIMESTAMP_WITHOUT_TIME_ZONE: Rule = {
  name: 'timestamp_without_time_zone',
  severity: 'info',
  sql: `
    SELECT c.schema, c.table_name, c.name,
      'The column has timestamps without a time zone: which instant one means depends on who wrote it.',
      pg_catalog.format('ALTER TABLE %I.%I ALTER COLUMN %I TYPE %s USING %I AT TIME ZONE ''UTC''', c.schema, c.table_name, c.name,
        pg_catalog.format_type('pg_catalog.timestamptz'::pg_catalog.regtype, c.modifier), c.name)
    FROM columns c WHERE c.type = 'pg_catalog.timestamp'::pg_catalog.regtype
    ORDER BY c.schema, c.table_name, c.number`,
};

export const JSON_INSTEAD_OF_JSONB: Rule = {
  name: 'json_instead_of_jsonb',
  severity: 'info',
  sql: `
    SELECT c.schema, c.table_name, c.name,
      'The column has json: it is parsed each time it is read, and no index finds what is in it. jsonb keeps no white space and no order of keys.',
      pg_catalog.format('ALTER TABLE %I.%I ALTER COLUMN %I TYPE jsonb USING %I::jsonb', c.schema, c.table_name, c.name, c.name)
    FROM columns c WHERE c.type = 'pg_catalog.json'::pg_catalog.regtype
    ORDER BY c.schema, c.table_name, c.number`,
};
