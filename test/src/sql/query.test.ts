import { parse } from 'lossless-json';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { DisconnectSignal } from '../../../src/router/lease.ts';
import type { JsonValue } from '../../../src/sql/parameters.ts';
import { type QueryRequest, runQuery } from '../../../src/sql/query.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});

afterAll(() => database.close());

beforeEach(async () => {
  await database.asOwner('DROP TABLE IF EXISTS child, t; CREATE TABLE t (id int PRIMARY KEY, note text)');
});

interface Reply {
  readonly rows: unknown[];
  readonly rowCount: number | null;
  readonly command: string;
  readonly warnings?: { code: string; message: string; severity: string }[];
}

async function run(sql: string, request: Partial<QueryRequest> = {}): Promise<Reply> {
  const { body, done } = await runQuery(await database.lease(), { sql, rowMode: 'object', timeoutMs: 60_000, ...request });
  await done;
  return JSON.parse(body.toString());
}

/** As the HTTP door parses them. */
function params(json: string): readonly JsonValue[] {
  return parse(json) as readonly JsonValue[];
}

/** Nothing is lent any more, and what comes back works. */
async function expectHealthy(): Promise<void> {
  await expect(run('SELECT 1 AS one')).resolves.toMatchObject({ rows: [{ one: 1 }] });
  expect(database.pool.snapshot()).toMatchObject({ leased: 0, waiters: 0 });
}

describe('a reply', () => {
  test('is one JSON document', async () => {
    const { body, done } = await runQuery(await database.lease(), {
      sql: 'SELECT 1 AS a, $1::text AS b',
      params: ['x'],
      rowMode: 'object',
      timeoutMs: 0,
    });
    const { durationMs } = await done;
    expect(durationMs).toBeGreaterThan(0);
    expect(body.toString()).toBe(
      `{"fields":[{"name":"a","dataTypeID":23,"dataType":"int4"},{"name":"b","dataTypeID":25,"dataType":"text"}],"rowAsArray":false,"rows":[{"a":1,"b":"x"}],"rowCount":1,"command":"SELECT","durationMs":${durationMs}}`,
    );
  });

  test.each<[string, string, number | null]>([
    ['INSERT INTO t SELECT generate_series(1, 3)', 'INSERT', 3],
    ["UPDATE t SET note = 'x'", 'UPDATE', 0],
    ['DELETE FROM t', 'DELETE', 0],
    ['SELECT', 'SELECT', 1],
    ['VALUES (1), (2)', 'SELECT', 2],
    ['CREATE TABLE u AS SELECT 1', 'SELECT', 1],
    ['DROP TABLE u', 'DROP TABLE', null],
    ['CREATE VIEW v AS SELECT 1', 'CREATE VIEW', null],
    ['DROP VIEW v', 'DROP VIEW', null],
    ['SET work_mem = 1024', 'SET', null],
    ['VACUUM t', 'VACUUM', null],
    ['DO $$ BEGIN END $$', 'DO', null],
  ])('names the command and counts: %s', async (sql, command, rowCount) => {
    expect(await run(sql)).toMatchObject({ command, rowCount });
  });

  test('has the rows of RETURNING', async () => {
    expect(await run("INSERT INTO t VALUES (1, 'a'), (2, null) RETURNING *")).toMatchObject({
      rows: [
        { id: 1, note: 'a' },
        { id: 2, note: null },
      ],
      rowCount: 2,
    });
  });

  test('carries notices as warnings, and not more than a hundred', async () => {
    const { warnings = [] } = await run("DO $$ BEGIN RAISE NOTICE 'careful'; RAISE WARNING 'really' USING HINT = 'stop'; END $$");
    expect(warnings).toEqual([
      { severity: 'NOTICE', code: '00000', message: 'careful', where: expect.stringContaining('PL/pgSQL') },
      { severity: 'WARNING', code: '01000', message: 'really', hint: 'stop', where: expect.stringContaining('PL/pgSQL') },
    ]);
    const many = await run("DO $$ BEGIN FOR i IN 1..1000 LOOP RAISE NOTICE '%', i; END LOOP; END $$");
    expect(many.warnings).toHaveLength(101);
    expect(many.warnings?.at(-1)?.message).toBe('900 more notices are left out');
  });

  test('does not carry over into the next one', async () => {
    await run("DO $$ BEGIN RAISE NOTICE 'careful'; END $$");
    expect(await run('SELECT 1')).not.toHaveProperty('warnings');
  });
});

describe('parameters take the type that Postgres describes', () => {
  test.each<[string, string, string]>([
    ['$1::jsonb', '[{"a":[1,2.50,12345678901234567890]}]', '{"a":[1,2.50,12345678901234567890]}'],
    ['$1::jsonb', '[[1,"x",null]]', '[1,"x",null]'],
    ['$1::jsonb', '[5]', '5'],
    ['$1::jsonb', '[true]', 'true'],
    ['$1::jsonb', '["{\\"a\\": 1}"]', '{"a":1}'],
    ['$1::int[]', '[[1,null,3]]', '[1,null,3]'],
    ['$1::int[]', '["{4,5}"]', '[4,5]'],
    ['$1::text[]', '[[["a\\"b","c,d"],["{e}",null]]]', '[["a\\"b","c,d"],["{e}",null]]'],
    ['$1::text[]', '[[]]', '[]'],
    ['$1::jsonb[]', '[[{"a":"b"},[1,2],null]]', '[{"a":"b"},[1,2],null]'],
    ['$1::int8', '[9007199254740993]', '"9007199254740993"'],
    ['$1::numeric', '[1234567890123456789012345678901234567890.12]', '"1234567890123456789012345678901234567890.12"'],
    ['$1::text', '[9007199254740993]', '"9007199254740993"'],
    ['$1::float8', '[1e-7]', '1e-07'],
    ['$1::bool', '[true]', 'true'],
    ['$1::bytea', '["\\\\x00ff"]', '"\\\\x00ff"'],
    ['$1::timestamptz', '["2024-01-02T03:04:05.123456+02:00"]', '"2024-01-02T01:04:05.123456Z"'],
    ['$1::timestamptz', '["2024-01-02T03:04:05.000Z"]', '"2024-01-02T03:04:05.000000Z"'],
    ['$1::text', '[null]', 'null'],
    ['$1::text', '["é\\"😀"]', '"é\\"😀"'],
    ['coalesce($1, 0) + 1', '[41]', '42'],
  ])('%s of %s is %s', async (expression, json, expected) => {
    const { body } = await runQuery(await database.lease(), {
      sql: `SELECT ${expression}`,
      params: params(json),
      rowMode: 'array',
      timeoutMs: 0,
    });
    const value = /"rows":\[\[(.*)\]\],"rowCount"/.exec(body.toString())?.[1] ?? '';
    // jsonb is shown with Postgres' own spacing.
    expect(value.replaceAll(/([:,]) /g, '$1')).toBe(expected);
  });

  test('also of types that the organization made', async () => {
    await database.asOwner("CREATE TYPE mood AS ENUM ('ok', 'sad'); CREATE DOMAIN tags AS text[]; CREATE DOMAIN doc AS jsonb");
    const sql = 'SELECT $1::mood[] AS a, $2::tags AS b, $3::doc AS c';
    expect(await run(sql, { params: params('[["ok",null],["x,y"],{"k":1}]') })).toMatchObject({
      rows: [{ a: ['ok', null], b: ['x,y'], c: { k: 1 } }],
    });
  });

  test.each([
    ['SELECT $1::int', '[]', 'the statement takes 1 parameter, but params has 0'],
    ['SELECT $1::int, $2::int', '[1]', 'the statement takes 2 parameters, but params has 1'],
    ['SELECT 1', '[1]', 'the statement takes 0 parameters, but params has 1'],
    ['SELECT $1::int', '[{"a":1}]', 'params[0] is an object, which fits json or jsonb but not int4'],
    ['SELECT $1::int, $2::int', '[1,[2]]', 'params[1] is an array, which fits an array type, json or jsonb but not int4'],
  ])('and are refused otherwise: %s with %s', async (sql, json, message) => {
    await expect(run(sql, { params: params(json) })).rejects.toMatchObject({ kind: 'invalid_request', message });
    await expectHealthy();
  });

  test('a value that is none of its type is told by Postgres, with the parameter', async () => {
    await expect(run('SELECT $1::int', { params: ['x'] })).rejects.toMatchObject({
      fields: { code: '22P02', where: expect.stringContaining('parameter $1') },
    });
  });

  test('up to 65,535 of them', async () => {
    const list = Array.from({ length: 65_535 }, (_, index) => index);
    const sql = `SELECT count(*)::int AS n FROM (VALUES ${list.map((index) => `($${index + 1}::int)`).join(',')}) v`;
    expect(await run(sql, { params: list })).toMatchObject({ rows: [{ n: 65_535 }] });
    await expect(run('SELECT 1', { params: [...list, 1] })).rejects.toMatchObject({ kind: 'invalid_request' });
  });
});

describe('what goes wrong', () => {
  test('is that of Postgres, with the position', async () => {
    await expect(run('SELECT nope')).rejects.toMatchObject({ fields: { code: '42703', position: 8, severity: 'ERROR' } });
    await expectHealthy();
  });

  test('two statements get a hint how to send them', async () => {
    await expect(run('SELECT 1; SELECT 2')).rejects.toMatchObject({
      fields: { code: '42601', hint: expect.stringContaining('/api/transaction') },
    });
    await expectHealthy();
  });

  test('while rows come is still an error as long as the reply is small', async () => {
    await expect(run('SELECT 1 / (3 - n) FROM generate_series(1, 5) n')).rejects.toMatchObject({ fields: { code: '22012' } });
    await expectHealthy();
  });

  test('at commit leaves nothing', async () => {
    await database.asOwner('CREATE TABLE child (t int REFERENCES t DEFERRABLE INITIALLY DEFERRED)');
    await expect(run('INSERT INTO child VALUES (1) RETURNING t')).rejects.toMatchObject({ fields: { code: '23503' } });
    expect(await run('SELECT * FROM child')).toMatchObject({ rowCount: 0 });
  });

  test.each(['BEGIN', 'COMMIT', 'COPY t FROM STDIN', 'COPY t TO STDOUT', 'LISTEN x', 'SAVEPOINT a', '', 'SELECT 1\0'])(
    'is refused beforehand: %j',
    async (sql) => {
      await expect(run(sql)).rejects.toMatchObject({ kind: expect.stringMatching(/^(unsupported_statement|invalid_request)$/) });
      await expectHealthy();
    },
  );

  test('another client encoding would not be JSON', async () => {
    await expect(run('SET client_encoding = LATIN1')).rejects.toMatchObject({ kind: 'unsupported_statement' });
    expect(await run("SELECT 'é' AS e")).toMatchObject({ rows: [{ e: 'é' }] });
  });

  test("a terminated backend is reported with Postgres' error", async () => {
    await expect(run('SELECT pg_terminate_backend(pg_backend_pid())')).rejects.toMatchObject({ fields: { code: '57P01' } });
    await expectHealthy();
  });
});

describe('a statement that takes too long', () => {
  const SLEEP = 'SELECT pg_sleep(60)';

  test('is cancelled when it waits for a lock before it has even been described', async () => {
    await database.asOwner('BEGIN; LOCK TABLE t');
    await expect(run('SELECT * FROM t', { timeoutMs: 100 })).rejects.toMatchObject({ kind: 'statement_timeout' });
    await database.asOwner('ROLLBACK');
    await expectHealthy();
  });

  test('whatever the statement does to the timeouts of the server', async () => {
    const sql = `DO $$ BEGIN SET statement_timeout = 0; PERFORM pg_sleep(60); END $$`;
    await expect(run(sql, { timeoutMs: 100 })).rejects.toMatchObject({ kind: 'statement_timeout' });
    await expectHealthy();
  });

  test('is cancelled when the caller goes away', async () => {
    const disconnect = new DisconnectSignal();
    const running = run(SLEEP, { disconnect });
    await database.until(
      "SELECT count(*) = 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active' AND datname = current_database()",
    );
    disconnect.happen();
    await expect(running).rejects.toMatchObject({ kind: 'query_canceled' });
    await expectHealthy();
  });

  test('is not even begun when the caller has gone already', async () => {
    const disconnect = new DisconnectSignal();
    disconnect.happen();
    await expect(run('INSERT INTO t VALUES (1)', { disconnect })).rejects.toMatchObject({ kind: 'query_canceled' });
    expect(await run('SELECT * FROM t')).toMatchObject({ rowCount: 0 });
  });
});

describe('readOnly', () => {
  test('reads', async () => {
    expect(await run('SELECT current_setting($1) AS mode', { params: ['transaction_read_only'], readOnly: true })).toMatchObject({
      rows: [{ mode: 'on' }],
    });
  });

  test.each([
    'INSERT INTO t VALUES (1)',
    'CREATE TABLE x ()',
    'SET TRANSACTION READ WRITE',
    "SELECT set_config('transaction_read_only', 'off', true)",
  ])('refuses to write: %s', async (sql) => {
    await expect(run(sql, { readOnly: true })).rejects.toMatchObject({ fields: { code: expect.stringMatching(/^(25006|25001)$/) } });
    await expectHealthy();
  });
});

test('nothing of a session is left to the next one', async () => {
  await run("SELECT set_config('search_path', 'pg_temp', false)");
  await run('CREATE TEMP TABLE secret (a int)');
  await run('SELECT pg_advisory_lock(1)');
  expect(
    await run(
      "SELECT current_setting('search_path') AS path, to_regclass('secret') AS secret, (SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks",
    ),
  ).toMatchObject({
    rows: [{ path: '"$user", public', secret: null, locks: 0 }],
  });
});
