import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { ObservationHandlers } from '../observation.ts';
import { measureEventLoopDelay } from './event-loop-delay.ts';
import { standardOutput } from './log.ts';
import { PairCounter, QuickHistogram, requestMetrics, SECONDS, TrafficCounter } from './request-metrics.ts';

/** How many backends the pool has by state, and how many callers wait for one. */
export interface PoolSnapshot {
  readonly idle: number;
  readonly leased: number;
  readonly opening: number;
  readonly leaving: number;
  readonly waiters: number;
  /** By organization. */
  readonly stuck: ReadonlyMap<string, number>;
}

/** A PostgreSQL server: how it is seen now. */
export interface ClusterSnapshot {
  readonly name: string;
  readonly isAnswering: boolean;
  /** Undefined until it has answered. */
  readonly pool: PoolSnapshot | undefined;
}

/** The disk of the embedded server. */
export interface DiskSnapshot {
  readonly freeBytes: number;
  readonly sizeBytes: number;
}

export interface MetricsSources {
  readonly clusters: () => readonly ClusterSnapshot[];
  /** Undefined: the server is another one, whose disk cannot be seen. */
  readonly disk?: (() => Promise<DiskSnapshot | undefined>) | undefined;
}

export interface Metrics {
  readonly handlers: ObservationHandlers;
  readonly registry: Registry;
  /** Stops the measurement of the event loop. */
  close(): void;
}

/**
 * The Prometheus metrics of one process. Label values are few and known in advance: never a path as sent or an error
 * text, and an organization only where its sessions cannot be ended.
 */
export function createMetrics({ clusters, disk }: MetricsSources): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  gaugePools(registry, () => sumOf(clusters().flatMap(({ pool }) => pool ?? [])));
  gaugeClusters(registry, clusters);
  countDroppedLines(registry);
  if (disk !== undefined) gaugeDisk(registry, disk);
  const handlers = { ...requestMetrics(registry), ...eventMetrics(registry) };
  return { registry, handlers, close: measureEventLoopDelay(registry) };
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
    'service.failure': () => failures.inc(),
  };
}
