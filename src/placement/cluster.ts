import pg from 'pg';
import type { BackendLogin } from '../backend/connection.ts';
import type { ServerHosts } from '../backend/server-hosts.ts';
import type { ControlConnection } from '../catalog/control-pool.ts';
import type { Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import { codeOf, textOf } from '../protocol/backend.ts';
import { type AdminLogin, addressOf, isNotUpYet, type RoleLogin, sessionConfig, type TlsFiles } from './admin-connection.ts';
import type { SharedFacts } from './shared-database.ts';

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
  /** If its URL names several hosts: see {@link AdminLogin}. */
  readonly hosts: ServerHosts | undefined;
  readonly ssl: pg.ClientConfig['ssl'];
  readonly tlsFiles: TlsFiles;
  /** The role for everything except tenants' own SQL. It has CREATEDB and CREATEROLE and is never a superuser. */
  readonly platform: RoleLogin;
  /** For the set-up, and for what replication leaves to superusers; undefined: the server's URL has another role. */
  readonly superuser: AdminLogin | undefined;
  readonly controlDatabase: string;
  /** Holds the schemas of organizations that have one each; neither the control database nor `postgres`. */
  readonly sharedDatabase: string;
  /** `server_version_num`, e.g. 180004. */
  readonly serverVersion: number;
  /** How many sessions roles without special rights can have together. */
  readonly maxConnections: number;
  /** The settings of every organization's role, as far as the platform role may set them. */
  readonly roleSettings: Readonly<Record<string, string>>;
  /** Whether large objects, and temporary ones in the shared database, are left to organizations' own roles. */
  readonly hasOwnersRole: boolean;
  /** Whether organizations may evaluate XPath expressions. */
  readonly allowXpath: boolean;
  /** A folder of this machine in which programs of PostgreSQL are looked for before those in PATH. */
  readonly programs: string | undefined;
  readonly secret: string;
  /** How to log in to a database of this cluster. */
  login(session: RoleLogin & { readonly database: string; readonly options?: string }): BackendLogin;
}

/** How the platform role logs in to a server's control database: the service's own, or one without tables on the other servers. */
export function controlConnection(cluster: Cluster): AdminLogin & ControlConnection {
  const { host, port, hosts, controlDatabase: database } = cluster;
  return {
    ...{ host, port, hosts, database },
    get user() {
      return cluster.platform.user;
    },
    get password() {
      return cluster.platform.password;
    },
    get ssl() {
      return cluster.ssl ?? false;
    },
  };
}

/**
 * Has sessions that are opened from now on log in as the server's URL says now: with another role, password or files for TLS.
 * @param found what was found by that URL
 * @returns false if it names other hosts: nothing has changed
 */
export function renewLogin(cluster: Cluster, { host, port, hosts, platform, superuser, ssl, tlsFiles }: Cluster): boolean {
  if (addressOf(cluster) !== addressOf({ host, port, hosts })) return false;
  Object.assign(cluster, { platform, ssl, tlsFiles, superuser: superuser && { ...superuser, hosts: cluster.hosts } });
  if (hosts !== undefined) cluster.hosts?.openAs(hosts);
  return true;
}

/** The platform role's sessions in each database. A session is used only for the duration of a statement. */
const CONTROL_SESSIONS_MAX = 6;
const SHARED_SESSIONS_MAX = 4;
const IDLE_TIMEOUT_MS = 30_000;

/** read_only_sql_transaction: a standby that has not been promoted yet. */
const READ_ONLY = '25006';

const PING = { text: '', query_timeout: 2_000 };

/**
 * The platform role's sessions for work on organizations' databases, schemas and roles. They are in the control database and the
 * shared one, never in an organization's own.
 */
export class Platform {
  readonly cluster: Cluster;
  readonly #control: pg.Pool;
  readonly #shared: pg.Pool;

  constructor(cluster: Cluster) {
    this.cluster = cluster;
    this.#control = openPool(cluster, cluster.controlDatabase, CONTROL_SESSIONS_MAX);
    this.#shared = openPool(cluster, cluster.sharedDatabase, SHARED_SESSIONS_MAX);
  }

  /** Runs `work` in the control database. One session is kept open for that. */
  run<Result>(work: (session: pg.PoolClient) => Promise<Result>): Promise<Result> {
    return lend(this.cluster, this.#control, work);
  }

  /** Runs `work` in the shared database. */
  runInShared<Result>(work: (session: pg.PoolClient) => Promise<Result>): Promise<Result> {
    return lend(this.cluster, this.#shared, work);
  }

  /**
   * Runs `work` in the control database while no other process works on the same organization. The advisory lock is in that database,
   * where no tenant can take it.
   * @throws ServiceError `not_ready`, `too_many_connections`, or pg.DatabaseError
   */
  alone<Result>(role: string, work: (session: pg.PoolClient) => Promise<Result>): Promise<Result> {
    return lend(this.cluster, this.#control, async (session) => {
      await session.query('SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))', [role]);
      const result = await work(session);
      await session.query('SELECT pg_catalog.pg_advisory_unlock_all()');
      return result;
    });
  }

  /** The same, with a session in the shared database too. */
  aloneInShared<Result>(role: string, work: (shared: pg.PoolClient, control: pg.PoolClient) => Promise<Result>): Promise<Result> {
    return this.alone(role, (control) => lend(this.cluster, this.#shared, (shared) => work(shared, control)));
  }

  async close(): Promise<void> {
    await Promise.all([this.#control.end(), this.#shared.end()]);
  }
}

function openPool({ host, port, hosts, ssl, platform }: Cluster, database: string, max: number): pg.Pool {
  const pool = new pg.Pool({
    ...sessionConfig({ host, port, hosts, ssl, ...platform, database }),
    max,
    min: 1,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
  });
  // A lost idle session is replaced when the next one is needed. The pool has no error listener on sessions in use; their statements
  // fail anyway, but an error event without a listener would end the process.
  pool.on('error', () => {}).on('connect', (session) => session.on('error', () => {}));
  return pool;
}

async function lend<Result>(cluster: Cluster, pool: pg.Pool, work: (session: pg.PoolClient) => Promise<Result>): Promise<Result> {
  // Its next session is opened where the server is now, and as its URL says now.
  Object.assign(pool.options, cluster.hosts?.current, cluster.platform, { ssl: cluster.ssl ?? false });
  const session = await acquire(pool).catch((error: unknown) => {
    throw asServiceError(error);
  });
  try {
    const result = await work(session);
    session.release();
    return result;
  } catch (error) {
    // The session is dropped, with its locks and its transaction.
    session.release(true);
    throw asServiceError(error);
  }
}

/** Limits the wait for a session whose connection was lost silently, which would otherwise take many minutes. */
async function acquire(pool: pg.Pool): Promise<pg.PoolClient> {
  for (let left = pool.options.max; ; left--) {
    const session = await pool.connect();
    try {
      await session.query(PING);
      return session;
    } catch (error) {
      session.release(true);
      if (left === 0) throw error;
    }
  }
}

/** Maps errors that concern the server and not the statement. */
export function asServiceError(error: unknown): unknown {
  if (error instanceof ServiceError) return error;
  const sqlstate = codeOf(error);
  if (sqlstate === '53100' || sqlstate === '53200') {
    return new ServiceError('not_ready', 'the database server is out of memory or disk space', { cause: error, sqlstate, retryAfterS: 1 });
  }
  if (sqlstate === '53300') {
    return new ServiceError('too_many_connections', 'too many connections', { cause: error, retryAfterS: 1 });
  }
  if (sqlstate === READ_ONLY || isNotUpYet(error) || isBetweenNodes(error, sqlstate))
    return new ServiceError('not_ready', 'the database system is not ready', { cause: error, retryAfterS: 1 });
  return error;
}

/** Whether a connection between nodes of Citus has failed, or was lost since it was last used. */
function isBetweenNodes(error: unknown, sqlstate: string): boolean {
  return sqlstate === '08006' || /^failure on connection marked as essential/.test(textOf(error));
}

export interface SessionLimits {
  /** 0: none. */
  readonly statementTimeoutMs: number;
  /** 0: none. */
  readonly idleInTransactionTimeoutMs: number;
}

/**
 * The startup packet's `options` for a session of this organization. They take precedence over `ALTER ROLE … SET`, and `RESET ALL`
 * and `DISCARD ALL` return to them. So no setting on the tenant's role can prevent a login or change its search path.
 * @param serverVersion as `server_version_num`
 * @see https://www.postgresql.org/docs/current/protocol-message-formats.html#PROTOCOL-MESSAGE-FORMATS-STARTUPMESSAGE
 */
export function sessionOptions(placement: Placement, limits: SessionLimits, serverVersion: number): string {
  const settings: Readonly<Record<string, string>> = {
    // The organization's schema is in the position of `public`, so that the value can be rewritten back.
    search_path: `"$user", ${placement.schema}`,
    role: 'none',
    statement_timeout: String(limits.statementTimeoutMs),
    idle_in_transaction_session_timeout: String(limits.idleInTransactionTimeoutMs),
    idle_session_timeout: '0',
    lock_timeout: '0',
    ...(serverVersion >= 170_000 ? { transaction_timeout: '0' } : {}),
    default_transaction_read_only: 'off',
    default_transaction_isolation: 'read committed',
    default_transaction_deferrable: 'off',
    local_preload_libraries: '',
  };
  return Object.entries(settings)
    .map(([name, value]) => `-c ${escapeOption(`${name}=${value}`)}`)
    .join(' ');
}

/** Settings that each session of an organization starts with, whatever `ALTER ROLE … SET` says. */
export const FIXED_SETTINGS: ReadonlySet<string> = new Set([
  'search_path',
  'role',
  'statement_timeout',
  'idle_in_transaction_session_timeout',
  'idle_session_timeout',
  'lock_timeout',
  'transaction_timeout',
  'default_transaction_read_only',
  'default_transaction_isolation',
  'default_transaction_deferrable',
  'local_preload_libraries',
]);

/** The server splits at white space that no backslash precedes (pg_split_opts). */
function escapeOption(text: string): string {
  return text.replace(/[\\\s]/g, '\\$&');
}
