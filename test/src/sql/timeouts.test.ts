import { once } from 'node:events';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { applyMigration } from '../../../src/sql/migrations.ts';
import { runQuery } from '../../../src/sql/query.ts';
import { runTransaction } from '../../../src/sql/transaction.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

const TIMEOUT_MS = 20_000;

let database: TestDatabase;

beforeAll(async () => {
  // Postgres has its own clock; ours goes on only when a test says so, be the machine as busy as it may.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  database = await createTestDatabase();
});

afterAll(async () => {
  await database.close();
  vi.useRealTimers();
});

beforeEach(() => database.asOwner('DROP TABLE IF EXISTS t; CREATE TABLE t (id int)'));

const waitsFor = (event: string) =>
  database.until(`SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = '${event}'`);

/** So much time passes; afterwards Postgres has had its turn. */
async function pass(ms: number): Promise<void> {
  vi.advanceTimersByTime(ms);
  await database.until('SELECT true');
}

/** Time that is still left passes: nothing happens until the last of it is over. */
async function expectTimeoutAfter(leftMs: number, running: Promise<unknown>, failure: object): Promise<void> {
  const over = vi.fn();
  running.then(over, over);
  await pass(leftMs - 1);
  expect(over).not.toHaveBeenCalled();
  await pass(1);
  await expect(running).rejects.toMatchObject(failure);
}

async function expectNothing(): Promise<void> {
  const { rows } = await database.admin.query(
    "SELECT (SELECT count(*)::int FROM t) AS t, to_regclass('a') AS a, to_regclass('postern.migrations') AS ledger",
  );
  expect(rows).toEqual([{ t: 0, a: null, ledger: null }]);
  await database.until(
    "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()",
  );
  expect(database.pool.snapshot()).toMatchObject({ leased: 0, idle: 1 });
}

async function transact(...statements: readonly string[]): Promise<unknown> {
  const list = statements.map((sql) => ({ sql }));
  return runTransaction(await database.lease(), { statements: list, rowMode: 'object', timeoutMs: TIMEOUT_MS });
}

async function stream(sql: string): Promise<{ body: Readable; done: Promise<unknown> }> {
  const { body, done } = await runQuery(await database.lease(), { sql, rowMode: 'array', timeoutMs: TIMEOUT_MS });
  if (!(body instanceof Readable)) throw new Error('not a stream');
  return { body, done };
}

test('a statement that takes too long is cancelled, and its session can be used again', async () => {
  const running = runQuery(await database.lease(), { sql: 'SELECT pg_sleep(60)', rowMode: 'object', timeoutMs: TIMEOUT_MS });
  await waitsFor('PgSleep');
  await expectTimeoutAfter(TIMEOUT_MS, running, { kind: 'statement_timeout', sqlstate: '57014' });
  await expectNothing();
});

test('a transaction has as long for all of its statements together', async () => {
  await database.asOwner('SELECT pg_advisory_lock(1)');
  const running = transact('INSERT INTO t VALUES (1)', 'SELECT pg_advisory_xact_lock(1)', 'SELECT pg_sleep(60)');
  await waitsFor('advisory');
  await pass(TIMEOUT_MS / 2);
  await database.asOwner('SELECT pg_advisory_unlock(1)');
  await waitsFor('PgSleep');
  await expectTimeoutAfter(TIMEOUT_MS / 2, running, { place: { statementIndex: 2 }, error: { kind: 'statement_timeout' } });
  await expectNothing();
});

test('a transaction may find its time over at commit', async () => {
  await database.asOwner(`
    CREATE OR REPLACE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN null; END $$;
    CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linger()`);
  const running = transact('INSERT INTO t VALUES (1)');
  await waitsFor('PgSleep');
  await expectTimeoutAfter(TIMEOUT_MS, running, { place: { phase: 'commit' }, error: { kind: 'statement_timeout' } });
  await expectNothing();
});

test('a migration that takes too long leaves no trace', async () => {
  const migration = { name: '001-first', sql: 'CREATE TABLE a (id int); SELECT pg_sleep(60)', timeoutMs: TIMEOUT_MS };
  const running = applyMigration(await database.lease(), migration);
  await waitsFor('PgSleep');
  await expectTimeoutAfter(TIMEOUT_MS, running, { place: { statementIndex: 1 }, error: { kind: 'statement_timeout' } });
  await expectNothing();
});

test('a reader that stops stops the backend, and its own time is not counted', async () => {
  const { body, done } = await stream("SELECT repeat('x', 1000), generate_series(1, 5000)");
  // Postgres may be seen waiting for a reader that is only slow.
  while (body.readableLength < body.readableHighWaterMark) await database.until('SELECT true');
  await waitsFor('ClientWrite');
  expect(body.readableLength).toBeLessThan(2 * 1_048_576);
  await pass(2 * TIMEOUT_MS);
  expect(JSON.parse((await body.toArray()).join('')).rowCount).toBe(5_000);
  expect(await done).toMatchObject({ rowCount: 5_000 });
});

test('a reader has a stream broken off that takes too long', async () => {
  const { body, done } = await stream("SELECT repeat('x', 1000), CASE WHEN n > 1000 THEN pg_sleep(60) END FROM generate_series(1, 2000) n");
  let bytes = 0;
  body.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  const broken = once(body, 'error');
  // The last rows are in a buffer of Postgres'.
  while (bytes < 950_000) await waitsFor('PgSleep');
  await expectTimeoutAfter(TIMEOUT_MS, done, { kind: 'statement_timeout' });
  expect(await broken).toMatchObject([{ kind: 'statement_timeout' }]);
  await expectNothing();
});
