import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { Placement } from '../catalog/organization.ts';
import { codeOf } from '../protocol/backend.ts';
import { type AdminLogin, withSession } from './admin-connection.ts';
import { type Cluster, controlConnection, type Platform } from './cluster.ts';
import { isLimited, isOwner, leaveOwners, markLimited, ownersRights, unmarkLimited } from './platform-role.ts';
import { rolesOf } from './restricted-roles.ts';
import { measureSchema } from './schema-statistics.ts';

/** The message of what an organization over its quota is refused. Its SQLSTATE is 53100 (disk_full), as where the server's disk is full. */
export const OVER_QUOTA = 'the organization is over its disk quota';

export const OVER_QUOTA_HINT =
  'DROP and TRUNCATE make room; after DELETE, VACUUM FULL does. A row stays where a foreign key would set columns of others to NULL: delete those first. A few seconds after there is room, everything works again.';

/**
 * What a database has while an organization in it is over its quota, all in pg_catalog, of which no dump has anything: the names of the
 * organizations' roles, and the privileges of their schemas as they were before. The functions run with the caller's rights.
 */
const ROLES = 'pg_catalog.postern_over_quota';
const SCHEMAS = 'pg_catalog.postern_over_quota_schemas';
const REFUSE_WRITE = 'pg_catalog.postern_refuse_write';
const REFUSE_DDL = 'pg_catalog.postern_refuse_ddl';
const EVENT_TRIGGER = 'postern_disk_quota';

const RAISE = `RAISE disk_full USING MESSAGE = ${pg.escapeLiteral(OVER_QUOTA)}, HINT = ${pg.escapeLiteral(OVER_QUOTA_HINT)}`;
const OPTIONS = 'LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp';

/**
 * Somebody else in a function of the organization's, with SECURITY DEFINER, is known by current_user; the organization in a function of
 * somebody else by session_user. DROP TRIGGER and DROP RULE would take away the protection.
 */
const FURNITURE = `
  CREATE TABLE ${ROLES} (role name PRIMARY KEY);
  CREATE TABLE ${SCHEMAS} (role name, schema oid, privileges aclitem[], PRIMARY KEY (role, schema));
  REVOKE ALL ON ${ROLES}, ${SCHEMAS} FROM PUBLIC;
  GRANT SELECT ON ${ROLES} TO PUBLIC;
  CREATE FUNCTION ${REFUSE_WRITE}() RETURNS trigger ${OPTIONS} AS $$
  BEGIN
    ${RAISE};
  END $$;
  REVOKE ALL ON FUNCTION ${REFUSE_WRITE}() FROM PUBLIC;
  CREATE FUNCTION ${REFUSE_DDL}() RETURNS event_trigger ${OPTIONS} AS $$
  BEGIN
    IF tg_tag LIKE 'DROP %' AND tg_tag NOT IN ('DROP TRIGGER', 'DROP RULE') THEN
      RETURN;
    END IF;
    IF EXISTS (SELECT FROM ${ROLES} AS over_quota WHERE over_quota.role IN (session_user, current_user)) THEN
      ${RAISE};
    END IF;
  END $$;
  REVOKE ALL ON FUNCTION ${REFUSE_DDL}() FROM PUBLIC`;

const NO_FURNITURE = `DROP FUNCTION ${REFUSE_DDL}(), ${REFUSE_WRITE}(); DROP TABLE ${ROLES}, ${SCHEMAS}`;

const FIND_FURNITURE = `SELECT WHERE pg_catalog.to_regclass('${ROLES}') IS NOT NULL`;

/** Whoever changes it does so alone. Tenants may not take this lock. */
const LOCK = `LOCK TABLE ${ROLES} IN SHARE ROW EXCLUSIVE MODE`;

/** How long a lock on a table of the organization is waited for. */
const LOCK_TIMEOUT_MS = 5_000;
/** The same, after that was in vain: whoever holds it does not end. */
const LOCK_SOON_TIMEOUT_MS = 50;
const STATEMENT_TIMEOUT_MS = 30_000;
/** How long one transaction may take: whoever takes one lock after another would delay it for each. */
const BATCH_WITHIN_MS = 10_000;
/** How long it may take altogether to work on an organization's tables. */
const WITHIN_MS = 45_000;
/** How many tables are worked on in one transaction: each needs entries in the server's lock table. */
const TABLES_AT_ONCE = 100;
/** How often sessions of the organization are ended that are in the way. */
const END_SESSIONS_EVERY_MS = 200;

const LOCK_NOT_AVAILABLE = '55P03';
/** deadlock_detected, and undefined_table or undefined_object: what was listed has been dropped. */
const LISTED_IN_VAIN = ['40P01', '42P01', '42704'];
const ATTEMPTS_MAX = 5;

/** An organization on its server. */
interface Place {
  readonly cluster: Cluster;
  readonly placement: Placement;
}

/**
 * Makes an organization unable to write until {@link allowWrites}: triggers of a superuser on its tables, an event trigger that refuses all
 * commands but DROP, and no right to large objects, temporary tables, and what `EXPLAIN ANALYZE CREATE TABLE … AS` creates, of which no
 * event trigger hears. May be repeated, and completes what was interrupted.
 *
 * The superuser creates triggers and changes privileges. Nothing of the organization is executed by that.
 * @param endSessions ends those of the organization's roles, as far as they end; called while the work is under way
 * @throws Error if a table is locked for too long, when all others are protected; or if it takes too long, or there is no superuser. What is
 * done by then stays
 */
export async function refuseWrites({ cluster, placement }: Place, endSessions: () => Promise<unknown>): Promise<void> {
  await asSuperuser(cluster, placement, async (session) => {
    await mark(session, cluster.serverVersion, placement);
    // Those that were there before may have temporary tables.
    await endSessions();
    const stop = new AbortController();
    const ending = endInTheWay(endSessions, stop.signal);
    try {
      await addTriggers(session, placement);
    } finally {
      stop.abort();
      await ending;
    }
  });
}

async function endInTheWay(endSessions: () => Promise<unknown>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await delay(END_SESSIONS_EVERY_MS, undefined, { signal }).catch(() => {});
    // Then a lock cannot be had in time, which is what fails.
    if (!signal.aborted) await endSessions().catch(() => {});
  }
}

/** Whether {@link refuseWrites} has completed. @throws Error if there is no superuser */
export async function hasRefusedWrites({ cluster, placement }: Place): Promise<boolean> {
  return asSuperuser(cluster, placement, async (session) => {
    if (!(await isFound(session, FIND_FURNITURE))) return false;
    const { kind, role, database } = placement;
    const schema = schemaOf(placement);
    if (!(await isFound(session, FIND_MARK, [role])) || !(await isLimited(session, role))) return false;
    // What is repaired while it is marked may give something back.
    if ((await isOwner(session, role)) || (await isFound(session, CREATABLE, [schema]))) return false;
    if (kind === 'database' && (await isFound(session, MAY_CREATE_TEMPORARY, [role, database]))) return false;
    return !(await isFound(session, UNGUARDED, [schema, role, []]));
  });
}

const MAY_CREATE_TEMPORARY = "SELECT WHERE pg_catalog.has_database_privilege($1::name, $2::text, 'TEMPORARY')";

/**
 * Undoes {@link refuseWrites}, as far as it was done. May be repeated. Sessions go on, unless they hold a lock on a table.
 * @param endSessions as there; called only if a table is locked
 * @throws Error if a table is locked for too long, or it takes too long, or there is something to undo and no superuser; what is done by
 * then stays
 */
export async function allowWrites({ cluster, placement }: Place, endSessions: () => Promise<unknown> = async () => {}): Promise<void> {
  if (cluster.superuser === undefined) {
    const isMarked = await withSession(controlConnection(cluster), (session) => isLimited(session, placement.role));
    if (isMarked) throw new Error('it takes a superuser to take the protection of the disk quota away');
    return;
  }
  await asSuperuser(cluster, placement, async (session) => {
    if (!(await isFound(session, FIND_FURNITURE))) return;
    const stop = new AbortController();
    let ending: Promise<void> | undefined;
    const whenLocked = () => {
      ending ??= endInTheWay(endSessions, stop.signal);
    };
    try {
      await dropTriggers(session, placement, whenLocked);
      await unmark(session, cluster.serverVersion, placement);
      // Another process may have added some before that, and can add none after it.
      await dropTriggers(session, placement, whenLocked);
    } finally {
      stop.abort();
      await ending;
    }
    if (placement.kind === 'database') await dropFurniture(session);
  });
}

/**
 * Whether the session's role belongs to an organization that {@link refuseWrites}.
 * @param isFound runs a SELECT, and tells whether it returns a row
 */
export async function mayNotWrite(isFound: (select: string) => Promise<boolean>): Promise<boolean> {
  return (await isFound(FIND_FURNITURE)) && (await isFound(`SELECT FROM ${ROLES} WHERE role = session_user`));
}

async function asSuperuser<Result>(
  { superuser }: Cluster,
  { database }: Placement,
  work: (session: pg.Client) => Promise<Result>,
): Promise<Result> {
  if (superuser === undefined) throw new Error('it takes a superuser');
  const login: AdminLogin = { ...superuser, database };
  return withSession(login, async (session) => {
    await session.query(
      `SET allow_system_table_mods = on; SET lock_timeout = ${LOCK_TIMEOUT_MS}; SET statement_timeout = ${STATEMENT_TIMEOUT_MS}`,
    );
    return work(session);
  });
}

async function isFound(session: pg.ClientBase, select: string, values: readonly unknown[] = []): Promise<boolean> {
  return (await session.query(select, [...values])).rows.length > 0;
}

const FIND_MARK = `SELECT FROM ${ROLES} WHERE role = $1`;
const FIND_EVENT_TRIGGER = 'SELECT FROM pg_catalog.pg_event_trigger WHERE evtname = $1';

/** In one transaction. From its end on, the organization can create nothing. */
async function mark(session: pg.Client, serverVersion: number, { kind, role, database, schema }: Placement): Promise<void> {
  await session.query('BEGIN');
  if (!(await isFound(session, FIND_FURNITURE))) await session.query(FURNITURE);
  await session.query(LOCK);
  const roles = rolesOf(role);
  await session.query(`INSERT INTO ${ROLES} SELECT pg_catalog.unnest($1::name[]) ON CONFLICT DO NOTHING`, [roles]);
  if (!(await isFound(session, FIND_EVENT_TRIGGER, [EVENT_TRIGGER])))
    await session.query(`CREATE EVENT TRIGGER ${EVENT_TRIGGER} ON ddl_command_start EXECUTE FUNCTION ${REFUSE_DDL}()`);
  await leaveOwners(session, role, serverVersion);
  await session.query(markLimited(role));
  // In a shared one it is the owners' right.
  if (kind === 'database')
    await session.query(`REVOKE TEMPORARY ON DATABASE ${pg.escapeIdentifier(database)} FROM ${pg.escapeIdentifier(role)}`);
  await session.query(KEEP_PRIVILEGES, [role, kind === 'schema' ? schema : null]);
  await session.query(TAKE_PRIVILEGES, [role]);
  await session.query('COMMIT');
}

const PRIVILEGES = "pg_catalog.aclexplode(coalesce(n.nspacl, pg_catalog.acldefault('n', n.nspowner)))";
const SYSTEM_SCHEMA = "n.nspname ~ '^pg_' OR n.nspname = 'information_schema'";
/** The platform role, which owns schemas in a shared database, keeps its rights. */
const IS_PLATFORMS_OWN = "a.grantee = n.nspowner AND pg_catalog.pg_get_userbyid(n.nspowner) !~ '^org_'";

/** Schemas in which something can be created that {@link TAKE_PRIVILEGES} would prevent. $1 as in {@link UNGUARDED}. */
const CREATABLE = `
  SELECT FROM pg_catalog.pg_namespace n WHERE NOT (${SYSTEM_SCHEMA}) AND ($1::name IS NULL OR n.nspname = $1)
    AND EXISTS (SELECT FROM ${PRIVILEGES} AS a WHERE a.privilege_type = 'CREATE' AND NOT (${IS_PLATFORMS_OWN}))`;

/**
 * Of the schemas in which somebody may create something. The catalog itself is changed, and not by REVOKE, so that who has granted what to
 * whom is the same again afterwards.
 */
const KEEP_PRIVILEGES = `
  INSERT INTO ${SCHEMAS} (role, schema, privileges)
  SELECT $1, n.oid, n.nspacl FROM pg_catalog.pg_namespace n
  WHERE NOT (${SYSTEM_SCHEMA}) AND ($2::name IS NULL OR n.nspname = $2)
    AND EXISTS (SELECT FROM ${PRIVILEGES} AS a WHERE a.privilege_type = 'CREATE' AND ($2 IS NULL OR a.grantee <> n.nspowner))
  ON CONFLICT DO NOTHING`;

/** What is left must not be empty. */
const TAKE_PRIVILEGES = `
  UPDATE pg_catalog.pg_namespace n SET nspacl = CASE left_over.privileges
    WHEN '{}' THEN ARRAY[pg_catalog.makeaclitem(n.nspowner, n.nspowner, 'USAGE', false)] ELSE left_over.privileges END
  FROM ${SCHEMAS} kept, LATERAL (
    SELECT ARRAY(
      SELECT pg_catalog.makeaclitem(a.grantee, a.grantor, a.privilege_type, a.is_grantable)
      FROM pg_catalog.pg_namespace n, ${PRIVILEGES} AS a
      WHERE n.oid = kept.schema AND (a.privilege_type <> 'CREATE' OR ${IS_PLATFORMS_OWN})
    ) AS privileges
  ) AS left_over
  WHERE kept.role = $1 AND n.oid = kept.schema`;

/** Without what was granted to roles that are gone. */
const RETURN_PRIVILEGES = `
  UPDATE pg_catalog.pg_namespace n SET nspacl = CASE WHEN kept.privileges IS NOT NULL THEN nullif(ARRAY(
    SELECT item FROM pg_catalog.unnest(kept.privileges) AS item WHERE NOT EXISTS (
      SELECT FROM pg_catalog.aclexplode(ARRAY[item]) AS a
      WHERE a.grantee <> 0 AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = a.grantee))
  ), '{}') END
  FROM ${SCHEMAS} kept WHERE kept.role = ANY ($1) AND n.oid = kept.schema`;

interface Table {
  readonly oid: string;
  readonly name: string;
  readonly isPartitioned: boolean;
}

/**
 * Tables of the organization without all our triggers, as long as it is marked. Rows of a partitioned one are in its partitions.
 * $1: its schema; null: the whole database is its own. $2: its role. $3: the oids of tables to leave out.
 */
const UNGUARDED = `
  SELECT c.oid::text AS oid, pg_catalog.format('%I.%I', n.nspname, c.relname) AS name, c.relkind = 'p' AS "isPartitioned"
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND NOT (${SYSTEM_SCHEMA}) AND ($1::name IS NULL OR n.nspname = $1)
    AND EXISTS (SELECT FROM ${ROLES} AS marked WHERE marked.role = $2) AND c.oid <> ALL ($3::oid[])
    AND (SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND t.tgfoid = pg_catalog.to_regproc('${REFUSE_WRITE}'))
      < CASE c.relkind WHEN 'p' THEN 1 ELSE 2 END
  ORDER BY c.oid LIMIT ${TABLES_AT_ONCE}`;

/**
 * For INSERT by statement, which is also COPY and MERGE; for UPDATE by row, because a statement-level one would refuse each DELETE where a
 * foreign key says ON DELETE SET NULL. No name that is chosen at random is one that the organization has used.
 */
async function addTriggers(session: pg.Client, placement: Placement): Promise<void> {
  const { role } = placement;
  await inBatches(session, {
    async next(except) {
      const { rows } = await session.query<Table>(UNGUARDED, [schemaOf(placement), role, except]);
      const name = `postern_quota_${randomBytes(8).toString('hex')}`;
      return rows.flatMap(({ oid, name: table, isPartitioned }) => [
        { oid, statement: `CREATE TRIGGER ${name}_insert BEFORE INSERT ON ${table} EXECUTE FUNCTION ${REFUSE_WRITE}()` },
        ...(isPartitioned
          ? []
          : [
              { oid, statement: `CREATE TRIGGER ${name}_update BEFORE UPDATE ON ${table} FOR EACH ROW EXECUTE FUNCTION ${REFUSE_WRITE}()` },
            ]),
      ]);
    },
    // Until the transaction ends nobody can unmark it.
    mayBegin: () => isFound(session, `${FIND_MARK} FOR KEY SHARE`, [role]),
  });
}

const GUARDS = `
  SELECT c.oid::text AS oid, pg_catalog.format('%I ON %I.%I', t.tgname, n.nspname, c.relname) AS name
  FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE t.tgfoid = pg_catalog.to_regproc('${REFUSE_WRITE}') AND ($1::name IS NULL OR n.nspname = $1) AND c.oid <> ALL ($2::oid[])
  ORDER BY c.oid LIMIT ${2 * TABLES_AT_ONCE}`;

async function dropTriggers(session: pg.Client, placement: Placement, whenLocked: () => void): Promise<void> {
  await inBatches(session, {
    async next(except) {
      const { rows } = await session.query<Pick<Table, 'oid' | 'name'>>(GUARDS, [schemaOf(placement), except]);
      return rows.map(({ oid, name }) => ({ oid, statement: `DROP TRIGGER ${name}` }));
    },
    whenLocked,
  });
}

function schemaOf({ kind, schema }: Placement): string | null {
  return kind === 'schema' ? schema : null;
}

/** A statement that locks a table. */
interface Step {
  /** The table. */
  readonly oid: string;
  readonly statement: string;
}

interface Work {
  /** What is to be done next, until there is nothing. @param except oids of tables to leave out */
  next(except: readonly string[]): Promise<readonly Step[]>;
  /** Asked at the begin of each transaction; if not, nothing more is done. */
  mayBegin?(): Promise<boolean>;
  /** Called when a table is locked, before another attempt. */
  whenLocked?(): void;
}

/**
 * Works on tables in transactions of many. When one is locked, each is worked on by itself, without much waiting.
 * @throws Error when all is done but for tables that are locked, or it takes too long
 */
async function inBatches(session: pg.Client, work: Work): Promise<void> {
  const deadline = performance.now() + WITHIN_MS;
  const locked = new Set<string>();
  let failure: unknown;
  let { whenLocked } = work;
  for (let attempts = ATTEMPTS_MAX; ; ) {
    if (performance.now() > deadline) throw failure ?? new Error('it takes too long to work on all tables');
    const steps = await work.next([...locked]);
    if (steps.length === 0) break;
    try {
      if (!(await inTransaction(session, work, steps))) break;
      attempts = ATTEMPTS_MAX;
      continue;
    } catch (error) {
      const code = codeOf(error);
      if (LISTED_IN_VAIN.includes(code)) attempts -= 1;
      if (attempts === 0 || ![LOCK_NOT_AVAILABLE, ...LISTED_IN_VAIN].includes(code)) throw error;
      if (code !== LOCK_NOT_AVAILABLE) continue;
      failure ??= error;
    }
    if (whenLocked !== undefined) {
      whenLocked();
      whenLocked = undefined;
      continue;
    }
    await session.query(`SET lock_timeout = ${LOCK_SOON_TIMEOUT_MS}`);
    for (const step of steps) {
      if (performance.now() > deadline) throw failure;
      await inTransaction(session, work, [step]).catch((error: unknown) => {
        if (![LOCK_NOT_AVAILABLE, ...LISTED_IN_VAIN].includes(codeOf(error))) throw error;
        locked.add(step.oid);
      });
    }
  }
  if (locked.size > 0) throw failure;
  if (failure !== undefined) await session.query(`SET lock_timeout = ${LOCK_TIMEOUT_MS}`);
}

/** @returns false if it may not begin. @throws pg.DatabaseError, or an Error with the code of one if it takes too long */
async function inTransaction(session: pg.Client, { mayBegin }: Work, steps: readonly Step[]): Promise<boolean> {
  const deadline = performance.now() + BATCH_WITHIN_MS;
  await session.query('BEGIN');
  try {
    if (mayBegin !== undefined && !(await mayBegin())) {
      await session.query('ROLLBACK');
      return false;
    }
    for (const { statement } of steps) {
      if (performance.now() > deadline)
        throw Object.assign(new Error('too many tables are locked, one after another'), { code: LOCK_NOT_AVAILABLE });
      await session.query(statement);
    }
    await session.query('COMMIT');
    return true;
  } catch (error) {
    await session.query('ROLLBACK').catch(() => {});
    throw error;
  }
}

async function unmark(session: pg.Client, serverVersion: number, { kind, role, database }: Placement): Promise<void> {
  await session.query(`BEGIN; ${LOCK}`);
  // One that is a copy has what its source had.
  const { rows } = await session.query<{ role: string }>(`DELETE FROM ${ROLES} WHERE $1 OR role = ANY ($2) RETURNING role`, [
    kind === 'database',
    rolesOf(role),
  ]);
  const marked = rows.map((row) => row.role);
  await session.query(RETURN_PRIVILEGES, [marked]);
  await session.query(`DELETE FROM ${SCHEMAS} WHERE role = ANY ($1)`, [marked]);
  await session.query(ownersRights(role, serverVersion).join('; '));
  await session.query(unmarkLimited(role));
  if (kind === 'database')
    await session.query(`GRANT TEMPORARY ON DATABASE ${pg.escapeIdentifier(database)} TO ${pg.escapeIdentifier(role)}`);
  await dropUnusedEventTrigger(session);
  await session.query('COMMIT');
}

/** Not in a shared database, where others are marked. While somebody reads the table it stays, which matters to nobody: it is in no dump. */
async function dropFurniture(session: pg.Client): Promise<void> {
  await session.query(`BEGIN; SET LOCAL lock_timeout = ${LOCK_SOON_TIMEOUT_MS}`);
  try {
    await session.query(`LOCK TABLE ${ROLES}, ${SCHEMAS} IN ACCESS EXCLUSIVE MODE`);
    if (!(await isFound(session, `SELECT FROM ${ROLES} LIMIT 1`))) await session.query(NO_FURNITURE);
    await session.query('COMMIT');
  } catch (error) {
    await session.query('ROLLBACK').catch(() => {});
    if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error;
  }
}

async function dropUnusedEventTrigger(session: pg.Client): Promise<void> {
  if (!(await isFound(session, `SELECT FROM ${ROLES} LIMIT 1`))) await session.query(`DROP EVENT TRIGGER IF EXISTS ${EVENT_TRIGGER}`);
}

/** Removes what is left in a shared database of organizations whose roles have been dropped. */
export async function forgetDropped({ cluster, placement }: Place): Promise<void> {
  await asSuperuser(cluster, placement, async (session) => {
    if (!(await isFound(session, FIND_FURNITURE))) return;
    const isGone = 'NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = pg_catalog.substr(m.role, 1, 16))';
    await session.query(`BEGIN; ${LOCK}; DELETE FROM ${ROLES} m WHERE ${isGone}; DELETE FROM ${SCHEMAS} m WHERE ${isGone}`);
    await dropUnusedEventTrigger(session);
    await session.query('COMMIT');
  });
}

/** The size of the organization's data; undefined if it cannot be told now, because a table is locked. */
export async function dataBytes(platform: Platform, { kind, database, schema }: Placement): Promise<number | undefined> {
  if (kind === 'database') {
    const text = 'SELECT pg_catalog.pg_database_size($1::name) AS bytes';
    const query = { text, values: [database], query_timeout: MEASURE_TIMEOUT_MS };
    const { rows } = await platform.run((session) => session.query<{ bytes: string }>(query));
    return Number(rows[0]?.bytes ?? 0);
  }
  const bytes = await measureSchema(platform, schema);
  const { superuser } = platform.cluster;
  if (bytes !== undefined || superuser === undefined) return bytes;
  // A lock would be a way not to be measured, and so would be many tables.
  return withSession({ ...superuser, database }, async (session) => {
    await session.query(`SET statement_timeout = ${MEASURE_TIMEOUT_MS}`);
    const { rows } = await session.query<{ bytes: string }>(FILES, [schema]);
    return Number(rows[0]?.bytes ?? 0);
  });
}

const MEASURE_TIMEOUT_MS = 60_000;

const SEGMENT_BYTES = 1_024 ** 3;

/** The main forks of tables, their TOAST tables and all indexes, as files of the server: that takes no lock. */
const FILES = `
  WITH RECURSIVE own AS (
    SELECT c.oid, c.reltoastrelid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relkind = ANY ('{r,m,S}')
  ), parts AS (
    SELECT oid FROM own UNION SELECT reltoastrelid FROM own WHERE reltoastrelid <> 0
    UNION SELECT i.indexrelid FROM own JOIN pg_catalog.pg_index i ON i.indrelid IN (own.oid, own.reltoastrelid)
  ), segments AS (
    SELECT f.path, 0 AS number, (pg_catalog.pg_stat_file(f.path, true)).size
    FROM parts, pg_catalog.pg_relation_filepath(parts.oid) AS f(path) WHERE f.path IS NOT NULL
    UNION ALL
    SELECT s.path, s.number + 1, (pg_catalog.pg_stat_file(s.path || '.' || (s.number + 1), true)).size
    FROM segments s WHERE s.size >= ${SEGMENT_BYTES}
  )
  SELECT coalesce(pg_catalog.sum(size), 0) AS bytes FROM segments`;
