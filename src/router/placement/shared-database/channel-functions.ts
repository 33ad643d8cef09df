import pg from 'pg';
import { channelSecret, formerChannelsOf } from '../../../auth/derived-secrets.ts';
import { renameServerFunction } from './rename-server-function.ts';

/** The oid of `pg_notify(text, text)`, which may have been renamed. */
const PG_NOTIFY_OID = 3036;

export interface ChannelOptions {
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
export async function replacePgNotify(session: pg.Client, owner: string): Promise<void> {
  await renameServerFunction(session, 'pg_notify', 'text, text');
  const platform = pg.escapeIdentifier(owner);
  await session.query(`GRANT EXECUTE ON FUNCTION pg_catalog.postern_pg_notify(text, text) TO ${platform};
    ${notifyFunction('pg_catalog', 'postern_pg_notify')};
    ALTER FUNCTION pg_catalog.pg_notify(text, text) OWNER TO ${platform}`);
}

/** The function to call instead of pg_notify; undefined if pg_notify has been replaced. */
export async function notifyCalled(session: pg.Client): Promise<string | undefined> {
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
