import type pg from 'pg';
import { SESSIONS_SETTING } from '../backend/session-state.ts';

export interface Names {
  /** Patterns of names in pg_catalog. */
  readonly relations: readonly string[];
  readonly functions: readonly string[];
}

/**
 * The objects in the system catalogs whose privileges are revoked from PUBLIC: those that show other organizations' sessions and
 * locks, and server-wide statistics, which show how busy others are. The ACLs of system objects are copied with the template.
 * Revoking more would break psql's \d, pg_dump and pg_restore, which were tested with these on 15 and 18. Needs a superuser.
 */
export const WHOLE_SERVER: Names = {
  relations: [
    'pg_stat_activity',
    'pg_stat_database',
    'pg_stat_database_conflicts',
    'pg_stat_progress_[a-z_]+',
    'pg_stat_replication',
    'pg_stat_replication_slots',
    'pg_stat_ssl',
    'pg_stat_gssapi',
    'pg_stat_subscription(_stats)?',
    'pg_stat_(archiver|bgwriter|checkpointer|io|recovery_prefetch|slru|wal|wal_receiver)',
    'postern_pg_[a-z_]+',
    'pg_locks',
    'pg_prepared_xacts',
    'pg_replication_slots',
    'pg_replication_origin',
    'pg_shdepend',
  ],
  // The functions under those views can be called without them.
  functions: [
    'pg_stat_get_activity',
    'postern_own_[a-z_]+',
    'pg_stat_get_backend_[a-z_]+',
    'pg_stat_get_db_[a-z_]+',
    'pg_stat_get_wal_senders',
    'pg_stat_get_progress_info',
    'pg_stat_get_replication_slot',
    'pg_stat_get_subscription(_stats)?',
    'pg_stat_get_(archiver|io|recovery_prefetch|slru|wal|wal_receiver)',
    // Before 17 the background writer's statistics included those of the checkpointer.
    'pg_stat_get_(bgwriter|buf|checkpoint|checkpointer)_[a-z_]+',
    'pg_current_wal_[a-z_]+',
    'pg_control_[a-z]+',
    'pg_tablespace_size',
    'pg_last_committed_xact',
    'pg_get_multixact_members',
    // Files of other databases that were written to.
    'pg_available_wal_summaries',
    'pg_wal_summary_contents',
    'pg_get_wal_summarizer_state',
    'pg_lock_status',
    'pg_prepared_xact',
    'pg_blocking_pids',
    'pg_isolation_test_session_is_blocked',
    'pg_safe_snapshot_blocking_pids',
    'pg_get_replication_slots',
    'pg_show_replication_origin_status',
    'pg_tablespace_databases',
    'pg_logical_emit_message',
  ],
};

/**
 * In a shared database also: statistics of tables and functions, the owners of large objects, and the planner's samples. The views of
 * these samples check the privileges on a table but not on its schema, so `GRANT … TO PUBLIC` on a table shows them to all.
 */
export const ONE_DATABASE: Names = {
  relations: ['pg_stat(io)?_(all|sys|user|xact)_[a-z_]+', 'pg_stats(_ext|_ext_exprs)?', 'pg_largeobject_metadata'],
  functions: ['pg_stat_get_[a-z_]+', 'pg_stat_have_stats'],
};

/**
 * Functions in which libxml evaluates an expression of the caller. It does not check for interrupts, so neither cancel nor
 * terminate stops the statement. (XMLTABLE does the same, but is no function whose privileges could be revoked.)
 */
const XPATH: Names = { relations: [], functions: ['xpath', 'xpath_exists', 'xmlexists'] };

/** Objects of Postern's own in pg_catalog that have the name of one of the server's, which is renamed, and are open to all again. */
const REPLACED_PREFIX = 'postern_';
/** Objects with a lower oid are the server's own, also when they have been renamed. */
const FIRST_NORMAL_OID = 16_384;

interface Hardened {
  readonly taken: readonly Names[];
  /** The names of what is there in place of the server's. No patterns. */
  readonly replaced: Names;
  /** undefined: either will do, because processes with another setting may have been started since. */
  readonly allowXpath: boolean | undefined;
}

/**
 * A SELECT that returns a row if the session's database is hardened. A dump has none of the changes to the system catalogs, but the
 * comment on the database, so it is the catalogs that are asked.
 */
export function findHardened({ taken, replaced, allowXpath }: Hardened): string {
  const isOpen = (catalog: 'pg_class' | 'pg_proc', names: (from: Names) => readonly string[]) => {
    const [name, place, acl] = catalog === 'pg_class' ? ['relname', 'relnamespace', 'relacl'] : ['proname', 'pronamespace', 'proacl'];
    const [takenNames, replacedNames] = [matches(name, taken.flatMap(names)), matches(name, names(replaced))];
    const isPublic = `EXISTS (SELECT FROM pg_catalog.aclexplode(o.${acl}) AS a WHERE a.grantee = 0)`;
    return `EXISTS (SELECT FROM pg_catalog.${catalog} o WHERE o.${place} = 'pg_catalog'::pg_catalog.regnamespace
      AND ${catalog === 'pg_class' ? isPublic : `(o.${acl} IS NULL OR ${isPublic})`}
      AND CASE WHEN o.oid < ${FIRST_NORMAL_OID} THEN ${takenNames} OR ${replacedNames} ELSE ${takenNames} AND NOT ${replacedNames} END)`;
  };
  const isThere = (catalog: 'pg_class' | 'pg_proc', names: readonly string[]) => {
    const [name, place] = catalog === 'pg_class' ? ['relname', 'relnamespace'] : ['proname', 'pronamespace'];
    return `${names.length} = (SELECT pg_catalog.count(DISTINCT o.${name}) FROM pg_catalog.${catalog} o
      WHERE o.${place} = 'pg_catalog'::pg_catalog.regnamespace AND o.oid >= ${FIRST_NORMAL_OID} AND o.${name} = ANY ('{${names.join()}}'))`;
  };
  const xpath = `EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
    AND ${matches('proname', XPATH.functions, 'p')} AND pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE') <> ${allowXpath})`;
  const conditions = [
    `NOT ${isOpen('pg_class', ({ relations }) => relations)}`,
    `NOT ${isOpen('pg_proc', ({ functions }) => functions)}`,
    isThere('pg_class', replaced.relations),
    isThere('pg_proc', replaced.functions),
    ...(allowXpath === undefined ? [] : [`NOT ${xpath}`]),
  ];
  return `SELECT WHERE ${conditions.join(' AND ')}`;
}

/**
 * Whether the name is one of these, or of a renamed one. Names are compared, and only patterns matched, each by itself: there are thousands
 * of functions, and an expression with many branches takes ten times as long for each as all branches do.
 */
function matches(column: string, patterns: readonly string[], table = 'o'): string {
  const [names, others] = [patterns.filter((pattern) => IS_NAME.test(pattern)), patterns.filter((pattern) => !IS_NAME.test(pattern))];
  const conditions = [
    ...(names.length === 0 ? [] : [`${table}.${column} = ANY ('{${names.flatMap((name) => [name, REPLACED_PREFIX + name]).join()}}')`]),
    ...others.map((pattern) => `${table}.${column} ~ '^(${REPLACED_PREFIX})?(${pattern})$'`),
  ];
  return conditions.length === 0 ? 'false' : `(${conditions.join(' OR ')})`;
}

const IS_NAME = /^[a-z_0-9]+$/;

interface Hardening {
  readonly taken: readonly Names[];
  /** Whether XPath expressions may be evaluated. */
  readonly allowXpath: boolean;
  readonly alsoDo?: (session: pg.Client) => Promise<void>;
}

/** Revokes all these privileges from PUBLIC in the session's database, in one transaction with further work. */
export async function harden(session: pg.Client, { taken, allowXpath, alsoDo }: Hardening): Promise<void> {
  await session.query('BEGIN; SET LOCAL allow_system_table_mods = on');
  for (const names of taken) await changePrivileges(session, 'REVOKE ALL ON %s FROM PUBLIC', names);
  await changePrivileges(session, allowXpath ? 'GRANT EXECUTE ON %s TO PUBLIC' : 'REVOKE ALL ON %s FROM PUBLIC', XPATH);
  await alsoDo?.(session);
  for (const statement of REFRESH_INITIAL_PRIVILEGES) await session.query(statement);
  await session.query('COMMIT');
}

/** @param template the statement to run for each object */
export async function changePrivileges(session: pg.Client, template: string, { relations, functions }: Names): Promise<void> {
  const { rows } = await session.query<{ object: string }>(`
    SELECT pg_catalog.format('TABLE pg_catalog.%I', c.relname) AS object
    FROM pg_catalog.pg_class c
    WHERE c.relnamespace = 'pg_catalog'::pg_catalog.regnamespace AND c.relname ~ '^(${relations.join('|')})$'
    UNION ALL
    SELECT pg_catalog.format('FUNCTION pg_catalog.%I(%s)', p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid))
    FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND p.proname ~ '^(${functions.join('|')})$'`);
  // One round trip: there are hundreds.
  if (rows.length > 0) await session.query(rows.map(({ object }) => template.replace('%s', object)).join('; '));
}

/**
 * Records the present ACLs as the initial ones. Otherwise each tenant's pg_dump would contain a hundred REVOKEs on
 * system objects, which a restore may not run.
 * @see https://www.postgresql.org/docs/current/catalog-pg-init-privs.html
 */
const REFRESH_INITIAL_PRIVILEGES = ['pg_class.relacl', 'pg_proc.proacl'].flatMap((column) => {
  const [catalog, acl] = column.split('.');
  const changed = `i.classoid = 'pg_catalog.${catalog}'::pg_catalog.regclass AND i.objoid = o.oid AND i.objsubid = 0`;
  const ours = `o.${catalog === 'pg_class' ? 'relnamespace' : 'pronamespace'} = 'pg_catalog'::pg_catalog.regnamespace AND o.${acl} IS NOT NULL`;
  return [
    `UPDATE pg_catalog.pg_init_privs i SET initprivs = o.${acl} FROM pg_catalog.${catalog} o
     WHERE ${changed} AND ${ours} AND i.initprivs IS DISTINCT FROM o.${acl}`,
    `INSERT INTO pg_catalog.pg_init_privs (objoid, classoid, objsubid, privtype, initprivs)
     SELECT o.oid, 'pg_catalog.${catalog}'::pg_catalog.regclass, 0, 'i', o.${acl} FROM pg_catalog.${catalog} o
     WHERE ${ours} AND NOT EXISTS (SELECT FROM pg_catalog.pg_init_privs i WHERE ${changed})`,
  ];
});

/** A role without LOGIN that may read all statistics. It owns only the functions that show an organization its part of them. */
const READER = 'postern_statistics';

/** Those who may see all statistics, such as a superuser. */
const SEES_ALL = "pg_catalog.pg_has_role(session_user, 'pg_read_all_stats', 'USAGE')";

/** A client's session in {@link SESSIONS_SETTING}, which is an array of these as JSON. The names are short, because there may be many. */
export interface ShownSession {
  /** The process id that the client knows. */
  readonly p: number;
  /** That of its backend; 0: it has none. */
  readonly b: number;
  /** The client's address and port; null: not known, as for a Unix socket. */
  readonly a: string | null;
  readonly o: number | null;
  /** When it connected, and since when it is in its state; in seconds of Unix time. */
  readonly s: number;
  readonly c: number;
  /** Its `application_name`. */
  readonly n: string;
  /** Whether it waits for a backend. */
  readonly w: boolean;
  /** The version and cipher of its TLS; null: it has none. */
  readonly v: string | null;
  readonly e: string | null;
}

const TOLD = `NULLIF(pg_catalog.current_setting('${SESSIONS_SETTING}', true), '')`;
/**
 * A tenant can set that itself, and then deceives only its own session: rows of others are never selected by it, and nobody else reads
 * what is set on a backend.
 */
const TOLD_SESSIONS = `pg_catalog.json_to_recordset(${TOLD}::pg_catalog.json) AS own
  (p pg_catalog.int4, b pg_catalog.int4, a pg_catalog.inet, o pg_catalog.int4, s pg_catalog.float8, c pg_catalog.float8,
   n pg_catalog.text, w pg_catalog.bool, v pg_catalog.text, e pg_catalog.text)`;

/** A backend that no session has is at rest in the pool: a client would see none without a pool. */
const atRest = (activity: string) => `(${TOLD} IS NOT NULL AND ${activity}.state = 'idle' AND ${activity}.backend_type = 'client backend'
  AND NOT EXISTS (SELECT FROM ${TOLD_SESSIONS} WHERE own.b = ${activity}.pid)) IS NOT TRUE`;

const OWN_SESSIONS = `shown.pid IN (SELECT activity.pid FROM pg_catalog.postern_pg_stat_activity AS activity
  WHERE activity.usename = session_user AND ${atRest('activity')})`;

/** How a view shows a client's session, by column. */
interface ViewOfSessions {
  /** Where it has a backend, in place of what is shown of that. */
  readonly on: Readonly<Record<string, string>>;
  /** Where it has none; the other columns are NULL. Undefined: there is no row. */
  readonly without?: Readonly<Record<string, string>>;
}

const CLIENT = { pid: 'own.p', client_addr: 'own.a', client_port: 'own.o', backend_start: 'pg_catalog.to_timestamp(own.s)' };
const CLIENT_TLS = { pid: 'own.p', ssl: 'own.v IS NOT NULL', version: 'own.v', cipher: 'own.e' };

const SESSIONS: Readonly<Record<string, ViewOfSessions>> = {
  pg_stat_activity: {
    on: {
      ...CLIENT,
      client_hostname: 'NULL',
      // Of a parallel worker.
      leader_pid: `COALESCE((SELECT own.p FROM ${TOLD_SESSIONS} WHERE own.b = shown.leader_pid), shown.leader_pid)`,
    },
    without: {
      ...CLIENT,
      datid: '(SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())',
      datname: 'pg_catalog.current_database()',
      usesysid: '(SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = session_user)',
      usename: 'session_user',
      application_name: 'own.n',
      state_change: 'pg_catalog.to_timestamp(own.c)',
      wait_event_type: "CASE WHEN own.w THEN 'Extension' ELSE 'Client' END",
      wait_event: "CASE WHEN own.w THEN 'Extension' ELSE 'ClientRead' END",
      state: "CASE WHEN own.w THEN 'active' ELSE 'idle' END",
      query: "''",
      backend_type: "'client backend'",
    },
  },
  pg_stat_ssl: {
    on: { ...CLIENT_TLS, bits: 'NULL', client_dn: 'NULL', client_serial: 'NULL', issuer_dn: 'NULL' },
    without: CLIENT_TLS,
  },
  pg_stat_gssapi: {
    on: { pid: 'own.p' },
    without: { pid: 'own.p', gss_authenticated: 'false', encrypted: 'false', credentials_delegated: 'false' },
  },
};
const NOTHING = 'false';

/**
 * Views of the server, with the condition for an organization's own rows, in a database of its own. What shows of a primary's standbys and
 * subscriptions is the platform's. A tenant's query of a view without own rows does not call the functions under it.
 *
 * Own rows of pg_locks cannot be had: reading it stops the lock manager until all locks are copied, which would show how
 * many locks others hold and let any organization delay all others.
 */
const VIEWS: Readonly<Record<string, string>> = {
  pg_stat_activity: `shown.usename = session_user AND ${atRest('shown')}`,
  pg_stat_database: 'shown.datname = pg_catalog.current_database()',
  pg_stat_database_conflicts: 'shown.datname = pg_catalog.current_database()',
  ...Object.fromEntries(
    ['analyze', 'basebackup', 'cluster', 'copy', 'create_index', 'vacuum'].map((command) => [`pg_stat_progress_${command}`, OWN_SESSIONS]),
  ),
  pg_stat_ssl: OWN_SESSIONS,
  pg_stat_gssapi: OWN_SESSIONS,
  pg_prepared_xacts: 'shown.owner = session_user AND shown.database = pg_catalog.current_database()',
  pg_locks: NOTHING,
  pg_replication_slots: NOTHING,
  pg_stat_replication: NOTHING,
  pg_stat_replication_slots: NOTHING,
  pg_stat_wal_receiver: NOTHING,
  pg_stat_subscription: NOTHING,
  pg_stat_subscription_stats: NOTHING,
};

/** Statistics of a whole database are also about others in a shared one. */
const SHARED_DATABASE = { pg_stat_database: NOTHING, pg_stat_database_conflicts: NOTHING };

/** The role that owns the objects of the organization that has logged in, as its own role or as that of its readers, whose name is longer. */
const OWNER = 'pg_catalog.to_regrole(pg_catalog.left(session_user::text, 16))';
/** In a shared database. An array, so that the planner finds the relations first, and only computes what is shown of these. */
const OWN_RELATIONS = `shown.relid = ANY (ARRAY(SELECT c.oid FROM pg_catalog.pg_class AS c WHERE c.relowner = ${OWNER}))`;
const OWN_FUNCTIONS = `shown.funcid = ANY (ARRAY(SELECT p.oid FROM pg_catalog.pg_proc AS p WHERE p.proowner = ${OWNER}))`;

const OF_RELATIONS: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    ['all', 'sys', 'user'].flatMap((which) =>
      [
        `pg_stat_${which}_tables`,
        `pg_stat_xact_${which}_tables`,
        `pg_stat_${which}_indexes`,
        `pg_statio_${which}_tables`,
        `pg_statio_${which}_indexes`,
        `pg_statio_${which}_sequences`,
      ].map((view) => [view, OWN_RELATIONS]),
    ),
  ),
  pg_stat_user_functions: OWN_FUNCTIONS,
  pg_stat_xact_user_functions: OWN_FUNCTIONS,
};

/** The views of the planner's samples, in a shared database. They check the caller's privileges themselves, but not those on the schema. */
const SAMPLES = ['pg_stats', 'pg_stats_ext', 'pg_stats_ext_exprs'];

/** Views that list relations and what belongs to them by schema: programs read them without a condition on the schema. */
const LISTINGS = ['pg_tables', 'pg_views', 'pg_matviews', 'pg_indexes', 'pg_sequences', 'pg_rules', 'pg_policies'];

/** Functions under those views, of the oid of a relation, that clients call themselves. They are the same in all versions. */
const RELATION_COUNTERS = [
  ...['numscans', 'tuples_returned', 'tuples_fetched', 'tuples_inserted', 'tuples_updated', 'tuples_deleted', 'tuples_hot_updated'],
  ...['live_tuples', 'dead_tuples', 'mod_since_analyze', 'ins_since_vacuum', 'blocks_fetched', 'blocks_hit'],
  ...['vacuum', 'autovacuum', 'analyze', 'autoanalyze'].flatMap((command) => [`last_${command}_time`, `${command}_count`]),
].map((counter) => `pg_stat_get_${counter}`);

interface Replaced {
  /** The conditions, by view. */
  readonly views: Readonly<Record<string, string>>;
  readonly samples: readonly string[];
  readonly listings: readonly string[];
  readonly counters: readonly string[];
}

/** What {@link replaceStatistics} replaces in an organization's own database. */
export const IN_OWN_DATABASE: Replaced = { views: VIEWS, samples: [], listings: [], counters: [] };
/** What it replaces in a shared database. */
export const IN_SHARED_DATABASE: Replaced = {
  views: { ...VIEWS, ...SHARED_DATABASE, ...OF_RELATIONS },
  samples: SAMPLES,
  listings: LISTINGS,
  counters: RELATION_COUNTERS,
};

/** What {@link replaceStatistics} makes. */
export function statisticsReplaced({ views, samples, listings, counters }: Replaced): Names {
  return {
    relations: [...Object.keys(views), ...samples, ...listings],
    functions: [...Object.keys(views).map((view) => `postern_own_${view}`), ...counters],
  };
}

/** The functions that these views call. */
const READ: Names = {
  relations: [],
  functions: ['(postern_)?pg_stat_get_[a-z_]+', 'pg_lock_status', 'pg_prepared_xact', 'pg_get_replication_slots'],
};

/** @param session of a superuser, in any database */
export async function ensureStatisticsReader(session: pg.Client): Promise<void> {
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1', [READER]);
  if (rows.length > 0) return;
  await session.query(`CREATE ROLE ${READER} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE; GRANT pg_read_all_stats TO ${READER}`);
}

/**
 * Replaces the server's views by views that show an organization only its own part. A function with the
 * reader's privileges reads all rows and returns only these. Its body is parsed when it is created, so its names are
 * fixed and no condition of the caller is evaluated in it.
 */
export async function replaceStatistics(session: pg.Client, { views, samples, listings, counters }: Replaced): Promise<void> {
  for (const counter of counters) await renameServerFunction(session, counter, 'oid');
  for (const view of [...Object.keys(views), ...samples, ...listings]) await renameServerView(session, view);
  await changePrivileges(session, `GRANT EXECUTE ON %s TO ${READER}`, READ);
  const results = await resultTypes(session, counters);
  const columns = await columnsOf(session, Object.keys(views));
  const replacements = [
    ...Object.entries(views).map(([view, own]) => viewOfOwn(view, own, columns.get(`postern_${view}`) ?? [])),
    ...samples.map(samplesOfOwn),
    ...listings.map(listingOfOwn),
    ...counters.map((counter) => counterOfOwn(counter, results.get(`postern_${counter}`) ?? '')),
  ];
  await session.query(replacements.join(';'));
}

/** Several queries, so that each has a condition that the planner can use. Those that do not apply are empty without being run. */
function viewOfOwn(view: string, own: string, columns: readonly string[]): string {
  const queries = [...queriesOfOwn(view, own, columns), `SELECT shown.* FROM pg_catalog.postern_${view} AS shown WHERE ${SEES_ALL}`];
  return `GRANT SELECT ON pg_catalog.postern_${view} TO ${READER};
    CREATE OR REPLACE FUNCTION pg_catalog.postern_own_${view}() RETURNS SETOF pg_catalog.postern_${view}
      LANGUAGE sql STABLE SECURITY DEFINER BEGIN ATOMIC
      ${queries.join(' UNION ALL ')};
    END;
    ALTER FUNCTION pg_catalog.postern_own_${view}() OWNER TO ${READER};
    GRANT EXECUTE ON FUNCTION pg_catalog.postern_own_${view}() TO PUBLIC;
    CREATE OR REPLACE VIEW pg_catalog.${view} AS SELECT * FROM pg_catalog.postern_own_${view}();
    GRANT SELECT ON pg_catalog.${view} TO PUBLIC`;
}

function queriesOfOwn(view: string, own: string, columns: readonly string[]): string[] {
  const shown = `pg_catalog.postern_${view} AS shown`;
  const ofSessions = SESSIONS[view] ?? (own === OWN_SESSIONS ? { on: { pid: 'own.p' } } : undefined);
  if (ofSessions === undefined) return [`SELECT shown.* FROM ${shown} WHERE NOT ${SEES_ALL} AND (${own})`];
  const { on, without } = ofSessions;
  const values = columns.map((column) =>
    column in on ? `CASE WHEN own.p IS NULL THEN shown.${column} ELSE ${on[column]} END` : `shown.${column}`,
  );
  const withBackend = `SELECT ${values.join(', ')} FROM ${shown} LEFT JOIN ${TOLD_SESSIONS} ON own.b = shown.pid
    WHERE NOT ${SEES_ALL} AND (${own})`;
  if (without === undefined) return [withBackend];
  const rest = `SELECT ${columns.map((column) => without[column] ?? 'NULL').join(', ')} FROM ${TOLD_SESSIONS}
    WHERE NOT ${SEES_ALL} AND NOT EXISTS (SELECT FROM ${shown} WHERE shown.pid = own.b)`;
  return [withBackend, rest];
}

function samplesOfOwn(view: string): string {
  return `CREATE OR REPLACE VIEW pg_catalog.${view} WITH (security_barrier) AS
      SELECT shown.* FROM pg_catalog.postern_${view} AS shown
      WHERE shown.schemaname = pg_catalog.left(session_user::text, 16)::name OR ${SEES_ALL};
    GRANT SELECT ON pg_catalog.${view} TO PUBLIC`;
}

/** One's own and the system's. It hides no names, which are in pg_class; so it is no barrier, and conditions reach the catalogs. */
function listingOfOwn(view: string): string {
  return `CREATE OR REPLACE VIEW pg_catalog.${view} AS
      SELECT shown.* FROM pg_catalog.postern_${view} AS shown
      WHERE shown.schemaname = pg_catalog.left(session_user::text, 16)::name OR shown.schemaname !~ '^org_' OR ${SEES_ALL};
    GRANT SELECT ON pg_catalog.${view} TO PUBLIC`;
}

/** A relation of somebody else is as one that does not exist. */
function counterOfOwn(counter: string, result: string): string {
  return `CREATE OR REPLACE FUNCTION pg_catalog.${counter}(oid) RETURNS ${result}
      LANGUAGE sql STABLE STRICT PARALLEL RESTRICTED SECURITY DEFINER BEGIN ATOMIC
      SELECT pg_catalog.postern_${counter}(CASE WHEN ${SEES_ALL} OR EXISTS (
        SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = $1 AND c.relowner = ${OWNER}) THEN $1 ELSE 0::pg_catalog.oid END);
    END;
    ALTER FUNCTION pg_catalog.${counter}(oid) OWNER TO ${READER};
    GRANT EXECUTE ON FUNCTION pg_catalog.${counter}(oid) TO PUBLIC`;
}

/** @returns the columns of each renamed view, by its name */
async function columnsOf(session: pg.Client, views: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>> {
  const { rows } = await session.query<{ view: string; columns: string[] }>(
    `SELECT attrelid::regclass::text AS view, pg_catalog.array_agg(attname::text ORDER BY attnum) AS columns
     FROM pg_catalog.pg_attribute WHERE attnum > 0 AND attrelid = ANY ($1::regclass[]) GROUP BY attrelid`,
    [views.map((view) => `pg_catalog.postern_${view}`)],
  );
  return new Map(rows.map(({ view, columns }) => [view, columns]));
}

/** @returns the type of each renamed function, by its name */
async function resultTypes(session: pg.Client, counters: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const { rows } = await session.query<{ name: string; type: string }>(
    `SELECT proname AS name, pg_catalog.format_type(prorettype, NULL) AS type FROM pg_catalog.pg_proc
     WHERE pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND proname = ANY ($1)`,
    [counters.map((counter) => `postern_${counter}`)],
  );
  return new Map(rows.map(({ name, type }) => [name, type]));
}

/** As {@link renameServerFunction}, for a view. */
async function renameServerView(session: pg.Client, view: string): Promise<void> {
  const { rows } = await session.query('SELECT WHERE pg_catalog.to_regclass($1) IS NULL', [`pg_catalog.postern_${view}`]);
  const rename = rows.length > 0 ? `ALTER VIEW pg_catalog.${view} RENAME TO postern_${view}; ` : '';
  await session.query(`${rename}REVOKE ALL ON pg_catalog.postern_${view} FROM PUBLIC`);
}

/**
 * Revokes a function of the server from PUBLIC and renames it, so that one of Postern's can have its name. (CREATE OR REPLACE would have
 * no effect: the executor knows the server's own functions by their oids.) Repeating it does nothing.
 * @param session of a superuser that may change the catalogs
 */
export async function renameServerFunction(session: pg.Client, name: string, signature: string): Promise<void> {
  const { rows } = await session.query('SELECT WHERE pg_catalog.to_regprocedure($1) IS NULL', [`pg_catalog.postern_${name}(${signature})`]);
  if (rows.length === 0) return;
  await session.query(`REVOKE ALL ON FUNCTION pg_catalog.${name}(${signature}) FROM PUBLIC;
    ALTER FUNCTION pg_catalog.${name}(${signature}) RENAME TO postern_${name}`);
}
