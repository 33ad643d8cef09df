import pg from 'pg';
import type { BackendConnection } from '../backend/connection.ts';
import { runCommand } from '../backend/own-request.ts';
import { RESTRICTED_SCOPES, type RestrictedScope } from '../catalog/key-rows.ts';
import type { Placement } from '../catalog/organization.ts';
import { PostgresError } from '../protocol/backend.ts';
import type { Platform } from './cluster.ts';
import { roleExists } from './platform-role.ts';

/** The names of restricted roles, behind that of the organization's own role, as an alternative of a regular expression. */
export const RESTRICTED_SUFFIX = `_(?:${RESTRICTED_SCOPES.join('|')})`;

const RESTRICTED = new RegExp(`${RESTRICTED_SUFFIX}$`);

/** The role that an organization's keys with this scope log in as. It owns nothing. @param role the organization's own */
export function restrictedRole(role: string, scope: RestrictedScope): string {
  return `${role}_${scope}`;
}

/** All restricted roles that an organization may have. */
export function restrictedRoles(role: string): readonly string[] {
  return RESTRICTED_SCOPES.map((scope) => restrictedRole(role, scope));
}

/** All roles that an organization may have, its own one last. */
export function rolesOf(role: string): readonly string[] {
  return [...restrictedRoles(role), role];
}

/** The organization's own role. @param role any of its roles */
export function ownerOf(role: string): string {
  return role.replace(RESTRICTED, '');
}

export function isRestrictedRole(role: string): boolean {
  return RESTRICTED.test(role);
}

/** The same placement, for sessions of keys with this scope. */
export function asRestricted(placement: Placement, scope: RestrictedScope): Placement {
  return { ...placement, role: restrictedRole(placement.role, scope) };
}

/** The same placement, for the organization's own sessions. @param placement for any of its roles */
export function ownPlacement(placement: Placement): Placement {
  return { ...placement, role: ownerOf(placement.role) };
}

/** The scopes for which the organization has a role. @param session in any database of the server */
export async function restrictedScopesOf(session: pg.PoolClient, role: string): Promise<readonly RestrictedScope[]> {
  const found: RestrictedScope[] = [];
  for (const scope of RESTRICTED_SCOPES) if (await roleExists(session, restrictedRole(role, scope))) found.push(scope);
  return found;
}

/** What Postern keeps beside the data, and no restricted role may see: replies to others, and the SQL of migrations. */
const NOT_SHOWN = "n.nspname <> 'postern' AND NOT (n.nspname = current_user AND c.relname ~ '^postern_')";

/** What the roles may do with tables, views and sequences. USAGE of a sequence lets nobody set it. */
const PRIVILEGES: Readonly<Record<RestrictedScope, { readonly tables: string; readonly sequences: string }>> = {
  read: { tables: 'SELECT', sequences: 'SELECT' },
  data: { tables: 'SELECT, INSERT, UPDATE, DELETE', sequences: 'USAGE, SELECT' },
};

/**
 * Lets a role use the organization's tables, views and sequences, also those that are created later. It runs as the organization's own
 * role, once, when the restricted role is new: from then on only the default privileges of the organization grant anything. Functions are
 * left out: PUBLIC may execute what the organization has not closed, and what it has closed stays so.
 */
function grants(role: string, scope: RestrictedScope): string {
  const [name, text] = [pg.escapeIdentifier(role), pg.escapeLiteral(role)];
  const { tables, sequences } = PRIVILEGES[scope];
  return `SET search_path = ''; SET client_min_messages = error; SET lock_timeout = '10s'; BEGIN;
    DO $postern$
    DECLARE
      command text;
    BEGIN
      FOR command IN
        SELECT pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, ${text}) FROM pg_catalog.pg_namespace n
        WHERE pg_catalog.pg_get_userbyid(n.nspowner) = current_user AND n.nspname !~ '^pg_' AND n.nspname <> 'postern'
        UNION ALL
        SELECT pg_catalog.format('GRANT %s %I.%I TO %I',
          CASE c.relkind WHEN 'S' THEN '${sequences} ON SEQUENCE' ELSE '${tables} ON TABLE' END, n.nspname, c.relname, ${text})
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE pg_catalog.pg_get_userbyid(c.relowner) = current_user AND c.relkind = ANY ('{r,p,v,m,f,S}') AND n.nspname !~ '^pg_'
          AND ${NOT_SHOWN}
      LOOP
        EXECUTE command;
      END LOOP;
    END $postern$;
    ALTER DEFAULT PRIVILEGES GRANT ${tables} ON TABLES TO ${name};
    ALTER DEFAULT PRIVILEGES GRANT ${sequences} ON SEQUENCES TO ${name};
    ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO ${name};
    COMMIT`;
}

/**
 * The comment on a new restricted role, until the organization's own role has granted it something. Its sessions can remove much of what it
 * has been granted (DROP OWNED BY CURRENT_USER), but cannot comment on a role. So nothing that they do makes Postern grant anything again,
 * and a role without this comment, as one of an earlier version, is never granted anything.
 */
const NEW = "'The organization has not granted it anything yet.'";
/** The same of an earlier version. */
const FORMERLY_NEW = "'The organization has not let its readers read yet.'";

/** The statement that marks a role as new. It belongs to the transaction that creates it. */
export function markAsNew(role: string): string {
  return `COMMENT ON ROLE ${pg.escapeIdentifier(role)} IS ${NEW}`;
}

/**
 * Grants a new restricted role what it is for; another one keeps what it has.
 * @param placement of the organization's own role
 * @param openOwn opens a session of the organization's own role
 */
export async function admit(
  platform: Platform,
  placement: Placement,
  scope: RestrictedScope,
  openOwn: () => Promise<BackendConnection>,
): Promise<void> {
  const role = restrictedRole(placement.role, scope);
  if (!(await platform.run((session) => isNew(session, role)))) return;
  const own = await openOwn();
  try {
    await platform.alone(role, async (session) => {
      // Another process may have done it meanwhile, and the organization may have hidden a table since.
      if (!(await isNew(session, role))) return;
      await runCommand(own, grants(role, scope));
      await session.query(`COMMENT ON ROLE ${pg.escapeIdentifier(role)} IS NULL`);
    });
  } finally {
    own.end();
  }
}

async function isNew(session: pg.PoolClient, role: string): Promise<boolean> {
  const { rows } = await session.query(
    `SELECT FROM pg_catalog.pg_roles WHERE rolname = $1 AND pg_catalog.shobj_description(oid, 'pg_authid') IN (${NEW}, ${FORMERLY_NEW})`,
    [role],
  );
  return rows.length > 0;
}

/** Whether the session's role may use a schema. */
export async function mayUse(backend: BackendConnection, schema: string): Promise<boolean> {
  const found = `SELECT FROM pg_catalog.pg_namespace WHERE nspname = ${pg.escapeLiteral(schema)} AND pg_catalog.has_schema_privilege(oid, 'USAGE')`;
  return (await runCommand(backend, found)) === 'SELECT 1';
}

/**
 * Takes away settings that a session has left on a restricted role (`ALTER ROLE CURRENT_USER SET …`): every other key of the same scope would
 * have them in its sessions.
 * @param platformSettings those that the platform has made, which the role cannot reset
 * @returns whether there were any: then this session has begun with them
 */
export async function resetSettings(
  backend: BackendConnection,
  { database }: Placement,
  platformSettings: readonly string[],
): Promise<boolean> {
  const names = pg.escapeLiteral(`{${platformSettings.join()}}`);
  // What the session has begun with, not what the role has now: another session may have reset that meanwhile.
  const found = `SELECT FROM pg_catalog.pg_settings WHERE source IN ('user', 'database user') AND name <> ALL (${names})`;
  if ((await runCommand(backend, found)) === 'SELECT 0') return false;
  const reset = `ALTER ROLE CURRENT_USER RESET ALL; ALTER ROLE CURRENT_USER IN DATABASE ${pg.escapeIdentifier(database)} RESET ALL`;
  // Another session may be doing the same; what is left stays until the next one.
  await runCommand(backend, reset).catch((error: unknown) => {
    if (!(error instanceof PostgresError)) throw error;
  });
  return true;
}
