import { createHash } from 'node:crypto';
import type { Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import type { Lease } from '../router/lease.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import { inspect } from './inspect.ts';
import { JsonBuffer } from './json-buffer.ts';
import { extendedQuery } from './pipeline.ts';
import { posternObjects } from './postern-tables.ts';
import { keepResults, RESULTS_MAX_BYTES } from './result-budget.ts';
import type { SessionOptions, SqlSession } from './session.ts';
import type { Warning } from './warnings.ts';

interface SchemaRequest extends SessionOptions {
  /** The only schema to show, as clients know it. */
  readonly schema?: string;
}

interface SchemaReply {
  /** As UTF-8 JSON. */
  readonly body: Buffer;
  /** Of the body. */
  readonly hash: string;
}

/** Of each kind of object. */
const OBJECTS_MAX = 10_000;
const SCHEMAS_MAX = 1_000;
const OBJECTS_AT_ONCE = 200;
/** What follows the arrays. */
const END_MAX_BYTES = 4_096;

/**
 * What an organization's database is made of, as far as the role of the lease may see it. PostgreSQL writes the JSON, so that Postern
 * only copies it. Takes over the lease.
 * @throws ServiceError `not_found` when there is no such schema; `statement_timeout`, `query_canceled`, `response_too_large`, `backend_lost`
 * @throws PostgresError lock_not_available while somebody has locked a table exclusively
 */
export async function readSchema(lease: Lease, request: SchemaRequest): Promise<SchemaReply> {
  const body = await inspect(lease, request, (session) => readParts(session, lease.tenant.organization.placement, request));
  return { body, hash: await hashOf(body) };
}

async function readParts(session: SqlSession, placement: Placement, { schema }: SchemaRequest): Promise<Buffer> {
  // Many subqueries are estimated as expensive, and compiling them would take longer than running them.
  await session.query(`SELECT pg_catalog.set_config('jit', 'off', true)`);
  const parts = new Parts(session);
  const schemas = await readSchemas(session, placement, schema, parts);
  const parameters = parametersOf(placement, schemas);
  const limit = OBJECTS_MAX + 1;
  /**
   * Locks that definitions take are kept until the end of the transaction, or of a subtransaction. Of many views they could fill the
   * server's table of locks, so they are read in portions.
   */
  const addInPortions = async (name: string, oidsSql: string, portionSql: string) => {
    const oids = (await session.rows(oidsSql, parameters)).map(([oid]) => oid ?? '');
    await parts.add(name, async (addRows) => {
      for (let at = 0; at < oids.length; at += OBJECTS_AT_ONCE) {
        await session.query('SAVEPOINT portion');
        await addRows(portionSql, parametersOf(placement, oids.slice(at, at + OBJECTS_AT_ONCE)));
        await session.query('ROLLBACK TO SAVEPOINT portion');
      }
    });
  };
  await addInPortions('tables', tableOidsSql(placement, limit), tablesSql(placement));
  await parts.add('types', (addRows) => addRows(typesSql(placement, limit), parameters));
  await parts.add('collations', (addRows) => addRows(collationsSql(placement, limit), parameters));
  await parts.add('sequences', (addRows) => addRows(sequencesSql(placement, limit), parameters));
  await addInPortions('functions', functionOidsSql(limit), functionsSql(placement));
  await parts.add('extensions', (addRows) => addRows(extensionsSql(placement, limit, schema !== undefined), parameters));
  return parts.end(placement.kind === 'database' && schema === undefined ? ONE_SCHEMA : undefined);
}

/** @returns the oids of the schemas that are shown */
async function readSchemas(session: SqlSession, placement: Placement, asked: string | undefined, parts: Parts): Promise<readonly string[]> {
  // In the `schema` placement the other schemas are those of other organizations.
  const isPublic = asked === 'public' || (asked === undefined && placement.kind === 'schema');
  const mayExist = isPublic || placement.kind === 'database';
  const only = isPublic ? placement.schema : (asked ?? null);
  const found = mayExist ? await session.rows(schemasSql(placement, SCHEMAS_MAX + 1), [placement.schema, only]) : [];
  if (found.length === 0 && asked !== undefined) throw new ServiceError('not_found', `there is no schema "${asked}"`);
  parts.addSchemas(found.map(([, json]) => json ?? ''));
  return found.slice(0, SCHEMAS_MAX).map(([oid]) => oid ?? '');
}

/** Before the only value of a row are the number of columns, as two bytes, and the value's length, as four. */
const VALUE_OFFSET = 6;

type AddRows = (sql: string, parameters: readonly string[]) => Promise<void>;

/** The arrays of the reply, one after the other. */
class Parts {
  readonly #session: SqlSession;
  readonly #items: LimitedJsonDocument;
  readonly #incomplete: string[] = [];

  constructor(session: SqlSession) {
    this.#session = session;
    this.#items = new LimitedJsonDocument(RESULTS_MAX_BYTES - END_MAX_BYTES, (bytes) => this.#spend(bytes));
  }

  addSchemas(documents: readonly string[]): void {
    this.#items.open('{"schemas":', SCHEMAS_MAX);
    for (const document of documents) this.#items.add(Buffer.from(document));
    this.#close('schemas');
  }

  /** @param rows adds the rows of statements that have one column, which is a JSON document */
  async add(name: string, rows: (addRows: AddRows) => Promise<void>): Promise<void> {
    this.#items.open(`,"${name}":`, OBJECTS_MAX);
    const row = (source: Buffer, start: number, end: number) => this.#items.add(source, start + VALUE_OFFSET, end);
    await rows(async (sql, parameters) => {
      await this.#session.request(extendedQuery(sql, parameters), { row });
    });
    this.#close(name);
  }

  /** The whole reply. @param hint what to do if it is not complete */
  end(hint: string | undefined): Buffer {
    const isComplete = this.#incomplete.length === 0;
    const warnings = isComplete ? '' : `,"warnings":${JSON.stringify([incomplete(this.#incomplete, hint)])}`;
    return this.#items.end(`,"isComplete":${isComplete}${warnings}}`);
  }

  #close(name: string): void {
    if (!this.#items.close()) this.#incomplete.push(name);
  }

  #spend(bytes: number): boolean {
    const refusal = keepResults(this.#session.results, bytes);
    if (refusal !== undefined) this.#session.abort(refusal);
    return refusal === undefined;
  }
}

/** SQLSTATE program_limit_exceeded. */
const LIMIT_EXCEEDED = '54000';
const ONE_SCHEMA = 'Ask for one schema at a time: GET /api/schema?schema=…';

function incomplete(names: readonly string[], hint: string | undefined): Warning {
  return {
    severity: 'WARNING',
    code: LIMIT_EXCEEDED,
    message: `not all ${names.join(', ')} are shown: at most ${OBJECTS_MAX} of a kind, and ${RESULTS_MAX_BYTES} bytes in all`,
    ...(hint === undefined ? {} : { hint }),
  };
}

const HASHED_AT_ONCE_BYTES = 262_144;

async function hashOf(body: Buffer): Promise<string> {
  const hash = createHash('sha256');
  const slices = new TimeSlices();
  for (let at = 0; at < body.length; at += HASHED_AT_ONCE_BYTES) {
    hash.update(body.subarray(at, at + HASHED_AT_ONCE_BYTES));
    await slices.pause();
  }
  return hash.digest('base64url');
}

const KINDS = { r: 'table', p: 'partitioned table', v: 'view', m: 'materialized view', f: 'foreign table' };
const COMMANDS = { r: 'select', a: 'insert', w: 'update', d: 'delete', '*': 'all' };
const ACTIONS = { a: 'no action', r: 'restrict', c: 'cascade', n: 'set null', d: 'set default' };

/** What has a privilege of any kind for the role that asks. */
const VISIBLE = `(pg_catalog.pg_has_role(c.relowner, 'USAGE')
  OR pg_catalog.has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
  OR pg_catalog.has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))`;

/** The oids of tables, views and the like, in the order in which they are shown. */
function tableOidsSql(placement: Placement, limit: number): string {
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
function tablesSql(placement: Placement): string {
  const spelling = spellingOf(placement);
  return `
    SELECT pg_catalog.row_to_json(item) FROM (
      SELECT ${spelling.schema('n')} AS schema, c.relname AS name, ${word('c.relkind', KINDS)} AS kind, ${comment('pg_class', 'c.oid')} AS comment,
        ${ROW_ESTIMATE} AS "rowEstimate",
        parts.bytes AS "totalBytes", parts.bytes - parts.index_bytes AS "tableBytes", parts.index_bytes AS "indexBytes",
        ${jsonArray(columnsSql(spelling))} AS columns,
        ${jsonObject(`${keysSql('p', spelling)} LIMIT 1`)} AS "primaryKey",
        ${jsonArray(keysSql('u', spelling))} AS unique,
        ${ROW_KEY} AS "rowKey",
        ${jsonArray(notNullsSql(spelling))} AS "notNulls",
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
        CASE WHEN c.relispartition THEN '[]' ELSE ${jsonArray(inheritsSql(spelling))} END AS inherits,
        ${HAS_CHILDREN} AS "hasChildren"
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
    SELECT a.attname AS name, ${definition('pg_catalog.format_type(a.atttypid, a.atttypmod)')} AS type, ${IS_NOT_NULL} AS "notNull",
      CASE WHEN a.attgenerated = '' THEN ${expression} END AS default,
      ${word('a.attidentity', { a: 'always', d: 'by default' })} AS identity,
      CASE WHEN a.attgenerated <> '' THEN ${expression} END AS generated,
      ${word('a.attgenerated', { s: 'stored', v: 'virtual' })} AS generation,
      ${definition(collationName('a.attcollation', 'a.atttypid'))} AS collation, ${IS_DETERMINISTIC} AS "isDeterministic",
      ${comment('pg_class', 'c.oid', 'a.attnum')} AS comment
    FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef def ON def.adrelid = a.attrelid AND def.adnum = a.attnum
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`;
}

/** While the constraint is NOT VALID, as it may be since PostgreSQL 18, rows may have NULL. */
const IS_NOT_NULL = `(a.attnotnull AND NOT EXISTS (
  SELECT FROM pg_catalog.pg_constraint con
  WHERE con.conrelid = a.attrelid AND con.contype = 'n' AND con.conkey[1] = a.attnum AND NOT con.convalidated))`;

const IS_DETERMINISTIC = `NOT EXISTS (
  SELECT FROM pg_catalog.pg_collation co WHERE co.oid = a.attcollation AND NOT co.collisdeterministic)`;

/** NULL where it is that of the type. */
function collationName(collation: string, type: string): string {
  return `(
    SELECT ${qualifiedName('cn.nspname', 'co.collname')}
    FROM pg_catalog.pg_collation co JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace JOIN pg_catalog.pg_type ct ON ct.oid = ${type}
    WHERE co.oid = ${collation} AND ${collation} <> ct.typcollation)`;
}

function qualifiedName(schema: string, name: string): string {
  return `pg_catalog.concat(pg_catalog.quote_ident(${schema}::pg_catalog.text), '.', pg_catalog.quote_ident(${name}::pg_catalog.text))`;
}

const CONSTRAINT = 'pg_catalog.pg_get_constraintdef(con.oid)';

function keysSql(type: 'p' | 'u', { definition }: Spelling): string {
  return `
    SELECT con.conname AS name, ${columnNames('con.conrelid', 'con.conkey')} AS columns, ${definition(CONSTRAINT)} AS definition
    FROM pg_catalog.pg_constraint con WHERE con.conrelid = c.oid AND con.contype = '${type}' ORDER BY con.conname`;
}

/** Without those that an index only includes. */
const KEY_COLUMNS = '(i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1]';

const HAS_CHILDREN = 'EXISTS (SELECT FROM pg_catalog.pg_inherits child WHERE child.inhparent = c.oid)';

/**
 * No two rows of the table are equal there, whatever the transaction, and none is left out: so the index is unique, immediate and complete,
 * and its columns are compared as `=` does, which is exact for their collations. That of a table says nothing of its child tables.
 */
const ROW_KEY = `(
  SELECT ${columnNames('i.indrelid', KEY_COLUMNS)}
  FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid
  WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
    AND (c.relkind = 'p' OR NOT ${HAS_CHILDREN}) AND NOT EXISTS (
      SELECT FROM ROWS FROM (pg_catalog.unnest(${KEY_COLUMNS}), pg_catalog.unnest(i.indclass::pg_catalog.oid[])) AS part (number, opclass)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = part.number
        JOIN pg_catalog.pg_opclass class ON class.oid = part.opclass
      WHERE NOT (${IS_NOT_NULL} AND ${IS_DETERMINISTIC} AND class.opcdefault))
  ORDER BY i.indisprimary DESC, ic.relname LIMIT 1)`;

/** Since PostgreSQL 18 they are constraints like others. */
function notNullsSql({ definition }: Spelling): string {
  return `
    SELECT con.conname AS name, a.attname AS column, ${definition(CONSTRAINT)} AS definition
    FROM pg_catalog.pg_constraint con JOIN pg_catalog.pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = con.conkey[1]
    WHERE con.conrelid = c.oid AND con.contype = 'n' ORDER BY a.attnum`;
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
      coalesce((pg_catalog.to_jsonb(con) ->> 'conperiod')::pg_catalog.bool, false) AS "isTemporal",
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
      ${columnNames('i.indrelid', KEY_COLUMNS)} AS columns,
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

/**
 * The schemas that are shown, each as a row of oid and JSON document. Its only parameters: $1 the schema that clients know as `public`,
 * $2 the only schema to show, or NULL.
 */
function schemasSql(placement: Placement, limit: number): string {
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
function typesSql(placement: Placement, limit: number): string {
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

/** A new domain has no values that its checks would have to be validated for. Since PostgreSQL 17 NOT NULL is a constraint with a name. */
const DOMAIN = `pg_catalog.concat(pg_catalog.format_type(t.typbasetype, t.typtypmod), ' COLLATE ' || ${collationName('t.typcollation', 't.typbasetype')},
  ' DEFAULT ' || pg_catalog.pg_get_expr(t.typdefaultbin, 0), CASE WHEN t.typnotnull THEN pg_catalog.concat((
    SELECT ' CONSTRAINT ' || pg_catalog.quote_ident(con.conname::pg_catalog.text) FROM pg_catalog.pg_constraint con
    WHERE con.contypid = t.oid AND con.contype = 'n' AND con.conname::pg_catalog.text <> t.typname || '_not_null'), ' NOT NULL') END,
  (SELECT pg_catalog.string_agg(pg_catalog.concat(' CONSTRAINT ', pg_catalog.quote_ident(con.conname::pg_catalog.text), ' ',
      pg_catalog.regexp_replace(pg_catalog.pg_get_constraintdef(con.oid), ' NOT VALID$', '')), '' ORDER BY con.conname)
    FROM pg_catalog.pg_constraint con WHERE con.contypid = t.oid AND con.contype = 'c'))`;

const COMPOSITE = `pg_catalog.concat('(', (
  SELECT pg_catalog.string_agg(pg_catalog.concat(pg_catalog.quote_ident(a.attname::pg_catalog.text), ' ', pg_catalog.format_type(a.atttypid, a.atttypmod),
    ' COLLATE ' || ${collationName('a.attcollation', 'a.atttypid')}), ', ' ORDER BY a.attnum)
  FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), ')')`;

const RANGE = `(
  SELECT pg_catalog.concat('(SUBTYPE = ', pg_catalog.format_type(r.rngsubtype, NULL),
    ', SUBTYPE_OPCLASS = ' || CASE WHEN NOT class.opcdefault THEN ${qualifiedName('class_schema.nspname', 'class.opcname')} END,
    ', COLLATION = ' || ${collationName('r.rngcollation', 'r.rngsubtype')},
    ', CANONICAL = ' || CASE WHEN r.rngcanonical <> 0 THEN r.rngcanonical::pg_catalog.text END,
    ', SUBTYPE_DIFF = ' || CASE WHEN r.rngsubdiff <> 0 THEN r.rngsubdiff::pg_catalog.text END,
    ', MULTIRANGE_TYPE_NAME = ', ${qualifiedName('multirange_schema.nspname', 'multirange.typname')}, ')')
  FROM pg_catalog.pg_range r JOIN pg_catalog.pg_opclass class ON class.oid = r.rngsubopc
    JOIN pg_catalog.pg_namespace class_schema ON class_schema.oid = class.opcnamespace
    JOIN pg_catalog.pg_type multirange ON multirange.oid = r.rngmultitypid
    JOIN pg_catalog.pg_namespace multirange_schema ON multirange_schema.oid = multirange.typnamespace
  WHERE r.rngtypid = t.oid)`;

const COLLATION_PROVIDERS = { c: 'libc', i: 'icu', b: 'builtin' };

/** The names of columns differ between releases, so they are looked up in the row as JSON. */
function collationsSql(placement: Placement, limit: number): string {
  const { schema } = spellingOf(placement);
  return `
    SELECT ${jsonObject(`
      SELECT ${schema('n')} AS schema, co.collname AS name, pg_catalog.concat('(PROVIDER = ', ${word('co.collprovider', COLLATION_PROVIDERS)},
          ', LOCALE = ' || pg_catalog.quote_literal(locale.name),
          CASE WHEN locale.name IS NULL THEN pg_catalog.concat(', LC_COLLATE = ', pg_catalog.quote_literal(co.collcollate::pg_catalog.text),
            ', LC_CTYPE = ', pg_catalog.quote_literal(co.collctype::pg_catalog.text)) END,
          ', RULES = ' || pg_catalog.quote_literal(locale.rules), CASE WHEN NOT co.collisdeterministic THEN ', DETERMINISTIC = false' END, ')') AS definition,
        ${comment('pg_collation', 'co.oid')} AS comment`)}
    FROM pg_catalog.pg_collation co JOIN pg_catalog.pg_namespace n ON n.oid = co.collnamespace CROSS JOIN LATERAL (
      SELECT coalesce(written.document ->> 'colllocale', written.document ->> 'colliculocale',
          CASE WHEN co.collcollate = co.collctype THEN co.collcollate::pg_catalog.text END) AS name, written.document ->> 'collicurules' AS rules
      FROM (SELECT pg_catalog.to_jsonb(co)) AS written (document)) AS locale
    WHERE ${isListed('co.collnamespace')} AND NOT ${isExtensions('pg_collation', 'co.oid')}
    ORDER BY n.nspname, co.collname LIMIT ${limit}`;
}

function sequencesSql(placement: Placement, limit: number): string {
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
function functionOidsSql(limit: number): string {
  return `
    SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE ${isListed('p.pronamespace')} AND NOT ${isExtensions('pg_proc', 'p.oid', 'i')}
      AND (pg_catalog.pg_has_role(p.proowner, 'USAGE') OR pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
    ORDER BY n.nspname, p.proname, p.oid LIMIT ${limit}`;
}

/** These functions. $1 has their oids in place of those of schemas. Definitions of those written in the SQL standard's way lock the tables that they name. */
function functionsSql(placement: Placement): string {
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
function extensionsSql(placement: Placement, limit: number, isOneSchema: boolean): string {
  const { schema } = spellingOf(placement);
  return `
    SELECT ${jsonObject(`SELECT e.extname AS name, e.extversion AS version, ${schema('n')} AS schema`)}
    FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
    WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND (${isListed('n.oid')} OR ${!isOneSchema})
    ORDER BY e.extname LIMIT ${limit}`;
}

/*
 * Parts of the statements that read the catalogs. The parameters of all these statements:
 *   $1 the oids of what is shown, mostly of schemas
 *   $2 the schema that clients know as `public`
 *   $3 a pattern that finds this schema where it qualifies a name
 * Every name is qualified, because an organization may have planted functions, operators and types in its schemas.
 */

/** How names and definitions are shown. */
interface Spelling {
  /** @param namespace the alias of a pg_namespace */
  schema(namespace: string): string;
  /** @param text an expression for a definition: without a search path, every name in it is qualified */
  definition(text: string): string;
}

function spellingOf({ kind }: Placement): Spelling {
  return {
    schema: (namespace) => `CASE WHEN ${namespace}.nspname = $2::pg_catalog.name THEN 'public' ELSE ${namespace}.nspname END`,
    definition: (text) => (kind === 'schema' ? `pg_catalog.regexp_replace(${text}, $3::pg_catalog.text, 'public', 'g')` : text),
  };
}

/** The values of the parameters. */
function parametersOf({ schema }: Placement, oids: readonly string[]): string[] {
  return [`{${oids.join(',')}}`, schema, mentions(schema)];
}

/** Whether an oid is among those of $1. PostgreSQL wants to find every parameter in every statement. */
function isListed(oid: string): string {
  return `(${oid} = ANY ($1::pg_catalog.oid[]) AND $2::pg_catalog.name IS NOT NULL AND $3::pg_catalog.text IS NOT NULL)`;
}

/** Matches the schema as a whole identifier that a dot follows, quoted or not. */
function mentions(schema: string): string {
  return String.raw`(?<![[:alnum:]_$\u0080-\uffff])${schema}(?="?[.])`;
}

/** The comment of an object, or of a column. */
function comment(catalog: string, oid: string, column = '0'): string {
  return `(SELECT d.description FROM pg_catalog.pg_description d
    WHERE d.objoid = ${oid} AND d.classoid = ${catalogOid(catalog)} AND d.objsubid = ${column})`;
}

/** The names of columns as JSON, in the order of their numbers in an array. A number of 0 stands for an expression, which has no name. */
function columnNames(table: string, numbers: string): string {
  return `(SELECT pg_catalog.json_agg(a.attname ORDER BY k.place) FROM pg_catalog.unnest(${numbers}) WITH ORDINALITY AS k (number, place)
    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = ${table} AND a.attnum = k.number AND k.number <> 0)`;
}

/** All rows of a query as a JSON array. */
function jsonArray(query: string): string {
  return `(SELECT coalesce(pg_catalog.json_agg(pg_catalog.row_to_json(item)), '[]') FROM (${query}) AS item)`;
}

/** The first row of a query as a JSON object, or NULL. */
function jsonObject(query: string): string {
  return `(SELECT pg_catalog.row_to_json(item) FROM (${query}) AS item)`;
}

/** The word for a letter in a catalog; NULL for any other letter. */
function word(letter: string, words: Readonly<Record<string, string>>): string {
  const cases = Object.entries(words).map(([one, text]) => `WHEN '${one}' THEN '${text}'`);
  return `CASE ${letter} ${cases.join(' ')} END`;
}

/** Whether an object is part of an extension. @param also another kind of dependency that excludes it: `i` if it is part of another object */
function isExtensions(catalog: string, oid: string, also = 'e'): string {
  return `EXISTS (SELECT FROM pg_catalog.pg_depend d
    WHERE d.classid = ${catalogOid(catalog)} AND d.objid = ${oid} AND d.deptype IN ('e', '${also}'))`;
}

/** Whether a relation is one of Postern's own. */
function isPosterns(placement: Placement, relation: string): string {
  return `${relation}.relname = ANY ('{${posternObjects(placement).tables.join(',')}}'::pg_catalog.name[])`;
}

function catalogOid(catalog: string): string {
  return `'pg_catalog.${catalog}'::pg_catalog.regclass`;
}

const [COMMA, OPEN_ARRAY, CLOSE_ARRAY] = [0x2c, 0x5b, 0x5d];

/**
 * A JSON document that grows by arrays whose items are JSON documents of PostgreSQL's, which are copied as they are. What
 * exceeds the limit is left out.
 */
export class LimitedJsonDocument {
  readonly #out = new JsonBuffer();
  readonly #maxBytes: number;
  readonly #spend: (bytes: number) => boolean;
  #itemsMax = 0;
  #items = 0;
  #isFull = false;

  /** @param spend asked before so many bytes are added: whether there is memory for them */
  constructor(maxBytes: number, spend: (bytes: number) => boolean) {
    this.#maxBytes = maxBytes;
    this.#spend = spend;
  }

  /** Begins an array. Items beyond the maximum are left out. */
  open(before: string, itemsMax: number): void {
    this.#out.text(before);
    this.#out.byte(OPEN_ARRAY);
    this.#itemsMax = itemsMax;
    this.#items = 0;
  }

  /** Adds the JSON document in `source[start..end)`. */
  add(source: Buffer, start = 0, end = source.length): void {
    this.#items += 1;
    if (!this.#mayAdd(end - start)) return;
    if (this.#items > 1) this.#out.byte(COMMA);
    this.#out.copy(source, start, end);
  }

  /** Ends the array. @returns whether it has all items */
  close(): boolean {
    this.#out.byte(CLOSE_ARRAY);
    return !this.#isFull && this.#items <= this.#itemsMax;
  }

  /** Ends the document. */
  end(text: string): Buffer {
    this.#out.text(text);
    return this.#out.whole();
  }

  #mayAdd(bytes: number): boolean {
    if (this.#isFull || this.#items > this.#itemsMax) return false;
    this.#isFull = this.#out.length + bytes > this.#maxBytes || !this.#spend(bytes);
    return !this.#isFull;
  }
}
