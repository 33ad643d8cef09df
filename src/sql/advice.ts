import type { Placement } from '../catalog/organization.ts';
import type { Lease } from '../router/lease.ts';
import { inspect } from './inspect.ts';
import type { ParameterText } from './parameters.ts';
import type { SessionOptions } from './session.ts';

/** Whether index i finds the rows of a foreign key's table by its columns, in whatever order. */
const SUPPORTS_KEY = `i.is_valid AND NOT i.is_partial AND i.table_oid = k.table_oid AND i.keys >= pg_catalog.cardinality(k.columns)
  AND i.columns[0:pg_catalog.cardinality(k.columns) - 1] @> k.columns`;

/** The build of an index on a partitioned table cannot be concurrent. */
const FOREIGN_KEY_WITHOUT_INDEX: Rule = {
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
const INVALID_INDEX: Rule = {
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

/** A unique index also says when it is looked at, and whether two NULLs are the same. ON CONFLICT takes only one that is immediate. */
const ENFORCES_AS_MUCH =
  'other.is_unique AND (other.is_immediate OR NOT i.is_immediate) AND (other.are_nulls_equal OR NOT i.are_nulls_equal)';

/** Of two that are the same, the one to drop belongs to no constraint; else it is not unique, or the younger. */
const DUPLICATE_INDEX: Rule = {
  name: 'duplicate_index',
  severity: 'warning',
  sql: `
    SELECT i.schema, i.table_name, i.name,
      pg_catalog.format('The index does what %I does too: it costs space and time with each write.', pg_catalog.min(other.name)),
      pg_catalog.format('DROP INDEX CONCURRENTLY %I.%I', i.schema, i.name)
    FROM indexes i JOIN indexes other ON other.table_oid = i.table_oid AND other.oid <> i.oid AND other.definition = i.definition
    WHERE i.kind = 'i' AND NOT i.is_partition AND NOT i.is_needed AND NOT i.is_identity AND other.is_valid
      AND NOT i.is_clustered AND (NOT i.is_unique OR (${ENFORCES_AS_MUCH}))
      AND (other.is_needed OR (other.is_unique AND NOT i.is_unique) OR (other.are_nulls_equal AND NOT i.are_nulls_equal) OR other.oid < i.oid)
    GROUP BY i.schema, i.table_name, i.name
    ORDER BY i.schema, i.name`,
};

/** Small ones are left alone, and those that a foreign key needs. */
const UNUSED_INDEX: Rule = {
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

/**
 * What stands in the way of another type of column c, of its table or of one that inherits from it: kinds of objects that PostgreSQL would
 * refuse the change for, and what may not be there for the new type, such as one of the organization's own functions. NULL: nothing.
 * @param isDefinitionInTheWay whether the expression of an index or check is: SQL about `dependent.definition` and `dependent.is_index`
 * @see https://github.com/postgres/postgres/blob/master/src/backend/commands/tablecmds.c RememberAllDependentForRebuilding
 */
function inTheWay(isDefinitionInTheWay: string): string {
  return `LEFT JOIN LATERAL (
    WITH RECURSIVE tree (oid) AS (
      SELECT c.oid UNION ALL SELECT h.inhrelid FROM tree JOIN pg_catalog.pg_inherits h ON h.inhparent = tree.oid
    )
    SELECT pg_catalog.string_agg(DISTINCT found.kind, ', ' ORDER BY found.kind) AS kinds FROM (
      SELECT CASE
          WHEN d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass THEN 'a view or rule'
          WHEN d.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass THEN 'a policy'
          WHEN d.classid = 'pg_catalog.pg_trigger'::pg_catalog.regclass THEN 'a trigger'
          WHEN d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass THEN 'a routine'
          WHEN d.classid = 'pg_catalog.pg_publication_rel'::pg_catalog.regclass THEN 'a publication'
          WHEN generated.attnum <> a.attnum AND generated.attgenerated <> '' THEN 'a generated column'
          WHEN dependent.definition IS NOT NULL AND (${isDefinitionInTheWay} OR EXISTS (
            SELECT FROM pg_catalog.pg_depend called WHERE called.classid = d.classid AND called.objid = d.objid
              AND called.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass)) THEN 'an index or check'
        END AS kind
      FROM tree JOIN pg_catalog.pg_attribute a ON a.attrelid = tree.oid AND a.attname::pg_catalog.text = c.name
      JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = a.attrelid
        AND d.refobjsubid = a.attnum
      LEFT JOIN pg_catalog.pg_attrdef given ON d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND given.oid = d.objid
      LEFT JOIN pg_catalog.pg_attribute generated ON generated.attrelid = given.adrelid AND generated.attnum = given.adnum
      LEFT JOIN LATERAL (
        SELECT pg_catalog.concat(pg_catalog.pg_get_expr(i.indexprs, i.indrelid), ' ', pg_catalog.pg_get_expr(i.indpred, i.indrelid)) AS definition,
          true AS is_index
        FROM pg_catalog.pg_index i
        WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND i.indexrelid = d.objid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
        UNION ALL
        SELECT pg_catalog.pg_get_expr(k.conbin, k.conrelid), false FROM pg_catalog.pg_constraint k
        WHERE d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND k.oid = d.objid AND k.contype = 'c') AS dependent ON true
      UNION ALL
      SELECT 'the partition key' FROM tree JOIN pg_catalog.pg_attribute a ON a.attrelid = tree.oid AND a.attname::pg_catalog.text = c.name
      JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = a.attrelid AND d.objsubid = a.attnum
        AND d.refclassid = d.classid AND d.refobjid = d.objid AND d.refobjsubid = 0 AND d.deptype = 'i'
    ) AS found WHERE found.kind IS NOT NULL) AS way ON true`;
}

/** Behind a message, where something is in the way of its cure. */
const SAID = `CASE WHEN way.kinds IS NOT NULL THEN ' Its type cannot be changed as long as there is what uses it: ' || way.kinds || '.' END`;

/** Each part is the message; where nothing is in the way, the cure. */
function retyped(message: string, cure: string, isCured = 'true'): string {
  return `pg_catalog.concat(${message}, ${SAID}), CASE WHEN way.kinds IS NULL AND ${isCured} THEN ${cure} END`;
}

const INTEGER_KEY_NEAR_END: Rule = {
  name: 'integer_key_near_end',
  severity: 'warning',
  sql: `
    SELECT c.schema, c.table_name, c.name,
      ${retyped(
        `pg_catalog.format('%s%% of the numbers of the column are used up, of type %s. Columns that refer to it have to change too.',
          pg_catalog.floor(100.0 * s.value / ends.last), pg_catalog.format_type(c.type, NULL))`,
        "pg_catalog.format('ALTER TABLE %I.%I ALTER COLUMN %I TYPE bigint', c.schema, c.table_name, c.name)",
      )}
    FROM (${SEQUENCES}) AS s JOIN columns c ON c.oid = s.table_oid AND c.number = s.number
    JOIN (VALUES ('pg_catalog.int2'::pg_catalog.regtype, 32767), ('pg_catalog.int4'::pg_catalog.regtype, 2147483647)) AS ends (type, last)
      ON ends.type = c.type
    ${inTheWay('false')}
    WHERE s.value >= ${NEAR_END} * ends.last
    ORDER BY c.schema, c.table_name, c.name`,
};

/** The sequence of an identity column changes with its column. */
const SEQUENCE_NEAR_END: Rule = {
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

/** The expression of a generated column would depend on the session's time zone. An index on an expression mostly would, too. */
const TIMESTAMP_WITHOUT_TIME_ZONE: Rule = {
  name: 'timestamp_without_time_zone',
  severity: 'info',
  sql: `
    SELECT c.schema, c.table_name, c.name,
      ${retyped(
        "'The column has timestamps without a time zone: which instant one means depends on who wrote it.'",
        `pg_catalog.format('ALTER TABLE %I.%I ALTER COLUMN %I TYPE %s USING %I AT TIME ZONE ''UTC''', c.schema, c.table_name, c.name,
          pg_catalog.format_type('pg_catalog.timestamptz'::pg_catalog.regtype, c.modifier), c.name)`,
        'NOT c.is_generated',
      )}
    FROM columns c ${inTheWay('dependent.is_index')} WHERE c.type = 'pg_catalog.timestamp'::pg_catalog.regtype
    ORDER BY c.schema, c.table_name, c.number`,
};

/** Operators of json are there for jsonb, functions are not. A generated column takes its values by assignment. */
const JSON_INSTEAD_OF_JSONB: Rule = {
  name: 'json_instead_of_jsonb',
  severity: 'info',
  sql: `
    SELECT c.schema, c.table_name, c.name,
      ${retyped(
        "'The column has json: it is parsed each time it is read, and no index finds what is in it. jsonb keeps no white space and no order of keys.'",
        `CASE WHEN c.is_generated THEN pg_catalog.format('ALTER TABLE %I.%I ALTER COLUMN %I TYPE jsonb', c.schema, c.table_name, c.name)
          ELSE pg_catalog.format('ALTER TABLE %I.%I ALTER COLUMN %I TYPE jsonb USING %I::jsonb', c.schema, c.table_name, c.name, c.name) END`,
      )}
    FROM columns c ${inTheWay(String.raw`dependent.definition ~ '\mjson(_|\M)'`)} WHERE c.type = 'pg_catalog.json'::pg_catalog.regtype
    ORDER BY c.schema, c.table_name, c.number`,
};

/** A partitioned table's key must hold the columns that it is divided by, a table of a type can have no column added, and one with child tables no identity. */
const NO_PRIMARY_KEY: Rule = {
  name: 'no_primary_key',
  severity: 'warning',
  sql: `
    SELECT t.schema, t.name, NULL::pg_catalog.text,
      'The table has no primary key: its rows cannot be told apart, and logical replication cannot update them.',
      CASE WHEN t.kind = 'r' AND NOT t.is_typed AND free.name IS NOT NULL
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = t.oid)
        THEN pg_catalog.format('ALTER TABLE %I.%I ADD COLUMN %I bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY', t.schema, t.name, free.name) END
    FROM tables t LEFT JOIN LATERAL (
      SELECT wanted.name FROM (VALUES (1, 'id'), (2, 'row_id'), (3, t.name || '_id')) AS wanted (place, name)
      WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.oid AND a.attname::pg_catalog.text = wanted.name)
      ORDER BY wanted.place LIMIT 1) AS free ON true
    WHERE NOT EXISTS (SELECT FROM indexes i WHERE i.table_oid = t.oid AND i.is_primary)
    ORDER BY t.schema, t.name`,
};

/** Autovacuum analyzes tables, but not what is divided into partitions as a whole. */
const NEVER_ANALYZED: Rule = {
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

const LARGE_SEQUENTIAL_SCANS: Rule = {
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
const NO_ROW_SECURITY: Rule = {
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

/**
 * A role that may create temporary objects, or choose the search path, decides what the names in such a routine mean, which then runs as
 * its owner. The cure leaves the path as sessions have it, but for pg_temp, which comes last.
 */
const DEFINER_WITHOUT_SEARCH_PATH: Rule = {
  name: 'definer_without_search_path',
  severity: 'warning',
  sql: `
    SELECT r.schema, NULL::pg_catalog.text, r.name,
      pg_catalog.format('%s(%s) runs with the rights of its owner, and with the search_path of the caller, who can so put other objects in the place of those that it names.',
        r.name, coalesce(r.arguments, '')),
      pg_catalog.format('ALTER ROUTINE %I.%I(%s) SET search_path = %s, pg_temp', r.schema, r.name, coalesce(r.arguments, ''),
        CASE r.schema WHEN 'public' THEN 'public' ELSE pg_catalog.format('%I, public', r.schema) END)
    FROM (
      SELECT s.name AS schema, p.proname::pg_catalog.text AS name, (
        SELECT pg_catalog.string_agg(CASE
            WHEN pg_catalog.pg_type_is_visible(t.oid) THEN pg_catalog.format_type(t.oid, NULL)
            WHEN t.typelem <> 0 AND t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc
              THEN pg_catalog.format('%I.%I[]', es.name, e.typname)
            ELSE pg_catalog.format('%I.%I', ts.name, t.typname) END, ', ' ORDER BY a.place)
        FROM pg_catalog.unnest(p.proargtypes) WITH ORDINALITY AS a (type, place) JOIN pg_catalog.pg_type t ON t.oid = a.type
        LEFT JOIN schemas ts ON ts.oid = t.typnamespace LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
        LEFT JOIN schemas es ON es.oid = e.typnamespace) AS arguments
      FROM pg_catalog.pg_proc p JOIN schemas s ON s.oid = p.pronamespace
      WHERE s.is_own AND p.prosecdef AND NOT EXISTS (
        SELECT FROM pg_catalog.unnest(p.proconfig) AS setting WHERE pg_catalog.starts_with(setting, 'search_path='))
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = p.oid AND d.deptype = 'e')) AS r
    ORDER BY r.schema, r.name, r.arguments`,
};

const RULES: readonly Rule[] = [
  INVALID_INDEX,
  INTEGER_KEY_NEAR_END,
  SEQUENCE_NEAR_END,
  DEFINER_WITHOUT_SEARCH_PATH,
  NO_PRIMARY_KEY,
  FOREIGN_KEY_WITHOUT_INDEX,
  DUPLICATE_INDEX,
  LARGE_SEQUENTIAL_SCANS,
  NEVER_ANALYZED,
  UNUSED_INDEX,
  NO_ROW_SECURITY,
  TIMESTAMP_WITHOUT_TIME_ZONE,
  JSON_INSTEAD_OF_JSONB,
];

export const ADVICE_MAX = 200;
/** So that one rule does not leave the others without a place. */
const ADVICE_PER_RULE_MAX = 50;

interface Advice {
  readonly rule: RuleName;
  readonly severity: Severity;
  readonly schema: string;
  readonly table: string | null;
  /** The index, constraint, column, sequence or routine. */
  readonly object: string | null;
  readonly message: string;
  /** A statement that cures it. */
  readonly cure: string | null;
}

interface AdviceReply {
  readonly advice: readonly Advice[];
  /** false: there is more than is shown. */
  readonly isComplete: boolean;
}

interface AdviceRequest extends SessionOptions {
  /** Counters of the relations as JSON, for a placement in which the organization may not read them; see `relations.ts`. */
  readonly counters: string | undefined;
  /** The role of the organization's readers, if it has a key for them. */
  readonly reader: string | undefined;
}

/**
 * What could be better in the organization's schema, with the statements that cure it. Nothing is changed. Takes over the lease.
 * @throws ServiceError `statement_timeout`, `query_canceled`, `backend_lost`, PostgresError `lock_not_available`
 */
export async function giveAdvice(lease: Lease, request: AdviceRequest): Promise<AdviceReply> {
  const { placement } = lease.tenant.organization;
  const schema = placement.kind === 'schema' ? placement.schema : null;
  const found = await inspect(lease, request, (session) =>
    session.rows(adviceSql(relationsSql(placement)), [schema, request.counters ?? null, request.reader ?? null]),
  );
  const each = new Map<string, number>();
  const kept = found.filter(([rule]) => {
    const count = (each.get(rule ?? '') ?? 0) + 1;
    each.set(rule ?? '', count);
    return count <= ADVICE_PER_RULE_MAX;
  });
  return { advice: kept.slice(0, ADVICE_MAX).map(readAdvice), isComplete: kept.length === found.length && kept.length <= ADVICE_MAX };
}

/** One statement, so that the relations are looked up once, and in one snapshot. */
function adviceSql(relations: string): string {
  const parts = RULES.map(
    ({ name, severity, sql }) =>
      `(SELECT '${name}'::pg_catalog.text, '${severity}'::pg_catalog.text, found.* FROM (${sql}) AS found LIMIT ${ADVICE_PER_RULE_MAX + 1})`,
  );
  return `WITH ${relations} ${parts.join(' UNION ALL ')}`;
}

function readAdvice([rule, severity, schema, table, object, message, cure]: readonly ParameterText[]): Advice {
  return {
    rule: RULE_NAMES.find((name) => name === rule) ?? 'no_primary_key',
    severity: severity === 'warning' ? 'warning' : 'info',
    schema: schema ?? '',
    table: table ?? null,
    object: object ?? null,
    message: message ?? '',
    cure: cure ?? null,
  };
}

/**
 * What the rules select from, as the WITH list of one statement: the organization's own relations, indexes and counters. Postern's tables
 * and those of extensions are left out.
 *
 * Parameters of the statement: $1 the schema that clients know as `public`, or NULL; $2 counters as JSON, or NULL where the organization
 * may read its own; $3 the role of its readers, or NULL if there is no key for them.
 *
 * No size or definition is read by a function that would wait for a lock on the table: sizes are as VACUUM and ANALYZE have left them.
 */
function relationsSql({ kind }: Placement): string {
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
        a.atttypmod AS modifier, a.attgenerated <> '' AS is_generated
      FROM tables t JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid
      WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0 AND NOT t.is_typed
    ),
    indexes AS MATERIALIZED (
      SELECT i.indexrelid AS oid, i.indrelid AS table_oid, r.schema, r.name AS table_name, c.relname::pg_catalog.text AS name, c.relkind AS kind,
        c.relispartition AS is_partition, c.relpages::pg_catalog.int8 * 8192 AS bytes, i.indisunique AS is_unique, i.indisvalid AS is_valid,
        i.indisprimary AS is_primary, i.indisreplident AS is_identity, i.indisclustered AS is_clustered, i.indimmediate AS is_immediate,
        i.indnullsnotdistinct AS are_nulls_equal,
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
      WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM pg_catalog.pg_trigger g WHERE g.tgconstraint = k.oid)
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

/** The names of all rules, those whose advice matters most first. */
export const RULE_NAMES = [
  'invalid_index',
  'integer_key_near_end',
  'sequence_near_end',
  'definer_without_search_path',
  'no_primary_key',
  'foreign_key_without_index',
  'duplicate_index',
  'large_sequential_scans',
  'never_analyzed',
  'unused_index',
  'no_row_security_with_read_keys',
  'timestamp_without_time_zone',
  'json_instead_of_jsonb',
] as const;

type RuleName = (typeof RULE_NAMES)[number];

export const SEVERITIES = ['warning', 'info'] as const;
type Severity = (typeof SEVERITIES)[number];

interface Rule {
  readonly name: RuleName;
  readonly severity: Severity;
  /**
   * A SELECT over the lists of `relations.ts`: schema, table, object, message, and the statement that cures it, or NULL. Identifiers are
   * quoted by the server (`%I`).
   */
  readonly sql: string;
}
