import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { Server as TlsServer } from 'node:tls';
import type { FastifyInstance } from 'fastify';
import type { Registry } from 'prom-client';
import { Admission } from '../http/admission.ts';
import { createHttpApp } from '../http/app.ts';
import { servedHosts } from '../http/headers.ts';
import { createOpsApp } from '../http/ops-app.ts';
import { wireAddress } from '../http/reply-schemas.ts';
import { RequestsInProgress } from '../http/requests-in-progress.ts';
import { TlsFiles } from '../proxy/client-connection.ts';
import { OperatorConsole } from '../proxy/operator-console.ts';
import { WireServer, type WireServerOptions } from '../proxy/server.ts';
import { isFrom } from './auth/tokens.ts';
import type { Pool } from './backend/pool.ts';
import { listBackups, openBackups } from './backups/backups.ts';
import { Catalog } from './catalog/catalog.ts';
import type { UsageCounters } from './catalog/usage.ts';
import { type Config, RunningConfig } from './config.ts';
import { DiskSpace } from './embedded/disk-space.ts';
import { openPostgres } from './embedded/embedded.ts';
import { ServiceError } from './errors.ts';
import { openFilesLimit, watchDescriptors } from './file-descriptors.ts';
import { SchemaCopies } from './moving/schema-copies.ts';
import { Multiplexers, type SharingLimits } from './multiplex/multiplexer.ts';
import { fanOut, type Observe, type Observer, type Origin } from './observation.ts';
import { auditObserver, usageObserver } from './observers/audit.ts';
import { exhaustionObserver } from './observers/log.ts';
import { createMetrics } from './observers/metrics.ts';
import { SlowStatements } from './observers/slow-statements.ts';
import { Traces } from './observers/traces.ts';
import { controlConnection } from './placement/cluster.ts';
import { clusterOptions, prepareCluster } from './placement/cluster-setup.ts';
import { rolesOf } from './placement/restricted-roles.ts';
import { connectionLimitFor, limitConnections } from './placement/roles.ts';
import { relationCounters } from './placement/schema-statistics.ts';
import { concernAboutReleases, concernsAbout, readServerAge } from './placement/server-release.ts';
import { listenOn, portOf, tryPorts } from './ports.ts';
import { clientText } from './rewriting/rewriter.ts';
import { ApiKeys, SignUps } from './router/accounts.ts';
import { Activity } from './router/activity.ts';
import { Authenticator, operatorVerifier } from './router/authenticator.ts';
import { Clusters, NewPlacements } from './router/clusters.ts';
import { DiskQuotas } from './router/disk-quotas.ts';
import { lockObserver } from './router/lock-exhaustion.ts';
import { Clones, InterruptedMoves } from './router/moves.ts';
import type { ConsoleSignIn } from './router/one-time-sign-in.ts';
import { Operator } from './router/operator.ts';
import { RefusalLimit } from './router/refusal-limit.ts';
import { Router } from './router/router.ts';
import { requireRoom, type ServedCluster } from './router/served-cluster.ts';
import { Sessions } from './router/sessions.ts';
import { MemoryBudget } from './runtime/memory-budget.ts';
import { QueryScheduler } from './sql/query-scheduler.ts';
import { RESULT_BOUNDS } from './sql/result-budget.ts';
import { DataSizes } from './sql/statistics.ts';
import { connectionLimits, localLimits, type SharedParts } from './workers/shared-parts.ts';

/** The running service. The ports are the real ones, even if 0 was configured. */
export interface Service {
  readonly httpPort: number;
  readonly wirePort: number;
  readonly opsPort: number;
  readonly authenticator: Authenticator;
  readonly router: Router;
  readonly signUps: SignUps;
  readonly operator: Operator;
  /** Reads the TLS files and the URLs of the clusters again, for new connections. If they are invalid, it warns and keeps the old ones. */
  reload(): void;
  /** The pool of a cluster, which is told of the backend sessions of other workers; undefined while the cluster is not open. */
  pool(cluster: string): Pick<Pool, 'giveUpUnused' | 'giveUpNext' | 'settle'> | undefined;
  readonly metrics: Registry;
  /** Accepts no more connections, and returns when all clients have left, or it takes too long. */
  retire(): Promise<void>;
  /** Closes both doors, waits for requests in progress, and stops the embedded Postgres if there is one. */
  close(reason?: string): Promise<void>;
}

export interface ServiceOptions {
  /** If set, the console has a one-time address: only for development. */
  readonly consoleSignIn?: ConsoleSignIn;
  /** If set, this process is one of several workers. */
  readonly shared?: SharedParts;
}

const READY_TIMEOUT_MS = 2_000;

/**
 * Assembles the service and opens both doors.
 * @param observer in addition to metrics and audit
 * @throws ConfigError, EmbeddedError, ClusterError: the message is one line for the person who starts the service
 */
export async function startService(initial: Config, observer: Observer, { consoleSignIn, shared }: ServiceOptions = {}): Promise<Service> {
  const settings = new RunningConfig(initial);
  for (const [setting, value] of shared?.changes ?? []) settings.change(setting, value);
  const { config } = settings;
  const startedAt = performance.now();
  const log = fanOut(observer);
  if (shared === undefined) await tryPorts(config);
  const opened: (() => Promise<void>)[] = [];
  const closeAll = async () => {
    for (const close of opened.splice(0).reverse()) await close();
  };
  try {
    const tls = TlsFiles.open(config);
    const postgres = shared?.postgres ?? (await openPostgres(config, log, opened));
    const { secret, folder } = postgres;
    const disk = folder === undefined ? undefined : new DiskSpace(folder);
    const backups = shared === undefined ? await openBackups(postgres, config, log, opened) : undefined;
    const first = await prepareCluster({ ...postgres, ...clusterOptions(config, log) });
    requireRoom(config, first.maxConnections, shared?.workers ?? 1);
    let clusters: Clusters | undefined;
    let counters: UsageCounters | undefined;
    let quotas: DiskQuotas | undefined;
    const metrics = createMetrics({
      quotas: () => quotas?.counts(),
      clusters: () => clusters?.snapshot() ?? [],
      disk: disk && (() => disk.use()),
      limits: () => limitsOf(config, clusters?.opened() ?? []),
      oldestLeaseMs: () => oldestLeaseMs(clusters?.opened() ?? []),
      top: config.POSTERN_METRICS_TOP,
      organizations: () => counters?.rates() ?? [],
      backups: backups && (() => backups.snapshot()),
    });
    opened.push(async () => metrics.close());
    const catalog = await Catalog.open({
      connection: controlConnection(first),
      observe: fanOut(observer, metrics.handlers),
      auditDays: config.POSTERN_AUDIT_DAYS,
      onOutOfMemory: () => clusters?.default.locks.freeLocks(),
    });
    opened.push(() => catalog.close());
    counters = catalog.usage.counters;

    const slow = new SlowStatements(config, log);
    const observe = fanOut(
      observer,
      slow.handlers,
      metrics.handlers,
      auditObserver(catalog.audit),
      usageObserver(catalog.usage.counters),
      exhaustionObserver(log, (organizationId) => catalog.isOverQuota(organizationId)),
      lockObserver(() => [...(clusters?.up.values() ?? [])].map(({ locks }) => locks)),
    );
    clusters = new Clusters({
      first,
      prepare: (name, admin) => prepareCluster({ name, admin, secret, ...clusterOptions(config, observe), waitMs: 0 }),
      config,
      catalog,
      observe,
      workers: shared?.workers ?? 1,
      permits: shared && ((...pool) => shared.permits(...pool)),
      opened: (cluster) => void limitRoles(config, cluster, catalog, observe),
    });
    const served = clusters;
    opened.push(() => served.close());
    const traces = Traces.open((placement) => {
      const server = served.up.get(placement.cluster)?.platform.cluster;
      return server?.hosts?.current ?? server;
    });
    if (traces !== undefined) opened.push(() => traces.close());
    await served.start();
    if (shared?.isSpeaker !== false)
      await Promise.race([tellAges(served.opened(), observe), delay(AGES_TIMEOUT_MS, undefined, { ref: false })]);
    const backendsMax = served.opened().reduce((sum, cluster) => sum + cluster.backendsMax, 0);
    const connectionsMax = connectionLimits(config, backendsMax, openFilesLimit(), observe);
    const limits = shared?.limits ?? localLimits(config);
    const stopWatching = watchDescriptors(observe);
    opened.push(async () => stopWatching());
    const { POSTERN_OPERATOR_KEY: operatorKey } = config;
    const operatorKeyVerifier = operatorKey === undefined ? undefined : await operatorVerifier(operatorKey, Buffer.from(secret));
    const authenticator = new Authenticator({
      catalog,
      clusters,
      secret: Buffer.from(secret),
      observe,
      operator: operatorKeyVerifier,
      clientText,
    });
    const sessions = new Sessions(catalog.processes, (placement, processIds) => served.of(placement).lockWaits(processIds));
    const router = new Router({
      catalog,
      clusters,
      authenticator,
      results: new MemoryBudget(RESULT_BOUNDS),
      observe,
      sessions,
    });
    const keys = new ApiKeys(catalog, clusters);
    const signUps = new SignUps({
      catalog,
      clusters,
      placements: new NewPlacements(clusters, catalog.clusters, config.POSTERN_PLACEMENT),
      get mode() {
        return config.POSTERN_SIGNUP;
      },
      get signupsPerHour() {
        return config.POSTERN_SIGNUPS_PER_HOUR;
      },
      observe,
    });
    const operator = new Operator(catalog, clusters);
    const clones = new Clones({ catalog, clusters, signUps, operator, schemas: new SchemaCopies(), observe, disk });
    await finishDrops(operator, clones, observe, opened);
    await undoInterruptedSignUps(signUps, observe, opened);
    undoInterruptedMoves(new InterruptedMoves({ catalog, clusters, observe }), observe, opened);

    if (shared?.isSpeaker !== false) {
      const measuring = new DiskQuotas({ catalog, clusters, config, observe });
      quotas = measuring;
      measuring.start();
      opened.push(() => measuring.close());
    }
    const refusals = new RefusalLimit({
      get perMinute() {
        return config.POSTERN_REFUSALS_PER_MINUTE;
      },
      observe,
      share: (address) => catalog.failures.happened('refusal', address),
    });
    catalog.failures.listen('refusal', (address, count) => refusals.countElsewhere(address, count));
    const multiplexers = new Multiplexers(sharingLimits(config));
    let http: FastifyInstance | undefined;
    const reload = () => {
      reloadTls(tls, http, observe);
      void served.reload();
    };
    const activity = new Activity(sessions, {
      clusters: () => served.opened(),
      counters: catalog.usage.counters,
      reload,
      set(setting, value) {
        settings.change(setting, value);
        shared?.set(setting, value);
      },
    });
    const operatorConsole = new OperatorConsole({
      networks: config.POSTERN_OPERATOR_NETWORKS,
      sources: { config, catalog, clusters, activity, backups: () => listBackups(config.POSTERN_BACKUP_DIR) },
      settings,
      operator,
      cancelKeys: router.cancelKeys,
      inputs: clusters.inputs,
      limit: limits.operators,
      observe,
    });
    const wire = createWireServer(
      config,
      {
        unauthenticated: limits.unauthenticated(connectionsMax.wire),
        clients: limits.clients(connectionsMax.wire),
        clientsOfOrganization: limits.clientsOfOrganization,
        refusals,
        multiplexers,
        sessions,
        slow,
        traces,
        console: operatorKey === undefined ? undefined : operatorConsole,
      },
      { authenticator, router, observe, sessions },
      tls,
    );
    const underWay = new RequestsInProgress(tls !== undefined);
    for (const source of [wire.sessions, underWay]) sessions.register(source);
    await sessions.open();
    const wirePort = await listenOn(config, 'POSTERN_PG_PORT', (host, port) => wire.listen(host, port));
    const [stopping, leaving] = [new AbortController(), new AbortController()];
    const ready = () => answers(router, stopping.signal);
    const sizes = new DataSizes(clusters);
    const admission = new Admission(limits.requestsOfOrganization, limits.requestRates);
    const app = createHttpApp({
      authenticator,
      router,
      admission,
      signUps,
      operator,
      clones,
      keys,
      ...(consoleSignIn === undefined ? {} : { consoleSignIn }),
      sessions,
      underWay,
      refusals,
      queries: new QueryScheduler(router, multiplexers, observe),
      statistics: {
        queries: catalog.queryStatistics,
        usage: catalog.usage,
        dataBytes: (placement) => sizes.bytes(placement),
        requestsOf: (id) => admission.requestsOf(id),
        relationCounters: async (placement) => relationCounters(served.of(placement).platform, placement),
      },
      config,
      observe,
      ready,
      stopping: stopping.signal,
      leaving: leaving.signal,
      traces,
      connections: {
        limit: limits.httpConnections(connectionsMax.http),
        authenticated: limits.authenticatedHttpConnections(connectionsMax.http),
      },
      openWire: (stream, { remoteAddress }) => wire.accept(stream, { remoteAddress, method: 'cleartext' }),
      connection: (asked) => wireAddress(config, { port: wirePort, hasTls: tls !== undefined }, asked),
      ...(tls === undefined ? {} : { tls: tls.identity }),
    });
    http = app;
    // Both doors close at the same time, so that neither accepts clients while the other waits for its last ones.
    opened.push(async () => {
      await Promise.all([wire.close(config.POSTERN_SHUTDOWN_TIMEOUT_MS), app.close()]);
    });
    const httpPort = await listenOn(config, 'POSTERN_HTTP_PORT', (host, port) => serve(app, host, port));
    const ops = createOpsApp({
      isServedHost: servedHosts({ ...config, POSTERN_HOST: config.POSTERN_OPS_HOST ?? config.POSTERN_HOST }),
      ready,
      observe,
      metrics: async () => ({
        contentType: metrics.registry.contentType,
        body: await (shared === undefined ? metrics.registry.metrics() : shared.metrics()),
      }),
    });
    opened.push(async () => ops.close());
    const opsPort = await listenOn(config, 'POSTERN_OPS_PORT', (host, port) => serve(ops, host, port));

    observe({ name: 'service.started', httpPort, wirePort, opsPort, startupMs: performance.now() - startedAt });
    return {
      httpPort,
      wirePort,
      opsPort,
      authenticator,
      router,
      signUps,
      operator,
      pool: (cluster) => served.opened().find(({ name }) => name === cluster)?.pool,
      metrics: metrics.registry,
      reload,
      async retire() {
        stopping.abort();
        leaving.abort();
        wire.stopListening();
        await ops.close();
        await clientsLeft(config, wire, admission);
      },
      close: async (reason = 'closed') => {
        const busy = { transactions: wire.transactions, requests: admission.requests };
        observe({ name: 'service.stopping', reason, ...busy, message: stopMessage(busy, config, reason) });
        stopping.abort();
        if (config.POSTERN_DRAIN_MS > 0) await delay(config.POSTERN_DRAIN_MS);
        await closeAll();
      },
    };
  } catch (error) {
    await closeAll();
    throw error;
  }
}

/** As the metric of the limits has them. */
function limitsOf(config: Config, clusters: readonly ServedCluster[]): Readonly<Record<string, number>> {
  return {
    clients: config.POSTERN_CLIENTS_MAX,
    clients_of_organization: config.POSTERN_CLIENTS_PER_TENANT,
    backends: clusters.reduce((sum, { backendsMax }) => sum + backendsMax, 0),
    backends_of_organization: config.POSTERN_BACKENDS_PER_TENANT,
    http_connections: config.POSTERN_HTTP_CONNECTIONS_MAX,
    http_requests_of_organization: config.POSTERN_HTTP_REQUESTS_PER_TENANT,
  };
}

function oldestLeaseMs(clusters: readonly ServedCluster[]): number {
  const now = performance.now();
  let oldest = now;
  for (const { pool } of clusters) {
    for (const { leased } of pool.organizations()) for (const { usedAt } of leased) oldest = Math.min(oldest, usedAt);
  }
  return now - oldest;
}

/** New certificates are used for new connections, at both doors. */
function reloadTls(tls: TlsFiles | undefined, http: FastifyInstance | undefined, observe: Observe): void {
  if (tls === undefined) return;
  tls.reload(observe);
  const { cert, key } = tls.identity;
  if (http?.server instanceof TlsServer) http.server.setSecureContext({ cert, key });
}

function sharingLimits({ POSTERN_PIPELINE_DEPTH: depth, POSTERN_PIPELINE_SPREAD: spread }: Config): SharingLimits {
  // Postern itself uses one processor.
  return { depth, spread: spread || Math.max(1, availableParallelism() - 1) };
}

function createWireServer(
  config: Config,
  limits: Pick<
    WireServerOptions,
    'unauthenticated' | 'clients' | 'clientsOfOrganization' | 'refusals' | 'multiplexers' | 'sessions' | 'slow' | 'traces' | 'console'
  >,
  parts: Pick<WireServerOptions, 'authenticator' | 'router' | 'observe' | 'sessions'>,
  tls: TlsFiles | undefined,
): WireServer {
  const proxies = config.POSTERN_PROXY_PROTOCOL_FROM;
  return new WireServer({
    ...parts,
    tls: { mode: config.POSTERN_TLS, identity: () => tls?.identity },
    ...(proxies === undefined ? {} : { isProxy: isFrom(proxies) }),
    ...limits,
    get loginTimeoutMs() {
      return config.POSTERN_LOGIN_TIMEOUT_MS;
    },
    get statementTimeoutMs() {
      return config.POSTERN_WIRE_STATEMENT_TIMEOUT_MS;
    },
    get idleInTransactionTimeoutMs() {
      return config.POSTERN_IDLE_IN_TRANSACTION_TIMEOUT_MS;
    },
  });
}

/** @returns the real port */
async function serve(app: FastifyInstance, host: string, port: number): Promise<number> {
  await app.listen({ host, port });
  return portOf(app.server);
}

/** @throws ServiceError `not_ready`, `shutting_down` */
async function answers(router: Router, stopping: AbortSignal): Promise<void> {
  if (stopping.aborted) throw new ServiceError('shutting_down', 'the service is shutting down');
  const timeout = AbortSignal.timeout(READY_TIMEOUT_MS);
  try {
    await Promise.race([router.ping(), once(timeout, 'abort').then(() => Promise.reject(timeout.reason))]);
  } catch (cause) {
    throw new ServiceError('not_ready', 'the backing Postgres does not answer', { cause });
  }
}

const SWEEP_MS = 60_000;
const FINISH_DROPS_MS = 5_000;
const UNDO_MOVES_MS = 2_000;

/** Sets the connection limit of existing organizations' roles, which may have been created with another setting. */
async function limitRoles(config: Config, cluster: ServedCluster, catalog: Catalog, observe: Observe): Promise<void> {
  const limit = connectionLimitFor(config.POSTERN_BACKENDS_PER_TENANT);
  const limitAll = async () => {
    const roles = (await catalog.organizations.list())
      .filter(({ status, placement }) => status !== 'dropped' && placement.cluster === cluster.name)
      .flatMap(({ placement: { role } }) => rolesOf(role));
    return cluster.platform.run((session) => limitConnections(session, roles, limit));
  };
  const cause = await limitAll().catch((error: unknown) => error);
  if (cause !== undefined) observe({ name: 'service.warning', message: 'the connection limit could not be set for all roles', cause });
}

/** How long the start waits for what servers say of their age. */
const AGES_TIMEOUT_MS = 3_000;

/** Warns of servers that lack fixes. */
async function tellAges(clusters: readonly ServedCluster[], observe: Observe): Promise<void> {
  const warn = (message: string, cause?: unknown) =>
    observe({ name: 'service.warning', message, ...(cause === undefined ? {} : { cause }) });
  const tell = async ({ name, platform }: ServedCluster) => {
    for (const concern of concernsAbout(await platform.run(readServerAge), name)) warn(concern);
  };
  const concern = concernAboutReleases(new Date());
  if (concern !== undefined) warn(concern);
  await Promise.all(
    clusters.map((cluster) =>
      tell(cluster).catch((cause) => warn(`the release of the cluster ${cluster.name} could not be looked up`, cause)),
    ),
  );
}

const ORIGIN: Origin = { surface: 'admin', sourceIp: '127.0.0.1' };

/**
 * Drops clones whose time is over and completes interrupted drops, at the start and then regularly: a drop may have to wait until
 * processes have ended.
 */
async function finishDrops(operator: Operator, clones: Clones, observe: Observe, opened: (() => Promise<void>)[]): Promise<void> {
  const finish = () =>
    operator
      .finishDrops(ORIGIN, observe)
      .then(() => clones.dropExpired(ORIGIN))
      .catch((cause: unknown) => {
        observe({ name: 'service.failure', message: 'clones and interrupted drops could not be looked up', cause });
      });
  const first = repeat(finish, FINISH_DROPS_MS, opened);
  await Promise.race([first, delay(FINISH_DROPS_MS, undefined, { ref: false })]);
}

/** Undoes moves whose mover has ended, regularly. */
function undoInterruptedMoves(moves: InterruptedMoves, observe: Observe, opened: (() => Promise<void>)[]): void {
  const undo = () =>
    moves.undo().catch((cause: unknown) => {
      observe({ name: 'service.failure', message: 'interrupted moves could not be looked up', cause });
    });
  void repeat(undo, UNDO_MOVES_MS, opened);
}

/** Does work now, and again some time after it is done, until the service closes. @returns when it is done for the first time */
function repeat(work: () => Promise<void>, everyMs: number, opened: (() => Promise<void>)[]): Promise<void> {
  const stop = new AbortController();
  const first = work();
  const repeating = async () => {
    await first;
    while (!stop.signal.aborted) {
      await delay(everyMs, undefined, { signal: stop.signal }).catch(() => {});
      if (!stop.signal.aborted) await work();
    }
  };
  const ended = repeating();
  opened.push(async () => {
    stop.abort();
    await ended;
  });
  return first;
}

/** Undoes interrupted sign-ups, at the start and then regularly: another process may have left some. */
async function undoInterruptedSignUps(signUps: SignUps, observe: Observe, opened: (() => Promise<void>)[]): Promise<void> {
  await signUps.undoInterrupted();
  const timer = setInterval(() => {
    signUps.undoInterrupted().catch((cause: unknown) => {
      observe({ name: 'service.failure', message: 'interrupted sign-ups could not be looked up', cause });
    });
  }, SWEEP_MS);
  opened.push(async () => clearInterval(timer));
}

/** How often a process that leaves its ports looks whether its clients have left. */
const EMPTY_CHECK_MS = 50;

/** Returns when all clients have left both doors, or it takes too long. */
async function clientsLeft(
  { POSTERN_REPLACE_TIMEOUT_MS: timeoutMs }: Config,
  wire: { readonly size: number },
  http: { readonly requests: number },
): Promise<void> {
  const until = performance.now() + timeoutMs;
  while (wire.size + http.requests > 0 && performance.now() < until) await delay(EMPTY_CHECK_MS);
}

/** Why a process stops that others have taken the place of. */
export const REPLACED = 'replaced';

/** What a service that stops waits for, for the log. */
function stopMessage(
  { transactions, requests }: { readonly transactions: number; readonly requests: number },
  config: Config,
  reason: string,
): string {
  const busy = [counted(transactions, 'transaction'), counted(requests, 'request')].filter((text) => text !== undefined).join(' and ');
  const drains = config.POSTERN_DRAIN_MS === 0 ? 'stopping' : `stopping in ${config.POSTERN_DRAIN_MS / 1_000} s`;
  const waits = busy === '' ? drains : `${drains}: waits up to ${config.POSTERN_SHUTDOWN_TIMEOUT_MS / 1_000} s for ${busy}`;
  // Signals are for all workers, and the others stay.
  return reason === REPLACED ? waits : `${waits}; a second Ctrl-C or signal ends it at once`;
}

function counted(number: number, what: string): string | undefined {
  return number === 0 ? undefined : `${number} ${what}${number === 1 ? '' : 's'}`;
}
