import pg from 'pg';
import { rolePassword, roleVerifier } from '../auth/derived-secrets.ts';
import type { Observe } from '../observation.ts';
import type { RoleLogin } from './admin-connection.ts';
import { changePrivileges, type Names } from './hardening.ts';

/** A role without LOGIN, of which the organizations' own roles are members. It has what their readers' roles must not have. */
const OWNERS = 'postern_owners';

/**
 * The functions that create large objects, or write to them, and from PostgreSQL 18 on those that write a table's statistics. In a read-only
 * session they would be refused, but any session can leave that.
 */
export const OWNERS_FUNCTIONS: Names = {
  relations: [],
  functions: [
    ...['lo_creat', 'lo_create', 'lo_from_bytea', 'lo_put', 'lowrite', 'lo_truncate', 'lo_truncate64'],
    'pg_(restore|clear)_[a-z]+_stats',
  ],
};

/** The server's own functions in a shared database, which {@link refuseChosenLargeObjects} has replaced. */
const REPLACED: Names = { relations: [], functions: ['postern_lo_create', 'postern_lo_from_bytea'] };

/** @param session of a superuser @param platform the role that creates the roles of organizations */
export async function ensureOwnersRole(session: pg.Client, platform: string, serverVersion: number): Promise<void> {
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1', [OWNERS]);
  const make = `CREATE ROLE ${OWNERS} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE; GRANT ${OWNERS} TO ${pg.escapeIdentifier(platform)} WITH ADMIN OPTION`;
  if (rows.length === 0) await session.query(`BEGIN; ${make}; COMMIT`);
  else if (!(await mayAdmitOwners(session, platform)))
    await session.query(`GRANT ${OWNERS} TO ${pg.escapeIdentifier(platform)} WITH ADMIN OPTION`);
  // Those of an earlier version.
  const { rows: owners } = await session.query<{ name: string }>(
    `SELECT rolname AS name FROM pg_catalog.pg_roles r WHERE rolname ~ '^org_[a-z0-9]{12}$' AND NOT (${IS_LIMITED}) AND NOT EXISTS (
       SELECT FROM pg_catalog.pg_auth_members m WHERE m.member = r.oid AND m.roleid = pg_catalog.to_regrole($1))`,
    [OWNERS],
  );
  for (const { name } of owners) await session.query(ownersRights(name, serverVersion).join('; '));
}

/** Whether there is such a role, and the session's role may admit others to it. */
export async function mayAdmitOwners(session: pg.Client, platform: string): Promise<boolean> {
  const { rows } = await session.query(
    `SELECT FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles r ON r.oid = m.roleid
     WHERE r.rolname = $1 AND m.member = pg_catalog.to_regrole($2) AND m.admin_option`,
    [OWNERS, pg.escapeIdentifier(platform)],
  );
  return rows.length > 0;
}

/** Statements that make a role one of the owners. Before 16 it is an attribute of the member whether it inherits. */
export function ownersRights(role: string, serverVersion: number): string[] {
  const name = pg.escapeIdentifier(role);
  if (serverVersion >= 160_000) return [`GRANT ${OWNERS} TO ${name} WITH INHERIT TRUE, SET FALSE`];
  return [`ALTER ROLE ${name} INHERIT`, `GRANT ${OWNERS} TO ${name}`];
}

/**
 * The comment on an organization's own role that has been taken from the owners, and is given no right that lets it store anything. No role
 * of an organization can comment on a role.
 */
const LIMITED = "'postern.limited'";

/** Whether the role `r` has it. */
const IS_LIMITED = `coalesce(pg_catalog.shobj_description(r.oid, 'pg_authid') = ${LIMITED}, false)`;

export function markLimited(role: string): string {
  return `COMMENT ON ROLE ${pg.escapeIdentifier(role)} IS ${LIMITED}`;
}

export function unmarkLimited(role: string): string {
  return `COMMENT ON ROLE ${pg.escapeIdentifier(role)} IS NULL`;
}

/** Whether there is such a role, and it is marked. */
export async function isLimited(session: pg.ClientBase, role: string): Promise<boolean> {
  const { rows } = await session.query(`SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = $1 AND ${IS_LIMITED}`, [role]);
  return rows.length > 0;
}

/** Whether the role is a member of the owners, whoever has granted it. */
export async function isOwner(session: pg.ClientBase, role: string): Promise<boolean> {
  const { rows } = await session.query(
    'SELECT FROM pg_catalog.pg_auth_members m WHERE m.roleid = pg_catalog.to_regrole($1) AND m.member = pg_catalog.to_regrole($2)',
    [OWNERS, pg.escapeIdentifier(role)],
  );
  return rows.length > 0;
}

/** Undoes {@link ownersRights}, whoever has granted them. @param session of a superuser */
export async function leaveOwners(session: pg.Client, role: string, serverVersion: number): Promise<void> {
  const name = pg.escapeIdentifier(role);
  if (serverVersion < 160_000) {
    await session.query(`REVOKE ${OWNERS} FROM ${name}`);
    return;
  }
  const { rows } = await session.query<{ grantor: string }>(
    `SELECT pg_catalog.pg_get_userbyid(m.grantor) AS grantor FROM pg_catalog.pg_auth_members m
     WHERE m.roleid = pg_catalog.to_regrole($1) AND m.member = pg_catalog.to_regrole($2)`,
    [OWNERS, name],
  );
  for (const { grantor } of rows) await session.query(`REVOKE ${OWNERS} FROM ${name} GRANTED BY ${pg.escapeIdentifier(grantor)}`);
}

/**
 * Statements for a database that all may connect to. Only owners may create temporary objects there, because of what a reader could do
 * with them to its owner; where there is no role of the owners, all may.
 * @param database its name, quoted where needed
 */
export function sharedDatabaseRights(database: string, hasOwnersRole: boolean): string {
  const temporary = hasOwnersRole
    ? `REVOKE TEMPORARY ON DATABASE ${database} FROM PUBLIC; GRANT TEMPORARY ON DATABASE ${database} TO ${OWNERS}`
    : `GRANT TEMPORARY ON DATABASE ${database} TO PUBLIC`;
  // Granted to PUBLIC: grants to each organization would enlarge the one row that every login reads, and could not be made concurrently.
  // A role without a schema there can do nothing in the database.
  return `GRANT CONNECT ON DATABASE ${database} TO PUBLIC; ${temporary}`;
}

/** A SELECT that returns a row if the session's database has these rights, besides those of single roles. */
export function findSharedDatabaseRights(hasOwnersRole: boolean): string {
  const has = (grantee: string, right: string) => `EXISTS (
    SELECT FROM pg_catalog.aclexplode(coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))) AS a
    WHERE a.grantee = ${grantee} AND a.privilege_type = '${right}')`;
  const temporary = hasOwnersRole
    ? `NOT ${has('0', 'TEMPORARY')} AND ${has(`pg_catalog.to_regrole('${OWNERS}')`, 'TEMPORARY')}`
    : has('0', 'TEMPORARY');
  return `SELECT FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database() AND ${has('0', 'CONNECT')} AND ${temporary}`;
}

/** Leaves large objects to the owners, except for reading them, and statistics, except for ANALYZE. @param session of a superuser, in a database of organizations */
export async function leaveWritingToOwners(session: pg.Client): Promise<void> {
  await changePrivileges(session, `REVOKE ALL ON %s FROM PUBLIC`, OWNERS_FUNCTIONS);
  await changePrivileges(session, `GRANT EXECUTE ON %s TO ${OWNERS}`, OWNERS_FUNCTIONS);
  await changePrivileges(session, `REVOKE ALL ON %s FROM ${OWNERS}`, REPLACED);
}

const PLATFORM_ROLE = 'postern_platform';
/** Roles of the server that the platform role is a member of: the first, from 16 on, for the server's reserved connections, the second to see which backends wait. */
const SERVER_ROLES = ['pg_use_reserved_connections', 'pg_read_all_stats'];

const OTHER_SECRET = `the secret is another one than that with which the password of ${PLATFORM_ROLE} was set: it has been changed, and processes with the former secret cannot log in any more`;

/** Limits the disk space of a sort, and keeps tenants' statements and data out of the server's log. Tenants cannot change these. */
export const ROLE_SETTINGS: Readonly<Record<string, string>> = { temp_file_limit: '1GB', log_min_messages: 'fatal' };

/**
 * A superuser is used only for the set-up; everything else runs with this role. If the secret is another one than before, its password
 * changes, and a warning says what that means for others.
 */
export async function ensurePlatformRole(session: pg.Client, secret: string, observe: Observe): Promise<RoleLogin> {
  const verifier = await roleVerifier(secret, PLATFORM_ROLE);
  const { rows } = await session.query<{ good: boolean; hasOtherPassword: boolean }>(
    `SELECT rolpassword <> $2 AS "hasOtherPassword", rolpassword IS NOT DISTINCT FROM $2 AND rolcanlogin AND rolcreatedb AND rolcreaterole
       AND NOT (rolsuper OR rolreplication OR rolbypassrls) AS good
     FROM pg_catalog.pg_authid WHERE rolname = $1`,
    [PLATFORM_ROLE, verifier],
  );
  if (!rows[0]?.good) {
    const attributes = `LOGIN CREATEDB CREATEROLE NOSUPERUSER NOREPLICATION NOBYPASSRLS PASSWORD ${pg.escapeLiteral(verifier)}`;
    await session.query(`${rows.length === 0 ? 'CREATE' : 'ALTER'} ROLE ${PLATFORM_ROLE} ${attributes}`);
    if (rows[0]?.hasOtherPassword) observe({ name: 'service.warning', message: OTHER_SECRET });
  }
  if (Object.keys(await allowedSettings(session, PLATFORM_ROLE)).length < Object.keys(ROLE_SETTINGS).length) {
    await session.query(`GRANT SET ON PARAMETER ${Object.keys(ROLE_SETTINGS).join(', ')} TO ${PLATFORM_ROLE}`);
  }
  await joinServerRoles(session);
  return platformLogin(secret);
}

/**
 * If the server has reserved_connections, the platform role can log in however many sessions organizations have. It sees what the server
 * says of all of them, which it could see as a member of any organization's role too.
 */
async function joinServerRoles(session: pg.Client): Promise<void> {
  const { rows } = await session.query<{ name: string }>(
    `SELECT rolname AS name FROM pg_catalog.pg_roles WHERE rolname = ANY ($1) AND NOT pg_catalog.pg_has_role('${PLATFORM_ROLE}', oid, 'MEMBER')`,
    [SERVER_ROLES],
  );
  for (const { name } of rows) await session.query(`GRANT ${name} TO ${PLATFORM_ROLE}`);
}

export function platformLogin(secret: string): RoleLogin {
  return { user: PLATFORM_ROLE, password: rolePassword(secret, PLATFORM_ROLE) };
}

/** Those of {@link ROLE_SETTINGS} that the role may set for organizations. */
export async function allowedSettings(session: pg.Client, role: string): Promise<Record<string, string>> {
  const { rows } = await session.query<{ name: string }>(
    "SELECT name FROM pg_catalog.unnest($2::text[]) AS name WHERE pg_catalog.has_parameter_privilege($1::name, name, 'SET')",
    [role, Object.keys(ROLE_SETTINGS)],
  );
  return Object.fromEntries(rows.map(({ name }) => [name, ROLE_SETTINGS[name] ?? '']));
}

export async function roleExists(session: pg.PoolClient, role: string): Promise<boolean> {
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1', [role]);
  return rows.length > 0;
}
