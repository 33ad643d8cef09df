import { type Answer, type Attack, denied, elsewhere, names, type Proof, shows } from './attack.ts';
import type { Scene } from './scene.ts';

/** Where there is nothing of the intruder's own. */
const EMPTY_VIEWS = [
  'pg_locks',
  'pg_prepared_xacts',
  'pg_replication_slots',
  'pg_stat_progress_create_index',
  'pg_stat_progress_vacuum',
  'pg_stat_replication',
  'pg_stat_replication_slots',
  'pg_stat_subscription',
  'pg_stat_subscription_stats',
  'pg_stat_wal_receiver',
];
/** Where there is something of its own. */
const OWN_VIEWS = ['pg_stat_activity', 'pg_stat_database', 'pg_stat_database_conflicts', 'pg_stat_ssl', 'pg_stat_gssapi'];

/** What only the server's administrators may look at, or change. */
export const CATALOG_ATTACKS: readonly Attack[] = [
  ...[
    'pg_authid',
    'pg_shadow',
    'pg_stat_get_activity(NULL)',
    'pg_lock_status()',
    'pg_prepared_xact()',
    'pg_stat_archiver',
    'pg_stat_bgwriter',
    'pg_stat_checkpointer',
    'pg_stat_io',
    'pg_stat_recovery_prefetch',
    'pg_stat_slru',
    'pg_stat_wal',
    'pg_get_replication_slots()',
    "pg_stat_get_progress_info('VACUUM')",
    'pg_stat_get_subscription(NULL)',
    'pg_stat_get_wal_senders()',
    'pg_stat_get_archiver()',
    'pg_stat_get_bgwriter_buf_written_clean()',
    'pg_stat_get_buf_alloc()',
    'pg_stat_get_checkpointer_num_timed()',
    'pg_stat_get_io()',
    'pg_stat_get_recovery_prefetch()',
    'pg_stat_get_slru()',
    'pg_stat_get_wal()',
    'pg_stat_get_wal_receiver()',
    'pg_stat_get_subscription_stats(NULL)',
    'pg_tablespace_size(1663)',
    "pg_tablespace_size('pg_default')",
    'pg_control_checkpoint()',
    'pg_control_init()',
    'pg_control_recovery()',
    'pg_control_system()',
    'pg_current_wal_lsn()',
    'pg_current_wal_flush_lsn()',
    'pg_current_wal_insert_lsn()',
    'pg_available_wal_summaries()',
    'pg_get_wal_summarizer_state()',
    'pg_shdepend',
    'pg_statistic',
    'pg_statistic_ext_data',
    'pg_largeobject',
    'pg_user_mapping',
    'pg_hba_file_rules',
    'pg_file_settings',
    'pg_shmem_allocations',
    'pg_config',
  ].map((catalog) => denied(`by ${catalog}`, () => `SELECT * FROM ${catalog}`)),
  ...[...OWN_VIEWS, ...EMPTY_VIEWS].map((view) =>
    denied(
      `by the server's own ${view}`,
      () => `SELECT * FROM postern_${view}`,
      () => `SELECT * FROM ${view}`,
    ),
  ),
  ...EMPTY_VIEWS.map((view) => ({
    way: `by ${view}`,
    sql: () => `SELECT * FROM ${view}`,
    answer: shows(),
    proof: { superuser: () => `SELECT '${view}'::regclass` },
  })),
  ...['pg_stat_activity', 'pg_stat_ssl', 'pg_stat_gssapi'].map((view) => ({
    way: `by the session of another in ${view}`,
    sql: ({ facts }: Scene) => `SELECT * FROM ${view} WHERE pid = ${facts.processId}`,
    answer: shows(),
    proof: { superuser: ({ facts }: Scene) => `SELECT 1 / (SELECT count(*) FROM ${view} WHERE pid = ${facts.processId})` },
  })),
  denied('by the query of a session', () => 'SELECT pg_stat_get_backend_activity(1)'),
  denied("by a database's counters", () => 'SELECT pg_stat_get_db_xact_commit(1)'),
  denied('by whom a session waits for', ({ facts }) => `DO 'BEGIN PERFORM pg_blocking_pids(${facts.processId}); END'`),
  denied('by whether a session waits for certain others', ({ facts }) => {
    return `SELECT pg_isolation_test_session_is_blocked(${facts.processId}, '{1}')`;
  }),
  denied('by where the server keeps its files', () => 'SHOW data_directory'),
  denied('by changing an owner in the catalogs', () => "UPDATE pg_class SET relowner = 10 WHERE relname = 'mine'"),
  denied('by changing a function in the catalogs', () => "UPDATE pg_proc SET proowner = 10 WHERE proname = 'become'"),
  denied('by a membership in the catalogs', () => 'DELETE FROM pg_auth_members'),
  denied('by locking a catalog', () => ['SELECT 1', 'LOCK TABLE pg_authid IN ACCESS SHARE MODE']),
  denied(
    'by a table among the catalogs',
    () => 'CREATE TABLE pg_catalog.planted ()',
    () => {
      return 'SET LOCAL allow_system_table_mods = on; CREATE TABLE pg_catalog.planted ()';
    },
  ),
  denied('by a function among the catalogs', () => {
    return 'CREATE FUNCTION pg_catalog.lower(varchar) RETURNS text LANGUAGE sql AS $$ SELECT NULL $$';
  }),
  denied("by renaming the server's functions", () => 'ALTER FUNCTION pg_catalog.lower(text) RENAME TO to_lower_case'),
];

const seesRows: Proof = { victim: ({ place }) => `SELECT secret FROM ${place}.secrets` };

/** @param name what is there to be seen, by the SQL's only column */
function named(way: string, sql: Attack['sql'], name: string, inDatabase: Answer = shows()): Attack {
  return {
    way: `names, visible by design in one database: ${way}`,
    sql,
    answer: { database: inDatabase, schema: names(name) },
    proof: seesRows,
  };
}

/** A value that is not there is no row. */
const found = (expression: string, where = 'found IS NOT NULL') =>
  `SELECT found FROM (SELECT ${expression} AS found) AS looked_up WHERE ${where}`;

/** At what the catalogs tell of others' objects. */
export const NAME_ATTACKS: readonly Attack[] = [
  {
    way: 'by the values that the planner has collected',
    sql: () => "SELECT most_common_vals::text FROM pg_stats WHERE tablename = 'open_secrets'",
    answer: shows(),
    proof: { superuser: () => "SELECT 'pg_stats'::regclass" },
  },
  {
    way: 'by the counted visits to a table',
    sql: () => "SELECT n_live_tup::text FROM pg_stat_user_tables WHERE relname = 'secrets'",
    answer: shows(),
    proof: { superuser: () => "SELECT 'pg_stat_user_tables'::regclass" },
  },
  ...['pg_stat_all_tables', 'pg_stat_xact_all_tables', 'pg_stat_all_indexes', 'pg_statio_all_tables', 'pg_statio_all_indexes'].map(
    (view) => ({
      way: `by the figures in ${view}`,
      sql: ({ facts }: Scene) => `SELECT * FROM ${view} WHERE relid = ${facts.table}`,
      answer: shows(),
      proof: seesRows,
    }),
  ),
  {
    way: 'by the figures of a sequence',
    sql: ({ facts }) => `SELECT * FROM pg_statio_all_sequences WHERE relid = ${facts.sequence}`,
    answer: shows(),
    proof: seesRows,
  },
  {
    way: 'by the figures of a function',
    sql: ({ facts }) => `SELECT * FROM pg_stat_user_functions WHERE funcid = ${facts.function}`,
    answer: shows(),
    proof: seesRows,
  },
  {
    way: 'by the figures of the system catalogs, in which others have rows too',
    sql: () => "SELECT relname FROM pg_stat_sys_tables WHERE relname = 'pg_class'",
    answer: { database: shows(['pg_class']), schema: shows() },
    proof: seesRows,
  },
  ...['numscans', 'tuples_inserted', 'live_tuples', 'blocks_fetched', 'analyze_count'].map((counter) => ({
    way: `by how much there is of another's table: ${counter}`,
    sql: ({ facts }: Scene) => `SELECT pg_stat_get_${counter}(${facts.table})::text`,
    answer: shows(['0']),
    proof: seesRows,
  })),
  {
    way: "by the server's own counters",
    sql: ({ facts }) => `SELECT postern_pg_stat_get_live_tuples(${facts.table})`,
    answer: elsewhere('42883'),
    proof: seesRows,
  },
  {
    way: "by when another's table was analyzed",
    sql: ({ facts }) => `SELECT pg_stat_get_last_analyze_time(${facts.table})::text`,
    answer: shows([null]),
    proof: seesRows,
  },
  named('a table by its object id', ({ facts }) => found(`${facts.table}::oid::regclass::text`, "found !~ '^[0-9]+$'"), '.secrets'),
  named('tables', () => "SELECT relname FROM pg_class WHERE relname = 'secret_view'", 'secret_view'),
  named('schemas', ({ victim }) => `SELECT nspname FROM pg_namespace WHERE nspname = '${victim.id}'`, 'org_'),
  named('columns', () => "SELECT DISTINCT attname FROM pg_attribute WHERE attname = 'secret'", 'secret'),
  named('functions', ({ facts }) => found(`pg_get_functiondef(${facts.function})`), 'SELECT secret FROM secrets'),
  named('views', ({ facts }) => found(`pg_get_viewdef(${facts.view})`), 'SELECT secret'),
  named('checks', () => "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'secrets_secret_check'", 'rosebud'),
  named('labels', () => "SELECT enumlabel FROM pg_enum WHERE enumlabel = 'secretive'", 'secretive'),
  named('comments', () => "SELECT description FROM pg_description WHERE description LIKE 'what nobody%'", 'what nobody may know'),
  named('descriptions', ({ facts }) => found(`pg_describe_object('pg_class'::regclass, ${facts.table}, 0)`), '.secrets'),
  named('sizes', ({ facts }) => found(`pg_relation_size(${facts.table})::text`), '8192'),
  named(
    "roles, which have no people's names",
    ({ victim }) => `SELECT rolname, rolpassword FROM pg_roles WHERE rolname = '${victim.id}'`,
    '********',
    names('********'),
  ),
  named(
    "roles' settings",
    () => "SELECT setconfig::text FROM pg_db_role_setting WHERE setconfig::text LIKE '%rosebud%'",
    'rosebud',
    names('rosebud'),
  ),
  {
    way: 'names, visible by design: databases',
    sql: ({ victim }) => `SELECT datname FROM pg_database WHERE datname IN ('${victim.id}', 'postern_shared')`,
    answer: { database: names('org_'), schema: names('postern_shared') },
    proof: seesRows,
  },
];
