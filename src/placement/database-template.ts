import pg from 'pg';
import type { Observe } from '../observation.ts';
import { type AdminLogin, withSession } from './admin-connection.ts';
import { findHardened, harden, IN_OWN_DATABASE, replaceStatistics, statisticsReplaced, WHOLE_SERVER } from './hardening.ts';
import { leaveWritingToOwners, OWNERS_FUNCTIONS } from './platform-role.ts';

/** The database that organizations' databases are copied from. */
export const TEMPLATE = 'postern_template';
/** The template's name until it is complete. */
export const UNFINISHED = `${TEMPLATE}_unfinished`;

/** Raised when the template's content changes, so that the next start rebuilds it and hardens the databases made from the old one. */
const EDITION = 11;
const HARDENED = ', hardened';

/** How many databases are hardened at the same time. */
const HARDENED_AT_ONCE = 4;

/** @see findHardened */
export const FIND_HARDENED_DATABASE = findHardened({
  taken: [WHOLE_SERVER, OWNERS_FUNCTIONS],
  replaced: statisticsReplaced(IN_OWN_DATABASE),
  allowXpath: undefined,
});

interface TemplateOptions {
  /** The owner of it and of the organizations' databases. */
  readonly owner: string;
  /** Whether the given role may harden the catalogs. */
  readonly superuser: boolean;
  /** The value of `server_version_num`. */
  readonly version: number;
  readonly allowXpath: boolean;
  readonly observe: Observe;
}

interface Found {
  readonly comment: string | null;
  readonly ready: boolean;
}

/**
 * Creates the template database, unless there is a current one. It is built under another name, so that one with the right name is
 * complete. It gets its comment after the existing organizations' databases have been hardened too. No dump has this comment, because
 * the template accepts no connections; pg_upgrade keeps it, but not the changes to the catalogs, so it has the server's version.
 * @param admin a session outside the template, holding the set-up lock
 * @returns whether the catalogs are hardened
 */
export async function ensureTemplate(admin: pg.Client, login: AdminLogin, options: TemplateOptions): Promise<boolean> {
  const { owner, superuser, version, allowXpath } = options;
  const server = Math.floor(version / 10_000);
  const comment = `Postern, edition ${EDITION} on PostgreSQL ${server}${superuser && allowXpath ? ' with xpath' : ''}${superuser ? HARDENED : ''}`;
  const found = await findTemplate(admin);
  // A hardened template may also be used by a role that could not have hardened it.
  if (found?.ready && found.comment?.startsWith(comment)) return found.comment.endsWith(HARDENED);

  await drop(admin, UNFINISHED);
  await createDatabase(admin, UNFINISHED, owner);
  await withSession({ ...login, database: UNFINISHED }, (session) => furnish(session, options));
  await admin.query(`REVOKE ALL ON DATABASE ${UNFINISHED} FROM PUBLIC`);
  await admin.query(`ALTER DATABASE ${UNFINISHED} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false`);
  await drop(admin, TEMPLATE);
  await admin.query(`ALTER DATABASE ${UNFINISHED} RENAME TO ${TEMPLATE}`);
  if (!superuser || (await hardenExisting(admin, login, options)))
    await admin.query(`COMMENT ON DATABASE ${TEMPLATE} IS ${pg.escapeLiteral(comment)}`);
  return superuser;
}

/** An empty database in UTF-8. It has the cluster's locale if that allows UTF-8. */
export async function createDatabase(admin: pg.Client, name: string, owner: string): Promise<void> {
  const { rows } = await admin.query<{ utf8: boolean }>(
    "SELECT encoding = pg_catalog.pg_char_to_encoding('UTF8') AS utf8 FROM pg_catalog.pg_database WHERE datname = 'template0'",
  );
  const locale = rows[0]?.utf8 ? '' : "LOCALE 'C'";
  await admin.query(
    `CREATE DATABASE ${pg.escapeIdentifier(name)} TEMPLATE template0 OWNER ${pg.escapeIdentifier(owner)} ENCODING 'UTF8' ${locale}`,
  );
}

async function findTemplate(admin: pg.Client): Promise<Found | undefined> {
  const { rows } = await admin.query<Found>(
    `SELECT pg_catalog.shobj_description(oid, 'pg_database') AS comment, datistemplate AND NOT datallowconn AS ready
     FROM pg_catalog.pg_database WHERE datname = $1`,
    [TEMPLATE],
  );
  return rows[0];
}

/** Drops `public`: each organization creates its own, with its own role, so that the platform role never acts in a tenant's database. */
async function furnish(session: pg.Client, { superuser, allowXpath }: TemplateOptions): Promise<void> {
  await session.query('DROP SCHEMA public');
  if (superuser) await hardenDatabase(session, allowXpath);
}

/**
 * Hardens the session's database, the template or an organization's own, unless it is. It changes only privileges on system objects, so
 * no object of a tenant can be executed by it.
 * @param session of a superuser
 */
export async function hardenOpenDatabase(session: pg.Client, allowXpath: boolean): Promise<void> {
  if ((await session.query(FIND_HARDENED_DATABASE)).rows.length === 0) await hardenDatabase(session, allowXpath);
}

async function hardenDatabase(session: pg.Client, allowXpath: boolean): Promise<void> {
  await harden(session, { taken: [WHOLE_SERVER], allowXpath, alsoDo: changeFunctions });
}

async function changeFunctions(session: pg.Client): Promise<void> {
  await replaceStatistics(session, IN_OWN_DATABASE);
  await leaveWritingToOwners(session);
}

/**
 * Hardens existing databases.
 * @returns whether it has succeeded in all; otherwise the next start does it again
 */
async function hardenExisting(admin: pg.Client, login: AdminLogin, options: TemplateOptions): Promise<boolean> {
  const { owner, allowXpath, observe } = options;
  const databases = await organizationDatabases(admin, owner);
  let failure: Error | undefined;
  const hardenNext = async () => {
    for (let database = databases.pop(); database !== undefined; database = databases.pop()) {
      const hardenOne = (session: pg.Client) => hardenDatabase(session, allowXpath);
      await withSession({ ...login, database }, hardenOne).catch((cause: unknown) => {
        failure = new Error(`database ${database}`, { cause });
      });
    }
  };
  await Promise.all(Array.from({ length: HARDENED_AT_ONCE }, hardenNext));
  if (failure === undefined) return true;
  const message = 'rights could not be taken from all organizations that were there before; the next start tries it again';
  observe({ name: 'service.warning', message, cause: failure });
  return false;
}

/** The databases that allow connections, without those being dropped. */
async function organizationDatabases(admin: pg.Client, owner: string): Promise<string[]> {
  const { rows } = await admin.query<{ name: string }>(
    `SELECT datname AS name FROM pg_catalog.pg_database
     WHERE datname ~ '^org_[a-z0-9]{12}$' AND datallowconn AND datconnlimit <> -2 AND pg_catalog.pg_get_userbyid(datdba) = $1`,
    [owner],
  );
  return rows.map(({ name }) => name);
}

async function drop(admin: pg.Client, name: string): Promise<void> {
  const { rows } = await admin.query<{ template: boolean }>(
    'SELECT datistemplate AS template FROM pg_catalog.pg_database WHERE datname = $1',
    [name],
  );
  if (rows[0]?.template) await admin.query(`ALTER DATABASE ${name} WITH IS_TEMPLATE false`);
  if (rows.length > 0) await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
}
