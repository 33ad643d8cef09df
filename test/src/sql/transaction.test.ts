import { parse } from 'lossless-json';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { DisconnectSignal } from '../../../src/router/lease.ts';
import { inTransaction, runBatch } from '../../../src/sql/batch.ts';
import { jsonFormat } from '../../../src/sql/formats.ts';
import { SqlSession } from '../../../src/sql/session.ts';
import { runTransaction, type TransactionRequest } from '../../../src/sql/transaction.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});

afterAll(() => database.close());

beforeEach(async () => {
  await database.asOwner('DROP TABLE IF EXISTS child, t; CREATE TABLE t (id int PRIMARY KEY, note jsonb)');
});

type Statements = TransactionRequest['statements'];

/** A statement, or one with parameters as the HTTP door parses them. */
function statements(...list: (string | [string, string])[]): Statements {
  return list.map((entry) => (typeof entry === 'string' ? { sql: entry } : { sql: entry[0], params: parse(entry[1]) as [] }));
}

async function run(list: Statements, request: Partial<TransactionRequest> = {}) {
  const { body, results } = await runTransaction(await database.lease(), {
    statements: list,
    rowMode: 'object',
    timeoutMs: 60_000,
    ...request,
  });
  const document = JSON.parse(body.toString());
  expect(document.results).toHaveLength(results.length);
  return document;
}

async function rowsOf(sql: string): Promise<unknown[]> {
  return (await run(statements(sql))).results[0].rows;
}

async function expectNothing(): Promise<void> {
  expect(await rowsOf('SELECT * FROM t')).toEqual([]);
  expect(database.pool.snapshot()).toMatchObject({ leased: 0 });
}

describe('a transaction', () => {
  test('commits all its statements and has a result for each', async () => {
    const list = statements(
      ['INSERT INTO t VALUES ($1, $2)', '[1, {"a": [1, null]}]'],
      ['INSERT INTO t VALUES ($1, null) RETURNING id', '[2]'],
      'SELECT * FROM t ORDER BY id',
    );
    const { body } = await runTransaction(await database.lease(), { statements: list, rowMode: 'object', timeoutMs: 0 });
    expect(body.toString().replaceAll(/"durationMs":[\d.]+/g, '"durationMs":0')).toBe(
      '{"results":[{"fields":[],"rowAsArray":false,"rows":[],"rowCount":1,"command":"INSERT","durationMs":0},' +
        '{"fields":[{"name":"id","dataTypeID":23,"dataType":"int4"}],"rowAsArray":false,"rows":[{"id":2}],"rowCount":1,"command":"INSERT","durationMs":0},' +
        '{"fields":[{"name":"id","dataTypeID":23,"dataType":"int4"},{"name":"note","dataTypeID":3802,"dataType":"jsonb"}],"rowAsArray":false,' +
        '"rows":[{"id":1,"note":{"a": [1, null]}},{"id":2,"note":null}],"rowCount":2,"command":"SELECT","durationMs":0}],"status":"committed","durationMs":0}',
    );
  });

  test('may have a thousand statements, not more and not none', async () => {
    const list = Array.from({ length: 1_000 }, (_, index) => ({ sql: 'INSERT INTO t VALUES ($1)', params: [index] }));
    expect((await run(list)).results).toHaveLength(1_000);
    expect(await rowsOf('SELECT count(*)::int AS n FROM t')).toEqual([{ n: 1_000 }]);
    await expect(run([...list, { sql: 'SELECT 1' }])).rejects.toMatchObject({ kind: 'invalid_request' });
    await expect(run([])).rejects.toMatchObject({ kind: 'invalid_request' });
  });

  test('knows types that it has made itself', async () => {
    const list = statements(
      "CREATE TYPE mood AS ENUM ('ok', 'sad')",
      'CREATE TABLE child (m mood[])',
      ['INSERT INTO child VALUES ($1) RETURNING m', '[["ok", null]]'],
      "SELECT array[['ok'],['sad']]::mood[] AS m, 1 AS n UNION ALL SELECT null, 2",
    );
    const { results } = await run(list);
    expect(results[2].rows).toEqual([{ m: ['ok', null] }]);
    expect(results[3]).toMatchObject({
      rows: [
        { m: [['ok'], ['sad']], n: 1 },
        { m: null, n: 2 },
      ],
      fields: [{ dataType: 'mood[]' }, { dataType: 'int4' }],
    });
  });

  test('gives each result its own warnings', async () => {
    const { results } = await run(
      statements("DO $$ BEGIN RAISE NOTICE 'one'; END $$", 'SELECT 1', "DO $$ BEGIN RAISE NOTICE 'three'; END $$"),
    );
    expect(results.map(({ warnings }: { warnings?: { message: string }[] }) => warnings?.map(({ message }) => message))).toEqual([
      ['one'],
      undefined,
      ['three'],
    ]);
  });

  test('can use savepoints', async () => {
    await run(
      statements(
        'INSERT INTO t VALUES (1)',
        'SAVEPOINT a',
        'INSERT INTO t VALUES (2)',
        'ROLLBACK TO a',
        'INSERT INTO t VALUES (3)',
        'RELEASE a',
      ),
    );
    expect(await rowsOf('SELECT id FROM t ORDER BY id')).toEqual([{ id: 1 }, { id: 3 }]);
  });

  test.each<[Partial<TransactionRequest>, string, string, string]>([
    [{ isolationLevel: 'read committed' }, 'read committed', 'off', 'off'],
    [{ isolationLevel: 'repeatable read', readOnly: true }, 'repeatable read', 'on', 'off'],
    [{ isolationLevel: 'serializable', readOnly: true, deferrable: true }, 'serializable', 'on', 'on'],
    [{ readOnly: false, deferrable: false }, 'read committed', 'off', 'off'],
  ])('has the modes that were asked for: %j', async (modes, isolation, readOnly, deferrable) => {
    const sql = `SELECT current_setting('transaction_isolation') AS isolation, current_setting('transaction_read_only') AS "readOnly", current_setting('transaction_deferrable') AS deferrable`;
    expect((await run(statements(sql), modes)).results[0].rows).toEqual([{ isolation, readOnly, deferrable }]);
  });

  test('that is read only cannot make itself otherwise', async () => {
    await expect(run(statements('SET TRANSACTION READ WRITE', 'INSERT INTO t VALUES (1)'), { readOnly: true })).rejects.toMatchObject({
      place: { statementIndex: 0 },
      error: { fields: { code: '25001' } },
    });
    await expectNothing();
  });
});

describe('a failure changes nothing and reports its position', () => {
  test.each<[string, Statements, object]>([
    [
      'in Postgres',
      statements('INSERT INTO t VALUES (1)', 'SELECT\n  nope', 'INSERT INTO t VALUES (2)'),
      { place: { phase: 'statement', statementIndex: 1, line: 2, column: 3 }, error: { fields: { code: '42703' } } },
    ],
    [
      'a duplicate',
      statements('INSERT INTO t VALUES (1)', 'INSERT INTO t VALUES (1)'),
      { place: { phase: 'statement', statementIndex: 1 }, error: { fields: { code: '23505' } } },
    ],
    [
      'a wrong count of parameters',
      statements('INSERT INTO t VALUES (1)', ['SELECT $1::int', '[1, 2]']),
      { place: { statementIndex: 1 }, error: { kind: 'invalid_request', message: 'the statement takes 1 parameter, but params has 2' } },
    ],
    [
      'a wrong count with a described one',
      statements('INSERT INTO t VALUES (1)', ['SELECT $1::jsonb', '[{}, 2]']),
      { place: { statementIndex: 1 }, error: { kind: 'invalid_request' } },
    ],
    [
      'a parameter that does not fit',
      statements('INSERT INTO t VALUES (1)', ['SELECT $1::int', '[{}]'], 'SELECT 1'),
      { place: { statementIndex: 1 }, error: { message: expect.stringContaining('params[0] is an object') } },
    ],
    [
      'before one that must be described',
      statements('SELECT 1 / 0', ['INSERT INTO t VALUES (1, $1)', '[{}]']),
      { place: { statementIndex: 0 }, error: { fields: { code: '22012' } } },
    ],
    [
      'a COMMIT inside a DO block',
      statements('INSERT INTO t VALUES (1)', 'DO $$ BEGIN COMMIT; END $$'),
      { place: { statementIndex: 1 }, error: { fields: { code: '2D000' } } },
    ],
    [
      'two statements in one',
      statements('INSERT INTO t VALUES (1)', 'INSERT INTO t VALUES (2); COMMIT'),
      { place: { statementIndex: 1 }, error: { fields: { code: '42601' } } },
    ],
    [
      'a rollback to before the failure',
      statements('SAVEPOINT a', 'SELECT 1 / 0', 'ROLLBACK TO a', 'INSERT INTO t VALUES (1)'),
      { place: { statementIndex: 1 } },
    ],
    [
      'another client encoding',
      statements('INSERT INTO t VALUES (1)', 'SET LOCAL client_encoding = LATIN1', 'SELECT 1'),
      { place: { statementIndex: 1 }, error: { kind: 'unsupported_statement' } },
    ],
  ])('%s', async (_name, list, failure) => {
    await expect(run(list)).rejects.toMatchObject(failure);
    await expectNothing();
  });

  test('at commit', async () => {
    await database.asOwner('CREATE TABLE child (t int REFERENCES t DEFERRABLE INITIALLY DEFERRED)');
    await expect(run(statements('INSERT INTO child VALUES (1)', 'SELECT 1'))).rejects.toMatchObject({
      place: { phase: 'commit' },
      error: { fields: { code: '23503' } },
    });
    expect(await rowsOf('SELECT * FROM child')).toEqual([]);
    await expectNothing();
  });

  test('by conflict with another transaction', async () => {
    await database.asOwner('INSERT INTO t VALUES (1); SELECT pg_advisory_lock(1)');
    const list = statements('SELECT * FROM t', 'SELECT pg_advisory_xact_lock(1)', "UPDATE t SET note = '1'");
    const conflict = expect(run(list, { isolationLevel: 'repeatable read' })).rejects.toMatchObject({
      place: { statementIndex: 2 },
      error: { fields: { code: '40001' } },
    });
    await database.until("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()");
    await database.asOwner("UPDATE t SET note = '2'; SELECT pg_advisory_unlock(1)");
    await conflict;
  });

  test('because the caller has gone', async () => {
    const disconnect = new DisconnectSignal();
    const running = run(statements('INSERT INTO t VALUES (1)', 'SELECT pg_sleep(61)'), { disconnect });
    await database.until(
      "SELECT count(*) = 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(61)' AND state = 'active' AND datname = current_database()",
    );
    disconnect.happen();
    await expect(running).rejects.toMatchObject({ error: { kind: 'query_canceled' } });
    await expectNothing();
  });

  test('because the results are too large', async () => {
    const list = statements('INSERT INTO t VALUES (1)', "SELECT repeat('x', 1000000) FROM generate_series(1, 40)");
    await expect(run(list)).rejects.toMatchObject({ place: { statementIndex: 1 }, error: { kind: 'response_too_large' } });
    await expectNothing();
  });

  test('the outcome is unknown when the backend is lost during COMMIT', async () => {
    await database.asOwner(`
      CREATE OR REPLACE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN null; END $$;
      CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linger()`);
    const lost = expect(run(statements('INSERT INTO t VALUES (1)'))).rejects.toMatchObject({
      place: { phase: 'commit' },
      error: { kind: 'backend_lost', detail: expect.stringContaining('not known') },
    });
    await database.until("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()");
    await database.admin.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()",
    );
    await lost;
  });

  test('because the backend is gone', async () => {
    const list = statements('INSERT INTO t VALUES (1)', 'SELECT pg_terminate_backend(pg_backend_pid())', 'SELECT 1');
    await expect(run(list)).rejects.toMatchObject({ place: { statementIndex: 1 }, error: { fields: { code: '57P01' } } });
    await expectNothing();
  });
});

describe('a statement that would end the transaction', () => {
  test.each(['COMMIT', '/* */ ; end', 'ROLLBACK', 'BEGIN', "PREPARE TRANSACTION 'x'", 'COPY t FROM STDIN', 'LISTEN a'])(
    'is refused before anything runs: %s',
    async (sql) => {
      await database.asOwner('CREATE SEQUENCE IF NOT EXISTS ran');
      const before = await rowsOf('SELECT last_value, is_called FROM ran');
      await expect(run(statements("SELECT nextval('ran')", sql))).rejects.toMatchObject({
        place: { phase: 'statement', statementIndex: 1 },
        error: { kind: 'unsupported_statement' },
      });
      expect(await rowsOf('SELECT last_value, is_called FROM ran')).toEqual(before);
    },
  );

  test('is noticed by the status that Postgres reports, should it ever get through', async () => {
    const session = new SqlSession(await database.lease(), { timeoutMs: 0 });
    const list = [{ sql: 'SELECT 1' }, { sql: 'COMMIT' }];
    await expect(inTransaction(session, 'BEGIN', () => runBatch(session, list, jsonFormat('object')))).rejects.toMatchObject({
      place: { statementIndex: 1 },
      error: { message: 'the transaction was ended by one of its statements' },
    });
    await session.end();
  });

  test('does not even begin where BEGIN fails, as when a cancel request meets it', async () => {
    const session = new SqlSession(await database.lease(), { timeoutMs: 0 });
    const list = [{ sql: 'INSERT INTO t VALUES (1)' }, { sql: 'INSERT INTO t VALUES (2)' }];
    await expect(inTransaction(session, 'SELECT 1/0', () => runBatch(session, list, jsonFormat('object')))).rejects.toMatchObject({
      fields: { code: '22012' },
    });
    await session.end();
    expect(await rowsOf('SELECT id FROM t')).toEqual([]);
  });
});

test('a statement with many values is not overtaken by those behind it', async () => {
  const many = JSON.stringify([Array.from({ length: 20_000 }, (_, n) => n)]);
  const insert = 'insert into t (id) select unnest($1::int[])';
  const { results } = await run(
    statements([insert, '[[-1]]'], [insert, many], 'select count(*)::int as n from t', ['select $1::jsonb as j', many], 'select 1'),
  );
  expect(results[2].rows).toEqual([{ n: 20_001 }]);
  expect(results[3].rows[0].j).toHaveLength(20_000);
});
