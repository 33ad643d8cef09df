import type pg from 'pg';
import type { Placement } from '../catalog/organization.ts';
import { codeOf } from '../protocol/backend.ts';
import type { Platform } from './cluster.ts';

const INSUFFICIENT_PRIVILEGE = '42501';
/** Relations of one organization whose counters are read: those that are read most. */
const RELATIONS_MAX = 20_000;
const TIMEOUT_MS = 5_000;

/**
 * How the names of the server's functions for the counters of any relation begin, in the shared database: they have been renamed where
 * those of an organization's own have taken their places.
 */
export async function counterFunctions(session: pg.ClientBase): Promise<string> {
  const renamed = 'pg_catalog.postern_pg_stat_get_';
  const { rows } = await session.query('SELECT WHERE pg_catalog.to_regprocedure($1) IS NOT NULL', [`${renamed}numscans(oid)`]);
  return rows.length > 0 ? renamed : 'pg_catalog.pg_stat_get_';
}

/** Calls system functions only, with oids: nothing in the schema is executed. @param get as {@link counterFunctions} */
const counters = (get: string) => `
  SELECT pg_catalog.json_agg(pg_catalog.json_build_object('oid', oid, 'scans', scans, 'rows_read', rows_read, 'live_rows', live_rows)) AS counters
  FROM (
    SELECT c.oid::pg_catalog.text, ${get}numscans(c.oid) AS scans, ${get}tuples_returned(c.oid) AS rows_read,
      ${get}live_tuples(c.oid) AS live_rows
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relkind = ANY ('{r,m,i}')
    ORDER BY scans DESC
    LIMIT ${RELATIONS_MAX}
  ) AS counted`;

/**
 * The counters of an organization's tables and indexes in the shared database, as JSON: scans, rows read and live rows of each oid.
 * There are none if a superuser has closed them before, and this version has not been started as one.
 * @returns undefined in the other placement, where an organization reads its own
 */
export async function relationCounters(platform: Platform, { kind, schema }: Placement): Promise<string | undefined> {
  if (kind !== 'schema') return undefined;
  const counted = await platform
    .runInShared(async (session) => {
      const query = { text: counters(await counterFunctions(session)), values: [schema], query_timeout: TIMEOUT_MS };
      return (await session.query<{ counters: object[] | null }>(query)).rows[0]?.counters;
    })
    .catch((error: unknown) => {
      if (codeOf(error) !== INSUFFICIENT_PRIVILEGE) throw error;
      return undefined;
    });
  return JSON.stringify(counted ?? []);
}

/** lock_not_available, and query_canceled: there are many tables. */
const NOT_MEASURED = ['55P03', '57014'];
const OWN_RELATIONS = `
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relkind = ANY ('{r,m,S}')`;

/** To measure a table means to lock it against being dropped, for which nobody is waited for. */
const MEASURE = `SELECT coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0) AS bytes ${OWN_RELATIONS}`;

/** As VACUUM and ANALYZE have left it. */
const ESTIMATE = `
  SELECT coalesce(sum(part.relpages::bigint), 0) * 8192 AS bytes
  FROM (SELECT c.oid, c.reltoastrelid ${OWN_RELATIONS}) AS own JOIN pg_catalog.pg_class part
    ON part.oid IN (own.oid, own.reltoastrelid) OR part.oid IN (
      SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid IN (own.oid, own.reltoastrelid))`;

/** The size of an organization's tables in the shared database, with their indexes and large values. */
export async function schemaBytes(platform: Platform, schema: string): Promise<number> {
  return (await measureSchema(platform, schema)) ?? platform.runInShared((session) => readBytes(session, ESTIMATE, schema));
}

/** As {@link schemaBytes}; undefined if a table is locked, or it takes too long. */
export function measureSchema(platform: Platform, schema: string): Promise<number | undefined> {
  return platform.runInShared(async (session) => {
    await session.query("SET lock_timeout = '200ms'; SET statement_timeout = '10s'");
    const bytes = await readBytes(session, MEASURE, schema).catch((error: unknown) => {
      if (!NOT_MEASURED.includes(codeOf(error))) throw error;
      return undefined;
    });
    await session.query('RESET lock_timeout; RESET statement_timeout');
    return bytes;
  });
}

async function readBytes(session: pg.PoolClient, text: string, schema: string): Promise<number> {
  const { rows } = await session.query<{ bytes: string }>(text, [schema]);
  return Number(rows[0]?.bytes ?? 0);
}
