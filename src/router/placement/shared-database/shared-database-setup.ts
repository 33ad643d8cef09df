import pg from 'pg';
import { changePrivileges, findHardened, harden, type Names, ONE_DATABASE, WHOLE_SERVER } from '../hardening.ts';
import { TEMPLATE } from '../own-database/template.ts';
import {
  CREATE_LARGE_OBJECTS,
  findSharedDatabaseRights,
  leaveLargeObjectsToOwners,
  sharedDatabaseRights,
} from '../roles/owners-group-role.ts';
import type { AdminLogin } from '../server/admin-login.ts';
import { withSession } from '../server/admin-session.ts';
import { ADVISORY_LOCKS_REPLACED, separateAdvisoryLocks } from './advisory-lock-functions.ts';
import { createChannelFunctions, keepChannelSecret, notifyCalled, replacePgNotify } from './channel-functions.ts';
import { closeCitus } from './citus/closed-functions.ts';
import { hasCitus } from './citus/extension.ts';
import { ON_THIS_NODE } from './citus/run-on-nodes.ts';
import { CHOSEN_LARGE_OBJECTS, refuseChosenLargeObjects } from './large-object-functions.ts';

/** The database of the organizations that have a schema each. */
export const SHARED = 'postern_shared';

/** Raised when the revoked privileges change, so that the next start applies the change. */
const EDITION = 10;
const HARDENED = ', hardened';

/** What the platform reads of an organization's relations; see `schema-size-and-counters.ts`. */
const COUNTERS: Names = { relations: [], functions: ['pg_stat_get_(numscans|tuples_returned|live_tuples)'] };

const TAKEN: readonly Names[] = [WHOLE_SERVER, ONE_DATABASE, CREATE_LARGE_OBJECTS];
const REPLACED: Names = { relations: [], functions: [...ADVISORY_LOCKS_REPLACED, ...CHOSEN_LARGE_OBJECTS, 'pg_notify'] };

export interface SharedOptions {
  readonly owner: string;
  /** Whether the owner may admit others to the role of the organizations' own roles. */
  readonly hasOwnersRole: boolean;
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
 * that all organizations could use. A restored one is hardened again: its comment says what has been done to the database that was
 * dumped, and its catalogs what has been done to it.
 * @param admin a session outside of it, holding the set-up lock
 * @returns whether its catalogs are hardened
 * @throws Error when it belongs to another role
 */
export async function ensureSharedDatabase(admin: pg.Client, login: AdminLogin, options: SharedOptions): Promise<boolean> {
  const { owner, superuser, version, allowXpath, hasOwnersRole } = options;
  // pg_upgrade does not keep the changes to the catalogs, so they are made again for each version.
  const edition = `Postern, edition ${EDITION} on PostgreSQL ${Math.floor(version / 10_000)}${superuser && allowXpath ? ' with xpath' : ''}`;
  const found = await findShared(admin);
  if (found === undefined) await admin.query(`CREATE DATABASE ${SHARED} TEMPLATE ${TEMPLATE} OWNER ${pg.escapeIdentifier(owner)}`);
  else if (found.owner !== owner) throw new Error(`the database ${SHARED} belongs to the role ${found.owner}, not to ${owner}`);

  const comment = found?.comment ?? '';
  return withSession({ ...login, database: SHARED }, async (session) => {
    await session.query(ON_THIS_NODE);
    const wasHardened = await isFound(session, findHardenedShared(superuser ? allowXpath : undefined));
    const isHardened = superuser || wasHardened;
    // One that was hardened and is restored where nobody can harden it has functions that call what is not there.
    const isReady = comment.startsWith(edition) && comment.endsWith(HARDENED) === wasHardened && wasHardened === isHardened;
    if (!isReady) await furnishShared(session, options);
    await keepChannelSecret(session, options.secret);
    if (await hasCitus(session)) await furnishNode(session, owner, superuser);
    if (!(await isFound(session, findSharedDatabaseRights(hasOwnersRole))))
      await session.query(sharedDatabaseRights(SHARED, hasOwnersRole));
    if (!isReady) await session.query(`COMMENT ON DATABASE ${SHARED} IS ${pg.escapeLiteral(edition + (isHardened ? HARDENED : ''))}`);
    return isHardened;
  });
}

/** @see findHardened */
export function findHardenedShared(allowXpath: boolean | undefined): string {
  return findHardened({ taken: TAKEN, replaced: REPLACED, allowXpath });
}

/**
 * Hardens a shared database that has been restored while Postern runs.
 * @param session of a superuser, in it
 */
export async function hardenOpenShared(session: pg.Client, options: SharedOptions): Promise<void> {
  await session.query(ON_THIS_NODE);
  if (!(await isFound(session, findHardenedShared(undefined)))) await furnishShared(session, options);
  await keepChannelSecret(session, options.secret);
  await session.query(sharedDatabaseRights(SHARED, options.hasOwnersRole));
}

async function furnishShared(session: pg.Client, { owner, superuser, allowXpath, secret }: SharedOptions): Promise<void> {
  if (superuser) await hardenShared(session, owner, allowXpath);
  await createChannelFunctions(session, { owner, secret });
}

async function isFound(session: pg.Client, sql: string): Promise<boolean> {
  return (await session.query(sql)).rows.length > 0;
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
  /** Whether the catalogs of organizations' databases can be expected to be hardened; those of the shared one are. */
  readonly isHardened: boolean;
  /** The function to call instead of pg_notify; undefined if pg_notify has been replaced. */
  readonly pgNotify: string | undefined;
  /** Transactions can be prepared, as Citus needs it. There is no privilege for that. */
  readonly hasPreparedTransactions: boolean;
}

export function sharedFacts(login: AdminLogin): Promise<SharedFacts> {
  return withSession({ ...login, database: SHARED }, async (session) => ({
    isHardened: await isFound(session, findHardenedShared(undefined)),
    pgNotify: await notifyCalled(session),
    hasPreparedTransactions: await hasPreparedTransactions(session),
  }));
}

async function hasPreparedTransactions(session: pg.Client): Promise<boolean> {
  const { rows } = await session.query("SELECT FROM pg_catalog.pg_settings WHERE name = 'max_prepared_transactions' AND setting <> '0'");
  return rows.length > 0;
}
