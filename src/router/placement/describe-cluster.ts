import pg from 'pg';
import { textOf } from '../../protocol/backend.ts';
import { type Cluster, ClusterError } from './cluster.ts';
import { mayAdmitOwners } from './roles/owners-group-role.ts';
import { allowedSettings } from './roles/platform-role.ts';
import { type AdminLogin, addressOf, type RoleLogin } from './server/admin-login.ts';
import { withSession } from './server/admin-session.ts';
import { SHARED, sharedFacts } from './shared-database/shared-database-setup.ts';

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
  admin: AdminLogin,
  {
    name = 'default',
    controlDatabase,
    secret,
    allowXpath = false,
  }: Pick<Cluster, 'controlDatabase' | 'secret'> & Partial<Pick<Cluster, 'name' | 'allowXpath'>>,
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
    allowXpath,
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
export function checkServerFacts(facts: ServerFacts, admin: AdminLogin): void {
  const refuse = (reason: string) => new ClusterError(`PostgreSQL at ${addressOf(admin)} cannot be used: ${reason}`);
  if (facts.version < OLDEST_VERSION) throw refuse(`it is version ${Math.floor(facts.version / 10_000)}, and Postern needs 15 or later`);
  if (facts.replica) throw refuse('it is a standby');
  if (facts.superuser || (facts.createdb && facts.createrole)) return;
  throw refuse(`the role ${admin.user} needs CREATEDB and CREATEROLE (ALTER ROLE ${pg.escapeIdentifier(admin.user)} CREATEDB CREATEROLE)`);
}

async function checkLogin(login: AdminLogin): Promise<void> {
  try {
    await withSession(login, async () => {});
  } catch (error) {
    throw new ClusterError(`the role ${login.user} cannot log in to ${addressOf(login)} with its password: ${textOf(error)}`);
  }
}
