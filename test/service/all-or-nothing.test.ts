import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());
beforeEach(async () => {
  organization = await service.signUp();
});

const migrate = (body: object) => service.call('POST', '/api/migrations', { key: organization.apiKey, body });
const transact = (...statements: readonly string[]) => call({ statements: statements.map((sql) => ({ sql })) });
const call = (body: object, headers: Record<string, string> = {}) =>
  service.call('POST', '/api/transaction', { key: organization.apiKey, body, headers });

/** What a client of the wire door finds. */
async function rows(sql: string): Promise<unknown[]> {
  const client = await service.connect(organization);
  const result = await client.query({ text: sql, rowMode: 'array' });
  await client.end();
  return result.rows.flat();
}

const TABLES =
  "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname !~ '^postern_' ORDER BY 1";

describe('a transaction over HTTP', () => {
  it('of three statements whose second fails leaves nothing, and says which one it was', async () => {
    await service.query(organization, 'CREATE TABLE accounts (id int PRIMARY KEY, balance int CHECK (balance >= 0))');
    await service.query(organization, 'INSERT INTO accounts VALUES (1, 10), (2, 0)');
    const { status, body } = await transact(
      'UPDATE accounts SET balance = balance + 20 WHERE id = 2',
      'UPDATE accounts SET balance = balance - 20 WHERE id = 1',
      'CREATE TABLE receipts ()',
    );
    expect(status).toBe(400);
    expect(body).toMatchObject({
      code: 'sql_error',
      sqlstate: '23514',
      statementIndex: 1,
      transactionStatus: 'rolled_back',
      postgres: { table: 'accounts', constraint: 'accounts_balance_check' },
    });
    expect(await rows('SELECT balance FROM accounts ORDER BY id')).toEqual([10, 0]);
    expect(await rows(TABLES)).toEqual(['accounts']);
  });

  it('that succeeds is there for the next at the other door', async () => {
    const { body } = await transact(
      'CREATE TABLE notes (body text)',
      "INSERT INTO notes VALUES ('a'), ('b')",
      'SELECT count(*) FROM notes',
    );
    expect(body).toMatchObject({ status: 'committed', results: [{}, { rowCount: 2 }, { rows: [{ count: '2' }] }] });
    expect(await rows('SELECT body FROM notes ORDER BY 1')).toEqual(['a', 'b']);
  });

  it('cannot be committed by halves from within', async () => {
    await transact('CREATE TABLE notes (body text)', "CREATE PROCEDURE commit_now() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'");
    for (const end of ['COMMIT', 'ROLLBACK', 'CALL commit_now()', 'COMMIT AND CHAIN', '/* sly */ END', "PREPARE TRANSACTION 'x'"]) {
      const { status, body } = await transact("INSERT INTO notes VALUES ('half')", end, 'SELECT 1/0');
      expect([end, status, body.statementIndex]).toEqual([end, 400, 1]);
    }
    expect(await rows('SELECT body FROM notes')).toEqual([]);
  });
});

describe('a transaction over the wire', () => {
  it('whose client goes away is undone, and its locks are free', async () => {
    await service.query(organization, 'CREATE TABLE notes (body text)');
    const client = await service.connect(organization);
    await client.query("BEGIN; LOCK TABLE notes; INSERT INTO notes VALUES ('half')");
    const ended = client.end();
    expect((await service.query(organization, 'SELECT body FROM notes')).body.rows).toEqual([]);
    await ended;
  });
});

describe('a migration', () => {
  const sql = 'CREATE TABLE orders (id bigint PRIMARY KEY);\nCREATE INDEX ON orders (id);';

  it('whose second statement fails leaves nothing', async () => {
    const { status, body } = await migrate({ name: 'one', sql: 'CREATE TABLE half ();\nCREATE TABLE other (x nosuchtype);' });
    expect([status, body.statementIndex, body.sqlstate, body.postgres.line, body.postgres.column]).toEqual([400, 1, '42704', 2, 23]);
    expect(await rows(TABLES)).toEqual([]);
    expect((await service.call('GET', '/api/migrations', { key: organization.apiKey })).body.migrations).toEqual([]);
    expect((await migrate({ name: 'one', sql })).status).toBe(201);
  });

  it('twice is applied once, and with other SQL refused', async () => {
    expect(await migrate({ name: 'orders', sql })).toMatchObject({ status: 201, body: { alreadyApplied: false } });
    expect(await migrate({ name: 'orders', sql })).toMatchObject({ status: 200, body: { alreadyApplied: true } });
    expect(await migrate({ name: 'orders', sql: `${sql} SELECT 1` })).toMatchObject({
      status: 409,
      body: { code: 'migration_checksum_mismatch' },
    });
    expect(await rows(TABLES)).toEqual(['orders']);
  });

  it('that many send at once is applied by one of them', async () => {
    const replies = await Promise.all(Array.from({ length: 6 }, () => migrate({ name: 'orders', sql })));
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 200, 200, 200, 200, 201]);
    expect(await rows(TABLES)).toEqual(['orders']);
  });
});

describe('a transaction with "rollback": true', () => {
  const attempt = (...statements: readonly string[]) => call({ statements: statements.map((sql) => ({ sql })), rollback: true });

  it('has all results, and leaves nothing', async () => {
    await service.query(organization, 'CREATE TABLE notes AS SELECT 1 AS id');
    const { status, body } = await attempt(
      "CREATE TYPE mood AS ENUM ('ok')",
      'CREATE TABLE moods (m mood)',
      "INSERT INTO moods VALUES ('ok') RETURNING m",
      'EXPLAIN (ANALYZE, COSTS OFF) DELETE FROM notes',
      'SELECT count(*)::int AS n FROM notes',
      'DROP TABLE notes',
    );
    expect([status, body.status, body.results.length]).toEqual([200, 'rolled_back', 6]);
    expect(body.results[2]).toMatchObject({ rows: [{ m: 'ok' }], fields: [{ dataType: 'mood' }] });
    expect(JSON.stringify(body.results[3].rows)).toContain('Delete on notes (actual');
    expect(body.results[4].rows).toEqual([{ n: 0 }]);
    expect(await rows(TABLES)).toEqual(['notes']);
    expect(await rows("SELECT (SELECT count(*)::int FROM notes), to_regtype('mood')")).toEqual([1, null]);
    const audited = service.observations.filter((entry) => entry.name === 'http.request' && entry.action === 'transaction').at(-1);
    expect(audited).toMatchObject({ statement: { command: 'CREATE TYPE, CREATE TABLE, INSERT, EXPLAIN, SELECT, DROP TABLE, ROLLBACK' } });
  });

  it('fails where COMMIT would', async () => {
    await service.query(organization, 'CREATE TABLE slots (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)');
    expect(await attempt('INSERT INTO slots VALUES (1), (1)')).toMatchObject({
      status: 400,
      body: { sqlstate: '23505', phase: 'commit', transactionStatus: 'rolled_back' },
    });
    expect(await attempt('INSERT INTO slots VALUES (1)', 'SELECT nope')).toMatchObject({ status: 400, body: { statementIndex: 1 } });
    expect(await attempt('INSERT INTO slots VALUES (1)', 'COMMIT')).toMatchObject({ body: { code: 'unsupported_statement' } });
    expect(await rows('SELECT * FROM slots')).toEqual([]);
  });

  it('gives up when the time is over', async () => {
    await service.query(organization, 'CREATE TABLE busy (id int)');
    const holder = await service.connect(organization);
    await holder.query('BEGIN; LOCK TABLE busy');
    const insert = { sql: 'INSERT INTO busy VALUES (1)' };
    expect(await call({ statements: [insert], timeoutMs: 200, rollback: true })).toMatchObject({
      status: 504,
      body: { code: 'statement_timeout', transactionStatus: 'rolled_back' },
    });
    expect(await call({ statements: [{ sql: "SET LOCAL lock_timeout = '50ms'" }, insert], rollback: true })).toMatchObject({
      body: { code: 'lock_not_available', retryable: true },
    });
    await holder.end();
  });

  it('leaves nothing in the session either, except what a sequence has given', async () => {
    await service.query(organization, 'CREATE SEQUENCE numbers');
    await attempt(
      "SELECT nextval('numbers'), pg_advisory_lock(7)",
      "SET TimeZone = 'Asia/Tokyo'",
      'CREATE TEMPORARY TABLE t ()',
      'SELECT pg_notify(current_user, current_user)',
    );
    expect(await rows('SELECT pg_try_advisory_lock(7)')).toEqual([true]);
    const after = "SELECT nextval('numbers')::int AS n, current_setting('TimeZone') <> 'Asia/Tokyo' AS ok, to_regclass('pg_temp.t') AS t";
    expect((await service.query(organization, after)).body.rows).toEqual([{ n: 2, ok: true, t: null }]);
  });

  it('is not kept for an Idempotency-Key', async () => {
    const statements = [{ sql: 'SELECT random() AS n' }];
    const tries = [];
    for (const rollback of [true, true, false, false]) tries.push(await call({ statements, rollback }, { 'idempotency-key': 'one' }));
    expect(tries.map(({ status, headers }) => [status, headers.get('idempotency-replayed')])).toEqual([
      [200, null],
      [200, null],
      [200, null],
      [200, 'true'],
    ]);
  });
});
