import pg from 'pg';
import type { BackendLogin } from '../../backend/socket/login.ts';
import { textOf } from '../../protocol/postgres-error.ts';
import { type AdminConnection, addressOf, type RoleLogin, type TlsFiles, withSession } from './admin-connection.ts';
import { mayAdmitOwners } from './roles/owners-group-role.ts';
import { allowedSettings } from './roles/platform-role.ts';
import { SHARED, type SharedFacts, sharedFacts } from './shared-database/shared-database.ts';

/** The PostgreSQL server cannot be used; the message is one line for the person who started Postern. */
export class ClusterError extends Error {
  override readonly name = 'ClusterError';
}

/** A PostgreSQL server that has been set up: it has the platform role, the control database, the template and the shared database. */
export interface Cluster extends SharedFacts {
  readonly name: string;
  /** Which server it is, however it is reached; undefined if it does not say. */
  readonly systemIdentifier: string | undefined;
  readonly host: string;
  readonly port: number;
  readonly ssl: pg.ClientConfig['ssl'];
  readonly tlsFiles: TlsFiles;
  /** The role for everything except tenants' own SQL. It has CREATEDB and CREATEROLE and is never a superuser. */
  readonly platform: RoleLogin;
  /** For the set-up, and for what replication leaves to superusers; undefined: the server's URL has another role. */
  readonly superuser: AdminConnection | undefined;
  readonly controlDatabase: string;
  /** Holds the schemas of organizations that have one each; neither the control database nor `postgres`. */
  readonly sharedDatabase: string;
  /** `server_version_num`, e.g. 180004. */
  readonly serverVersion: number;
  /** How many sessions roles without special rights can have together. */
  readonly maxConnections: number;
  /** The settings of every organization's role, as far as the platform role may set them. */
  readonly roleSettings: Readonly<Record<string, string>>;
  /** Whether large objects are left to organizations' own roles. */
  readonly hasOwnersRole: boolean;
  readonly secret: string;
  /** How to log in to a database of this cluster. */
  login(session: RoleLogin & { readonly database: string; readonly options?: string }): BackendLogin;
}

/** What a login finds out about a server, and about its own role. */
export interface ServerFacts {
  readonly version: number;
  readonly connections: number;
  readonly replica: boolean;
  readonly superuser: boolean;
  readonly createdb: boolean;
  readonly createrole: boolean;
}

const OLDEST_VERSION = 150_000;
const CONNECT_TIMEOUT_MS = 10_000;

/** @throws ClusterError when the platform role cannot log in */
export async function describeCluster(
  session: pg.Client,
  admin: AdminConnection,
  { name = 'default', controlDatabase, secret }: Pick<Cluster, 'controlDatabase' | 'secret'> & { readonly name?: string },
  facts: ServerFacts,
  platform: RoleLogin,
): Promise<Cluster> {
  const { host, port, ssl, tlsFiles = {} } = admin;
  const roleSettings = await allowedSettings(session, platform.user);
  await checkLogin({ host, port, ssl, ...platform, database: controlDatabase });
  return {
    name,
    systemIdentifier: await systemIdentifier(session),
    host,
    port,
    ssl,
    tlsFiles,
    platform,
    superuser: facts.superuser ? admin : undefined,
    controlDatabase,
    sharedDatabase: SHARED,
    ...(await sharedFacts(admin)),
    serverVersion: facts.version,
    maxConnections: facts.connections,
    roleSettings,
    hasOwnersRole: await mayAdmitOwners(session, platform.user),
    secret,
    login: (login) => ({ host, port, ssl, connectTimeoutMs: CONNECT_TIMEOUT_MS, ...login }),
  };
}

/** Copies of a server have the same. @see https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-CONTROL-SYSTEM */
async function systemIdentifier(session: pg.Client): Promise<string | undefined> {
  const query = 'SELECT system_identifier::text AS id FROM pg_catalog.pg_control_system()';
  return session.query<{ id: string }>(query).then(
    ({ rows }) => rows[0]?.id,
    () => undefined,
  );
}

export async function readServerFacts(session: pg.Client): Promise<ServerFacts> {
  const { rows } = await session.query<ServerFacts>(`
    SELECT current_setting('server_version_num')::int AS version,
      current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections,
      pg_is_in_recovery() AS replica, rolsuper AS superuser, rolcreatedb AS createdb, rolcreaterole AS createrole
    FROM pg_catalog.pg_roles WHERE rolname = current_user`);
  const [facts] = rows;
  if (facts === undefined) throw new ClusterError('the server does not know the role of the login');
  return facts;
}

/** @throws ClusterError when Postern cannot use the server */
export function checkServerFacts(facts: ServerFacts, admin: AdminConnection): void {
  const refuse = (reason: string) => new ClusterError(`PostgreSQL at ${addressOf(admin)} cannot be used: ${reason}`);
  if (facts.version < OLDEST_VERSION) throw refuse(`it is version ${Math.floor(facts.version / 10_000)}, and Postern needs 15 or later`);
  if (facts.replica) throw refuse('it is a standby');
  if (facts.superuser || (facts.createdb && facts.createrole)) return;
  throw refuse(`the role ${admin.user} needs CREATEDB and CREATEROLE (ALTER ROLE ${pg.escapeIdentifier(admin.user)} CREATEDB CREATEROLE)`);
}

async function checkLogin(login: AdminConnection): Promise<void> {
  try {
    await withSession(login, async () => {});
  } catch (error) {
    throw new ClusterError(`the role ${login.user} cannot log in to ${addressOf(login)} with its password: ${textOf(error)}`);
  }
}
