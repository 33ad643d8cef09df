import pg from 'pg';
import { channelSecret, formerChannelsOf } from '../auth/derived-secrets.ts';
import { type AdminLogin, withSession } from './admin-connection.ts';
import { closeCitus, hasCitus, ON_THIS_NODE } from './citus.ts';
import { TEMPLATE } from './database-template.ts';
import {
  changePrivileges,
  findHardened,
  harden,
  IN_SHARED_DATABASE,
  type Names,
  ONE_DATABASE,
  renameServerFunction,
  replaceStatistics,
  statisticsReplaced,
  WHOLE_SERVER,
} from './hardening.ts';
import { findSharedDatabaseRights, leaveWritingToOwners, OWNERS_FUNCTIONS, sharedDatabaseRights } from './platform-role.ts';

const NAMES = {
  void: ['pg_advisory_lock', 'pg_advisory_lock_shared', 'pg_advisory_xact_lock', 'pg_advisory_xact_lock_shared'],
  boolean: [
    'pg_try_advisory_lock',
    'pg_try_advisory_lock_shared',
    'pg_try_advisory_xact_lock',
    'pg_try_advisory_xact_lock_shared',
    'pg_advisory_unlock',
    'pg_advisory_unlock_shared',
  ],
};

/** The functions that are replaced. */
const ADVISORY_LOCKS_REPLACED: readonly string[] = Object.values(NAMES).flat();

/** The key of an advisory lock is one bigint or two integers. */
const SIGNATURES = ['bigint', 'integer, integer'];

/**
 * Gives each organization in a shared database advisory locks of its own. Postgres has one set for the whole
 * database, and migration tools all lock the same numbers. The server's functions are renamed,
 * only `owner` may call them, and functions of that owner replace them. They lock a hash of the number and the role
 * that has logged in. (Replacing the server's functions with OR REPLACE has no effect: the executor knows them by their oids.)
 * @see https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADVISORY-LOCKS
 */
async function separateAdvisoryLocks(session: pg.Client, owner: string): Promise<void> {
  for (const [result, names] of Object.entries(NAMES)) {
    for (const name of names) {
      for (const signature of SIGNATURES) await renameServerFunction(session, name, signature);
      await session.query(`GRANT EXECUTE ON FUNCTION pg_catalog.postern_${name}(bigint) TO ${owner}`);
      for (const signature of SIGNATURES) await session.query(replacementFunctionSql(name, signature, result, owner));
    }
  }
}

/** No name in a body can refer to an object of a tenant: it is parsed when the function is created, or runs with an empty search_path. */
function replacementFunctionSql(name: string, signature: string, result: string, owner: string): string {
  const number = signature === 'bigint' ? '$1' : "$1 || ',' || $2";
  const digest = `pg_catalog.sha256(pg_catalog.convert_to(session_user || ':' || ${number}, 'UTF8'))`;
  const own = `('x' || pg_catalog.encode(pg_catalog.substr(${digest}, 1, 8), 'hex'))::bit(64)::bigint`;
  // A function in SQL that returns void returns null.
  const body =
    result === 'void'
      ? `LANGUAGE plpgsql STRICT PARALLEL RESTRICTED SECURITY DEFINER SET search_path = '' AS $$
      BEGIN PERFORM pg_catalog.postern_${name}(${own}); END $$`
      : `LANGUAGE sql STRICT PARALLEL RESTRICTED SECURITY DEFINER
      BEGIN ATOMIC SELECT pg_catalog.postern_${name}(${own}); END`;
  return `CREATE OR REPLACE FUNCTION pg_catalog.${name}(${signature}) RETURNS ${result} ${body};
    ALTER FUNCTION pg_catalog.${name}(${signature}) OWNER TO ${owner}`;
}

/** The functions that are replaced. */
const CHOSEN_LARGE_OBJECTS: readonly string[] = ['lo_create', 'lo_from_bytea'];

/**
 * All organizations in a shared database share the ids of large objects. An organization that could choose ids could create those
 * that another is about to restore, grant access to all, and receive the other's data.
 */
async function refuseChosenLargeObjects(session: pg.Client): Promise<void> {
  await renameServerFunction(session, 'lo_create', 'oid');
  await renameServerFunction(session, 'lo_from_bytea', 'oid, bytea');
  await session.query(CREATE + FROM_BYTEA);
}

/** SECURITY INVOKER, so that the caller becomes the owner. */
const REFUSE = `IF $1 OPERATOR(pg_catalog.<>) 0::pg_catalog.oid THEN
    RAISE insufficient_privilege USING MESSAGE = 'the id of a large object cannot be chosen in a shared database',
      HINT = 'Use 0: the server chooses one.';
  END IF`;

const CREATE = `
CREATE OR REPLACE FUNCTION pg_catalog.lo_create(oid) RETURNS oid LANGUAGE plpgsql STRICT AS $$
BEGIN
  ${REFUSE};
  RETURN pg_catalog.lo_creat(-1);
END $$;`;

const FROM_BYTEA = `
CREATE OR REPLACE FUNCTION pg_catalog.lo_from_bytea(oid, bytea) RETURNS oid LANGUAGE plpgsql STRICT AS $$
DECLARE
  created pg_catalog.oid;
BEGIN
  ${REFUSE};
  created := pg_catalog.lo_creat(-1);
  PERFORM pg_catalog.lo_put(created, 0, $2);
  RETURN created;
END $$;`;

/** The database of the organizations that have a schema each. */
export const SHARED = 'postern_shared';

/** Raised when the revoked privileges change, so that the next start applies the change. */
const EDITION = 15;
const HARDENED = ', hardened';

/** What the platform reads of an organization's relations: see schema-statistics.ts, and for how much is written there disk-quotas.ts of the router. */
const COUNTERS: Names = {
  relations: [],
  functions: ['postern_pg_stat_get_(numscans|tuples_returned|live_tuples|tuples_inserted|tuples_updated)'],
};

const TAKEN: readonly Names[] = [WHOLE_SERVER, ONE_DATABASE, OWNERS_FUNCTIONS];
const STATISTICS = statisticsReplaced(IN_SHARED_DATABASE);
const REPLACED: Names = {
  relations: STATISTICS.relations,
  functions: [...ADVISORY_LOCKS_REPLACED, ...CHOSEN_LARGE_OBJECTS, 'pg_notify', ...STATISTICS.functions],
};

interface SharedOptions {
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
 * @throws Error when it belongs to another role
 */
export async function ensureSharedDatabase(admin: pg.Client, login: AdminLogin, options: SharedOptions): Promise<SharedFacts> {
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
    return factsOf(session, isHardened);
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
    await leaveWritingToOwners(session);
    await replaceStatistics(session, IN_SHARED_DATABASE);
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

/** Of one that has been made. */
export function sharedFacts(login: AdminLogin): Promise<SharedFacts> {
  return withSession({ ...login, database: SHARED }, async (session) => {
    return factsOf(session, await isFound(session, findHardenedShared(undefined)));
  });
}

async function factsOf(session: pg.Client, isHardened: boolean): Promise<SharedFacts> {
  return { isHardened, pgNotify: await notifyCalled(session), hasPreparedTransactions: await hasPreparedTransactions(session) };
}

async function hasPreparedTransactions(session: pg.Client): Promise<boolean> {
  const { rows } = await session.query("SELECT FROM pg_catalog.pg_settings WHERE name = 'max_prepared_transactions' AND setting <> '0'");
  return rows.length > 0;
}

/** The oid of `pg_notify(text, text)`, which may have been renamed. */
const PG_NOTIFY_OID = 3036;

interface ChannelOptions {
  /** The owner of the functions. */
  readonly owner: string;
  /** The secret that all others are derived from. */
  readonly secret: string;
}

/**
 * Creates the functions that give organizations in a shared database notification channels of their own. A channel's name gets a
 * prefix derived from a secret and the role that has logged in. Only the platform role can read the secret, and it
 * is in no text that an organization stores, which all others can read.
 * @see ChannelEdits, which puts calls of these into the SQL of clients
 */
export async function createChannelFunctions(session: pg.Client, { owner, secret }: ChannelOptions): Promise<void> {
  const { rows } = await session.query<{ name: string }>(`SELECT proname AS name FROM pg_catalog.pg_proc WHERE oid = ${PG_NOTIFY_OID}`);
  const platform = pg.escapeIdentifier(owner);
  const isFirst = (await session.query("SELECT WHERE pg_catalog.to_regnamespace('postern') IS NULL")).rows.length > 0;
  await session.query(
    `BEGIN; ${TABLES(platform)}; ${SERVER_CHANNEL}; ${notifyFunction('postern', rows[0]?.name ?? 'pg_notify')}; ${PROCEDURES}`,
  );
  for (const routine of ROUTINES) await session.query(`ALTER ROUTINE postern.${routine} OWNER TO ${platform}`);
  if (isFirst) await rememberFormerPrefixes(session, secret);
  await session.query('COMMIT');
}

/** The server's pg_notify is replaced, for SQL that is assembled at run time. */
async function replacePgNotify(session: pg.Client, owner: string): Promise<void> {
  await renameServerFunction(session, 'pg_notify', 'text, text');
  const platform = pg.escapeIdentifier(owner);
  await session.query(`GRANT EXECUTE ON FUNCTION pg_catalog.postern_pg_notify(text, text) TO ${platform};
    ${notifyFunction('pg_catalog', 'postern_pg_notify')};
    ALTER FUNCTION pg_catalog.pg_notify(text, text) OWNER TO ${platform}`);
}

/** The function to call instead of pg_notify; undefined if pg_notify has been replaced. */
async function notifyCalled(session: pg.Client): Promise<string | undefined> {
  const { rows } = await session.query("SELECT WHERE pg_catalog.to_regprocedure('pg_catalog.postern_pg_notify(text, text)') IS NULL");
  return rows.length === 0 ? undefined : 'postern.pg_notify';
}

/** Whether the stored secret is that of this service. */
export async function keepChannelSecret(session: pg.Client, secret: string): Promise<void> {
  const wanted = channelSecret(secret);
  const { rows } = await session.query<{ secret: Buffer }>('SELECT secret FROM postern_private.channel_secret');
  if (rows.length === 1 && rows[0]?.secret.equals(wanted)) return;
  await session.query('BEGIN; DELETE FROM postern_private.channel_secret');
  await session.query('INSERT INTO postern_private.channel_secret (secret) VALUES ($1)', [wanted]);
  await session.query('COMMIT');
}

/** Former prefixes of existing organizations, which are in functions that they have stored. */
async function rememberFormerPrefixes(session: pg.Client, secret: string): Promise<void> {
  const { rows } = await session.query<{ role: string }>(
    "SELECT nspname AS role FROM pg_catalog.pg_namespace WHERE nspname ~ '^org_[a-z0-9]{12}$'",
  );
  const roles = rows.map(({ role }) => role);
  const prefixes = roles.map((role) => formerChannelsOf(secret, role));
  await session.query(
    'INSERT INTO postern_private.former_channels SELECT * FROM ROWS FROM (pg_catalog.unnest($1::name[]), pg_catalog.unnest($2::text[]))',
    [roles, prefixes],
  );
}

/** The tables are in a schema without USAGE for organizations, so that their clients do not list them. */
const TABLES = (owner: string) => `
  CREATE SCHEMA IF NOT EXISTS postern;
  ALTER SCHEMA postern OWNER TO ${owner};
  GRANT USAGE ON SCHEMA postern TO PUBLIC;
  CREATE SCHEMA IF NOT EXISTS postern_private;
  ALTER SCHEMA postern_private OWNER TO ${owner};
  CREATE TABLE IF NOT EXISTS postern_private.channel_secret (secret bytea NOT NULL);
  ALTER TABLE postern_private.channel_secret OWNER TO ${owner};
  CREATE TABLE IF NOT EXISTS postern_private.former_channels (role name PRIMARY KEY, prefix text NOT NULL);
  ALTER TABLE postern_private.former_channels OWNER TO ${owner}`;

const ROUTINES = ['server_channel(text)', 'pg_notify(text, text)', 'notify(text, text)', 'listen(text)', 'unlisten(text)'];

/** The organization of the role that has logged in: its own, or that of its readers, whose name is longer. */
const ORGANIZATION = 'pg_catalog.left(session_user::text, 16)';

/**
 * The server's name of a channel, as serverChannel() makes it. A name that is empty or too long is left as it is, for the
 * server to refuse. The body is parsed when the function is created, so its names are fixed.
 */
const SERVER_CHANNEL = `
  CREATE OR REPLACE FUNCTION postern.server_channel(channel text) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER BEGIN ATOMIC
    SELECT CASE
      WHEN $1 IS NULL OR $1 = '' OR pg_catalog.octet_length($1) > 63 OR pg_catalog.starts_with($1, own) THEN $1
      WHEN pg_catalog.octet_length(own || name) <= 63 THEN own || name
      ELSE own || '~' || pg_catalog.rtrim(pg_catalog.translate(
        pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(name, 'UTF8')), 'base64'), '+/', '-_'), '=')
    END
    FROM (
      SELECT pg_catalog.substr(pg_catalog.encode(
          pg_catalog.sha256(secret || pg_catalog.convert_to(${ORGANIZATION}, 'UTF8')), 'hex'), 1, 16) || ':' AS own,
        CASE WHEN pg_catalog.starts_with($1, f.prefix || ':') THEN pg_catalog.substr($1, pg_catalog.length(f.prefix) + 2) ELSE $1 END AS name
      FROM postern_private.channel_secret LEFT JOIN postern_private.former_channels AS f ON f.role = ${ORGANIZATION}
    ) AS known;
  END;
  REVOKE ALL ON FUNCTION postern.server_channel(text) FROM PUBLIC`;

/**
 * The body is a string, which is parsed when it runs, so that a dump of the database can be loaded where the server's function
 * has its original name.
 */
function notifyFunction(schema: string, serverFunction: string): string {
  return `CREATE OR REPLACE FUNCTION ${schema}.pg_notify(text, text) RETURNS void
      LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
    BEGIN
      PERFORM pg_catalog.${serverFunction}(postern.server_channel($1), $2);
    END $$`;
}

/** Procedures, because CALL is allowed wherever NOTIFY or LISTEN is, and like these it does not change FOUND. */
const PROCEDURES = `
  CREATE OR REPLACE PROCEDURE postern.notify(channel text, payload text DEFAULT '')
      LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
    BEGIN
      PERFORM postern.pg_notify($1, $2);
    END $$;
  CREATE OR REPLACE PROCEDURE postern.listen(channel text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
    BEGIN
      EXECUTE pg_catalog.format('LISTEN %I', postern.server_channel($1));
    END $$;
  CREATE OR REPLACE PROCEDURE postern.unlisten(channel text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
    BEGIN
      EXECUTE pg_catalog.format('UNLISTEN %I', postern.server_channel($1));
    END $$`;
