import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { listMigrations } from '../../../src/sql/migration-history.ts';
import { applyMigrationOnce } from '../../../src/sql/migrations.ts';
import { type QueryRequest, runQuery, runQueryOnce } from '../../../src/sql/query.ts';
import { runTransactionOnce } from '../../../src/sql/transaction.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});

afterAll(() => database.close());

beforeEach(async () => {
  await database.asOwner('DROP TABLE IF EXISTS t, receipts; CREATE TABLE t (a int); DROP SCHEMA IF EXISTS postern CASCADE');
});

const named = (key: string, fingerprint = 'f') => ({ key, fingerprint, contentType: 'application/json' });

async function run(key: string, sql: string, request: Partial<QueryRequest> = {}, fingerprint = 'f') {
  const wanted = { sql, rowMode: 'array', timeoutMs: 60_000, ...request } as const;
  const { body, ...reply } = await runQueryOnce(await database.lease(), wanted, named(key, fingerprint));
  return { ...reply, body: body.toString() };
}

async function transact(key: string, ...sqls: readonly string[]) {
  const request = { statements: sqls.map((sql) => ({ sql })), rowMode: 'array', timeoutMs: 60_000 } as const;
  const { body, ...reply } = await runTransactionOnce(await database.lease(), request, named(key));
  return { ...reply, body: body.toString() };
}

async function count(table = 't'): Promise<number> {
  const { body, done } = await runQuery(await database.lease(), {
    sql: `SELECT count(*)::int FROM ${table}`,
    rowMode: 'array',
    timeoutMs: 0,
  });
  await done;
  return JSON.parse(body.toString()).rows[0][0];
}

describe('a statement with a key', () => {
  test('is run once, and its reply is the same ever after', async () => {
    const first = await run('k1', 'INSERT INTO t VALUES (1) RETURNING a');
    expect(first).toMatchObject({
      status: 200,
      contentType: 'application/json',
      isReplay: false,
      outcome: { command: 'INSERT', rowCount: 1 },
    });
    expect(JSON.parse(first.body)).toMatchObject({ rows: [[1]], rowCount: 1, command: 'INSERT' });
    const second = await run('k1', 'INSERT INTO t VALUES (1) RETURNING a');
    expect(second).toEqual({ status: 200, contentType: 'application/json', isReplay: true, body: first.body });
    expect(await count()).toBe(1);
  });

  test('is another with another key', async () => {
    for (const key of ['a', 'A', 'a ', 'ä']) await run(key, 'INSERT INTO t VALUES (1)');
    expect(await count()).toBe(4);
  });

  test('takes parameters as ever', async () => {
    const { body } = await run('k', 'INSERT INTO t SELECT unnest($1::int[]) RETURNING a', { params: [[1, 2]] });
    expect(JSON.parse(body).rows).toEqual([[1], [2]]);
    await expect(run('k2', 'INSERT INTO t VALUES ($1)', { params: [{}] })).rejects.toMatchObject({
      message: expect.stringMatching(/^params\[0\]/),
    });
  });

  test('for another request is refused', async () => {
    await run('k', 'INSERT INTO t VALUES (1)');
    await expect(run('k', 'INSERT INTO t VALUES (2)', {}, 'other')).rejects.toMatchObject({ kind: 'idempotency_key_reused' });
    expect(await count()).toBe(1);
  });

  test('that fails has left no trace, and is tried again', async () => {
    await expect(run('k', 'INSERT INTO t VALUES (1 / 0)')).rejects.toMatchObject({ fields: { code: '22012' } });
    await expect(run('k', 'INSERT INTO t VALUES (1), (1); SELECT 1')).rejects.toMatchObject({
      fields: { code: '42601', hint: expect.stringContaining('/api/transaction') },
    });
    await expect(run('k', 'COMMIT')).rejects.toMatchObject({ kind: 'unsupported_statement' });
    expect(await run('k', 'INSERT INTO t VALUES (1)', {}, 'corrected')).toMatchObject({ isReplay: false });
    expect(await count()).toBe(1);
  });

  test('that fails at its commit, too', async () => {
    await database.asOwner('ALTER TABLE t ADD UNIQUE (a) DEFERRABLE INITIALLY DEFERRED');
    await expect(run('k', 'INSERT INTO t VALUES (1), (1)')).rejects.toMatchObject({
      error: { fields: { code: '23505' } },
      place: { phase: 'commit' },
    });
    expect(await run('k', 'INSERT INTO t VALUES (1)')).toMatchObject({ isReplay: false });
  });

  test('whose reply is too large to be kept does nothing', async () => {
    await expect(run('k', "INSERT INTO t SELECT 1 FROM generate_series(1, 3000) RETURNING repeat('x', 400)")).rejects.toMatchObject({
      kind: 'response_too_large',
      message: 'the results exceed 1048576 bytes',
      hint: expect.stringContaining('Idempotency-Key'),
    });
    expect(await count()).toBe(0);
    const { body } = await run('k', "INSERT INTO t SELECT 1 FROM generate_series(1, 2000) RETURNING repeat('x', 400)");
    expect(body.length).toBeGreaterThan(800_000);
    expect((await run('k', 'INSERT INTO t VALUES (1)')).body).toBe(body);
    expect(await count()).toBe(2_000);
  });

  test('that cannot run in a transaction says why', async () => {
    await expect(run('k', 'VACUUM t')).rejects.toMatchObject({
      fields: { code: '25001', hint: expect.stringContaining('leave out the key') },
    });
  });

  test('leaves the session clean, and what is prepared in it', async () => {
    await run('k', 'INSERT INTO t VALUES (1)');
    const { rows } = await database.admin.query(
      "SELECT FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    );
    expect(rows).toEqual([]);
    const lease = await database.lease();
    await lease.release(true);
    expect(lease.backend.session.lastUser).toBeDefined();
  });

  test('that times out releases its key', async () => {
    await expect(run('k', 'INSERT INTO t SELECT 1 FROM pg_sleep(10)', { timeoutMs: 300 })).rejects.toMatchObject({
      kind: 'statement_timeout',
    });
    expect(await run('k', 'INSERT INTO t VALUES (1)')).toMatchObject({ isReplay: false });
  });
});

describe('of many at the same moment', () => {
  test('one runs, and the others are refused or get its reply', async () => {
    for (const key of ['first of all', 'second']) {
      const attempts = await Promise.allSettled(
        Array.from({ length: 6 }, () => run(key, 'INSERT INTO t SELECT 1 FROM pg_sleep(0.05) RETURNING a')),
      );
      const replies = attempts.flatMap((attempt) => (attempt.status === 'fulfilled' ? [attempt.value] : []));
      const refusals = attempts.flatMap((attempt) => (attempt.status === 'rejected' ? [attempt.reason] : []));
      expect(replies.filter(({ isReplay }) => !isReplay)).toHaveLength(1);
      expect(new Set(replies.map(({ body }) => body)).size).toBe(1);
      for (const refusal of refusals) expect(refusal).toMatchObject({ kind: 'idempotency_in_progress', retryAfterS: 1 });
    }
    expect(await count()).toBe(2);
  });

  test('one still runs if it has given its lock away', async () => {
    const sql = 'INSERT INTO t SELECT 1 FROM (SELECT pg_advisory_unlock_all(), pg_sleep(0.2)) AS sly RETURNING a';
    await run('the table is there', 'SELECT 1');
    const attempts = await Promise.allSettled([run('k', sql), run('k', sql)]);
    expect(attempts.filter(({ status }) => status === 'fulfilled').length).toBeGreaterThan(0);
    expect(await count()).toBe(1);
  });
});

describe('a reply', () => {
  test('is kept for 24 hours', async () => {
    const first = await run('k', 'INSERT INTO t VALUES (1)');
    await database.asOwner("UPDATE postern.idempotency_keys SET created_at = created_at - interval '23 hours 59 minutes'");
    expect(await run('k', 'INSERT INTO t VALUES (1)')).toMatchObject({ isReplay: true, body: first.body });
    await database.asOwner("UPDATE postern.idempotency_keys SET created_at = created_at - interval '2 minutes'");
    expect(await run('k', 'INSERT INTO t VALUES (2)', {}, 'new')).toMatchObject({ isReplay: false });
    expect(await run('k', 'INSERT INTO t VALUES (2)', {}, 'new')).toMatchObject({ isReplay: true });
    expect(await count()).toBe(2);
  });

  test('is taken out when it is old, some with each new one', async () => {
    await run('first', 'SELECT 1');
    await database.asOwner(`INSERT INTO postern.idempotency_keys
      SELECT 'old' || n, 'f', 200, 'application/json', '', now() - interval '25 hours' FROM generate_series(1, 30) n`);
    await run('second', 'SELECT 1');
    expect(await count('postern.idempotency_keys')).toBe(12);
    await run('third', 'SELECT 1');
    expect(await count('postern.idempotency_keys')).toBe(3);
  });
});

describe('a transaction with a key', () => {
  test('is run once, and its reply is the same ever after', async () => {
    const first = await transact('k', 'INSERT INTO t VALUES (1)', 'SELECT count(*)::int FROM t');
    expect(first).toMatchObject({ status: 200, isReplay: false });
    expect(JSON.parse(first.body)).toMatchObject({ results: [{ rowCount: 1 }, { rows: [[1]] }], status: 'committed' });
    expect(await transact('k', 'INSERT INTO t VALUES (1)', 'SELECT count(*)::int FROM t')).toMatchObject({
      isReplay: true,
      body: first.body,
    });
    expect(await count()).toBe(1);
  });

  test('of any isolation level sees what was committed under its key', async () => {
    const statements = [{ sql: 'INSERT INTO t SELECT 1 FROM pg_sleep(0.05)' }];
    const request = { statements, rowMode: 'array', timeoutMs: 60_000, isolationLevel: 'serializable' } as const;
    const attempt = async () => runTransactionOnce(await database.lease(), request, named('k'));
    for (let round = 0; round < 4; round++) await Promise.allSettled([attempt(), attempt(), attempt()]);
    expect(await attempt()).toMatchObject({ isReplay: true });
    expect(await count()).toBe(1);
  });

  test('that fails says where, and has left no trace', async () => {
    await expect(transact('k', 'INSERT INTO t VALUES (1)', 'SELECT 1 / 0')).rejects.toMatchObject({ place: { statementIndex: 1 } });
    expect(await transact('k', 'INSERT INTO t VALUES (1)')).toMatchObject({ isReplay: false });
    expect(await count()).toBe(1);
  });
});

describe('a migration with a key', () => {
  const migrate = async (key: string, request: { readonly name: string; readonly sql: string; readonly transaction?: boolean }) => {
    const { body, ...reply } = await applyMigrationOnce(await database.lease(), { timeoutMs: 60_000, ...request }, named(key));
    return { ...reply, body: JSON.parse(body.toString()) };
  };

  test.each([true, false])('is applied once, and says so ever after (transaction: %s)', async (transaction) => {
    const request = { name: 'receipts', sql: 'CREATE TABLE receipts (id int)', transaction };
    const first = await migrate('k', request);
    expect(first).toMatchObject({ status: 201, isReplay: false, body: { alreadyApplied: false, migration: { status: 'applied' } } });
    expect(await migrate('k', request)).toEqual({ ...first, isReplay: true });
    expect(await migrate('other', request)).toMatchObject({ status: 200, isReplay: false, body: { alreadyApplied: true } });
    expect(await listMigrations(await database.lease(), { timeoutMs: 0 })).toMatchObject([{ name: 'receipts', status: 'applied' }]);
  });

  test('that fails may be corrected under the same key', async () => {
    await expect(migrate('k', { name: 'm', sql: 'CREATE TABLE receipts (id int); SELECT 1 / 0' })).rejects.toMatchObject({
      place: { statementIndex: 1 },
    });
    expect(await migrate('k', { name: 'm', sql: 'CREATE TABLE receipts (id int)' })).toMatchObject({ status: 201, isReplay: false });
  });

  test('and the first statement with a key do not stumble over each other', async () => {
    const migrations = ['a', 'b'].map((name) => migrate(name, { name, sql: `SELECT '${name}'` }));
    const statements = ['c', 'd', 'e'].map((key) => run(key, 'INSERT INTO t VALUES (1)'));
    await Promise.all<unknown>([...migrations, ...statements]);
    expect(await count()).toBe(3);
  });
});
