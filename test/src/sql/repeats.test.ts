import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { BackendReceiver } from '../../../src/backend/connection.ts';
import type { Lease } from '../../../src/router/lease.ts';
import type { JsonValue } from '../../../src/sql/parameters.ts';
import { type QueryRequest, runQuery } from '../../../src/sql/query.ts';
import { runTransaction } from '../../../src/sql/transaction.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});

afterAll(() => database.close());

async function runOn(lease: Lease, sql: string, params: readonly JsonValue[] = [], more: Partial<QueryRequest> = {}) {
  const { body, done } = await runQuery(lease, { sql, params, rowMode: 'array', timeoutMs: 60_000, ...more });
  await done;
  return JSON.parse(body.toString());
}

async function run(sql: string, params: readonly JsonValue[] = [], more: Partial<QueryRequest> = {}) {
  return runOn(await database.lease(), sql, params, more);
}

/** How often the backend is written to, and how often something comes from it, until the lease is back. */
async function traffic(sql: string, params: readonly JsonValue[] = [], more: Partial<QueryRequest> = {}) {
  const lease = await database.lease();
  const write = vi.spyOn(lease.backend, 'write');
  let reads = 0;
  let { receiver } = lease.backend;
  const counting: BackendReceiver = {
    data: (chunk) => {
      reads += 1;
      receiver.data(chunk);
    },
    drain: () => receiver.drain(),
    closed: (error) => receiver.closed(error),
  };
  Object.defineProperty(lease.backend, 'receiver', {
    configurable: true,
    get: () => counting,
    set: (value: BackendReceiver) => {
      receiver = value;
    },
  });
  const { rows } = await runOn(lease, sql, params, more);
  Object.defineProperty(lease.backend, 'receiver', { value: receiver, writable: true });
  const writes = write.mock.calls.length;
  vi.restoreAllMocks();
  return { rows, writes, reads };
}

describe('a statement that is repeated', () => {
  test('is one write and one read', async () => {
    const sql = 'SELECT $1::int + 1, $2::text';
    for (const n of [1, 2]) expect((await run(sql, [n, 'a'])).rows).toEqual([[n + 1, 'a']]);
    expect(await traffic(sql, [3, 'b'])).toEqual({ rows: [[4, 'b']], writes: 1, reads: 1 });
    // BEGIN READ ONLY has to be answered before the statement is sent.
    expect(await traffic(sql, [4, 'c'], { readOnly: true })).toMatchObject({ rows: [[5, 'c']], writes: 2 });
  });

  test('is so for rows of both kinds, with types of its own', async () => {
    await database.asOwner("CREATE TYPE mood AS ENUM ('sad', 'ok')");
    const sql = "SELECT ARRAY['ok', $1]::mood[] AS moods";
    for (const mood of ['sad', 'ok']) await run(sql, [mood]);
    expect(await traffic(sql, ['sad'], { rowMode: 'object' })).toEqual({ rows: [{ moods: ['ok', 'sad'] }], writes: 1, reads: 1 });
    expect(await traffic(sql, ['ok'])).toEqual({ rows: [[['ok', 'ok']]], writes: 1, reads: 1 });
  });

  test('still takes the right number of parameters', async () => {
    const sql = 'SELECT $1::int';
    for (const n of [1, 2, 3]) await run(sql, [n]);
    for (const wrong of [[], [1, 2]]) {
      await expect(run(sql, wrong)).rejects.toMatchObject({
        kind: 'invalid_request',
        message: expect.stringContaining('takes 1 parameter'),
      });
    }
    await expect(run(sql, [{ a: 1 }])).rejects.toMatchObject({ message: expect.stringMatching(/^params\[0\] is an object/) });
    expect(await traffic(sql, [4])).toMatchObject({ rows: [[4]], writes: 1 });
  });

  test('fails as it did the first time', async () => {
    const sql = 'SELECT 1 / $1::int';
    for (const n of [1, 1, 1]) await run(sql, [n]);
    await expect(run(sql, [0])).rejects.toMatchObject({ fields: { code: '22012' } });
    await expect(run(sql, ['x'])).rejects.toMatchObject({ fields: { code: '22P02' } });
    expect(await traffic(sql, [1])).toMatchObject({ rows: [[1]], writes: 1 });
  });

  test('is prepared on each backend', async () => {
    const sql = 'SELECT $1::int * 2';
    await run(sql, [1]);
    const leases = await Promise.all([database.lease(), database.lease()]);
    for (const lease of leases) expect((await runOn(lease, sql, [4])).rows).toEqual([[8]]);
    expect(await traffic(sql, [2])).toMatchObject({ writes: 1 });
  });

  test('makes room for others without being lost', async () => {
    const sql = (n: number) => `SELECT ${n} + $1::int`;
    for (let n = 0; n < 450; n++) for (const _ of [1, 2]) expect((await run(sql(n % 225), [1])).rows).toEqual([[(n % 225) + 1]]);
    const lease = await database.lease();
    expect(lease.backend.session.prepared.size).toBe(200);
    const { rows } = await runOn(lease, 'SELECT count(*)::int FROM pg_prepared_statements');
    expect(rows).toEqual([[200]]);
  });
});

describe('when tables change,', () => {
  beforeEach(async () => {
    await database.asOwner('DROP TABLE IF EXISTS things; CREATE TABLE things (a int, doc jsonb); INSERT INTO things VALUES (1)');
  });

  async function repeat(sql: string, params: readonly JsonValue[] = []) {
    for (const _ of [1, 2, 3]) await run(sql, params);
  }

  test('a repeated statement has the new columns', async () => {
    const sql = 'SELECT * FROM things';
    await repeat(sql);
    await database.asOwner('ALTER TABLE things ADD COLUMN b text DEFAULT $$new$$');
    expect(await run(sql)).toMatchObject({ rows: [[1, null, 'new']], fields: [{ name: 'a' }, { name: 'doc' }, { name: 'b' }] });
    await database.asOwner('ALTER TABLE things ALTER a TYPE text');
    expect(await run(sql)).toMatchObject({ rows: [['1', null, 'new']], fields: [{ dataType: 'text' }, {}, {}] });
    await database.asOwner('ALTER TABLE things RENAME a TO z');
    expect(await run(sql, [], { rowMode: 'object' })).toMatchObject({ rows: [{ z: '1', doc: null, b: 'new' }] });
  });

  test('also on a backend that has never seen the old ones', async () => {
    const sql = 'SELECT * FROM things WHERE a = $1';
    await repeat(sql, [1]);
    const [old, fresh] = await Promise.all([database.lease(), database.lease()]);
    await database.asOwner('ALTER TABLE things ADD COLUMN b int DEFAULT 7');
    expect((await runOn(fresh, sql, [1])).rows).toEqual([[1, null, 7]]);
    expect((await runOn(old, sql, [1])).rows).toEqual([[1, null, 7]]);
    await repeat(sql, [1]);
    expect(await traffic(sql, [1])).toEqual({ rows: [[1, null, 7]], writes: 1, reads: 1 });
  });

  test('parameters are encoded by their new types', async () => {
    const sql = 'INSERT INTO things (doc) VALUES ($1) RETURNING doc';
    await repeat(sql, [['a', 'b']]);
    await database.asOwner('ALTER TABLE things ALTER doc TYPE text[] USING NULL');
    expect((await run(sql, [['a', 'b']])).rows).toEqual([[['a', 'b']]]);
    expect((await run("SELECT doc::text FROM things WHERE doc = '{a,b}'")).rows).toEqual([['{"a","b"}'.replaceAll('"', '')]]);
  });

  test('a row is written once', async () => {
    const sql = 'INSERT INTO things (a) VALUES ($1) RETURNING *';
    await repeat(sql, [2]);
    await database.asOwner('ALTER TABLE things DROP COLUMN doc');
    expect((await run(sql, [5])).rows).toEqual([[5]]);
    expect((await run('SELECT count(*)::int FROM things WHERE a = 5')).rows).toEqual([[1]]);
  });

  test('in a READ ONLY transaction, too', async () => {
    const sql = 'SELECT * FROM things';
    await repeat(sql);
    await database.asOwner('ALTER TABLE things DROP COLUMN doc');
    expect((await run(sql, [], { readOnly: true })).rows).toEqual([[1]]);
  });

  test('a missing table is reported', async () => {
    const sql = 'SELECT * FROM things';
    await repeat(sql);
    await database.asOwner('DROP TABLE things');
    await expect(run(sql)).rejects.toMatchObject({ fields: { code: '42P01', position: 15 } });
    await database.asOwner('CREATE TABLE things (n numeric)');
    expect(await run(sql)).toMatchObject({ rows: [], fields: [{ name: 'n', dataType: 'numeric' }] });
  });
});

describe('what is prepared', () => {
  test('may be taken away without harm', async () => {
    const sql = 'SELECT 42';
    for (const _ of [1, 2]) await run(sql);
    await run("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'postern%'");
    await run('DEALLOCATE ALL');
    expect((await run(sql)).rows).toEqual([[42]]);
    await database.asOwner(`CREATE FUNCTION public.forget() RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN 1; END $$;
      CREATE VIEW public.forgetful AS SELECT forget() AS forgotten`);
    for (const _ of [1, 2]) await run(sql);
    await run('SELECT forgotten FROM forgetful');
    expect((await run(sql)).rows).toEqual([[42]]);
  });
});

describe('the next request finds nothing of', () => {
  const PLACE = "SELECT coalesce(current_setting('app.who', true), '') AS who, current_setting('TimeZone') = 'Asia/Tokyo' AS tokyo";

  test.each([
    "SELECT set_config('app.who', 'me', false)",
    "SELECT set_config('TimeZone', 'Asia/Tokyo', false)",
    "SET app.who = 'me'",
    'SELECT sign_in()',
    'SELECT sign_in() FROM generate_series(1, 3)',
  ])('settings: %s', async (sql) => {
    await database.asOwner(
      `CREATE OR REPLACE FUNCTION public.sign_in() RETURNS void LANGUAGE sql AS $$ SELECT set_config('app.who', 'me', false) $$`,
    );
    for (const _ of [1, 2, 3]) await run(sql);
    expect((await run(PLACE)).rows).toEqual([['', false]]);
  });

  test('a setting that hides in a view, if Postgres reports it', async () => {
    await database.asOwner(`CREATE OR REPLACE VIEW public.sneaky AS SELECT set_config('TimeZone', 'Asia/Tokyo', false) AS zone`);
    await run('SELECT zone FROM sneaky');
    expect((await run(PLACE)).rows).toEqual([['', false]]);
  });

  test('temporary tables, locks and sequences', async () => {
    await database.asOwner('CREATE SEQUENCE IF NOT EXISTS public.numbers');
    await run('SELECT 1 AS one INTO TEMP scratch');
    await expect(run('SELECT * FROM scratch')).rejects.toMatchObject({ fields: { code: '42P01' } });
    await run('SELECT pg_advisory_lock(7)');
    const locks = async () => {
      const { rows } = await database.admin.query(
        "SELECT count(*)::int AS locks FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
      );
      return rows;
    };
    await expect.poll(locks).toEqual([{ locks: 0 }]);
    await run("SELECT nextval('numbers')");
    await expect(run('SELECT lastval()')).rejects.toMatchObject({ fields: { code: '55000' } });
    const statements = [{ sql: "SELECT nextval('numbers')" }, { sql: 'SELECT lastval() = currval($1)', params: ['numbers'] }];
    const reply = await runTransaction(await database.lease(), { statements, rowMode: 'array', timeoutMs: 60_000 });
    expect(JSON.parse(reply.body.toString()).results[1].rows).toEqual([[true]]);
  });

  test('a role whose settings are not what they should be', async () => {
    await database.admin.query(`ALTER ROLE ${database.name} SET DateStyle = 'German, DMY'`);
    database.pool.closeIdle(database.name);
    const sql = "SELECT '2025-02-01 00:00:00+00'::timestamptz";
    for (const _ of [1, 2, 3]) expect((await run(sql)).rows).toEqual([['2025-02-01T00:00:00.000000Z']]);
    await database.admin.query(`ALTER ROLE ${database.name} RESET DateStyle`);
    database.pool.closeIdle(database.name);
  });
});

test('a transaction asks once for the types of a statement that comes again and again', async () => {
  await database.asOwner('CREATE TABLE docs (id int, doc jsonb)');
  const lease = await database.lease();
  const write = vi.spyOn(lease.backend, 'write');
  const statements = Array.from({ length: 1_000 }, (_, id) => ({ sql: 'INSERT INTO docs VALUES ($1, $2)', params: [id, { id }] }));
  await runTransaction(lease, { statements, rowMode: 'array', timeoutMs: 60_000 });
  // What is asked is waited for, behind a Flush; the others follow without waiting, in as few portions as there are turns.
  const sent = frontendMessages(Buffer.concat(write.mock.calls.map(([bytes]) => bytes)));
  expect(sent.filter((type) => type === 'H')).toHaveLength(1);
  expect(write.mock.calls.length).toBeLessThan(statements.length / 5);
  expect((await run("SELECT count(*)::int FROM docs WHERE doc = jsonb_build_object('id', id)")).rows).toEqual([[1_000]]);
});

test('but asks again when the transaction itself has changed them', async () => {
  const insert = { sql: 'INSERT INTO changing VALUES ($1)', params: [['a']] };
  const statements = [
    { sql: 'CREATE TABLE changing (v jsonb)' },
    insert,
    { sql: 'ALTER TABLE changing ALTER v TYPE text[] USING NULL' },
    insert,
    { sql: 'SELECT v FROM changing' },
  ];
  const reply = await runTransaction(await database.lease(), { statements, rowMode: 'array', timeoutMs: 60_000 });
  expect(JSON.parse(reply.body.toString()).results[4].rows).toEqual([[null], [['a']]]);
});

/** @returns the types of whole messages */
function frontendMessages(bytes: Buffer): string[] {
  const types: string[] = [];
  for (let at = 0; at < bytes.length; at += 1 + bytes.readUInt32BE(at + 1)) types.push(String.fromCharCode(bytes[at] ?? 0));
  return types;
}
