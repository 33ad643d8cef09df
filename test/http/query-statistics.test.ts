import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { queryStatisticsReply } from '../../http/routes/database/query-statistics.ts';
import { ControlPool } from '../../src/catalog/database/control-pool.ts';
import { TextFileWatch } from '../../src/catalog/query-statistics/text-file-watch.ts';
import type { Observation } from '../../src/observation.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { startPostgres18 } from '../support/postgres18.ts';
import { serverUrl } from '../support/server-url.ts';
import { PLACEMENT, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

const CONTROL = 'control';

/** A server of its own: its statistics begin anew when the texts of all who use it are too large, and databases of others could be seen. */
let cluster: OwnCluster;
let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  cluster = await makeOwnCluster();
  service = await startTestService({ DATABASE_URL: cluster.url, POSTERN_CONTROL_DATABASE: CONTROL });
  acme = await service.signUp();
});
afterAll(async () => {
  await service.close();
  await cluster.remove();
});

async function queries({ apiKey: key } = acme, filter = '') {
  const { status, body } = await service.call('GET', `/api/insights/queries${filter}`, { key });
  expect(status, JSON.stringify(body)).toBe(200);
  const reply = queryStatisticsReply.parse(body);
  expect(body).toEqual(reply);
  if (!reply.isAvailable) throw new Error(reply.reason);
  return reply.queries;
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
  await client.query('SELECT \'pst_4fT9aBxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\' AS "pst_4fT9aBxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"');
  await client.end();

  const found = await queries();
  expect(found[0]).toMatchObject({ sql: 'SELECT id, pg_sleep($2) FROM orders WHERE id = $1', calls: 1, rows: 1 });
  expect(found[0]?.totalMs).toBeGreaterThan(1_999);
  expect(found).toContainEqual(expect.objectContaining({ sql: 'SELECT note FROM public.orders WHERE id = $1', calls: 3, rows: 3 }));
  const texts = JSON.stringify(found);
  for (const kept of ['secret note', acme.id, 'pst_4f', 'pg_catalog', 'DISCARD', 'BEGIN', 'work_mem']) expect(texts).not.toContain(kept);
  expect(found.map(({ sql }) => sql).filter((sql) => /postern/i.test(sql))).toEqual([]);

  const first = async (orderBy: string) => (await queries(acme, `?orderBy=${orderBy}&limit=1`)).map(({ sql }) => sql.slice(0, 12));
  expect([await first('calls'), await first('rows'), await first('meanTime')]).toEqual([
    ['SELECT note '],
    ['INSERT INTO '],
    ['SELECT id, p'],
  ]);
  const { status } = await service.call('GET', '/api/insights/queries?limit=101', { key: acme.apiKey });
  expect(status).toBe(400);
});

it('shows a key those of its own role, and an admin key those of read keys too', async () => {
  const withKey = async (scope: string) => {
    const { body } = await service.call('POST', '/api/keys', { key: acme.apiKey, body: { name: scope, scope } });
    return { ...acme, apiKey: body.apiKey };
  };
  const [reader, writer] = [await withKey('read'), await withKey('write')];
  await run('SELECT count(*) AS by_reader FROM orders', reader);
  await run('SELECT count(id) AS by_writer FROM orders', writer);
  const seen = async (organization: TestOrganization) =>
    [...JSON.stringify(await queries(organization)).matchAll(/by_\w+/g)].map(String).sort();
  expect(await seen(reader)).toEqual(['by_reader']);
  expect(await seen(writer)).toEqual(['by_writer']);
  expect(await seen(acme)).toEqual(['by_reader', 'by_writer']);
});

it('shows nothing of other organizations, who have no way to the extension', async () => {
  const other = await service.signUp();
  await run('SELECT 1 AS of_another', other);
  expect(JSON.stringify(await queries())).not.toContain('of_another');
  expect(JSON.stringify(await queries(other))).not.toContain('by_writer');
  expect((await service.query(other, 'CREATE EXTENSION pg_stat_statements')).body.sqlstate).toBe('42501');
  const made =
    "SELECT proname FROM pg_proc WHERE proname ~ 'pg_stat_statements' UNION ALL SELECT relname FROM pg_class WHERE relname ~ 'pg_stat_statements'";
  expect((await service.query(other, made)).body.rows).toEqual([]);
  for (const setting of ['track', 'track_utility', 'max']) {
    expect((await service.query(other, `SET pg_stat_statements.${setting} = 'none'`)).body.sqlstate).toMatch(/42501|55P02|22023/);
  }
  expect((await service.query(other, "SELECT pg_stat_file('pg_stat_tmp/pgss_query_texts.stat')")).body.sqlstate).toBe('42501');
  const databases = new pg.Client(cluster.url);
  await databases.connect();
  const { rows } = await databases.query(
    "SELECT datname FROM pg_database WHERE datallowconn AND has_database_privilege($1, oid, 'CONNECT')",
    [other.id],
  );
  await databases.end();
  expect(rows.map(({ datname }) => datname)).toEqual(
    expect.arrayContaining(PLACEMENT === 'schema' ? ['postern_shared'] : ['postern_shared', other.id]),
  );
  expect(rows).toHaveLength(PLACEMENT === 'schema' ? 1 : 2);
});

it('begins anew when the texts take too much space', async () => {
  const { host, port, user, password } = cluster.superuser;
  const observations: Observation[] = [];
  const database = new ControlPool({ host, port, user, password, database: CONTROL });
  const large = new TextFileWatch(database, (observation) => observations.push(observation));
  await large.check();
  expect(observations).toEqual([]);
  expect((await queries()).length).toBeGreaterThan(3);
  await new TextFileWatch(database, (observation) => observations.push(observation), 1).check();
  expect(observations).toEqual([
    { name: 'service.warning', message: expect.stringMatching(/had reached \d+ bytes: its statistics begin anew$/) },
  ]);
  expect(JSON.stringify(await queries())).not.toContain('by_writer');
  await database.close();
});

it('says how to get it where the server does not preload it', async () => {
  const server = await startPostgres18({ shared_preload_libraries: '' });
  const without = await startTestService({ DATABASE_URL: serverUrl(server) });
  const { apiKey: key } = await without.signUp();
  const { status, body } = await without.call('GET', '/api/insights/queries', { key });
  expect([status, queryStatisticsReply.parse(body)]).toEqual([200, body]);
  expect(body).toMatchObject({
    isAvailable: false,
    reason: expect.stringContaining('does not preload'),
    cure: expect.stringContaining('shared_preload'),
  });
  await without.close();
  await server.stop();
});
