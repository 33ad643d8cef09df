import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { recordStatement } from '../../src/catalog/audit/records.ts';
import type { Observation } from '../../src/observation.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestService } from '../support/service.ts';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '1', POSTERN_SLOW_STATEMENT_MS: '250' });
});
afterAll(() => service.close());

const metrics = async () => (await fetch(`${service.opsUrl}/metrics`)).text();

describe('metrics', () => {
  it('count what is asked at both doors, by how it ended', async () => {
    const organization = await service.signUp();
    const client = await service.connect(organization);
    await client.query('SELECT 1');
    await client.query('SELECT $1::int4', [2]);
    // Makes the service ask the server what the session holds: that is no request of the client's.
    await client.query('SET work_mem = 1024');
    await expect(client.query('SELECT 1 / 0')).rejects.toThrow();
    await expect(client.query('SELECT $1::int4 / 0', [1])).rejects.toThrow();
    await client.query('SELECT 3');
    await client.end();
    await service.query(organization, 'SELECT 1');
    const headers = { 'neon-connection-string': `postgres://${organization.id}:${organization.apiKey}@postern.test/${organization.id}` };
    for (const query of ['SELECT 1', 'SELECT 1 / 0']) {
      await fetch(`${service.httpUrl}/sql`, { method: 'POST', headers, body: JSON.stringify({ query }) });
    }
    const told = ['wire",outcome="ok"} 4', 'wire",outcome="error"} 2', 'http",outcome="ok"} 2', 'http",outcome="error"} 1'];
    await eventually('all are counted', async () => {
      const text = await metrics();
      return told.every((line) => text.includes(`postern_queries_total{door="${line}\n`));
    });
  });

  it('tell how full the lock table of each server is, and how large its databases are', async () => {
    let text = '';
    // A server that is busy is not waited for.
    await eventually('the server has answered', async () => {
      text = await metrics();
      return text.includes('postern_cluster_data_bytes{') && text.includes('postern_cluster_lock_table_ratio{');
    });
    const figure = (name: string) => Number(new RegExp(`^${name}\\{cluster="default"\\} (\\S+)$`, 'm').exec(text)?.[1]);
    expect(figure('postern_cluster_lock_table_ratio')).toBeGreaterThan(0);
    expect(figure('postern_cluster_lock_table_ratio')).toBeLessThan(1);
    expect(figure('postern_cluster_data_bytes')).toBeGreaterThan(5_000_000);
  });

  it('go with lines in the log about slow statements, which have no text', async () => {
    const organization = await service.signUp();
    const client = await service.connect(organization);
    await client.query("SELECT pg_sleep(0.3), 'secret'");
    await client.query('SELECT pg_sleep($1)', [0.3]);
    const isOurs = (one: Observation) => one.name === 'statement.slow' && one.organizationId === organization.id;
    const told = service.observations.filter(isOurs);
    const { sqlHash } = recordStatement({ sql: "SELECT pg_sleep(0.3), 'secret'" });
    expect(told).toMatchObject([
      { door: 'wire', sqlHash },
      { door: 'wire', sqlHash: recordStatement({ sql: 'SELECT pg_sleep($1)' }).sqlHash },
    ]);
    expect(JSON.stringify(told)).not.toContain('secret');
    await client.end();
  });

  it('count the sessions that keep their backend, by reason, as long as they do', async () => {
    const organization = await service.signUp();
    const client = await service.connect(organization);
    const told = (...lines: string[]) =>
      eventually(lines.join(), async () => {
        const text = await metrics();
        return lines.every((line) => text.includes(`${line}\n`));
      });
    await client.query('LISTEN news');
    await client.query('CREATE TEMPORARY TABLE own (n int)');
    await client.query('SELECT pg_advisory_lock(1)');
    await client.query("PREPARE moment AS SELECT 'now'::timestamptz");
    const reasons = ['listen', 'temp', 'advisory_lock', 'prepared'];
    await told(
      ...reasons.flatMap((reason) => [`postern_pins_total{reason="${reason}"} 1`, `postern_pinned_sessions{reason="${reason}"} 1`]),
    );
    await client.query('UNLISTEN *');
    await told('postern_pinned_sessions{reason="listen"} 0', 'postern_pinned_sessions{reason="temp"} 1');
    await client.query('DISCARD ALL');
    await told(...reasons.map((reason) => `postern_pinned_sessions{reason="${reason}"} 0`));
    await client.query('LISTEN news');
    await client.end();
    await told('postern_pins_total{reason="listen"} 2', 'postern_pinned_sessions{reason="listen"} 0');
  });

  it('count leases and how long callers waited for them', async () => {
    const organization = await service.signUp();
    const clients = await Promise.all([1, 2].map(() => service.connect(organization)));
    const [first, second] = clients;
    await first?.query('BEGIN');
    // The last session of the test before may not have given its own back yet.
    await eventually('one is leased', async () => (await metrics()).includes('postern_leases{door="wire"} 1\n'));
    const waits = second?.query('SELECT 1');
    await eventually('somebody waits', async () => (await metrics()).includes('postern_lease_waiters 1\n'));
    await first?.query('COMMIT');
    await waits;
    await Promise.all(clients.map((client) => client.end()));
    await eventually('all is given back', async () => (await metrics()).includes('postern_leases{door="wire"} 0\n'));
    const text = await metrics();
    const count = Number(/^postern_lease_wait_seconds_count\{door="wire"\} (\d+)$/m.exec(text)?.[1]);
    const atOnce = Number(/^postern_lease_wait_seconds_bucket\{le="0.001",door="wire"\} (\d+)$/m.exec(text)?.[1]);
    expect(count).toBeGreaterThan(atOnce);
  });
});
