import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import pg from 'pg';
import type { BackendConnection } from '../backend/connection.ts';
import type { BackendPermits, PoolFairnessLimits } from '../backend/organization-pool.ts';
import { Pool } from '../backend/pool.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { DEFAULT_CLUSTER } from '../catalog/clusters.ts';
import { type ControlConnection, ControlPool, type LockWait, PgLocks } from '../catalog/control-pool.ts';
import type { Placement } from '../catalog/organization.ts';
import { TextFileWatch } from '../catalog/query-statistics.ts';
import { type Config, ConfigError } from '../config.ts';
import { ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import { type AdminLogin, addressOf, sessionConfig } from '../placement/admin-connection.ts';
import { type Cluster, controlConnection, Platform, renewLogin } from '../placement/cluster.ts';
import type { Provisioner } from '../placement/provisioner.ts';
import { ProvisionerByKind } from '../placement/provisioner-by-kind.ts';
import { connectionLimitFor } from '../placement/roles.ts';
import type { InputScheduler } from '../runtime/input-scheduler.ts';
import { LockExhaustion } from './lock-exhaustion.ts';

export interface ServedClusterOptions {
  readonly config: Config;
  readonly catalog: Catalog;
  readonly observe: Observe;
  /** Of all clusters together. */
  readonly inputs: InputScheduler;
  /** How many processes of the service share the server on this machine. */
  readonly workers: number;
  /** Called when the server does not answer any more, and when it does again. */
  readonly changed: (cluster: ServedCluster) => void;
  /** Called when a cluster can be used for the first time. */
  readonly opened?: (cluster: ServedCluster) => void;
  /** Counts the backend sessions of all of them; undefined: there is one. */
  readonly permits?: ((cluster: string, limits: PoolFairnessLimits) => BackendPermits) | undefined;
}

/** Server connections that each process leaves for the catalog, provisioning and operators. */
const PLATFORM_SESSIONS = 16;
const BACKENDS_MIN = 4;
const CLOSE_TIMEOUT_MS = 10_000;

/**
 * How many sessions of a server the service may use: backends of organizations, and its own.
 * @param maxConnections how many roles without special rights can have together
 */
export function sessionsNeeded(
  { POSTERN_BACKENDS_MAX: max }: Pick<Config, 'POSTERN_BACKENDS_MAX'>,
  maxConnections: number,
  workers: number,
): { readonly backends: number; readonly own: number } {
  const own = PLATFORM_SESSIONS * workers;
  return { backends: max || Math.max(BACKENDS_MIN, maxConnections - own), own };
}

/** @throws ConfigError that says how many backends the server has room for */
export function requireRoom(config: Pick<Config, 'POSTERN_BACKENDS_MAX'>, maxConnections: number, workers: number): void {
  const { own } = sessionsNeeded(config, maxConnections, workers);
  const max = Math.max(BACKENDS_MIN, maxConnections - own);
  if (config.POSTERN_BACKENDS_MAX <= max) return;
  throw new ConfigError(
    `POSTERN_BACKENDS_MAX: must be a whole number from 0 to ${max}: the server allows ${maxConnections} sessions (max_connections), of which the service needs ${own} for itself`,
  );
}

/** The server does not answer. */
export class ClusterDownError extends ServiceError {
  /** Resolves when what was begun there has ended, which may take until the server answers again. */
  readonly ended: Promise<void>;

  constructor(cause: unknown, ended: Promise<void> = Promise.resolve()) {
    super('not_ready', 'the database system is not ready', { cause, retryAfterS: 1 });
    this.ended = ended;
  }
}

/** A PostgreSQL server in service. It shares nothing with others that one of them could keep the rest from. */
export class ServedCluster {
  readonly name: string;
  readonly platform: Platform;
  readonly provisioner: Provisioner;
  readonly pool: Pool;
  /** How many backend sessions the pool may have. */
  readonly backendsMax: number;
  readonly locks: LockExhaustion;
  readonly #catalog: Catalog;
  readonly #observe: Observe;
  readonly #tellChange: ServedClusterOptions['changed'];
  readonly #monitoring: ServerMonitoring;
  readonly #lockTableShare: Figure;
  readonly #dataBytes: Figure;
  /** Undefined for the default cluster: without its server, nothing works anyway. */
  readonly #health: Health | undefined;
  /** Ends following the server from host to host. */
  readonly #unwatch: (() => Promise<void>) | undefined;
  /** Aborts when the server does not answer any more. There is another one when it does again. */
  #down = new AbortController();

  constructor(cluster: Cluster, options: ServedClusterOptions) {
    const { config, catalog, observe } = options;
    this.name = cluster.name;
    this.#catalog = catalog;
    this.#observe = observe;
    this.#tellChange = options.changed;
    const connectionLimit = connectionLimitFor(config.POSTERN_BACKENDS_PER_TENANT);
    const limits = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };
    this.platform = new Platform(cluster);
    this.#lockTableShare = new Figure(this.platform, LOCK_TABLE_SHARE, LOCKS_EVERY_MS);
    this.#dataBytes = new Figure(this.platform, DATA_BYTES, BYTES_EVERY_MS);
    this.provisioner = new ProvisionerByKind({ platform: this.platform, connectionLimit, limits, observe }, config.POSTERN_PLACEMENT);
    this.backendsMax = sessionsNeeded(config, cluster.maxConnections, options.workers).backends;
    this.pool = createPool(this.name, this.backendsMax, options);
    const isDefault = this.name === DEFAULT_CLUSTER;
    this.#unwatch = cluster.hosts?.watch((from, to) => {
      const message = `cluster ${this.name} is served from ${addressOf(to)} in place of ${addressOf(from)}`;
      observe({ name: 'service.warning', message });
    });
    this.#monitoring = isDefault
      ? monitoringOf(catalog)
      : openServerMonitoring(controlConnection(cluster), observe, () => this.locks.freeLocks());
    this.#health = isDefault ? undefined : new Health(controlConnection(cluster), (isUp) => this.#changed(isUp));
    this.locks = new LockExhaustion(this.#monitoring.locks, this.pool, observe);
  }

  /** At most some seconds old, the size ten minutes. */
  async figures(): Promise<ServerFigures> {
    const [lockTableShare, dataBytes] = await Promise.all([this.#lockTableShare.read(), this.#dataBytes.read()]);
    return { lockTableShare, dataBytes };
  }

  /** Whether it may be used. */
  get isUp(): boolean {
    return this.#health?.isUp ?? true;
  }

  /** Whether it has answered in the last seconds. */
  get isAnswering(): boolean {
    return this.#health?.isUp ?? this.#catalog.isAnswering;
  }

  get pgNotify(): string | undefined {
    return this.platform.cluster.pgNotify;
  }

  /** See `Cluster.isHardened`. */
  get isHardened(): boolean {
    return this.platform.cluster.isHardened;
  }

  get hasPreparedTransactions(): boolean {
    return this.platform.cluster.hasPreparedTransactions;
  }

  /** Whether a backend holds session-level advisory locks. Tenants themselves cannot read pg_locks. */
  holdsAdvisoryLocks(processId: number): Promise<boolean> {
    return this.#monitoring.locks.hasAdvisoryLocks(processId);
  }

  /** As {@link PgLocks.waitsOf}. */
  lockWaits(processIds: readonly number[]): Promise<readonly LockWait[]> {
    return this.#monitoring.locks.waitsOf(processIds);
  }

  open(placement: Placement, signal?: AbortSignal): Promise<BackendConnection> {
    return this.locks.retryWhenFull(() => this.provisioner.open(placement, signal));
  }

  /**
   * Runs `work` with the provisioner, and does not wait for it any more when the server is down.
   * @param work may be repeated
   * @throws ClusterDownError
   */
  async provisioning<Result>(work: (provisioner: Provisioner) => Promise<Result>): Promise<Result> {
    const { signal } = this.#down;
    if (signal.aborted) throw new ClusterDownError(signal.reason);
    const running = this.locks.retryWhenFull(() => work(this.provisioner));
    const ended = running.then(
      () => {},
      () => {},
    );
    let stop = () => {};
    const down = new Promise<never>((_resolve, reject) => {
      stop = () => reject(new ClusterDownError(signal.reason, ended));
      signal.addEventListener('abort', stop);
    });
    try {
      return await Promise.race([running, down]);
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  /** Logs in as its URL says now. @param found by that URL @returns as {@link renewLogin} */
  renewLogin(found: Cluster): boolean {
    return renewLogin(this.platform.cluster, found);
  }

  async close(): Promise<void> {
    this.pool.close();
    const closed = Promise.all([this.#unwatch?.(), this.#health?.close(), this.platform.close(), this.#monitoring.close()]);
    // A session of a server that does not answer does not end either.
    await (this.isUp ? Promise.race([closed, delay(CLOSE_TIMEOUT_MS, undefined, { ref: false })]) : undefined);
  }

  #changed(isUp: boolean): void {
    this.#observe({ name: 'service.warning', message: `cluster ${this.name} ${isUp ? 'answers again' : 'does not answer'}` });
    if (isUp) {
      this.#down = new AbortController();
      this.#tellChange(this);
      return;
    }
    this.#down.abort();
    this.#tellChange(this);
    this.pool.failWaiters(new ClusterDownError(undefined));
  }
}

function monitoringOf({ locks }: Catalog): ServerMonitoring {
  return { locks, async close() {} };
}

function createPool(name: string, max: number, { config, catalog, observe, inputs, permits }: ServedClusterOptions): Pool {
  const limits = { max, maxPerTenant: config.POSTERN_BACKENDS_PER_TENANT };
  return new Pool(
    {
      ...limits,
      inputs,
      permits: permits?.(name, limits),
      get queueTimeoutMs() {
        return config.POSTERN_QUEUE_TIMEOUT_MS;
      },
      get idleMs() {
        return config.POSTERN_BACKEND_IDLE_MS;
      },
      busyPollMs: config.POSTERN_BUSY_POLL_US / 1_000,
      serverIsFull: () => catalog.slots.ask(name),
    },
    observe,
  );
}

/** What a server tells of itself, for metrics. What it has not told is undefined. */
export interface ServerFigures {
  /** Which part of the lock table is in use; the server has room for somewhat more than 1. */
  readonly lockTableShare: number | undefined;
  /** Of all databases that the platform role may connect to. */
  readonly dataBytes: number | undefined;
}

/** Locks of the fast path, and of SSI, are not in the table. @see https://www.postgresql.org/docs/current/runtime-config-locks.html */
const LOCK_TABLE_SHARE = `SELECT count(*) / (current_setting('max_locks_per_transaction')::float8
    * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int)) AS figure
  FROM pg_catalog.pg_locks WHERE NOT fastpath AND mode <> 'SIReadLock'`;
/** The server looks at each file of each database, which takes milliseconds for each of these. */
const DATA_BYTES = `SELECT sum(pg_catalog.pg_database_size(oid))::float8 AS figure FROM pg_catalog.pg_database
  WHERE datallowconn AND pg_catalog.has_database_privilege(oid, 'CONNECT')`;
const LOCKS_EVERY_MS = 5_000;
const BYTES_EVERY_MS = 600_000;
const FIGURE_TIMEOUT_MS = 1_000;

/** A number that the server is asked for now and then. */
class Figure {
  readonly #platform: Platform;
  readonly #query: string;
  readonly #everyMs: number;
  #value: number | undefined;
  #askedAt = Number.NEGATIVE_INFINITY;
  #asking: Promise<void> | undefined;

  constructor(platform: Platform, query: string, everyMs: number) {
    this.#platform = platform;
    this.#query = query;
    this.#everyMs = everyMs;
  }

  /** Who asks does not wait for long: the next one gets what has come meanwhile. */
  async read(): Promise<number | undefined> {
    if (this.#asking === undefined && performance.now() - this.#askedAt >= this.#everyMs) {
      this.#askedAt = performance.now();
      this.#asking = this.#ask().finally(() => {
        this.#asking = undefined;
      });
    }
    if (this.#asking !== undefined) await Promise.race([this.#asking, delay(FIGURE_TIMEOUT_MS, undefined, { ref: false })]);
    return this.#value;
  }

  async #ask(): Promise<void> {
    try {
      const { rows } = await this.#platform.run((session) => session.query<{ figure: number | null }>(this.#query));
      this.#value = rows[0]?.figure ?? undefined;
    } catch {
      this.#value = undefined;
    }
  }
}

/** A placement on its server. */
export interface ServedPlacement {
  readonly server: ServedCluster;
  readonly placement: Placement;
}

/** What the platform role sees of a whole server. The catalog has the ones of the control database's server. */
interface ServerMonitoring {
  readonly locks: PgLocks;
  close(): Promise<void>;
}

/** Opens sessions of its own, so that no other cluster waits for this one. */
function openServerMonitoring(connection: ControlConnection, observe: Observe, onOutOfMemory: () => void): ServerMonitoring {
  const database = new ControlPool(connection, onOutOfMemory);
  const locks = new PgLocks(connection, database);
  const texts = new TextFileWatch(database, observe);
  texts.start();
  void locks.reserved.hold();
  return {
    locks,
    async close() {
      locks.reserved.close();
      await texts.stop();
      await database.close();
    },
  };
}

const ASK_EVERY_MS = 1_000;
const TIMEOUT_MS = 3_000;
const AGAIN_MS = { first: 50, longest: 1_000 };

/**
 * Whether a server answers. It is asked once a second, on a connection of its own. One that does not answer in time is down until it
 * does; if only the connection has been lost, another one is tried first.
 */
class Health {
  readonly #login: AdminLogin;
  readonly #changed: (isUp: boolean) => void;
  readonly #stop = new AbortController();
  readonly #watching: Promise<void>;
  #isUp = true;

  /** @param changed called when it does not answer any more, and when it does again */
  constructor(login: AdminLogin, changed: (isUp: boolean) => void) {
    this.#login = login;
    this.#changed = changed;
    this.#watching = this.#watch();
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    for (let pauseMs = AGAIN_MS.first; !signal.aborted; ) {
      const lost = await this.#ask();
      if (signal.aborted) return;
      if (lost !== 'connection') this.#set(false);
      pauseMs = this.#isUp ? AGAIN_MS.first : Math.min(AGAIN_MS.longest, 2 * pauseMs);
      await delay(pauseMs, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  /** Asks until there is no answer. @returns what has been lost: an open connection, or the server */
  async #ask(): Promise<'connection' | 'server'> {
    const { signal } = this.#stop;
    const session = new pg.Client({ ...sessionConfig(this.#login), connectionTimeoutMillis: TIMEOUT_MS });
    let isConnected = false;
    let isLost = false;
    session.on('error', () => {
      isLost = true;
    });
    try {
      await session.connect();
      for (isConnected = true; !signal.aborted; ) {
        if (!(await answers(session))) return 'server';
        this.#set(true);
        await delay(ASK_EVERY_MS, undefined, { signal, ref: false }).catch(() => {});
        if (isLost) return 'connection';
      }
      return 'connection';
    } catch {
      return isConnected && isLost ? 'connection' : 'server';
    } finally {
      // A server that does not answer does not close the connection either.
      void session.end().catch(() => {});
      session.connection.stream.destroy();
    }
  }

  #set(isUp: boolean): void {
    if (isUp === this.#isUp) return;
    this.#isUp = isUp;
    this.#changed(isUp);
  }
}

/** @throws Error when the connection is lost */
async function answers(session: pg.Client): Promise<boolean> {
  let isAnswered = false;
  const answer = session.query('').then(() => {
    isAnswered = true;
  });
  const late = new AbortController();
  await Promise.race([answer, delay(TIMEOUT_MS, undefined, { signal: late.signal, ref: false }).catch(() => {})]);
  late.abort();
  // If this process has been kept from reading, the answer may be there.
  if (!isAnswered) await Promise.race([answer, nextTurn().then(nextTurn)]);
  answer.catch(() => {});
  return isAnswered;
}
