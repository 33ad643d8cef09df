import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { queryStatisticsReply } from '../../http/routes/insights.ts';
import { ControlPool } from '../../src/catalog/control-pool.ts';
import { provideQueryStatistics, TextFileWatch } from '../../src/catalog/query-statistics.ts';
import { readConfig } from '../../src/config.ts';
import { openPostgres } from '../../src/embedded/embedded.ts';
import type { Observation } from '../../src/observation.ts';
import { clusterOptions, prepareCluster } from '../../src/placement/cluster-setup.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { makeOwnCluster } from '../support/own-cluster.ts';
import { hasPostgres15, startPostgres15 } from '../support/postgres15.ts';
import { makeScratch } from '../support/scratch.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

const CONTROL = newControlDatabase();
const start = () => startTestService({ POSTERN_CONTROL_DATABASE: CONTROL });

let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await start();
  acme = await service.signUp();
});
afterAll(() => service.close());

async function statistics({ apiKey: key } = acme, filter = '', from = service) {
  const { status, body } = await from.call('GET', `/api/insights/queries${filter}`, { key });
  expect(status, JSON.stringify(body)).toBe(200);
  const reply = queryStatisticsReply.parse(body);
  expect(body).toEqual(reply);
  return reply;
}

async function counted(sql: string, organization = acme, from = service) {
  const { queries } = await statistics(organization, '?limit=100', from);
  const found = queries.filter((query) => query.sql === sql);
  expect(found.length, `${sql} in ${queries.map((query) => query.sql).join('\n')}`).toBe(1);
  return found[0];
}

async function run(sql: string, organization = acme, params?: unknown[]): Promise<void> {
  const { status, body } = await service.query(organization, sql, params);
  expect([sql, status, body.message]).toEqual([sql, 200, undefined]);
}

it('tells which statements of both doors take the most time, in words of the client, without constants', async () => {
  await run('CREATE TABLE public.orders (id int, note text)');
  await run("INSERT INTO public.orders SELECT i, 'secret note' FROM generate_series(1, 500) i");
  for (const id of [1, 2, 3]) await run(`SELECT note FROM public.orders WHERE id = ${id}`);
  const client = await service.connect(acme);
  await client.query('BEGIN; SET LOCAL work_mem = 1234; COMMIT');
  await client.query('SELECT id, pg_sleep(2) FROM orders WHERE id = $1', [7]);
  await client.query('SELECT note FROM public.orders WHERE id = 4');
  await client.query('SELECT \'pst_4fT9aBxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\' AS "pst_4fT9aBxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"');
  await client.query("SELECT 'hunter2' AS password");
  await client.end();

  const { queries, statsSince } = await statistics();
  expect(queries[0]).toMatchObject({ sql: 'SELECT id, pg_sleep($2) FROM orders WHERE id = $1', calls: 1, rows: 1, errors: 0 });
  expect(queries[0]?.totalMs).toBeGreaterThan(1_999);
  expect(queries[0]?.p99Ms).toBeGreaterThan(1_700);
  const notes = await counted('SELECT note FROM public.orders WHERE id = $1');
  expect(notes).toMatchObject({ calls: 4, rows: 4, errors: 0, blocksHit: null, blocksRead: null, tempBlocksWritten: null });
  expect(notes?.bytes).toBeGreaterThan(4 * 'secret note'.length);
  expect(notes?.p99Ms).toBeLessThanOrEqual(notes?.maxMs ?? 0);
  expect(notes?.meanMs).toBeCloseTo((notes?.totalMs ?? 0) / 4, 2);
  expect(Date.parse(notes?.lastSeenAt ?? '')).toBeGreaterThan(Date.parse(notes?.firstSeenAt ?? ''));
  expect(Date.parse(statsSince ?? '')).toBeLessThanOrEqual(Date.parse(notes?.firstSeenAt ?? ''));
  const texts = JSON.stringify(queries);
  for (const kept of ['secret note', acme.id, 'pst_4f', 'hunter2', 'pg_catalog', 'DISCARD', 'BEGIN', 'work_mem']) {
    expect(texts).not.toContain(kept);
  }
  expect(queries.map(({ sql }) => sql).filter((sql) => /postern/i.test(sql))).toEqual([]);

  const first = async (orderBy: string) =>
    (await statistics(acme, `?orderBy=${orderBy}&limit=1`)).queries.map(({ sql }) => sql.slice(0, 12));
  expect([await first('calls'), await first('rows'), await first('meanTime')]).toEqual([
    ['SELECT note '],
    ['INSERT INTO '],
    ['SELECT id, p'],
  ]);
  const { status } = await service.call('GET', '/api/insights/queries?limit=101', { key: acme.apiKey });
  expect(status).toBe(400);
});

describe('counts', () => {
  let org: TestOrganization;
  let client: pg.Client;
  beforeAll(async () => {
    org = await service.signUp();
    client = await service.connect(org);
    await client.query('CREATE TABLE t (id int PRIMARY KEY, v text)');
    await client.query("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')");
  });
  afterAll(() => client.end());

  it('each statement of a Query message, up to the one that fails: they share the time', async () => {
    await expect(client.query('SELECT id AS q1 FROM t; SELECT pg_sleep(0.3) AS q2; SELECT 1/0 AS q3; SELECT 5 AS q4')).rejects.toThrow();
    const three = [
      await counted('SELECT id AS q1 FROM t', org),
      await counted('SELECT pg_sleep($1) AS q2', org),
      await counted('SELECT $1/$2 AS q3', org),
    ];
    expect(three).toMatchObject([
      { calls: 1, errors: 0, rows: 3 },
      { calls: 1, errors: 0, rows: 1 },
      { calls: 1, errors: 1, rows: 0 },
    ]);
    for (const one of three) expect(one?.totalMs).toBeGreaterThan(99);
    expect(three.reduce((sum, one) => sum + (one?.totalMs ?? 0), 0)).toBeLessThan(2_000);
    expect((await statistics(org, '?limit=100')).queries.map(({ sql }) => sql)).not.toContain('SELECT $1 AS q4');
    await client.query('SELECT 1 AS p1; SELECT pg_sleep(0.1) AS p2');
    expect((await counted('SELECT $1 AS p1', org))?.totalMs).toBe((await counted('SELECT pg_sleep($1) AS p2', org))?.totalMs);
  });

  it('statements with parameters, named or not, that succeed or fail, also when they are only parsed', async () => {
    for (const id of [1, 2, 3, 4, 5]) await client.query('SELECT v AS unnamed FROM t WHERE id = $1', [id]);
    for (const id of [1, 2, 3]) await client.query({ name: 'n', text: 'SELECT v AS named FROM t WHERE id < $1', values: [id] });
    for (const id of [0, 1, 0]) await client.query('SELECT 1/$1::int AS fails', [id]).catch(() => {});
    await expect(client.query('SELECT nosuch FROM t WHERE id = $1', [1])).rejects.toThrow();
    expect(await counted('SELECT v AS unnamed FROM t WHERE id = $1', org)).toMatchObject({ calls: 5, errors: 0, rows: 3 });
    expect(await counted('SELECT v AS named FROM t WHERE id < $1', org)).toMatchObject({ calls: 3, errors: 0, rows: 0 + 1 + 2 });
    expect(await counted('SELECT $2/$1::int AS fails', org)).toMatchObject({ calls: 3, errors: 2, rows: 1 });
    expect(await counted('SELECT nosuch FROM t WHERE id = $1', org)).toMatchObject({ calls: 1, errors: 1, rows: 0 });
  });

  it('a portal that is executed in parts as one run', async () => {
    const rows = { text: 'SELECT id AS in_parts FROM t WHERE id > $1', values: [0], rows: 2 };
    await client.query(rows);
    expect(await counted('SELECT id AS in_parts FROM t WHERE id > $1', org)).toMatchObject({ calls: 1, errors: 0, rows: 3 });
  });

  it('lists of any length together, and COPY', async () => {
    await client.query('SELECT v AS listed FROM t WHERE id IN (1, 2)');
    await client.query('SELECT v AS listed FROM t WHERE id IN ($1, $2, $3)', [1, 2, 3]);
    expect(await counted('SELECT v AS listed FROM t WHERE id IN ($1 /*, ... */)', org)).toMatchObject({ calls: 2, rows: 5 });
    const copying = client.query("COPY t FROM STDIN WITH (NULL 'x')");
    // node-postgres knows no COPY: it fails it.
    await expect(copying).rejects.toThrow();
    expect(await counted('COPY t FROM STDIN WITH (NULL $1)', org)).toMatchObject({ calls: 1, errors: 1 });
  });

  it('over HTTP: queries and their errors, the statements of transactions and migrations', async () => {
    const call = (path: string, body: unknown) => service.call('POST', path, { key: org.apiKey, body });
    for (const id of [1, 2, 3, 4]) await run('SELECT v AS http FROM t WHERE id = $1', org, [id]);
    for (const _ of [1, 2, 3]) expect((await service.query(org, 'SELECT v AS wrong FROM nosuch')).status).toBe(400);
    const statements = ['SELECT 1 AS tx', 'SELECT 2 AS tx', 'SELECT id AS tx2 FROM t', 'SELECT 1/0 AS tx3', 'SELECT 4 AS tx4'];
    expect((await call('/api/transaction', { statements: statements.map((sql) => ({ sql })) })).status).toBe(400);
    expect((await call('/api/migrations', { name: 'm1', sql: 'CREATE TABLE m (i int DEFAULT 7); INSERT INTO m VALUES (1)' })).status).toBe(
      201,
    );
    expect(await counted('SELECT v AS http FROM t WHERE id = $1', org)).toMatchObject({ calls: 4, errors: 0, rows: 3 });
    expect(await counted('SELECT v AS wrong FROM nosuch', org)).toMatchObject({ calls: 3, errors: 3, rows: 0 });
    expect(await counted('SELECT $1 AS tx', org)).toMatchObject({ calls: 2, errors: 0, rows: 2 });
    expect(await counted('SELECT id AS tx2 FROM t', org)).toMatchObject({ calls: 1, errors: 0, rows: 3 });
    expect(await counted('SELECT $1/$2 AS tx3', org)).toMatchObject({ calls: 1, errors: 1 });
    expect(await counted('CREATE TABLE m (i int DEFAULT $1)', org)).toMatchObject({ calls: 1, errors: 0 });
    expect(await counted('INSERT INTO m VALUES ($1)', org)).toMatchObject({ calls: 1, rows: 1 });
    expect(JSON.stringify(await statistics(org, '?limit=100'))).not.toMatch(/tx4|postern|advisory/);
  });

  it('how long most runs take', async () => {
    for (let i = 0; i < 60; i += 1) await client.query('SELECT pg_sleep($1::float8) AS slow', [i === 30 ? 0.5 : 0.01]);
    const slow = await counted('SELECT pg_sleep($1::float8) AS slow', org);
    expect(slow).toMatchObject({ calls: 60, errors: 0, rows: 60 });
    expect(slow?.maxMs).toBeGreaterThan(499);
    expect(slow?.p99Ms).toBeGreaterThan(400);
    expect(slow?.meanMs).toBeGreaterThan(10);
    expect(slow?.meanMs).toBeLessThan(400);
  });
});

it('shows a key those of its own role, and an admin key those of data and read keys too', async () => {
  const withKey = async (scope: string) => {
    const { body } = await service.call('POST', '/api/keys', { key: acme.apiKey, body: { name: scope, scope } });
    return { ...acme, apiKey: body.apiKey };
  };
  const [reader, writer, changer] = [await withKey('read'), await withKey('write'), await withKey('data')];
  await run('SELECT count(*) AS by_reader FROM orders', reader);
  await run('SELECT count(id) AS by_writer FROM orders', writer);
  await run('SELECT max(id) AS by_changer FROM orders', changer);
  const seen = async (organization: TestOrganization) =>
    [...JSON.stringify(await statistics(organization)).matchAll(/by_\w+/g)].map(String).sort();
  expect(await seen(reader)).toEqual(['by_reader']);
  expect(await seen(writer)).toEqual(['by_writer']);
  expect(await seen(changer)).toEqual(['by_changer']);
  expect(await seen(acme)).toEqual(['by_changer', 'by_reader', 'by_writer']);

  const both = 'SELECT id AS of_both FROM orders';
  for (const who of [reader, writer, acme]) await run(both, who);
  expect([await counted(both, reader), await counted(both, writer), await counted(both)]).toMatchObject([
    { calls: 1, rows: 500 },
    { calls: 2, rows: 1_000 },
    { calls: 3, rows: 1_500 },
  ]);
  const other = await service.signUp();
  await run('SELECT 1 AS of_another', other);
  for (const who of [acme, reader]) expect(JSON.stringify(await statistics(who))).not.toContain('of_another');
  expect((await statistics(other)).queries.map(({ sql }) => sql)).toEqual(['SELECT $1 AS of_another']);
});

it('adds up what several processes count, keeps it over a restart, and deletes it with its organization', async () => {
  const org = await service.signUp();
  const sql = 'SELECT 1 AS added_up';
  await run(sql, org);
  const other = await start();
  const client = await other.connect(org);
  for (const _ of [1, 2]) await client.query(sql);
  await client.end();
  // The first process may write by itself meanwhile.
  expect((await counted('SELECT $1 AS added_up', org, other))?.calls).toBeGreaterThanOrEqual(2);
  await service.service.router.catalog.queryStatistics.flush();
  expect(await counted('SELECT $1 AS added_up', org, other)).toMatchObject({ calls: 3, rows: 3 });
  await run(sql, org);
  await service.close();
  service = await start();
  await other.query(org, sql);
  await other.close();
  expect(await counted('SELECT $1 AS added_up', org)).toMatchObject({ calls: 5, errors: 0, rows: 5 });

  const control = new pg.Client({ ...inject('cluster'), database: CONTROL });
  await control.connect();
  const stored = async () => (await control.query('SELECT sql FROM postern.query_statistics WHERE organization_id = $1', [org.id])).rows;
  expect(await stored()).toEqual([{ sql: 'SELECT $1 AS added_up' }]);
  await service.call('DELETE', '/api/organization', { key: org.apiKey, body: { confirm: org.id } });
  expect(await stored()).toEqual([]);
  await control.end();
});

it('stays bounded when every text is another', async () => {
  const org = await service.signUp();
  const client = await service.connect(org);
  await client.query('SELECT pg_sleep(0.3) AS heavy');
  for (let i = 0; i < 10_000; i += 500) {
    await client.query(Array.from({ length: 500 }, (_, n) => `SELECT 1 AS c${i + n}`).join(';'));
    if (i === 5_000) await service.service.router.catalog.queryStatistics.flush();
  }
  await client.end();
  const { queries, others } = await statistics(org, '?limit=100');
  expect(queries[0]).toMatchObject({ sql: 'SELECT pg_sleep($1) AS heavy', calls: 1 });
  expect(queries).toHaveLength(100);
  expect(others?.calls).toBe(10_001 - 500);
  expect(others?.rows).toBe(10_001 - 500);
});

it.runIf(hasPostgres15)('needs no superuser and no module of the server: on the oldest supported one', async () => {
  const server = await startPostgres15();
  const superuser = new pg.Client(server);
  await superuser.connect();
  await superuser.query("CREATE ROLE operator LOGIN CREATEDB CREATEROLE PASSWORD 'operator'");
  await superuser.end();
  const own = await startTestService({ DATABASE_URL: serverUrl({ ...server, user: 'operator', password: 'operator' }) });
  const org = await own.signUp();
  const client = await own.connect(org);
  for (const id of [1, 2]) await client.query('SELECT $1::int AS on_15', [id]);
  await client.end();
  for (let i = 0; i < 2; i += 1) await own.query(org, `SELECT ${i} AS http_15`);
  await own.query(org, 'SELECT 1/0 AS http_15');
  const { queries } = await statistics(org, '?orderBy=calls', own);
  expect(queries).toMatchObject([
    { calls: 2, errors: 0, rows: 2 },
    { calls: 2, errors: 0, rows: 2 },
    { sql: 'SELECT $1/$2 AS http_15', calls: 1, errors: 1, rows: 0 },
  ]);
  await own.close();
  await server.stop();
});

describe('the embedded server', () => {
  /** What it preloads, and of what a start warns. */
  async function started(settings: Readonly<Record<string, string>>) {
    const scratch = await makeScratch();
    const config = readConfig({ POSTERN_DATA_DIR: join(scratch.path, 'data'), ...settings });
    const observations: Observation[] = [];
    const observe = (observation: Observation) => observations.push(observation);
    const opened: (() => Promise<void>)[] = [];
    const { admin, secret } = await openPostgres(config, observe, opened);
    if (typeof admin === 'string') throw new Error('it is not embedded');
    const cluster = await prepareCluster({ admin, secret, ...clusterOptions(config, observe) });
    const session = new pg.Client({ ...admin, database: 'postgres' });
    await session.connect();
    const { rows } = await session.query('SHOW shared_preload_libraries');
    await session.end();
    for (const close of opened) await close();
    await scratch.remove();
    const warnings = observations.flatMap((observation) => (observation.name === 'service.warning' ? [observation.message] : []));
    return { cluster, preloaded: rows[0]?.shared_preload_libraries, warnings };
  }

  it('preloads nothing', async () => {
    expect(await started({})).toMatchObject({ preloaded: '', warnings: [] });
  });

  it('preloads pg_stat_statements with POSTERN_QUERY_STATISTICS=on, and the start warns', async () => {
    expect(await started({ POSTERN_QUERY_STATISTICS: 'on' })).toMatchObject({
      preloaded: 'pg_stat_statements',
      warnings: [expect.stringMatching(/preloads pg_stat_statements.*all organizations/)],
    });
  });
});

describe('where an operator has the server preload pg_stat_statements', () => {
  it('warns, keeps organizations away from it, and limits its file of texts', async () => {
    const cluster = await makeOwnCluster({ shared_preload_libraries: 'pg_stat_statements' });
    const own = await startTestService({ DATABASE_URL: cluster.url, POSTERN_CONTROL_DATABASE: CONTROL });
    const org = await own.signUp();
    expect((await own.query(org, 'CREATE EXTENSION pg_stat_statements')).body.sqlstate).toBe('42501');
    const made =
      "SELECT proname FROM pg_proc WHERE proname ~ 'pg_stat_statements' UNION ALL SELECT relname FROM pg_class WHERE relname ~ 'pg_stat_statements'";
    expect((await own.query(org, made)).body.rows).toEqual([]);
    for (const setting of ['track', 'track_utility', 'max']) {
      expect((await own.query(org, `SET pg_stat_statements.${setting} = 'none'`)).body.sqlstate).toMatch(/42501|55P02|22023/);
    }
    await own.close();

    const observations: Observation[] = [];
    const observe = (observation: Observation) => observations.push(observation);
    const control = new pg.Client({ ...cluster.superuser, database: CONTROL });
    await control.connect();
    await provideQueryStatistics(control, 'postern', observe).catch(() => {});
    await control.end();
    expect(observations).toEqual([
      { name: 'service.warning', message: expect.stringMatching(/preloads pg_stat_statements.*all organizations/) },
    ]);
    const { host, port, user, password } = cluster.superuser;
    const database = new ControlPool({ host, port, user, password, database: CONTROL });
    observations.length = 0;
    await new TextFileWatch(database, observe).check();
    expect(observations).toEqual([]);
    await new TextFileWatch(database, observe, 1).check();
    expect(observations).toEqual([
      { name: 'service.warning', message: expect.stringMatching(/had reached \d+ bytes: its statistics begin anew$/) },
    ]);
    await database.close();
    await cluster.remove();
  });
});
