import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import type { z } from 'zod';
import { usageReply } from '../../http/routes/insights.ts';
import { ControlPool } from '../../src/catalog/control-pool.ts';
import {
  addUp,
  addUsage,
  BUCKETS,
  bucketOf,
  deleteOldUsage,
  OrganizationUsage,
  percentile,
  readUsage,
  UsageCounters,
} from '../../src/catalog/usage.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

const CONTROL = newControlDatabase();
let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_CONTROL_DATABASE: CONTROL });
  acme = await service.signUp();
});
afterAll(() => service.close());

async function usage(period = '24h', { apiKey: key } = acme, from = service): Promise<z.output<typeof usageReply>> {
  const { status, body } = await from.call('GET', `/api/usage?period=${period}`, { key });
  expect(status, JSON.stringify(body)).toBe(200);
  expect(usageReply.parse(body)).toEqual(body);
  return body;
}

const flush = (of: TestService) => of.service.router.catalog.usage.flush();

it('counts what an organization does at both doors, and adds up what processes have written', async () => {
  expect(await usage()).toMatchObject({ intervals: [], totals: { statements: 0, errors: 0, rows: 0, bytesIn: 0, bytesOut: 0 } });
  const body = JSON.stringify({ sql: 'CREATE TABLE counted AS SELECT generate_series(1, 7) AS id' });
  await service.call('POST', '/api/query', { key: acme.apiKey, body });
  await service.call('POST', '/api/transaction', {
    key: acme.apiKey,
    body: { statements: [{ sql: 'SELECT 1' }, { sql: 'SELECT 2' }, { sql: 'INSERT INTO counted VALUES (8)' }] },
  });
  expect((await service.query(acme, 'SELECT wrong')).status).toBe(400);
  await eventually('HTTP is counted', async () => (await usage()).totals.statements === 5);
  const { totals: overHttp } = await usage();
  expect(overHttp).toMatchObject({ statements: 5, errors: 1, rows: 7 + 1 + 1 + 1 });
  expect(overHttp.bytesIn).toBeGreaterThan(body.length);
  expect(overHttp.bytesOut).toBeGreaterThan(200);

  const clients = await Promise.all([1, 2, 3].map(() => service.connect(acme)));
  expect((await usage()).sessions).toMatchObject({ wire: 3, http: 1, limits: { wire: expect.any(Number), backends: 16 } });
  const [client] = clients;
  await client?.query('SELECT id, pg_sleep(0.01) FROM counted');
  await client?.query('INSERT INTO counted SELECT generate_series(11, 22)');
  await client?.query('UPDATE counted SET id = id WHERE id = $1', [8]);
  await expect(client?.query('SELECT wrong')).rejects.toMatchObject({ code: '42703' });
  for (const each of clients) await each.end();

  const { totals, intervals } = await usage();
  expect(totals).toMatchObject({ statements: 9, errors: 2, rows: overHttp.rows + 8 + 12 + 1 });
  expect(totals.bytesOut).toBeGreaterThan(overHttp.bytesOut + 8 * 10);
  expect(totals.bytesIn).toBeGreaterThan(overHttp.bytesIn + 100);
  // An interval may have ended meanwhile.
  expect(Math.max(...intervals.map(({ peakSessions }) => peakSessions))).toBe(3);
  expect(Math.max(...intervals.map(({ latencyMs }) => latencyMs?.p99 ?? 0))).toBeGreaterThan(70);

  await flush(service);
  expect((await usage()).totals).toEqual(totals);
  const second = await startTestService({ POSTERN_CONTROL_DATABASE: CONTROL });
  await second.query(acme, 'SELECT 1');
  await flush(second);
  await second.close();
  expect((await usage()).totals).toMatchObject({ statements: 10, errors: 2 });
  const days = await usage('90d');
  expect(days.totals.statements).toBe(10);
  expect(days.intervals.at(-1)?.startsAt).toMatch(/T00:00:00.000Z$/);
});

it('measures what an organization stores, and waits for nobody who locks a table', async () => {
  const large = await service.signUp();
  const client = await service.connect(large);
  await client.query('CREATE TABLE large AS SELECT i, repeat(md5(i::text), 100) AS text FROM generate_series(1, 2000) i');
  await client.query('CREATE INDEX ON large (i)');
  await client.query('ANALYZE large; BEGIN; LOCK TABLE large');
  // The lock is held until the client ends: who waited for it would wait for ever.
  const { database } = await usage('24h', large);
  expect(database.bytes).toBeGreaterThan(150_000);
  await client.end();
});

it('shows an organization its own, with any key, and another nothing of it', async () => {
  const { body } = await service.call('POST', '/api/keys', { key: acme.apiKey, body: { name: 'reader', scope: 'read' } });
  const reader = { ...acme, apiKey: body.apiKey };
  const { totals } = await usage();
  await service.query(reader, 'SELECT 1');
  await eventually('it is counted', async () => (await usage('24h', reader)).totals.statements === totals.statements + 1);
  expect((await usage('24h', await service.signUp())).totals.statements).toBe(0);
  expect((await service.call('GET', '/api/usage?period=1y', { key: acme.apiKey })).status).toBe(400);
});

it('keeps five minutes for a day and days for 90, and forgets a dropped organization', async () => {
  const gone = await service.signUp();
  const { host, port, user, password } = inject('cluster');
  const database = new ControlPool({ host, port, user, password, database: CONTROL });
  const counts = { statements: 1, errors: 0, rows: 0, bytesIn: 0, bytesOut: 0, peakSessions: 2, latency: [0, 3] };
  const now = new Date();
  const before = (hours: number) => new Date(now.getTime() - hours * 3_600_000);
  const add = (hours: number, more = {}) =>
    database.run((sql) => addUsage(sql, new Map([[gone.id, { ...counts, ...more }]]), before(hours)));
  const read = (period: '24h' | '90d') => database.run((sql) => readUsage(sql, gone.id, period, now));
  await add(0.02);
  await add(0.02, { latency: [1, 1, 1], peakSessions: 1 });
  for (const hours of [23, 26, 24 * 89, 24 * 92]) await add(hours);
  expect((await read('24h')).at(-1)).toMatchObject({ statements: 2, peakSessions: 2, latency: [1, 4, 1] });
  await database.run((sql) => deleteOldUsage(sql, now));
  const [stored] = await database.run(
    (sql) => sql<{ minutes: number; days: number }[]>`
    select count(*) filter (where not is_day)::int as minutes, count(*) filter (where is_day)::int as days
    from postern.usage where organization_id = ${gone.id}`,
  );
  expect(stored?.minutes).toBe(2);
  expect(stored?.days).toBe((await read('90d')).length);
  expect((await read('90d')).map(({ statements }) => statements).reduce((a, b) => a + b)).toBe(5);

  const drop = await service.call('DELETE', '/api/organization', { key: gone.apiKey, body: { confirm: gone.id } });
  expect([200, 202]).toContain(drop.status);
  await eventually('it is dropped', async () => {
    await add(0);
    return (await read('90d')).length === 0;
  });
  await database.close();
});

it('remembers only organizations that do something or are connected, and loses nothing that cannot be written', () => {
  const counters = new UsageCounters();
  counters.of('idle').sessionOpened();
  counters.of('busy').statements += 2;
  counters.of('busy').answered(1.5, true);
  const first = counters.takeAll();
  expect([...first.keys()]).toEqual(['idle', 'busy']);
  const busy = first.get('busy');
  if (busy === undefined) throw new Error('busy is not counted');
  counters.of('busy').giveBack(busy);
  expect(counters.takeAll().get('busy')).toEqual(busy);
  expect([...counters.takeAll().keys()]).toEqual([]);
  expect([counters.find('busy'), counters.find('idle')?.sessions]).toEqual([undefined, 1]);
});

it('tells how long requests took to about 12 %, from counts that add up', () => {
  for (let ms = 0.04; ms < 100_000; ms *= 1.07) {
    const histogram = new OrganizationUsage();
    histogram.statements += 1;
    histogram.answered(ms, false);
    const told = percentile(histogram.counts?.latency ?? [], 0.5);
    expect(Math.abs(told / ms - 1)).toBeLessThan(0.13);
  }
  expect([bucketOf(0), bucketOf(0.031), bucketOf(0.032), bucketOf(1e12), bucketOf(Number.NaN)]).toEqual([0, 0, 1, BUCKETS - 1, 0]);
  expect(
    percentile(
      addUp([
        [0, 5],
        [0, 0, 0, 94],
        [0, 0, 0, 0, 0, 0, 0, 1],
      ]),
      0.5,
    ),
  ).toBe(0.052);
  expect(percentile([], 0.5)).toBeGreaterThanOrEqual(0);
});
