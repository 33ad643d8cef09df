import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import pg from 'pg';
import { from, to } from 'pg-copy-streams';
import Cursor from 'pg-cursor';
import QueryStream from 'pg-query-stream';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { addressOf, closeAfterClients, failureOf } from './address.ts';

/** `pg` with its pool and add-ons; what a single connection of it does is in test/proxy/drivers.test.ts. */
let service: TestService;
let organization: TestOrganization;
let pool: pg.Pool;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4' });
});
afterAll(() => closeAfterClients(service));
beforeEach(async () => {
  organization = await service.signUp();
  pool = new pg.Pool({ ...addressOf(service, organization), max: 20 });
});
afterEach(() => pool.end());

describe('a pool larger than the number of backends', () => {
  it('runs transactions side by side', async () => {
    await pool.query("CREATE TABLE counters (name text PRIMARY KEY, n int); INSERT INTO counters VALUES ('all', 0)");
    const transfer = async (worker: number) => {
      const client = await pool.connect();
      try {
        await client.query('BEGIN');
        await client.query('SET LOCAL application_name = $$in a transaction$$');
        await client.query({ name: 'add', text: "UPDATE counters SET n = n + $1 WHERE name = 'all'", values: [worker % 2] });
        if (worker % 4 === 3) await failureOf(client.query('SELECT 1 / 0'));
        await client.query('COMMIT');
        const { rows } = await client.query('SHOW application_name');
        expect(rows).toEqual([{ application_name: '' }]);
      } finally {
        client.release();
      }
    };
    await Promise.all(Array.from({ length: 200 }, (_, worker) => transfer(worker)));
    expect((await pool.query('SELECT n FROM counters')).rows).toEqual([{ n: 50 }]);
  });

  it('keeps named statements apart that have one name and different texts', async () => {
    const kinds = new Map<pg.PoolClient, number>();
    const ask = async (n: number) => {
      const client = await pool.connect();
      const kind = kinds.get(client) ?? kinds.size % 3;
      kinds.set(client, kind);
      const { rows } = await client.query({ name: 'look', text: `SELECT 'kind ${kind}' AS asked, $1::int AS n`, values: [n] });
      expect(rows).toEqual([{ asked: `kind ${kind}`, n }]);
      client.release();
    };
    await Promise.all(Array.from({ length: 300 }, (_, n) => ask(n)));
  });

  it('reads binary results', async () => {
    const query = "SELECT 7 AS int4, 1.5::float8 AS float8, true AS bool, 'text' AS text, '2025-01-31T09:30Z'::timestamptz AS moment";
    const read = async () => (await pool.query({ text: query, values: [], binary: true } as pg.QueryConfig)).rows[0];
    const row = { int4: 7, float8: 1.5, bool: true, text: 'text', moment: new Date('2025-01-31T09:30:00Z') };
    expect(await Promise.all([read(), read(), read()])).toEqual([row, row, row]);
  });
});

describe('values, errors and scripts', () => {
  it('sends and receives every kind of value', async () => {
    await pool.query("CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN positive AS int CHECK (VALUE > 0)");
    const values: readonly (readonly [string, unknown])[] = [
      ['int4', -7],
      ['int8', '9223372036854775807'],
      ['numeric', '123456789012345678901234567890.123456789'],
      ['float8', 1.5e300],
      ['float8', Number.NEGATIVE_INFINITY],
      ['bool', false],
      ['text', 'äöü 😀 \\ \' " \n'],
      ['text', null],
      ['bytea', Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))],
      ['timestamptz', new Date('2025-01-31T09:30:00.123Z')],
      ['jsonb', { a: [1, null, { b: 'c' }] }],
      ['text[]', ['a', 'b,c', '{d}', 'e"f\\', null]],
      [
        'int[]',
        [
          [1, 2],
          [3, 4],
        ],
      ],
      ['uuid', '9b2a4c1e-0000-4000-8000-000000000001'],
      ['inet', '192.0.2.1'],
      ['int4range', '[1,5)'],
      ['mood', 'happy'],
      ['positive', 7],
    ];
    for (const [type, value] of values) {
      const { rows } = await pool.query(`SELECT $1::${type} AS value`, [value]);
      expect(rows, type).toEqual([{ value }]);
    }
  });

  it('reports errors with their codes', async () => {
    await pool.query('CREATE TABLE people (id int PRIMARY KEY, age int CONSTRAINT grown CHECK (age > 17) NOT NULL)');
    for (const [text, values, fields] of [
      ['SELEC', [], { code: '42601', position: '1' }],
      ['SELECT 1, nowhere', [], { code: '42703', position: '11' }],
      ['SELECT $1::int', ['x'], { code: '22P02' }],
      ['SELECT $1::int', [], { code: '42P02' }],
      ['INSERT INTO people VALUES (1, $1)', [3], { code: '23514', constraint: 'grown', table: 'people' }],
      ['INSERT INTO people VALUES (1, $1)', [null], { code: '23502', column: 'age', schema: 'public' }],
      ['SELECT pg_read_file($1)', ['/etc/passwd'], { code: '42501' }],
    ] as const) {
      expect(await failureOf(pool.query(text, [...values]))).toMatchObject(fields);
    }
  });

  it('migrates by scripts, each all or nothing', async () => {
    const results: unknown = await pool.query(
      `CREATE TABLE people (id serial PRIMARY KEY, name text);
       DO $$ BEGIN INSERT INTO people (name) VALUES ('Ada; or not'); END $$;
       ALTER TABLE people ADD born date DEFAULT '1815-12-10';
       SELECT name FROM people`,
    );
    expect(results).toMatchObject([{ command: 'CREATE' }, { command: 'DO' }, { command: 'ALTER' }, { rows: [{ name: 'Ada; or not' }] }]);
    expect(await failureOf(pool.query('CREATE TABLE gone (); ALTER TABLE people ADD born date'))).toMatchObject({ code: '42701' });
    expect((await pool.query("SELECT to_regclass('gone') AS gone")).rows).toEqual([{ gone: null }]);
  });
});

describe('a statement that runs', () => {
  it('is canceled by a client that knows its process id', async () => {
    const [busy, watcher] = [await pool.connect(), await service.connect(organization)];
    const { rows } = await busy.query('SELECT pg_backend_pid() AS pid');
    const running = failureOf(busy.query(`SELECT FROM (${LANDMARK}) AS passed, pg_sleep(60)`));
    await landmarkPassed(watcher);
    await watcher.query('SELECT pg_cancel_backend($1)', [rows[0].pid]);
    expect(await running).toMatchObject({ code: '57014', message: 'canceling statement due to user request' });
    expect((await busy.query('SELECT 1 AS n')).rows).toEqual([{ n: 1 }]);
    busy.release();
    await watcher.end();
  });

  it('is ended by a timeout of the session', async () => {
    const client = await service.connect(organization, { statement_timeout: 5_000, lock_timeout: 40 });
    expect(await failureOf(client.query('SELECT pg_sleep(60)'))).toMatchObject({ code: '57014' });
    expect((await client.query('SHOW lock_timeout')).rows).toEqual([{ lock_timeout: '40ms' }]);
    await client.end();
  });
});

describe('pg-cursor', () => {
  it('reads a portion at a time, and lets go in the middle', async () => {
    const client = await pool.connect();
    const cursor = client.query(new Cursor<{ n: number }>('SELECT generate_series(1, $1::int) AS n', [1_000]));
    expect((await cursor.read(3)).map(({ n }) => n)).toEqual([1, 2, 3]);
    expect(await cursor.read(900)).toHaveLength(900);
    expect(await cursor.read(900)).toHaveLength(97);
    expect(await cursor.read(900)).toEqual([]);
    const other = client.query(new Cursor<{ n: number }>('SELECT generate_series(1, 1000000) AS n'));
    expect(await other.read(10)).toHaveLength(10);
    await other.close();
    expect((await client.query('SELECT 1 AS n')).rows).toEqual([{ n: 1 }]);
    client.release();
  });

  it('meets an error after the first rows', async () => {
    const client = await pool.connect();
    const cursor = client.query(new Cursor<{ n: number }>('SELECT 1 / (100 - n) AS n FROM generate_series(1, 200) AS n'));
    expect(await cursor.read(50)).toHaveLength(50);
    expect(await failureOf(cursor.read(100))).toMatchObject({ code: '22012' });
    expect((await client.query('SELECT 1 AS n')).rows).toEqual([{ n: 1 }]);
    client.release();
  });

  it('several read side by side', async () => {
    const sum = async (factor: number) => {
      const client = await pool.connect();
      const cursor = client.query(new Cursor<{ n: number }>('SELECT $1::int * n AS n FROM generate_series(1, 500) AS n', [factor]));
      let total = 0;
      for (let rows = await cursor.read(37); rows.length > 0; rows = await cursor.read(37))
        total += rows.reduce((all, { n }) => all + n, 0);
      client.release();
      return total;
    };
    const factors = Array.from({ length: 12 }, (_, index) => index + 1);
    expect(await Promise.all(factors.map(sum))).toEqual(factors.map((factor) => factor * 125_250));
  });
});

describe('pg-query-stream', () => {
  it('streams a large result, however slowly it is read', async () => {
    const client = await pool.connect();
    const stream = client.query(new QueryStream("SELECT n, repeat('x', 1000) AS filler FROM generate_series(1, $1::int) AS n", [20_000]));
    let sum = 0;
    for await (const row of stream) {
      if (row.n % 1_000 === 0) await new Promise(setImmediate);
      sum += row.n;
    }
    expect(sum).toBe(200_010_000);
    client.release();
  });

  it('is destroyed in the middle', async () => {
    const client = await pool.connect();
    const stream = client.query(new QueryStream('SELECT generate_series(1, 1000000) AS n', [], { batchSize: 10 }));
    for await (const row of stream) if (row.n === 25) break;
    expect((await client.query('SELECT 1 AS n')).rows).toEqual([{ n: 1 }]);
    client.release();
  });
});

describe('pg-copy-streams', () => {
  const lines = Array.from({ length: 20_000 }, (_, id) => `${id}\tname ${id}\n`);

  it('copies in, out, and from one table straight into another', async () => {
    await pool.query('CREATE TABLE people (id int, name text); CREATE TABLE copies (LIKE people)');
    const [first, second] = [await pool.connect(), await pool.connect()];
    const writer = first.query(from('COPY people FROM STDIN'));
    await pipeline(Readable.from(lines), writer);
    expect(writer.rowCount).toBe(20_000);
    const reader = first.query(to('COPY (SELECT * FROM people ORDER BY id) TO STDOUT'));
    expect(await text(reader)).toBe(lines.join(''));
    await pipeline(first.query(to('COPY people TO STDOUT (FORMAT binary)')), second.query(from('COPY copies FROM STDIN (FORMAT binary)')));
    expect((await second.query('SELECT count(*)::int AS n, sum(id)::int AS sum FROM copies')).rows).toEqual([
      { n: 20_000, sum: 199_990_000 },
    ]);
    for (const client of [first, second]) client.release();
  });

  it('copies nothing when a row is bad, or the stream is destroyed', async () => {
    await pool.query('CREATE TABLE people (id int, name text)');
    const client = await pool.connect();
    const bad = pipeline(Readable.from([...lines, 'x\ty\n', ...lines]), client.query(from('COPY people FROM STDIN')));
    expect(await failureOf(bad)).toMatchObject({ code: '22P02', where: 'COPY people, line 20001, column id: "x"' });
    const broken = Readable.from(
      (function* () {
        yield '1\ta\n';
        throw new Error('no more');
      })(),
    );
    expect(await failureOf(pipeline(broken, client.query(from('COPY people FROM STDIN'))))).toMatchObject({ message: 'no more' });
    expect((await client.query('SELECT count(*)::int AS n FROM people')).rows).toEqual([{ n: 0 }]);
    client.release();
  });
});
