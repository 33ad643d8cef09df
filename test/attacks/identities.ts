import { type Attack, denied, refused, shows } from './attack.ts';
import type { Scene } from './scene.ts';

const roleIsThere = (role: string) => `SELECT 1 / count(*) FROM pg_roles WHERE rolname = '${role}'`;
const victimIsThere = ({ victim }: Scene) => roleIsThere(victim.id);

/** At being somebody else, or more. */
export const IDENTITY_ATTACKS: readonly Attack[] = [
  denied('by becoming another', ({ victim }) => `SET ROLE ${victim.id}`),
  denied('by becoming the platform', () => 'SET ROLE postern_platform'),
  denied('by becoming the superuser', () => 'SET ROLE postgres'),
  denied('by becoming another within a transaction', ({ victim }) => ['SELECT 1', `SET LOCAL ROLE ${victim.id}`]),
  denied('by becoming another in a function call', ({ victim }) => `SELECT set_config('role', '${victim.id}', true)`),
  denied('by becoming another where no parser sees it', ({ victim }) => `DO $$ BEGIN EXECUTE 'SET' || ' ROLE ${victim.id}'; END $$`),
  denied('by a setting of a function', ({ home, victim }) => {
    return `CREATE FUNCTION ${home}.mask() RETURNS text LANGUAGE sql SET role = '${victim.id}' AS 'SELECT current_user::text'`;
  }),
  {
    way: 'by becoming another in a function of its own that runs as its owner',
    sql: ({ victim }) => `SELECT become('${victim.id}')`,
    answer: refused('42501'),
    proof: { superuser: victimIsThere },
  },
  denied('by being another', ({ victim }) => `SET SESSION AUTHORIZATION ${victim.id}`),
  denied('by being the superuser', () => 'SET SESSION AUTHORIZATION postgres'),
  denied('by being another in a function call', ({ victim }) => `SELECT set_config('session_authorization', '${victim.id}', true)`),
  ...['RESET SESSION AUTHORIZATION', 'SET SESSION AUTHORIZATION DEFAULT', 'RESET ROLE', 'SET ROLE NONE'].map(
    (sql): Attack => ({
      way: `by going back to who logged in: ${sql}`,
      sql: ({ intruder }) => [sql, `SELECT (session_user = '${intruder.id}' AND current_user = session_user)::text`],
      answer: shows(['true']),
      proof: { superuser: () => roleIsThere('postern_platform') },
    }),
  ),
  denied('by a role of its own', () => 'CREATE ROLE helper'),
  denied('by joining another', ({ victim, intruder }) => `GRANT ${victim.id} TO ${intruder.id}`),
  denied('by having another join it', ({ victim, intruder }) => `GRANT ${intruder.id} TO ${victim.id}`),
  ...[
    'pg_read_all_data',
    'pg_write_all_data',
    'pg_monitor',
    'pg_signal_backend',
    'pg_read_server_files',
    'pg_execute_server_program',
    'pg_create_subscription',
  ].map((role) =>
    denied(
      `by joining ${role}`,
      () => `GRANT ${role} TO CURRENT_USER`,
      ({ intruder }) => `GRANT ${role} TO ${intruder.id}`,
    ),
  ),
  ...['SUPERUSER', 'CREATEROLE', 'CREATEDB', 'BYPASSRLS', 'REPLICATION', 'CONNECTION LIMIT -1'].map((attribute) =>
    denied(`by more rights: ${attribute}`, ({ intruder }) => `ALTER ROLE ${intruder.id} ${attribute}`),
  ),
  denied("by another's password", ({ victim }) => `ALTER ROLE ${victim.id} PASSWORD 'known'`),
  denied("by the platform's password", () => "ALTER ROLE postern_platform PASSWORD 'known'"),
  denied('by letting another in no more', ({ victim }) => `ALTER ROLE ${victim.id} NOLOGIN`),
  denied("by another's settings", ({ victim, intruder }) => `ALTER ROLE ${victim.id} SET search_path = ${intruder.id}`),
  denied("by everybody's settings", () => "ALTER ROLE ALL SET local_preload_libraries = 'mine'"),
  denied("by its own database's settings", ({ kind, intruder }) => `ALTER DATABASE ${databaseOf(kind, intruder)} SET work_mem = '1GB'`),
  denied("by its own database's owner", ({ kind, intruder }) => `ALTER DATABASE ${databaseOf(kind, intruder)} OWNER TO ${intruder.id}`),
  denied('by a copy of a database', ({ kind, victim }) => `CREATE DATABASE stolen TEMPLATE ${databaseOf(kind, victim)}`, victimIsThere),
  denied('by dropping a database', ({ kind, victim }) => `DROP DATABASE ${databaseOf(kind, victim)}`, victimIsThere),
  denied('by dropping another', ({ victim }) => `DROP ROLE ${victim.id}`, victimIsThere),
  denied('by dropping all that another owns', ({ victim }) => `DROP OWNED BY ${victim.id}`, victimIsThere),
  denied(
    'by taking over all that another owns',
    ({ victim, intruder }) => `REASSIGN OWNED BY ${victim.id} TO ${intruder.id}`,
    victimIsThere,
  ),
  denied('by giving another all that it owns', ({ victim, intruder }) => `REASSIGN OWNED BY ${intruder.id} TO ${victim.id}`),
  denied('by giving a table to the platform', ({ home }) => `ALTER TABLE ${home}.mine OWNER TO postern_platform`),
  denied('by giving a table to another', ({ home, victim }) => `ALTER TABLE ${home}.mine OWNER TO ${victim.id}`),
  denied("by another's default privileges", ({ victim, intruder }) => {
    return `ALTER DEFAULT PRIVILEGES FOR ROLE ${victim.id} GRANT ALL ON TABLES TO ${intruder.id}`;
  }),
  denied('by a schema in the name of another', ({ victim }) => `CREATE SCHEMA planted AUTHORIZATION ${victim.id}`),
  denied('by a schema in the name of the platform', () => 'CREATE SCHEMA planted AUTHORIZATION postern_platform'),
];

function databaseOf(kind: Scene['kind'], { id }: Scene['victim']): string {
  return kind === 'schema' ? 'postern_shared' : id;
}
