import pg from 'pg';
import { inUse } from '../backend/server-hosts.ts';
import { provideQueryStatistics } from '../catalog/query-statistics.ts';
import type { Config } from '../config.ts';
import type { Observe } from '../observation.ts';
import { textOf } from '../protocol/backend.ts';
import { type AdminLogin, addressOf, parseUrl, type RoleLogin, waitForServer, withSession } from './admin-connection.ts';
import { type Cluster, ClusterError } from './cluster.ts';
import { takeTemporaryFromRestricted } from './database.ts';
import { createDatabase, ensureTemplate, TEMPLATE, UNFINISHED } from './database-template.ts';
import { ensureStatisticsReader } from './hardening.ts';
import { allowedSettings, ensureOwnersRole, ensurePlatformRole, mayAdmitOwners, platformLogin, ROLE_SETTINGS } from './platform-role.ts';
import { ensureSharedDatabase, SHARED, type SharedFacts, sharedFacts } from './shared-database.ts';

export interface ClusterOptions {
  /** Default: `default`, the server that the service is started with. */
  readonly name?: string;
  /** A postgres:// URL, or its parts. Its database is used only for the set-up. */
  readonly admin: string | AdminLogin;
  /** The secret from which the passwords of Postern's roles are derived. */
  readonly secret: string;
  readonly controlDatabase: string;
  readonly observe: Observe;
  /** Whether organizations may evaluate XPath expressions, which neither cancel nor terminate stops. Default: no. */
  readonly allowXpath?: boolean;
  /** A folder in which programs of PostgreSQL are looked for before those in PATH. */
  readonly programs?: string | undefined;
  /** How long to wait for a server that is not available yet. Default: 60 s. */
  readonly waitMs?: number;
}

const WAIT_MS = 60_000;
/** An arbitrary number, the same in every Postern. */
const SETUP_LOCK = 5_734_620_117;

/** How the settings say that clusters are prepared. */
export function clusterOptions(
  config: Config,
  observe: Observe,
): Pick<Required<ClusterOptions>, 'controlDatabase' | 'observe' | 'allowXpath' | 'programs'> {
  const { POSTERN_CONTROL_DATABASE: controlDatabase, POSTERN_ALLOW_XPATH: xpath, POSTERN_POSTGRES_BIN: programs } = config;
  return { controlDatabase, observe, allowXpath: xpath === 'on', programs };
}

/**
 * Waits for the PostgreSQL server and sets it up. This is quick if it has been done before, and safe if two processes do it at the
 * same time. What the given role may not do is reported once, as a warning.
 * @throws ClusterError
 */
export function prepareCluster(options: ClusterOptions): Promise<Cluster> {
  return withAdmin(options, prepare);
}

/**
 * Finds the server that a running Postern has set up. It changes nothing, because the given secret may be wrong.
 * @throws ClusterError
 */
export function findCluster(options: ClusterOptions): Promise<Cluster> {
  return withAdmin(options, find);
}

/**
 * Sets up a worker of Citus: as {@link prepareCluster}, without a control database.
 * @throws ClusterError
 */
export function prepareWorker(options: ClusterOptions): Promise<void> {
  return withAdmin(options, async (session, admin) => {
    const facts = await readServerFacts(session);
    checkServerFacts(facts, admin);
    const owner = (await ensurePlatformRole(session, options.secret, options.observe)).user;
    await ensureDatabases(session, admin, options, facts, owner);
    await closeDefaultDatabases(session);
  });
}

async function withAdmin<Result>(
  options: ClusterOptions,
  use: (session: pg.Client, admin: AdminLogin, options: ClusterOptions) => Promise<Result>,
): Promise<Result> {
  const admin = adminOf(options);
  try {
    const waitMs = options.waitMs ?? WAIT_MS;
    await waitForServer(admin, waitMs, (error) => tellWait(options.observe, admin, waitMs, error));
    return await withSession(admin, async (session) => {
      await checkSettings(session);
      return use(session, admin, options);
    });
  } catch (error) {
    if (error instanceof ClusterError) throw error;
    throw new ClusterError(`PostgreSQL at ${addressOf(admin)} cannot be used: ${textOf(error)}`, { cause: error });
  }
}

/** Sessions are safe only with their startup options, and a pooler may be configured to ignore these. */
async function checkSettings(session: pg.Client): Promise<void> {
  const { rows } = await session.query("SELECT pg_catalog.current_setting('search_path') AS path");
  if (rows[0]?.path !== '') throw new Error('the startup parameter "options" does not reach the server: a pooler may be ignoring it');
}

function tellWait(observe: Observe, admin: AdminLogin, waitMs: number, error: unknown): void {
  const reason = `PostgreSQL at ${addressOf(admin)} does not answer yet: ${textOf(error)}`;
  observe({ name: 'service.warning', message: `${reason}; waiting up to ${Math.ceil(waitMs / 1_000)} s` });
}

function adminOf({ admin, name }: ClusterOptions): AdminLogin {
  try {
    return typeof admin === 'string' ? parseUrl(admin) : admin;
  } catch (error) {
    throw new ClusterError(`${name === undefined ? 'DATABASE_URL' : `the URL of cluster ${name}`}: ${textOf(error)}`);
  }
}

async function prepare(session: pg.Client, admin: AdminLogin, options: ClusterOptions): Promise<Cluster> {
  const facts = await readServerFacts(session);
  checkServerFacts(facts, admin);
  // The second process waits as long as the first one needs.
  await session.query(`SET lock_timeout = 0; SELECT pg_catalog.pg_advisory_lock(${SETUP_LOCK}); RESET lock_timeout`);
  const platform = facts.superuser
    ? await ensurePlatformRole(session, options.secret, options.observe)
    : { user: admin.user, password: admin.password };
  await ensureControlDatabase(session, options.controlDatabase, platform.user);
  await withSession({ ...admin, database: options.controlDatabase }, (control) =>
    provideQueryStatistics(control, pg.escapeIdentifier(platform.user), options.observe),
  );
  const { template, shared } = await ensureDatabases(session, admin, options, facts, platform.user);
  const open = await closeDefaultDatabases(session);
  const cluster = await describeCluster(session, admin, options, facts, { platform, shared });
  warn(options.observe, template && shared.isHardened, open, cluster.roleSettings);
  return cluster;
}

/** The template and the shared database. @returns whether the template's catalogs are hardened, and what is true of the other */
async function ensureDatabases(
  session: pg.Client,
  admin: AdminLogin,
  { allowXpath = false, secret, observe }: ClusterOptions,
  facts: ServerFacts,
  owner: string,
): Promise<{ readonly template: boolean; readonly shared: SharedFacts }> {
  if (facts.superuser) {
    await ensureStatisticsReader(session);
    await ensureOwnersRole(session, owner, facts.version);
  }
  const made = { ...facts, owner, hasOwnersRole: await mayAdmitOwners(session, owner), allowXpath, secret, observe };
  await takeTemporaryFromRestricted(session, owner);
  return { template: await ensureTemplate(session, admin, made), shared: await ensureSharedDatabase(session, admin, made) };
}

async function find(session: pg.Client, admin: AdminLogin, options: ClusterOptions): Promise<Cluster> {
  const facts = await readServerFacts(session);
  const platform = facts.superuser ? platformLogin(options.secret) : { user: admin.user, password: admin.password };
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_database WHERE datname = ANY ($1)', [[options.controlDatabase, SHARED]]);
  if (rows.length < 2) throw new ClusterError(`no Postern has been started there with the control database ${options.controlDatabase}`);
  return describeCluster(session, admin, options, facts, { platform, shared: await sharedFacts(admin) });
}

async function ensureControlDatabase(session: pg.Client, name: string, owner: string): Promise<void> {
  if ([TEMPLATE, UNFINISHED, SHARED].includes(name)) throw new ClusterError(`POSTERN_CONTROL_DATABASE: ${name} is for organizations`);
  const { rows } = await session.query<{ owner: string }>(
    'SELECT pg_catalog.pg_get_userbyid(datdba) AS owner FROM pg_catalog.pg_database WHERE datname = $1',
    [name],
  );
  const [found] = rows;
  if (found === undefined) await createDatabase(session, name, owner);
  else if (found.owner !== owner) {
    throw new ClusterError(`POSTERN_CONTROL_DATABASE: the database ${name} belongs to the role ${found.owner}, not to ${owner}`);
  }
  if ((await openToEverybody(session, [name])).length > 0) {
    await session.query(`REVOKE ALL ON DATABASE ${pg.escapeIdentifier(name)} FROM PUBLIC`);
  }
}

/** @returns the databases that could not be closed */
async function closeDefaultDatabases(session: pg.Client): Promise<string[]> {
  const names = ['postgres', 'template1'];
  const open = await openToEverybody(session, names);
  for (const { name, ours } of open) if (ours) await session.query(`REVOKE CONNECT ON DATABASE ${name} FROM PUBLIC`);
  return open.flatMap(({ name, ours }) => (ours ? [] : [name]));
}

/** `ours`: whether the role may close it. */
async function openToEverybody(
  session: pg.Client,
  databases: readonly string[],
): Promise<{ readonly name: string; readonly ours: boolean }[]> {
  const { rows } = await session.query<{ name: string; ours: boolean }>(
    `SELECT datname AS name, pg_catalog.pg_has_role(datdba, 'USAGE') AS ours FROM pg_catalog.pg_database
     WHERE datname = ANY ($1) AND EXISTS (
       SELECT FROM pg_catalog.aclexplode(coalesce(datacl, pg_catalog.acldefault('d', datdba))) AS granted
       WHERE granted.grantee = 0 AND granted.privilege_type = 'CONNECT')
     ORDER BY 1`,
    [databases],
  );
  return rows;
}

function warn(observe: Observe, hardened: boolean, open: readonly string[], roleSettings: Readonly<Record<string, string>>): void {
  const missing = Object.keys(ROLE_SETTINGS).filter((name) => !(name in roleSettings));
  const gaps = [
    ...(hardened
      ? []
      : [
          'organizations can see statistics and locks of the whole server (pg_stat_activity, pg_locks and the like)',
          'those in the schema placement share advisory locks',
          'all can evaluate XPath expressions, which nothing can stop',
          'read keys can create large objects, and temporary tables in the schema placement',
        ]),
    ...(open.length === 0 ? [] : [`every role may connect to the database ${open.join(' and ')}`]),
    ...(missing.length === 0 ? [] : [`${missing.join(' and ')} cannot be set for organizations`]),
  ];
  if (gaps.length > 0) observe({ name: 'service.warning', message: `without a superuser these remain: ${gaps.join('; ')}` });
}

/** What a login finds out about a server, and about its own role. */
interface ServerFacts {
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
async function describeCluster(
  session: pg.Client,
  admin: AdminLogin,
  {
    name = 'default',
    controlDatabase,
    secret,
    allowXpath = false,
    programs,
  }: Pick<Cluster, 'controlDatabase' | 'secret'> & Partial<Pick<Cluster, 'name' | 'allowXpath' | 'programs'>>,
  facts: ServerFacts,
  { platform, shared }: { readonly platform: RoleLogin; readonly shared: SharedFacts },
): Promise<Cluster> {
  const { host, port, hosts, ssl, tlsFiles = {} } = admin;
  const roleSettings = await allowedSettings(session, platform.user);
  await checkLogin({ host, port, hosts, ssl, ...platform, database: controlDatabase });
  return {
    name,
    systemIdentifier: await systemIdentifier(session),
    host,
    port,
    hosts,
    ssl,
    tlsFiles,
    platform,
    superuser: facts.superuser ? admin : undefined,
    controlDatabase,
    sharedDatabase: SHARED,
    ...shared,
    serverVersion: facts.version,
    maxConnections: facts.connections,
    roleSettings,
    hasOwnersRole: await mayAdmitOwners(session, platform.user),
    allowXpath,
    programs,
    secret,
    login(this: Cluster, login) {
      return { ...inUse({ host, port, hosts }), ssl: this.ssl, connectTimeoutMs: CONNECT_TIMEOUT_MS, ...login };
    },
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

async function readServerFacts(session: pg.Client): Promise<ServerFacts> {
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
function checkServerFacts(facts: ServerFacts, admin: AdminLogin): void {
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
