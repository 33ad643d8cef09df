import pg from 'pg';
import { changePrivileges, harden, type Names, ONE_DATABASE, WHOLE_SERVER } from '../hardening.ts';
import { TEMPLATE } from '../own-database/template.ts';
import { leaveLargeObjectsToOwners } from '../roles/owners-group-role.ts';
import type { AdminLogin } from '../server/admin-login.ts';
import { withSession } from '../server/admin-session.ts';
import { separateAdvisoryLocks } from './advisory-lock-functions.ts';
import { createChannelFunctions, keepChannelSecret, notifyCalled, replacePgNotify } from './channel-functions.ts';
import { closeCitus } from './citus/closed-functions.ts';
import { hasCitus } from './citus/extension.ts';
import { ON_THIS_NODE } from './citus/run-on-nodes.ts';
import { refuseChosenLargeObjects } from './large-object-functions.ts';

/** The database of the organizations that have a schema each. */
export const SHARED = 'postern_shared';

/** Raised when the revoked privileges change, so that the next start applies the change. */
const EDITION = 9;
const HARDENED = ', hardened';

/** What the platform reads of an organization's relations; see `schema-size-and-counters.ts`. */
const COUNTERS: Names = { relations: [], functions: ['pg_stat_get_(numscans|tuples_returned|live_tuples)'] };

export interface SharedOptions {
  readonly owner: string;
  /** Whether the given role may harden the catalogs. */
  readonly superuser: boolean;
  /** The value of `server_version_num`. */
  readonly version: number;
  readonly allowXpath: boolean;
  /** The secret that all others are derived from. */
  readonly secret: string;
}

interface Found {
  readonly owner: string;
  readonly comment: string | null;
}

/**
 * Creates the shared database and hardens it, unless that has been done. It is copied from the template and so has no schema `public`
 * that all organizations could use.
 * @param admin a session outside of it, holding the set-up lock
 * @returns whether its catalogs are hardened
 * @throws Error when it belongs to another role
 */
export async function ensureSharedDatabase(admin: pg.Client, login: AdminLogin, options: SharedOptions): Promise<boolean> {
  const { owner, superuser, version, allowXpath, secret } = options;
  // pg_upgrade does not keep the changes to the catalogs, so they are made again for each version.
  const xpath = superuser && allowXpath ? ' with xpath' : '';
  const comment = `Postern, edition ${EDITION} on PostgreSQL ${Math.floor(version / 10_000)}${xpath}${superuser ? HARDENED : ''}`;
  const found = await findShared(admin);
  if (found === undefined) await admin.query(`CREATE DATABASE ${SHARED} TEMPLATE ${TEMPLATE} OWNER ${pg.escapeIdentifier(owner)}`);
  else if (found.owner !== owner) throw new Error(`the database ${SHARED} belongs to the role ${found.owner}, not to ${owner}`);

  const ready = found?.comment?.startsWith(comment) ?? false;
  await withSession({ ...login, database: SHARED }, async (session) => {
    await session.query(ON_THIS_NODE);
    if (!ready && superuser) await hardenShared(session, owner, allowXpath);
    if (!ready) await createChannelFunctions(session, { owner, secret });
    await keepChannelSecret(session, secret);
    if (await hasCitus(session)) await furnishNode(session, owner, superuser);
  });
  if (ready) return found?.comment?.endsWith(HARDENED) ?? false;
  // Granted to PUBLIC: grants to each organization would enlarge the one row that every login reads, and could not be made concurrently.
  // A role without a schema there can do nothing in the database.
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

/**
 * The platform role keeps the right to read the owners of objects, because it drops these with their organization, and the statistics
 * that it shows to each organization of its own relations.
 */
async function hardenShared(session: pg.Client, owner: string, allowXpath: boolean): Promise<void> {
  const platform = pg.escapeIdentifier(owner);
  const alsoDo = async () => {
    await separateAdvisoryLocks(session, platform);
    await refuseChosenLargeObjects(session);
    await leaveLargeObjectsToOwners(session);
    await replacePgNotify(session, owner);
    await session.query(`GRANT SELECT ON pg_catalog.pg_shdepend TO ${platform}`);
    await changePrivileges(session, `GRANT EXECUTE ON %s TO ${platform}`, COUNTERS);
  };
  await harden(session, { taken: [WHOLE_SERVER, ONE_DATABASE], allowXpath, alsoDo });
}

/** A node of Citus. Each is changed by itself, because the others may be of another edition still. */
async function furnishNode(session: pg.Client, owner: string, superuser: boolean): Promise<void> {
  await session.query(`GRANT CREATE ON DATABASE ${SHARED} TO ${pg.escapeIdentifier(owner)}`);
  if (superuser) await closeCitus(session, owner);
}

export interface SharedFacts {
  /** The function to call instead of pg_notify; undefined if pg_notify has been replaced. */
  readonly pgNotify: string | undefined;
  /** Transactions can be prepared, as Citus needs it. There is no privilege for that. */
  readonly hasPreparedTransactions: boolean;
}

export function sharedFacts(login: AdminLogin): Promise<SharedFacts> {
  return withSession({ ...login, database: SHARED }, async (session) => ({
    pgNotify: await notifyCalled(session),
    hasPreparedTransactions: await hasPreparedTransactions(session),
  }));
}

async function hasPreparedTransactions(session: pg.Client): Promise<boolean> {
  const { rows } = await session.query("SELECT FROM pg_catalog.pg_settings WHERE name = 'max_prepared_transactions' AND setting <> '0'");
  return rows.length > 0;
}
