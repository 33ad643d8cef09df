import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { Observation, Observe } from '../observation.ts';
import { measureEventLoopDelay } from './event-loop-delay.ts';
import { DoorGauge, PairCounter, QueryCounter, QuickHistogram, TrafficCounter } from './metric-instruments.ts';

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

export interface Metrics {
  readonly observe: Observe;
  readonly registry: Registry;
  /** Stops the measurement of the event loop. */
  close(): void;
}

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/**
 * The Prometheus metrics of one process. Label values are few and known in advance: never a path as sent or an error
 * text, and an organization only where its sessions cannot be ended.
 */
export function createMetrics({ clusters }: { readonly clusters: () => readonly ClusterSnapshot[] }): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  gaugePools(registry, () => sumOf(clusters().flatMap(({ pool }) => pool ?? [])));
  gaugeClusters(registry, clusters);
  return { registry, observe: counting(registry), close: measureEventLoopDelay(registry) };
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

/** Actions that are counted as queries. */
export const QUERY_ACTIONS: ReadonlySet<string> = new Set(['query', 'transaction', 'migrations.apply', 'neon.sql']);

function counting(registry: Registry): Observe {
  const instruments = createInstruments(registry);
  return (observation) => count(observation, instruments);
}

type Instruments = ReturnType<typeof createInstruments>;

function createInstruments(registry: Registry) {
  const counter = (name: string, help: string, labelNames: string[] = []) => new Counter({ name, help, labelNames, registers: [registry] });
  const gauge = (name: string, help: string, labelNames: string[] = []) => new Gauge({ name, help, labelNames, registers: [registry] });
  const seconds = (name: string, help: string, labelNames: string[] = []) =>
    new Histogram({ name, help, labelNames, buckets: SECONDS, registers: [registry] });
  return {
    httpConnections: gauge('postern_http_connections', 'Open connections to the HTTP door, WebSockets included'),
    wireConnections: gauge('postern_wire_connections', 'Open connections to the wire door, logged in or not'),
    wireSessions: gauge('postern_wire_sessions', 'Sessions logged in at the wire door'),
    wireSessionSeconds: new QuickHistogram('postern_wire_session_seconds', 'How long wire sessions lasted', undefined, SECONDS, registry),
    wireBytes: new TrafficCounter('postern_wire_bytes_total', 'Bytes relayed for sessions that have ended', registry),
    pins: counter('postern_pins_total', 'Times that a wire session was pinned to its backend', ['reason']),
    pinnedSessions: gauge('postern_pinned_sessions', 'Wire sessions that are pinned to their backend, by each of their reasons', [
      'reason',
    ]),
    shared: counter('postern_shared_requests_total', "Requests that went into a busy backend's pipeline"),
    requeued: counter('postern_requeued_requests_total', 'Requests that were in a shared pipeline and were run again elsewhere'),
    // The name until version 0.1; it goes with the next release.
    setAside: counter('postern_set_aside_requests_total', 'The same as postern_requeued_requests_total'),
    queries: new QueryCounter('postern_queries_total', 'Requests that ran SQL', registry),
    httpRequests: new PairCounter('postern_http_requests_total', 'HTTP calls', ['action', 'status'], registry),
    httpSeconds: new QuickHistogram('postern_http_request_seconds', 'How long HTTP calls took', 'action', SECONDS, registry),
    logins: new PairCounter('postern_logins_total', 'Login attempts, by outcome', ['surface', 'outcome'], registry),
    leases: new DoorGauge('postern_leases', 'Backend sessions that are leased', registry),
    leaseWaitSeconds: new QuickHistogram(
      'postern_lease_wait_seconds',
      'How long callers waited for a backend session',
      'door',
      SECONDS,
      registry,
    ),
    leaseHeldSeconds: new QuickHistogram('postern_lease_held_seconds', 'How long backend sessions were leased', 'door', SECONDS, registry),
    leasesRefused: counter('postern_leases_refused_total', 'Callers that got no backend session', ['door', 'reason']),
    backendsOpened: seconds('postern_backend_open_seconds', 'How long it took to open backend sessions'),
    backendsClosed: counter('postern_backends_closed_total', 'Backend sessions closed'),
    loginsHealed: counter('postern_backend_logins_healed_total', 'Logins of backend roles that had to be repaired'),
    auditEntries: counter('postern_audit_entries_total', 'Audit entries written'),
    auditDropped: counter('postern_audit_dropped_total', 'Audit entries that could not be written'),
    auditLag: gauge('postern_audit_lag_seconds', 'Age of the oldest entry in the last write of the audit log'),
    warnings: counter('postern_warnings_total', 'Warnings in the log'),
    failures: counter('postern_failures_total', 'Unexpected failures in the log'),
  };
}

function count(observation: Observation, to: Instruments): void {
  switch (observation.name) {
    case 'http.request':
      countHttp(observation, to);
      break;
    case 'http.connected':
      to.httpConnections.inc();
      break;
    case 'http.disconnected':
      to.httpConnections.dec();
      break;
    case 'wire.connected':
      to.wireConnections.inc();
      break;
    case 'wire.disconnected':
      to.wireConnections.dec();
      break;
    case 'wire.session.opened':
      to.wireSessions.inc();
      break;
    case 'wire.session.closed':
      to.wireSessions.dec();
      to.wireSessionSeconds.count('', observation.durationMs / 1_000);
      to.wireBytes.count(observation.bytesIn, observation.bytesOut);
      break;
    case 'wire.query':
      to.queries.count('wire', observation.sqlstate === undefined ? 'ok' : 'error');
      break;
    case 'wire.pinned':
      to.pins.inc({ reason: observation.reason });
      to.pinnedSessions.inc({ reason: observation.reason });
      break;
    case 'wire.unpinned':
      to.pinnedSessions.dec({ reason: observation.reason });
      break;
    case 'request.shared':
      to.shared.inc();
      break;
    case 'request.requeued':
      to.requeued.inc();
      to.setAside.inc();
      break;
    case 'login.succeeded':
      to.logins.count(observation.origin.surface, 'ok');
      break;
    case 'login.failed':
      to.logins.count(observation.origin.surface, observation.kind);
      break;
    case 'lease.granted':
      to.leases.add(observation.door, 1);
      to.leaseWaitSeconds.count(observation.door, observation.waitMs / 1_000);
      break;
    case 'lease.released':
      to.leases.add(observation.door, -1);
      to.leaseHeldSeconds.count(observation.door, observation.heldMs / 1_000);
      break;
    case 'lease.refused':
      to.leasesRefused.inc({ door: observation.door, reason: observation.kind });
      break;
    case 'backend.opened':
      to.backendsOpened.observe(observation.durationMs / 1_000);
      break;
    case 'backend.closed':
      to.backendsClosed.inc();
      break;
    case 'backend.login_healed':
      to.loginsHealed.inc();
      break;
    case 'audit.written':
      to.auditEntries.inc(observation.entries);
      to.auditLag.set(observation.lagMs / 1_000);
      break;
    case 'audit.dropped':
      to.auditDropped.inc(observation.entries);
      break;
    case 'service.warning':
    case 'backend.stuck':
      to.warnings.inc();
      break;
    case 'service.failure':
      to.failures.inc();
      break;
    case 'service.started':
    case 'service.stopping':
    case 'backend.unstuck':
    case 'wire.statement':
      break;
  }
}

function countHttp({ action, outcome }: Extract<Observation, { name: 'http.request' }>, to: Instruments): void {
  to.httpRequests.count(action, outcome.httpStatus ?? 0);
  to.httpSeconds.count(action, (outcome.durationMs ?? 0) / 1_000);
  if (QUERY_ACTIONS.has(action)) to.queries.count('http', outcome.status);
}
