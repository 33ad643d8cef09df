import { type Attack, denied, refused } from './attack.ts';
import type { Scene } from './scene.ts';

/** Fails where there is none, as dividing by zero does. */
const isThere = (what: string) => () => `SELECT 1 / count(*) FROM ${what}`;
const functionIsThere = (name: string) => isThere(`pg_proc WHERE proname = '${name}'`);
const sessionIsThere = ({ facts, victim }: Scene) =>
  `SELECT 1 / count(*) FROM pg_stat_activity WHERE pid = ${facts.processId} AND usename = '${victim.id}'`;

/** What the server runs of ours goes nowhere. */
const PROGRAM = "PROGRAM 'cat > /dev/null'";
const EXTENSIONS = ['dblink', 'postgres_fdw', 'file_fdw', 'pageinspect', 'pg_walinspect', 'pg_buffercache'];
const SETTINGS = [
  ['session_replication_role', 'replica'],
  ['allow_system_table_mods', 'on'],
  ['temp_file_limit', '-1'],
  ['log_min_messages', 'debug5'],
  ['log_statement', 'all'],
  ['dynamic_library_path', '/tmp'],
  ['session_preload_libraries', 'planted'],
  ['lo_compat_privileges', 'on'],
  ['deadlock_timeout', '1h'],
  ['track_activities', 'off'],
  ['max_stack_depth', '1MB'],
] as const;

/** At the server, its files, its machine, and the sessions of others. */
export const SERVER_ATTACKS: readonly Attack[] = [
  denied('by a file', () => "SELECT pg_read_file('PG_VERSION')"),
  denied('by the bytes of a file', () => "SELECT pg_read_binary_file('PG_VERSION')"),
  denied('by looking for files', () => "SELECT pg_ls_dir('base')"),
  denied('by looking at a file', () => "SELECT pg_stat_file('PG_VERSION')"),
  denied('by the files of the write-ahead log', () => 'SELECT pg_ls_waldir()'),
  denied('by a large object made of a file', () => "SELECT lo_import('/etc/passwd')"),
  denied('by a file made of a large object', () => "SELECT lo_export(1, '/tmp/planted')", functionIsThere('lo_export')),
  denied('by COPY from a file', ({ home }) => `COPY ${home}.mine FROM '/etc/hostname'`),
  denied(
    'by COPY to a file',
    () => "COPY (SELECT 1) TO '/tmp/planted'",
    () => "COPY (SELECT 1) TO '/dev/null'",
  ),
  denied('by COPY from a program', ({ home }) => `COPY ${home}.mine FROM PROGRAM 'true'`),
  denied('by COPY to a program', () => `COPY (SELECT 1) TO ${PROGRAM}`),
  denied('by a program that no parser sees', () => `DO $$ BEGIN EXECUTE 'COPY (SELECT 1) TO PROG' || 'RAM ''cat > /dev/null'''; END $$`),
  denied('by a tablespace', () => "CREATE TABLESPACE planted LOCATION '/tmp'", isThere('pg_tablespace')),
  denied(
    'by a function in C',
    ({ home }) => `CREATE FUNCTION ${home}.evil(text) RETURNS int AS 'libc', 'system' LANGUAGE c`,
    isThere("pg_language WHERE lanname = 'c'"),
  ),
  denied("by the server's functions under another name", ({ home }) => {
    return `CREATE FUNCTION ${home}.evil(text) RETURNS text AS 'pg_read_file_all' LANGUAGE internal`;
  }),
  denied(
    'by a library',
    () => "LOAD 'auto_explain'",
    () => "LOAD 'plpgsql'",
  ),
  ...EXTENSIONS.map((name) =>
    denied(`by the extension ${name}`, () => `CREATE EXTENSION ${name}`, isThere(`pg_available_extensions WHERE name = '${name}'`)),
  ),
  denied('by a foreign-data wrapper', () => 'CREATE FOREIGN DATA WRAPPER planted'),
  denied('by an event trigger', ({ home }) => {
    return `CREATE EVENT TRIGGER planted ON ddl_command_start EXECUTE FUNCTION ${home}.on_any_command()`;
  }),
  denied('by a base type', ({ home }) => `CREATE TYPE ${home}.planted`),
  denied('by a cast between types of the server', () => 'CREATE CAST (text AS int) WITH INOUT AS IMPLICIT'),
  denied('by an operator class', ({ home }) => `CREATE OPERATOR CLASS ${home}.planted FOR TYPE int USING btree AS OPERATOR 1 <`),
  denied('by an access method', () => 'CREATE ACCESS METHOD planted TYPE INDEX HANDLER bthandler'),
  denied('by a subscription', () => {
    return "CREATE SUBSCRIPTION planted CONNECTION 'dbname=x' PUBLICATION p WITH (connect = false)";
  }),
  denied('by a publication of everything', () => 'CREATE PUBLICATION planted FOR ALL TABLES'),
  denied(
    'by following what changes',
    () => "SELECT pg_create_logical_replication_slot('planted', 'pgoutput')",
    functionIsThere('pg_create_logical_replication_slot'),
  ),
  denied(
    'by keeping the write-ahead log for good',
    () => "SELECT pg_create_physical_replication_slot('planted', true)",
    functionIsThere('pg_create_physical_replication_slot'),
  ),
  denied('by writing into the write-ahead log', () => "SELECT pg_logical_emit_message(true, 'planted', 'x')"),
  denied('by a replication origin', () => "SELECT pg_replication_origin_create('planted')"),
  denied('by a backup', () => "SELECT pg_backup_start('planted')", functionIsThere('pg_backup_start')),
  denied(
    'by the settings of the server',
    () => "ALTER SYSTEM SET log_statement = 'all'",
    () => 'SHOW log_statement',
  ),
  denied('by having the server read its settings', () => 'SELECT pg_reload_conf()'),
  denied('by a checkpoint', () => 'CHECKPOINT'),
  denied('by the counters of the server', () => 'SELECT pg_stat_reset()'),
  ...SETTINGS.map(([setting, value]) => denied(`by the setting ${setting}`, () => `SET ${setting} = '${value}'`)),
  {
    way: 'by a transaction that outlives its session',
    sql: () => ['CREATE TABLE planted ()', "PREPARE TRANSACTION 'planted'"],
    answer: { wire: refused('55000'), http: refused('0A000') },
    proof: { superuser: () => "SELECT 1 / (current_setting('max_prepared_transactions') = '0')::int" },
  },
  denied('by ending a session of another', ({ facts }) => `SELECT pg_terminate_backend(${facts.processId})`, sessionIsThere),
  denied('by cancelling a statement of another', ({ facts }) => `SELECT pg_cancel_backend(${facts.processId})`, sessionIsThere),
  denied(
    'by the memory of a session of another',
    ({ facts }) => `SELECT pg_log_backend_memory_contexts(${facts.processId})`,
    sessionIsThere,
  ),
];
