import { setImmediate, setTimeout } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { fanOut, type Observation } from '../../../src/observation.ts';
import { createMetrics } from '../../../src/observers/metrics.ts';

const origin = { surface: 'wire', sourceIp: '203.0.113.7' } as const;
const actor = { organizationId: 'org_abcdefghijkl', keyId: 'key_a', keyPrefix: 'pst_4fT9aB' };

/** One of each, except for those that undo another. */
const observations: readonly Observation[] = [
  { name: 'http.request', action: 'query', origin, actor, outcome: { status: 'ok', httpStatus: 200, durationMs: 20 } },
  { name: 'http.request', action: 'auth.me', origin, outcome: { status: 'error', httpStatus: 401, durationMs: 1 } },
  { name: 'login.succeeded', origin, actor },
  { name: 'login.failed', origin, actor, kind: 'unauthorized', sqlstate: '28P01' },
  { name: 'wire.connected' },
  { name: 'wire.connected' },
  { name: 'wire.disconnected' },
  { name: 'wire.session.opened', origin, actor },
  { name: 'wire.session.opened', origin, actor },
  { name: 'wire.session.closed', origin, actor, durationMs: 3_000, statements: 2, bytesIn: 10, bytesOut: 20, reason: 'terminate' },
  { name: 'wire.query', durationMs: 3 },
  { name: 'wire.query.failed', organizationId: actor.organizationId, sqlstate: '42P01', durationMs: 4 },
  { name: 'wire.pinned', reason: 'temp' },
  { name: 'wire.pinned', reason: 'listen' },
  { name: 'wire.unpinned', reason: 'temp' },
  { name: 'lease.granted', door: 'wire', waitMs: 2 },
  { name: 'lease.granted', door: 'http', waitMs: 2 },
  { name: 'lease.released', door: 'http', heldMs: 5 },
  { name: 'lease.refused', door: 'http', organizationId: 'org_a', kind: 'pool_timeout' },
  { name: 'backend.opened', durationMs: 7 },
  { name: 'backend.closed', reason: 'idle' },
  { name: 'backend.login_healed', organizationId: actor.organizationId },
  { name: 'audit.written', entries: 3, lagMs: 250 },
  { name: 'audit.dropped', entries: 2, cause: new Error('down') },
  { name: 'service.failure', message: 'x', cause: undefined },
];

const stuck = new Map([['org_000000000000', 2]]);

async function scrape(): Promise<string[]> {
  const { handlers, registry, close } = createMetrics({
    clusters: () => [
      {
        name: 'default',
        isAnswering: true,
        pool: { idle: 3, leased: 3, opening: 2, leaving: 5, waiters: 1, stuck },
        figures: async () => ({ lockTableShare: 0.25, dataBytes: 7_000 }),
      },
      { name: 'b', isAnswering: true, pool: { idle: 1, leased: 0, opening: 0, leaving: 0, waiters: 0, stuck: new Map() } },
      { name: 'c', isAnswering: false, pool: undefined },
    ],
    disk: async () => ({ freeBytes: 5, sizeBytes: 50 }),
  });
  const observe = fanOut(handlers);
  for (const observation of observations) observe(observation);
  close();
  return (await registry.metrics()).split('\n');
}

it('counts what happens and measures how long it takes', async () => {
  expect(await scrape()).toEqual(
    expect.arrayContaining([
      'postern_cluster_lock_table_ratio{cluster="default"} 0.25',
      'postern_cluster_data_bytes{cluster="default"} 7000',
      'postern_http_requests_total{action="query",status="200"} 1',
      'postern_http_requests_total{action="auth.me",status="401"} 1',
      'postern_http_request_seconds_sum{action="query"} 0.02',
      'postern_queries_total{door="http",outcome="ok"} 1',
      'postern_queries_total{door="wire",outcome="ok"} 1',
      'postern_queries_total{door="wire",outcome="error"} 1',
      'postern_logins_total{surface="wire",outcome="ok"} 1',
      'postern_logins_total{surface="wire",outcome="unauthorized"} 1',
      'postern_wire_connections 1',
      'postern_wire_sessions 1',
      'postern_wire_session_seconds_sum 3',
      'postern_wire_bytes_total{direction="out"} 20',
      'postern_pins_total{reason="temp"} 1',
      'postern_pinned_sessions{reason="temp"} 0',
      'postern_pinned_sessions{reason="listen"} 1',
      'postern_leases{door="wire"} 1',
      'postern_lease_wait_seconds_count{door="wire"} 1',
      'postern_leases{door="http"} 0',
      'postern_lease_wait_seconds_bucket{le="0.0025",door="wire"} 1',
      'postern_leases_refused_total{door="http",reason="pool_timeout"} 1',
      'postern_backend_open_seconds_count 1',
      'postern_backends_closed_total 1',
      'postern_backend_logins_healed_total 1',
      'postern_audit_entries_total 3',
      'postern_audit_lag_seconds 0.25',
      'postern_audit_dropped_total 2',
      'postern_failures_total 1',
    ]),
  );
});

it('reads the pool when it is asked', async () => {
  expect(await scrape()).toEqual(
    expect.arrayContaining([
      'postern_backends{state="idle"} 4',
      'postern_backends{state="leased"} 3',
      'postern_backends{state="opening"} 2',
      'postern_backends{state="leaving"} 5',
      'postern_stuck_backends{organization="org_000000000000"} 2',
      'postern_lease_waiters 1',
      'postern_cluster_up{cluster="default"} 1',
      'postern_cluster_up{cluster="c"} 0',
      'postern_cluster_backends{cluster="default",state="idle"} 3',
      'postern_cluster_backends{cluster="b",state="idle"} 1',
      'postern_cluster_backends{cluster="c",state="idle"} 0',
      'postern_cluster_lease_waiters{cluster="default"} 1',
      'postern_data_directory_free_bytes 5',
      'postern_data_directory_size_bytes 50',
    ]),
  );
});

it('names no key or address, and organizations only whose sessions cannot be ended', async () => {
  expect((await scrape()).filter((line) => !line.startsWith('postern_stuck_backends')).join('\n')).not.toMatch(/org_|pst_|key_a|203\.0/);
});

it('measures how long a turn of the event loop keeps all others waiting, until it is closed', async () => {
  const { registry, close } = createMetrics({
    clusters: () => [],
  });
  const longer = async () => {
    const name = 'postern_event_loop_delay_seconds';
    const [, upTo] = new RegExp(`^${name}_bucket{le="0.05"} (\\d+)$`, 'm').exec(await registry.metrics()) ?? [];
    const [, all] = new RegExp(`^${name}_count (\\d+)$`, 'm').exec(await registry.metrics()) ?? [];
    return Number(all) - Number(upTo);
  };
  const stall = async () => {
    const until = performance.now() + 100;
    while (performance.now() < until);
    await setTimeout(0);
    await setImmediate();
  };
  const idle = await longer();
  await stall();
  const stalled = await longer();
  expect(stalled).toBeGreaterThan(idle);
  close();
  await stall();
  expect(await longer()).toBe(stalled);
});
