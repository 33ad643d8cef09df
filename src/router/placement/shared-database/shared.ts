import pg from 'pg';
import { type AdminConnection, withSession } from '../admin.ts';
import { harden, ONE_DATABASE, WHOLE_SERVER } from '../hardening.ts';
import { TEMPLATE } from '../own-database/template.ts';
import { separateAdvisoryLocks } from './advisory-locks.ts';
import { furnishChannels, keepChannelSecret, notifyCalled, separateChannels } from './channels.ts';
import { refuseChosenLargeObjects } from './large-objects.ts';

/** Where the organizations live that have a schema each. */
export const SHARED = 'postern_shared';

/** Raised whenever what is taken away there changes, so that the next start does it. */
const EDITION = 7;
const HARDENED = ', hardened';

export interface SharedOptions {
  readonly owner: string;
  /** Whether the role at hand may harden the catalogs. */
  readonly superuser: boolean;
  /** As `server_version_num`. */
  readonly version: number;
  readonly allowXpath: boolean;
  /** What all secrets are derived from. */
  readonly secret: string;
}

interface Found {
  readonly owner: string;
  readonly comment: string | null;
}

/**
 * Makes the shared database and hardens it, unless that is done. It comes from the template and so has no schema `public`:
 * there is none that all could use.
 * @param admin a session outside of it, holding the set-up lock
 * @returns whether its catalogs are hardened
 * @throws Error when it belongs to somebody else
 */
export async function ensureShared(admin: pg.Client, login: AdminConnection, options: SharedOptions): Promise<boolean> {
  const { owner, superuser, version, allowXpath, secret } = options;
  // What was hardened under one version is not any more once it has been moved to another by pg_upgrade.
  const xpath = superuser && allowXpath ? ' with xpath' : '';
  const comment = `Postern, edition ${EDITION} on PostgreSQL ${Math.floor(version / 10_000)}${xpath}${superuser ? HARDENED : ''}`;
  const found = await findShared(admin);
  if (found === undefined) await admin.query(`CREATE DATABASE ${SHARED} TEMPLATE ${TEMPLATE} OWNER ${pg.escapeIdentifier(owner)}`);
  else if (found.owner !== owner) throw new Error(`the database ${SHARED} belongs to the role ${found.owner}, not to ${owner}`);

  const ready = found?.comment?.startsWith(comment) ?? false;
  await withSession({ ...login, database: SHARED }, async (session) => {
    if (!ready && superuser) await hardenShared(session, owner, allowXpath);
    if (!ready) await furnishChannels(session, { owner, secret });
    await keepChannelSecret(session, secret);
    if (await isCoordinator(session)) await furnishCoordinator(session, owner, superuser);
  });
  if (ready) return found?.comment?.endsWith(HARDENED) ?? false;
  // To all: a grant to each organization would grow the one row that every login reads, and no two could be written at once.
  // Who has no schema there finds nothing to do in it.
  await admin.query(`GRANT CONNECT, TEMPORARY ON DATABASE ${SHARED} TO PUBLIC`);
  await admin.query(`COMMENT ON DATABASE ${SHARED} IS ${pg.escapeLiteral(comment)}`);
  return superuser;
}

async function findShared(admin: pg.Client): Promise<Found | undefined> {
  const { rows } = await admin.query<Found>(
    `SELECT pg_catalog.pg_get_userbyid(datdba) AS owner, pg_catalog.shobj_description(oid, 'pg_database') AS comment
     FROM pg_catalog.pg_database WHERE datname = $1`,
    [SHARED],
  );
  return rows[0];
}

/** The platform role goes on to read whose objects there are: it takes them down with their organization. */
async function hardenShared(session: pg.Client, owner: string, allowXpath: boolean): Promise<void> {
  const platform = pg.escapeIdentifier(owner);
  const alsoDo = async () => {
    await separateAdvisoryLocks(session, platform);
    await refuseChosenLargeObjects(session);
    await separateChannels(session, owner);
    await session.query(`GRANT SELECT ON pg_catalog.pg_shdepend TO ${platform}`);
  };
  await harden(session, { taken: [WHOLE_SERVER, ONE_DATABASE], allowXpath, alsoDo });
}

/** What Citus tells everybody about the schemas and tables of others, wherever its version puts it. */
const CITUS_VIEWS = `
  SELECT c.oid::pg_catalog.regclass AS view
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relname IN ('citus_schemas', 'citus_tables', 'citus_shards') AND n.nspname IN ('pg_catalog', 'public', 'citus')`;

/**
 * A coordinator makes schemas on its workers too, where the platform role needs the right. A grant is passed on to them; it is
 * given again at every start for those that have come since.
 */
async function furnishCoordinator(session: pg.Client, owner: string, superuser: boolean): Promise<void> {
  await session.query(`GRANT CREATE ON DATABASE ${SHARED} TO ${pg.escapeIdentifier(owner)}`);
  const views = superuser ? (await session.query<{ view: string }>(CITUS_VIEWS)).rows : [];
  for (const { view } of views) await session.query(`REVOKE ALL ON ${view} FROM PUBLIC`);
}

export interface SharedFacts {
  /** It is on a coordinator of Citus, which spreads schemas over machines. */
  readonly citus: boolean;
  /** What to call in place of pg_notify; undefined where that has been replaced. */
  readonly pgNotify: string | undefined;
}

export function sharedFacts(login: AdminConnection): Promise<SharedFacts> {
  return withSession({ ...login, database: SHARED }, async (session) => ({
    citus: await isCoordinator(session),
    pgNotify: await notifyCalled(session),
  }));
}

async function isCoordinator(session: pg.Client): Promise<boolean> {
  const { rows } = await session.query("SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus'");
  return rows.length > 0;
}
