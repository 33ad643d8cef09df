import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { ObservationHandlers } from '../observation.ts';
import { packageVersion } from '../runtime/package-folder.ts';
import { standardOutput } from './log.ts';

/** How many backends the pool has by state, and how many callers wait for one. */
interface PoolSnapshot {
  readonly idle: number;
  readonly leased: number;
  readonly opening: number;
  readonly leaving: number;
  readonly waiters: number;
  /** By organization. */
  readonly stuck: ReadonlyMap<string, number>;
}

/** A PostgreSQL server: how it is seen now. */
interface ClusterSnapshot {
  readonly name: string;
  readonly isAnswering: boolean;
  /** Undefined until it has answered. */
  readonly pool: PoolSnapshot | undefined;
  /** What it tells of itself; undefined while it does not answer. */
  readonly figures?: (() => Promise<ServerFigures>) | undefined;
}

/** What is not known is undefined. */
interface ServerFigures {
  readonly lockTableShare: number | undefined;
  readonly dataBytes: number | undefined;
}

/** The disk of the embedded server. */
interface DiskSnapshot {
  readonly freeBytes: number;
  readonly sizeBytes: number;
}

/** What an organization does, by the second, as of the last one to two minutes. */
export interface OrganizationRates {
  readonly organizationId: string;
  readonly requests: number;
  readonly bytes: number;
  /** Seconds for which backends were leased: how many are busy on average. */
  readonly leasedSeconds: number;
}

/** The backups of the embedded server. What is not known is undefined. */
interface BackupsSnapshot {
  /** When the newest base backup was whole, in seconds since 1970. */
  readonly lastSuccessAt: number | undefined;
  readonly walLagBytes: number | undefined;
  readonly failures: number;
  readonly bytes: number | undefined;
}

interface MetricsSources {
  readonly clusters: () => readonly ClusterSnapshot[];
  /** The limits of the settings, by what they are of. */
  readonly limits?: () => Readonly<Record<string, number>>;
  /** For how long the backend that was leased first has been leased; 0: none is. */
  readonly oldestLeaseMs?: () => number;
  /** How many organizations have series of their own. */
  readonly top?: number;
  readonly organizations?: () => Iterable<OrganizationRates>;
  /** Undefined: the server is another one, whose disk cannot be seen. */
  readonly disk?: (() => Promise<DiskSnapshot | undefined>) | undefined;
  /** How many organizations have at least 80 % of the data that they may have, and how many all of it; undefined: another process knows. */
  readonly quotas?: () => { readonly near: number; readonly over: number } | undefined;
  /** Undefined: this process makes none. */
  readonly backups?: (() => BackupsSnapshot) | undefined;
}

interface Metrics {
  readonly handlers: ObservationHandlers;
  readonly registry: Registry;
  /** Stops the measurement of the event loop. */
  close(): void;
}

/**
 * The Prometheus metrics of one process. Label values are few and known in advance: never a path as sent or an error
 * text, and an organization only where its sessions cannot be ended, or where the busiest are asked for.
 */
export function createMetrics(sources: MetricsSources): Metrics {
  const { clusters, disk, limits, oldestLeaseMs, top = 0, organizations, backups, quotas } = sources;
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  gaugePools(registry, () => sumOf(clusters().flatMap(({ pool }) => pool ?? [])));
  gaugeClusters(registry, clusters);
  gaugeServers(registry, clusters);
  countDroppedLines(registry);
  gaugeBuild(registry);
  if (limits !== undefined) gaugeLimits(registry, limits);
  if (oldestLeaseMs !== undefined) gaugeOldestLease(registry, oldestLeaseMs);
  if (organizations !== undefined && top > 0) gaugeOrganizations(registry, top, organizations);
  if (disk !== undefined) gaugeDisk(registry, disk);
  if (backups !== undefined) gaugeBackups(registry, backups);
  if (quotas !== undefined) gaugeQuotas(registry, quotas);
  const handlers = { ...requestMetrics(registry), ...eventMetrics(registry) };
  return { registry, handlers, close: measureEventLoopDelay(registry) };
}

function gaugeBuild(registry: Registry): void {
  const labels = { version: packageVersion(), node: process.versions.node };
  new Gauge({
    name: 'postern_build_info',
    help: 'The versions of Postern and Node; always 1',
    labelNames: Object.keys(labels),
    registers: [registry],
  }).set(labels, 1);
}

function gaugeLimits(registry: Registry, limits: () => Readonly<Record<string, number>>): void {
  new Gauge({
    name: 'postern_limit',
    help: 'The limits of the settings, of all workers together',
    labelNames: ['of'],
    registers: [registry],
    collect() {
      for (const [of, limit] of Object.entries(limits())) this.set({ of }, limit);
    },
  });
}

function gaugeOldestLease(registry: Registry, oldestLeaseMs: () => number): void {
  new Gauge({
    name: 'postern_oldest_lease_seconds',
    help: 'For how long the backend session that was leased first has been leased',
    registers: [registry],
    collect() {
      this.set(oldestLeaseMs() / 1_000);
    },
  });
}

/** In the place of all organizations that have no series of their own. */
const OTHERS = 'other';

function gaugeOrganizations(registry: Registry, top: number, organizations: () => Iterable<OrganizationRates>): void {
  const gauge = (name: string, help: string, of: (rates: OrganizationRates) => number) =>
    new Gauge({
      name,
      help,
      labelNames: ['organization'],
      registers: [registry],
      collect() {
        this.reset();
        const sorted = [...organizations()].sort((a, b) => b.requests - a.requests);
        let others = 0;
        for (const [at, rates] of sorted.entries()) {
          if (at < top) this.set({ organization: rates.organizationId }, of(rates));
          else others += of(rates);
        }
        this.set({ organization: OTHERS }, others);
      },
    });
  const lately = 'in the last one to two minutes, for the busiest organizations and all others';
  gauge('postern_organization_requests_per_second', `Requests at both doors ${lately}`, ({ requests }) => requests);
  gauge('postern_organization_bytes_per_second', `Bytes from clients and to them ${lately}`, ({ bytes }) => bytes);
  gauge('postern_organization_leased_backends', `Backend sessions leased on average ${lately}`, ({ leasedSeconds }) => leasedSeconds);
}

function countDroppedLines(registry: Registry): void {
  new Counter({
    name: 'postern_log_dropped_total',
    help: 'Lines of the log that could not be written',
    registers: [registry],
    collect() {
      this.reset();
      this.inc(standardOutput.dropped);
    },
  });
}

function gaugeDisk(registry: Registry, disk: () => Promise<DiskSnapshot | undefined>): void {
  const gauge = (name: string, help: string, ofDisk: (snapshot: DiskSnapshot) => number) =>
    new Gauge({
      name,
      help,
      registers: [registry],
      async collect() {
        const snapshot = await disk();
        this.set(snapshot === undefined ? Number.NaN : ofDisk(snapshot));
      },
    });
  gauge('postern_data_directory_free_bytes', 'Space that is free on the disk of the data directory', ({ freeBytes }) => freeBytes);
  gauge('postern_data_directory_size_bytes', 'Space on the disk of the data directory, in use or free', ({ sizeBytes }) => sizeBytes);
}

/** Of the one process that measures organizations: the others have 0, so that the sum is right. */
function gaugeQuotas(registry: Registry, quotas: NonNullable<MetricsSources['quotas']>): void {
  new Gauge({
    name: 'postern_organizations_over_quota',
    help: 'Organizations whose data has at least this share of their limits',
    labelNames: ['percent'],
    registers: [registry],
    collect() {
      const { near, over } = quotas() ?? { near: 0, over: 0 };
      this.set({ percent: '80' }, near);
      this.set({ percent: '100' }, over);
    },
  });
}

/** Of the one process that makes backups, which may be no worker. */
export function gaugeBackups(registry: Registry, snapshot: () => BackupsSnapshot): void {
  const gauge = (name: string, help: string, of: (seen: BackupsSnapshot) => number | undefined) =>
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(of(snapshot()) ?? Number.NaN);
      },
    });
  gauge('postern_backup_last_success_timestamp_seconds', 'When the newest base backup was whole', ({ lastSuccessAt }) => lastSuccessAt);
  gauge('postern_backup_wal_lag_bytes', 'WAL that is not archived', ({ walLagBytes }) => walLagBytes);
  gauge('postern_backup_bytes', 'Size of all base backups and of the archived WAL', ({ bytes }) => bytes);
  new Counter({
    name: 'postern_backup_failures_total',
    help: 'Base backups, trial restores and attempts to archive WAL that failed',
    registers: [registry],
    collect() {
      this.reset();
      this.inc(snapshot().failures);
    },
  });
}

function sumOf(pools: readonly PoolSnapshot[]): PoolSnapshot {
  const sum = { idle: 0, leased: 0, opening: 0, leaving: 0, waiters: 0 };
  for (const pool of pools) for (const state of ['idle', 'leased', 'opening', 'leaving', 'waiters'] as const) sum[state] += pool[state];
  return { ...sum, stuck: new Map(pools.flatMap(({ stuck }) => [...stuck])) };
}

function gaugeClusters(registry: Registry, clusters: () => readonly ClusterSnapshot[]): void {
  new Gauge({
    name: 'postern_cluster_up',
    help: 'Whether a cluster answers',
    labelNames: ['cluster'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { name, isAnswering } of clusters()) this.set({ cluster: name }, isAnswering ? 1 : 0);
    },
  });
  new Gauge({
    name: 'postern_cluster_backends',
    help: 'Backend sessions by cluster and state',
    labelNames: ['cluster', 'state'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { name, pool } of clusters()) {
        for (const state of ['idle', 'leased', 'opening', 'leaving'] as const) this.set({ cluster: name, state }, pool?.[state] ?? 0);
      }
    },
  });
  new Gauge({
    name: 'postern_cluster_lease_waiters',
    help: 'Callers that wait for a backend session, by cluster',
    labelNames: ['cluster'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { name, pool } of clusters()) this.set({ cluster: name }, pool?.waiters ?? 0);
    },
  });
}

function gaugeServers(registry: Registry, clusters: () => readonly ClusterSnapshot[]): void {
  const gauge = (name: string, help: string, of: (figures: ServerFigures) => number | undefined) =>
    new Gauge({
      name,
      help,
      labelNames: ['cluster'],
      registers: [registry],
      async collect() {
        const known = await Promise.all(clusters().map(async ({ name: cluster, figures }) => ({ cluster, figures: await figures?.() })));
        this.reset();
        for (const { cluster, figures } of known) {
          const value = figures && of(figures);
          if (value !== undefined) this.set({ cluster }, value);
        }
      },
    });
  gauge(
    'postern_cluster_lock_table_ratio',
    "Locks in a server's lock table, by those that max_locks_per_transaction is for",
    ({ lockTableShare }) => lockTableShare,
  );
  gauge('postern_cluster_data_bytes', 'Size of all databases of a server, at most ten minutes old', ({ dataBytes }) => dataBytes);
}

function gaugePools(registry: Registry, snapshot: () => PoolSnapshot): void {
  new Gauge({
    name: 'postern_backends',
    help: 'Backend sessions by state',
    labelNames: ['state'],
    registers: [registry],
    collect() {
      const { idle, leased, opening, leaving } = snapshot();
      this.set({ state: 'idle' }, idle);
      this.set({ state: 'leased' }, leased);
      this.set({ state: 'opening' }, opening);
      this.set({ state: 'leaving' }, leaving);
    },
  });
  new Gauge({
    name: 'postern_stuck_backends',
    help: 'Backend sessions that were given up and whose processes do not end',
    labelNames: ['organization'],
    registers: [registry],
    collect() {
      this.reset();
      for (const [organization, count] of snapshot().stuck) this.set({ organization }, count);
    },
  });
  new Gauge({
    name: 'postern_lease_waiters',
    help: 'Callers that wait for a backend session',
    registers: [registry],
    collect() {
      this.set(snapshot().waiters);
    },
  });
}

/** Everything that is counted less often than requests are. */
function eventMetrics(registry: Registry): ObservationHandlers {
  const counter = (name: string, help: string, labelNames: string[] = []) => new Counter({ name, help, labelNames, registers: [registry] });
  const gauge = (name: string, help: string, labelNames: string[] = []) => new Gauge({ name, help, labelNames, registers: [registry] });
  const httpConnections = gauge('postern_http_connections', 'Open connections to the HTTP door, WebSockets included');
  const wireConnections = gauge('postern_wire_connections', 'Open connections to the wire door, logged in or not');
  const wireSessions = gauge('postern_wire_sessions', 'Sessions logged in at the wire door');
  const wireSessionSeconds = new QuickHistogram(
    'postern_wire_session_seconds',
    'How long wire sessions lasted',
    undefined,
    SECONDS,
    registry,
  );
  const wireBytes = new TrafficCounter('postern_wire_bytes_total', 'Bytes relayed for sessions that have ended', registry);
  const pins = counter('postern_pins_total', 'Times that a wire session was pinned to its backend', ['reason']);
  const pinnedSessions = gauge('postern_pinned_sessions', 'Wire sessions that are pinned to their backend, by each of their reasons', [
    'reason',
  ]);
  const shared = counter('postern_shared_requests_total', "Requests that went into a busy backend's pipeline");
  const requeued = counter('postern_requeued_requests_total', 'Requests that were in a shared pipeline and were run again elsewhere');
  // The name until version 0.1; it goes with the next release.
  const setAside = counter('postern_set_aside_requests_total', 'The same as postern_requeued_requests_total');
  const logins = new PairCounter('postern_logins_total', 'Login attempts, by outcome', ['surface', 'outcome'], registry);
  const leasesRefused = counter('postern_leases_refused_total', 'Callers that got no backend session', ['door', 'reason']);
  const proxyHeadersRefused = counter('postern_proxy_headers_refused_total', 'Connections from proxies without a valid PROXY header', [
    'door',
  ]);
  const backendsOpened = new Histogram({
    name: 'postern_backend_open_seconds',
    help: 'How long it took to open backend sessions',
    buckets: SECONDS,
    registers: [registry],
  });
  const backendsClosed = counter('postern_backends_closed_total', 'Backend sessions closed');
  const loginsHealed = counter('postern_backend_logins_healed_total', 'Logins of backend roles that had to be repaired');
  const auditEntries = counter('postern_audit_entries_total', 'Audit entries written');
  const auditDropped = counter('postern_audit_dropped_total', 'Audit entries that could not be written');
  const auditLag = gauge('postern_audit_lag_seconds', 'Age of the oldest entry in the last write of the audit log');
  const warnings = counter('postern_warnings_total', 'Warnings in the log');
  const failures = counter('postern_failures_total', 'Unexpected failures in the log');
  return {
    'http.connected': () => httpConnections.inc(),
    'http.disconnected': () => httpConnections.dec(),
    'wire.connected': () => wireConnections.inc(),
    'wire.disconnected': () => wireConnections.dec(),
    'proxy_header.refused': ({ door }) => proxyHeadersRefused.inc({ door }),
    'wire.session.opened': () => wireSessions.inc(),
    'wire.session.closed'({ durationMs, bytesIn, bytesOut }) {
      wireSessions.dec();
      wireSessionSeconds.count('', durationMs / 1_000);
      wireBytes.count(bytesIn, bytesOut);
    },
    'wire.pinned'({ reason }) {
      pins.inc({ reason });
      pinnedSessions.inc({ reason });
    },
    'wire.unpinned': ({ reason }) => pinnedSessions.dec({ reason }),
    'request.shared': () => shared.inc(),
    'request.requeued'() {
      requeued.inc();
      setAside.inc();
    },
    'login.succeeded': ({ origin }) => logins.count(origin.surface, 'ok'),
    'login.failed': ({ origin, kind }) => logins.count(origin.surface, kind),
    'lease.refused': ({ door, kind }) => leasesRefused.inc({ door, reason: kind }),
    'backend.opened': ({ durationMs }) => backendsOpened.observe(durationMs / 1_000),
    'backend.closed': () => backendsClosed.inc(),
    'backend.login_healed': () => loginsHealed.inc(),
    'audit.written'({ entries, lagMs }) {
      auditEntries.inc(entries);
      auditLag.set(lagMs / 1_000);
    },
    'audit.dropped': ({ entries }) => auditDropped.inc(entries),
    'service.warning': () => warnings.inc(),
    'backend.stuck': () => warnings.inc(),
    'backup.failed': () => warnings.inc(),
    'service.failure': () => failures.inc(),
  };
}

/*
 * The metrics of every request. They only count; values are made when Prometheus scrapes.
 */

/** Upper bounds of the buckets of durations. */
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Actions that are counted as queries. */
export const QUERY_ACTIONS: ReadonlySet<string> = new Set(['query', 'transaction', 'migrations.apply', 'migrations.rollback', 'neon.sql']);

/** Counts the requests at both doors, and the leases that they take. */
function requestMetrics(registry: Registry): ObservationHandlers {
  const seconds = <Label extends string>(name: string, help: string, label: Label) =>
    new QuickHistogram(name, help, label, SECONDS, registry);
  const queries = new QueryCounter('postern_queries_total', 'Requests that ran SQL', registry);
  const httpRequests = new PairCounter('postern_http_requests_total', 'HTTP calls', ['action', 'status'], registry);
  const httpSeconds = seconds('postern_http_request_seconds', 'How long HTTP calls took', 'action');
  const wireSeconds = new QuickHistogram(
    'postern_wire_request_seconds',
    'How long requests at the wire door took, from their arrival to ReadyForQuery',
    undefined,
    SECONDS,
    registry,
  );
  const leases = new DoorGauge('postern_leases', 'Backend sessions that are leased', registry);
  const waitSeconds = seconds('postern_lease_wait_seconds', 'How long callers waited for a backend session', 'door');
  const heldSeconds = seconds('postern_lease_held_seconds', 'How long backend sessions were leased', 'door');
  return {
    'http.request'({ action, outcome: { status, httpStatus = 0, durationMs = 0 } }) {
      httpRequests.count(action, httpStatus);
      httpSeconds.count(action, durationMs / 1_000);
      if (QUERY_ACTIONS.has(action)) queries.count('http', status);
    },
    'wire.query'({ durationMs }) {
      queries.count('wire', 'ok');
      wireSeconds.count('', durationMs / 1_000);
    },
    'wire.query.failed'({ durationMs }) {
      queries.count('wire', 'error');
      wireSeconds.count('', durationMs / 1_000);
    },
    'lease.granted'({ door, waitMs }) {
      leases.add(door, 1);
      waitSeconds.count(door, waitMs / 1_000);
    },
    'lease.released'({ door, heldMs }) {
      leases.add(door, -1);
      heldSeconds.count(door, heldMs / 1_000);
    },
  };
}

/** The doors, as label values. */
const DOORS = ['http', 'wire'] as const;
type DoorLabel = (typeof DOORS)[number];

type Both<T> = Record<DoorLabel, T>;

/** A histogram's counts, one for each upper bound and one for larger values. */
class Buckets {
  readonly counts: Float64Array;
  sum = 0;

  constructor(size: number) {
    this.counts = new Float64Array(size + 1);
  }
}

/** A histogram for every request, with one label or none. It only counts; values are made when Prometheus scrapes. */
class QuickHistogram<Label extends string> extends Histogram<Label> {
  readonly #bounds: readonly number[];
  readonly #buckets = new Map<string, Buckets>();
  readonly #label: Label | undefined;
  readonly #about: { readonly name: string; readonly help: string };

  constructor(name: string, help: string, label: Label | undefined, bounds: readonly number[], registry: Registry) {
    super({ name, help, labelNames: label === undefined ? [] : [label], buckets: [...bounds], registers: [registry] });
    this.#bounds = bounds;
    this.#label = label;
    this.#about = { name, help };
    // Without a label there is exactly one series.
    if (label === undefined) this.#bucketsOf('');
  }

  count(of: string, value: number): void {
    const buckets = this.#bucketsOf(of);
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] ?? 0)) at += 1;
    buckets.counts[at] = (buckets.counts[at] ?? 0) + 1;
    buckets.sum += value;
  }

  #bucketsOf(of: string): Buckets {
    let buckets = this.#buckets.get(of);
    if (buckets === undefined) {
      buckets = new Buckets(this.#bounds.length);
      this.#buckets.set(of, buckets);
    }
    return buckets;
  }

  /** prom-client makes both its text and its JSON of this. */
  async getForPromString(): Promise<object> {
    const values = [...this.#buckets].flatMap(([of, buckets]) => this.#valuesOf(of, buckets));
    return { ...this.#about, type: 'histogram', aggregator: 'sum', values };
  }

  #valuesOf(of: string, { counts, sum }: Buckets): object[] {
    const { name } = this.#about;
    const sharedLabels = this.#label === undefined ? {} : { [this.#label]: of };
    let total = 0;
    const upTo = [...counts].map((count) => {
      total += count;
      return total;
    });
    const value = (suffix: string, amount: number, labels: object) => ({
      metricName: `${name}_${suffix}`,
      value: amount,
      labels,
      sharedLabels,
    });
    return [
      ...upTo.map((amount, i) => value('bucket', amount, { le: this.#bounds[i] ?? '+Inf' })),
      value('sum', sum, {}),
      value('count', total, {}),
    ];
  }
}

/** A counter with two labels, which counts in the same way. */
class PairCounter<Label extends string> {
  readonly #counts = new Map<string, Map<string | number, number>>();

  constructor(name: string, help: string, [first, second]: readonly [Label, Label], registry: Registry) {
    const counts = this.#counts;
    new Counter<string>({
      name,
      help,
      labelNames: [first, second],
      registers: [registry],
      collect() {
        this.reset();
        for (const [outer, bySecond] of counts)
          for (const [inner, count] of bySecond) this.inc({ [first]: outer, [second]: String(inner) }, count);
      },
    });
  }

  count(first: string, second: string | number): void {
    const bySecond = this.#counts.get(first) ?? new Map<string | number, number>();
    if (bySecond.size === 0) this.#counts.set(first, bySecond);
    bySecond.set(second, (bySecond.get(second) ?? 0) + 1);
  }
}

/** Bytes that came from clients and went to them. */
class TrafficCounter {
  readonly #bytes = { in: 0, out: 0 };

  constructor(name: string, help: string, registry: Registry) {
    const bytes = this.#bytes;
    new Counter({
      name,
      help,
      labelNames: ['direction'],
      registers: [registry],
      collect() {
        this.reset();
        for (const direction of ['in', 'out'] as const) this.inc({ direction }, bytes[direction]);
      },
    });
  }

  count(bytesIn: number, bytesOut: number): void {
    this.#bytes.in += bytesIn;
    this.#bytes.out += bytesOut;
  }
}

/** Requests that ran SQL, by door and outcome. */
class QueryCounter {
  readonly #counts: Both<{ ok: number; error: number }> = { http: { ok: 0, error: 0 }, wire: { ok: 0, error: 0 } };

  constructor(name: string, help: string, registry: Registry) {
    const counts = this.#counts;
    new Counter({
      name,
      help,
      labelNames: ['door', 'outcome'],
      registers: [registry],
      collect() {
        this.reset();
        for (const door of DOORS)
          for (const outcome of ['ok', 'error'] as const) if (counts[door][outcome] > 0) this.inc({ door, outcome }, counts[door][outcome]);
      },
    });
  }

  count(door: DoorLabel, outcome: 'ok' | 'error'): void {
    this.#counts[door][outcome] += 1;
  }
}

/** A gauge with one value for each door. */
class DoorGauge {
  readonly #counts: Both<number | undefined> = { http: undefined, wire: undefined };

  constructor(name: string, help: string, registry: Registry) {
    const counts = this.#counts;
    new Gauge({
      name,
      help,
      labelNames: ['door'],
      registers: [registry],
      collect() {
        for (const door of DOORS) if (counts[door] !== undefined) this.set({ door }, counts[door]);
      },
    });
  }

  add(door: DoorLabel, change: number): void {
    this.#counts[door] = (this.#counts[door] ?? 0) + change;
  }
}

/** Often enough to notice every turn that delays clients, and rarely enough to cost almost nothing. */
const INTERVAL_MS = 10;
const DELAY_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/**
 * Measures how late the event loop runs timers. A long turn delays the clients of all organizations.
 * @returns a function that stops measuring
 */
function measureEventLoopDelay(registry: Registry): () => void {
  const name = 'postern_event_loop_delay_seconds';
  const delays = new QuickHistogram(name, 'How late the event loop ran timers', undefined, DELAY_SECONDS, registry);
  let before = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    delays.count('', Math.max(0, now - before - INTERVAL_MS) / 1_000);
    before = now;
  }, INTERVAL_MS);
  timer.unref();
  return () => clearInterval(timer);
}
