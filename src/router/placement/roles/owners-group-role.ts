import pg from 'pg';
import { changePrivileges, type Names } from '../hardening.ts';

/** A role without LOGIN, of which the organizations' own roles are members. It has what their readers' roles must not have. */
const OWNERS = 'postern_owners';

/** The functions that create large objects. In a read-only session they would be refused, but any session can leave that. */
export const CREATE_LARGE_OBJECTS: Names = { relations: [], functions: ['lo_creat', 'lo_create', 'lo_from_bytea'] };

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
    `SELECT rolname AS name FROM pg_catalog.pg_roles r WHERE rolname ~ '^org_[a-z0-9]{12}$' AND NOT EXISTS (
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

/** Leaves the creation of large objects to the owners. @param session of a superuser, in a database of organizations */
export async function leaveLargeObjectsToOwners(session: pg.Client): Promise<void> {
  await changePrivileges(session, `REVOKE ALL ON %s FROM PUBLIC`, CREATE_LARGE_OBJECTS);
  await changePrivileges(session, `GRANT EXECUTE ON %s TO ${OWNERS}`, CREATE_LARGE_OBJECTS);
  await changePrivileges(session, `REVOKE ALL ON %s FROM ${OWNERS}`, REPLACED);
}
