import type pg from 'pg';

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
    'postern_pg_stat_[a-z]+',
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

/** Whether the name is one of these, or of a renamed one. */
function matches(column: string, patterns: readonly string[], table = 'o'): string {
  return patterns.length === 0 ? 'false' : `${table}.${column} ~ '^(${REPLACED_PREFIX})?(${patterns.join('|')})$'`;
}

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
  for (const { object } of rows) await session.query(template.replace('%s', object));
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

/** Views of the server, with the condition for an organization's own rows. */
const VIEWS = {
  pg_stat_activity: 'shown.usename = session_user',
  pg_stat_database: 'shown.datname = pg_catalog.current_database()',
};

/** What {@link replaceStatisticsViews} makes. */
export const STATISTICS_VIEWS: Names = {
  relations: Object.keys(VIEWS),
  functions: Object.keys(VIEWS).map((view) => `postern_own_${view}`),
};

/** The functions that these views call. */
const READ: Names = { relations: [], functions: ['pg_stat_get_activity', 'pg_stat_get_db_[a-z_]+'] };

/** @param session of a superuser, in any database */
export async function ensureStatisticsReader(session: pg.Client): Promise<void> {
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1', [READER]);
  if (rows.length > 0) return;
  await session.query(`CREATE ROLE ${READER} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE; GRANT pg_read_all_stats TO ${READER}`);
}

/**
 * Replaces the server's views by views that show an organization only its own sessions and its own database. A function with the
 * reader's privileges reads all rows and returns only these. Its body is parsed when it is created, so its names are
 * fixed and no condition of the caller is evaluated in it.
 *
 * There is no such view for pg_locks: reading it stops the lock manager until all locks are copied, which would show how
 * many locks others hold and let any organization delay all others.
 */
export async function replaceStatisticsViews(session: pg.Client): Promise<void> {
  await changePrivileges(session, `GRANT EXECUTE ON %s TO ${READER}`, READ);
  for (const [view, own] of Object.entries(VIEWS)) {
    const { rows } = await session.query('SELECT WHERE pg_catalog.to_regclass($1) IS NULL', [`pg_catalog.postern_${view}`]);
    if (rows.length > 0) await session.query(`ALTER VIEW pg_catalog.${view} RENAME TO postern_${view}`);
    await session.query(`REVOKE ALL ON pg_catalog.postern_${view} FROM PUBLIC; GRANT SELECT ON pg_catalog.postern_${view} TO ${READER};
      CREATE OR REPLACE FUNCTION pg_catalog.postern_own_${view}() RETURNS SETOF pg_catalog.postern_${view}
        LANGUAGE sql STABLE SECURITY DEFINER BEGIN ATOMIC
        SELECT shown.* FROM pg_catalog.postern_${view} AS shown
        WHERE ${own} OR pg_catalog.pg_has_role(session_user, 'pg_read_all_stats', 'USAGE');
      END;
      ALTER FUNCTION pg_catalog.postern_own_${view}() OWNER TO ${READER};
      GRANT EXECUTE ON FUNCTION pg_catalog.postern_own_${view}() TO PUBLIC;
      CREATE OR REPLACE VIEW pg_catalog.${view} AS SELECT * FROM pg_catalog.postern_own_${view}();
      GRANT SELECT ON pg_catalog.${view} TO PUBLIC`);
  }
}
