import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { ServiceError } from '../../../src/errors.ts';
import { DisconnectSignal, Lease } from '../../../src/router/lease.ts';
import type { JsonValue } from '../../../src/sql/parameters.ts';
import { type QueryRequest, runQuery } from '../../../src/sql/query.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
  await database.asOwner('CREATE TABLE t (a int)');
});

afterAll(() => database.close());

beforeEach(async () => {
  await database.asOwner('TRUNCATE t');
});

async function runOn(lease: Lease, sql: string, params: readonly JsonValue[], more: Partial<QueryRequest> = {}) {
  const { body, done } = await runQuery(lease, { sql, params, rowMode: 'array', timeoutMs: 60_000, ...more });
  const document = JSON.parse(body instanceof Readable ? await text(body) : body.toString());
  await done;
  return { document, isStream: body instanceof Readable };
}

async function run(sql: string, params: readonly JsonValue[], more: Partial<QueryRequest> = {}) {
  return runOn(await database.lease(), sql, params, more);
}

/** The first time it is described, the second time prepared; from then on it is only run. */
async function prepare(sql: string, params: readonly JsonValue[]): Promise<void> {
  for (const _ of [1, 2]) await run(sql, params);
}

const isAsleep = () =>
  database.until(
    "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND state = 'active' AND datname = current_database()",
  );

async function expectHealthy(): Promise<void> {
  expect((await run('SELECT count(*)::int FROM t', [])).document.rows).toEqual([[0]]);
  expect(database.pool.snapshot()).toMatchObject({ leased: 0, waiters: 0 });
}

const SLOW_INSERT = 'INSERT INTO t SELECT 1 FROM pg_sleep($1)';

async function prepareSlowInsert(): Promise<void> {
  await prepare(SLOW_INSERT, [0]);
  await database.asOwner('TRUNCATE t');
}

test('what takes too long is cancelled', async () => {
  await prepareSlowInsert();
  await expect(run(SLOW_INSERT, [60], { timeoutMs: 100 })).rejects.toMatchObject({ kind: 'statement_timeout' });
  await expectHealthy();
});

test('a statement is canceled when its client has disconnected', async () => {
  await prepareSlowInsert();
  const disconnect = new DisconnectSignal();
  const running = run(SLOW_INSERT, [60], { disconnect });
  await isAsleep();
  disconnect.happen();
  await expect(running).rejects.toMatchObject({ kind: 'query_canceled' });
  await expectHealthy();
});

test('what runs with a key that is revoked is cancelled, whoever else came with it', async () => {
  await prepareSlowInsert();
  const revoked = new AbortController();
  const leases = [1, 2].map(async () => {
    const { backend, tenant } = await database.lease();
    return new Lease(backend, { ...tenant, revoked: revoked.signal }, 'http', database.pool, database.results, () => {});
  });
  const [done, used] = await Promise.all(leases);
  if (done === undefined || used === undefined) throw new Error('there are two');
  await runOn(done, 'SELECT 1', []);
  const running = runOn(used, SLOW_INSERT, [60]);
  await isAsleep();
  revoked.abort(new ServiceError('key_revoked', 'rotated'));
  await expect(running).rejects.toMatchObject({ kind: 'key_revoked', message: 'rotated' });
  await expectHealthy();
});

test('a result that grows beyond a chunk becomes a stream, and the next one is whole again', async () => {
  const sql = "SELECT n, repeat('x', 100) FROM generate_series(1, $1::int) n";
  await prepare(sql, [1]);
  for (const [rows, isStream] of [
    [3, false],
    [5_000, true],
    [400, false],
    [20_000, true],
    [1, false],
  ] as const) {
    const answer = await run(sql, [rows]);
    expect(answer.isStream).toBe(isStream);
    expect(answer.document.rows).toHaveLength(rows);
    expect(answer.document.rows.at(-1)).toEqual([rows, 'x'.repeat(100)]);
  }
});

test('a failure in mid-stream takes the stream with it, and is how the statement ends', async () => {
  const sql = "SELECT repeat('x', 1000), 1 / ($1::int - n) FROM generate_series(1, 10000) n";
  await prepare(sql, [0]);
  const { body, done } = await runQuery(await database.lease(), { sql, params: [9_000], rowMode: 'array', timeoutMs: 0 });
  if (!(body instanceof Readable)) throw new Error('not a stream');
  await expect(text(body)).rejects.toMatchObject({ fields: { code: '22012' } });
  await expect(done).rejects.toMatchObject({ fields: { code: '22012' } });
  await expectHealthy();
});

test('a failure behind the first rows still takes the place of a small reply', async () => {
  const sql = 'SELECT 1 / (3 - n) FROM generate_series(1, $1::int) n';
  await prepare(sql, [2]);
  await expect(run(sql, [5])).rejects.toMatchObject({ fields: { code: '22012' } });
  expect((await run(sql, [2])).document.rows).toEqual([[0], [1]]);
  await expectHealthy();
});

test('a table that has changed is seen as it is now', async () => {
  const sql = 'SELECT * FROM changing WHERE a = $1';
  await database.asOwner('CREATE TABLE changing (a int); INSERT INTO changing VALUES (1)');
  await prepare(sql, [1]);
  await database.asOwner("ALTER TABLE changing ADD b text DEFAULT 'new'");
  expect((await run(sql, [1])).document.rows).toEqual([[1, 'new']]);
  await database.asOwner('DROP TABLE changing');
  await expect(run(sql, [1])).rejects.toMatchObject({ fields: { code: '42P01' } });
  await expectHealthy();
});

test('notices belong to the statement that they came with', async () => {
  await database.asOwner(
    "CREATE FUNCTION tell(what text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '%', what; RETURN 1; END $$",
  );
  await prepare('SELECT tell($1)', ['again']);
  expect((await run('SELECT tell($1)', ['careful'])).document.warnings).toMatchObject([{ severity: 'NOTICE', message: 'careful' }]);
  expect((await run('SELECT count(*) FROM t', [])).document).not.toHaveProperty('warnings');
});

test("a backend that ends is reported with Postgres' error, or as lost", async () => {
  const sql = 'SELECT CASE WHEN $1 THEN pg_terminate_backend(pg_backend_pid()) END';
  await prepare(sql, [false]);
  await expect(run(sql, [true])).rejects.toMatchObject({ fields: { code: '57P01' } });
  await expectHealthy();
});
