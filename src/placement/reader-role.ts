import pg from 'pg';
import type { BackendConnection } from '../backend/connection.ts';
import { runCommand } from '../backend/own-request.ts';
import type { Placement } from '../catalog/organization.ts';
import { PostgresError } from '../protocol/backend.ts';
import type { Platform } from './cluster.ts';

const SUFFIX = '_read';

/** The role that an organization's read keys log in as. It owns nothing. */
export function readerOf(role: string): string {
  return `${role}${SUFFIX}`;
}

/** The organization's own role. @param reader the role of its readers */
export function ownerOf(reader: string): string {
  return reader.slice(0, -SUFFIX.length);
}

export function isReaderRole(role: string): boolean {
  return role.endsWith(SUFFIX);
}

/** The same placement, for sessions of the organization's readers. */
export function asReader(placement: Placement): Placement {
  return { ...placement, role: readerOf(placement.role) };
}

/** The same placement for the organization's own sessions; undefined if it is no reader's. */
export function ownPlacement(placement: Placement): Placement | undefined {
  const { role } = placement;
  return isReaderRole(role) ? { ...placement, role: ownerOf(role) } : undefined;
}

/** What Postern keeps beside the data, and no reader may see: replies to others, and the SQL of migrations. */
const NOT_SHOWN = "n.nspname <> 'postern' AND NOT (n.nspname = current_user AND c.relname ~ '^postern_')";

/**
 * Lets the readers see the organization's tables, views and sequences, also those that are created later. It runs as the organization's
 * own role, once, when the readers' role is new: from then on only the default privileges of the organization grant anything.
 */
function grants(reader: string): string {
  const [name, text] = [pg.escapeIdentifier(reader), pg.escapeLiteral(reader)];
  return `SET search_path = ''; SET client_min_messages = error; SET lock_timeout = '10s'; BEGIN;
    DO $postern$
    DECLARE
      command text;
    BEGIN
      FOR command IN
        SELECT pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, ${text}) FROM pg_catalog.pg_namespace n
        WHERE pg_catalog.pg_get_userbyid(n.nspowner) = current_user AND n.nspname !~ '^pg_' AND n.nspname <> 'postern'
        UNION ALL
        SELECT pg_catalog.format('GRANT SELECT ON %s %I.%I TO %I',
          CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, n.nspname, c.relname, ${text})
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE pg_catalog.pg_get_userbyid(c.relowner) = current_user AND c.relkind = ANY ('{r,p,v,m,f,S}') AND n.nspname !~ '^pg_'
          AND ${NOT_SHOWN}
      LOOP
        EXECUTE command;
      END LOOP;
    END $postern$;
    ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO ${name};
    ALTER DEFAULT PRIVILEGES GRANT SELECT ON SEQUENCES TO ${name};
    ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO ${name};
    COMMIT`;
}

/**
 * The comment on a new role of readers, until the organization's own role has let it read. A reader can remove much of what it has been
 * granted (DROP OWNED BY CURRENT_USER), but cannot comment on a role. So nothing that it does makes Postern grant anything again, and a
 * role without this comment, as one of an earlier version, is never granted anything.
 */
const NEW = "'The organization has not let its readers read yet.'";

/** The statement that marks a role as new. It belongs to the transaction that creates it. */
export function markAsNew(reader: string): string {
  return `COMMENT ON ROLE ${pg.escapeIdentifier(reader)} IS ${NEW}`;
}

/**
 * Lets a new role of readers read; another one keeps what it has.
 * @param openOwn opens a session of the organization's own role
 */
export async function admit(platform: Platform, reader: string, openOwn: () => Promise<BackendConnection>): Promise<void> {
  if (!(await platform.run((session) => isNew(session, reader)))) return;
  const own = await openOwn();
  try {
    await platform.alone(reader, async (session) => {
      // Another process may have done it meanwhile, and the organization may have hidden a table since.
      if (!(await isNew(session, reader))) return;
      await runCommand(own, grants(reader));
      await session.query(`COMMENT ON ROLE ${pg.escapeIdentifier(reader)} IS NULL`);
    });
  } finally {
    own.end();
  }
}

async function isNew(session: pg.PoolClient, reader: string): Promise<boolean> {
  const { rows } = await session.query(
    `SELECT FROM pg_catalog.pg_roles WHERE rolname = $1 AND pg_catalog.shobj_description(oid, 'pg_authid') = ${NEW}`,
    [reader],
  );
  return rows.length > 0;
}

/** Whether the session's role may use a schema. */
export async function mayUse(backend: BackendConnection, schema: string): Promise<boolean> {
  const found = `SELECT FROM pg_catalog.pg_namespace WHERE nspname = ${pg.escapeLiteral(schema)} AND pg_catalog.has_schema_privilege(oid, 'USAGE')`;
  return (await runCommand(backend, found)) === 'SELECT 1';
}

/**
 * Takes away settings that a reader has left on its role (`ALTER ROLE CURRENT_USER SET …`): every other read key would have them in its
 * sessions.
 * @param platformSettings those that the platform has made, which a reader cannot reset
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
