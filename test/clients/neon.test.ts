import { once } from 'node:events';
import { Client, NeonDbError, type NeonQueryFunction, neon, neonConfig, Pool } from '@neondatabase/serverless';
import { eq, sql as raw } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/neon-http';
import { drizzle as drizzleOverWebSocket } from 'drizzle-orm/neon-serverless';
import { integer, jsonb, numeric, pgTable, serial, text, timestamp } from 'drizzle-orm/pg-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** `@neondatabase/serverless` as it is published, and drizzle on top of it. All it is told is where the service is. */
let service: TestService;
let acme: TestOrganization;
let url: string;
let sql: NeonQueryFunction<false, false>;
let pool: Pool;

beforeAll(async () => {
  service = await startTestService();
  const { host } = new URL(service.httpUrl);
  neonConfig.fetchEndpoint = `${service.httpUrl}/sql`;
  neonConfig.wsProxy = () => `${host}/v2`;
  neonConfig.useSecureWebSocket = false;
  neonConfig.webSocketConstructor = WebSocket;
});
afterAll(() => service.close());

beforeEach(async () => {
  acme = await service.signUp();
  url = `postgresql://${acme.id}:${acme.apiKey}@db.test/${acme.id}?sslmode=require`;
  sql = neon(url);
  pool = new Pool({ connectionString: url });
});
afterEach(async () => {
  // Which does not wait for the connections to be closed.
  await pool.end();
  await eventually('all clients to be gone', () => told('wire.connected') === told('wire.disconnected'));
});

function told(name: string): number {
  return service.observations.filter((observation) => observation.name === name).length;
}

async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => undefined,
    (error: unknown) => error,
  );
}

describe('neon()', () => {
  it('runs template queries with values of every kind', async () => {
    const moment = new Date('2025-01-31T09:30:00.123Z');
    const bytes = Buffer.from([0, 1, 2, 255]);
    const rows = await sql`
      SELECT ${1}::int AS int, ${2.5}::float8 AS float, ${12345678901234567890n}::numeric AS numeric, ${true}::bool AS bool,
        ${null}::text AS nothing, ${'äöü 😀 \\ \' " \n'}::text AS text, ${moment}::timestamptz AS moment, ${bytes} AS bytes,
        ${['a', 'b,c', '{d}', 'e"f\\', null]}::text[] AS texts, ${[[1, 2], [3, 4]]}::int[] AS ints,
        ${{ a: [1, null, { b: 'c' }] }}::jsonb AS json, ${JSON.stringify([1, 2])}::json AS list`;
    expect(rows).toEqual([
      {
        int: 1,
        float: 2.5,
        numeric: '12345678901234567890',
        bool: true,
        nothing: null,
        text: 'äöü 😀 \\ \' " \n',
        moment,
        bytes,
        texts: ['a', 'b,c', '{d}', 'e"f\\', null],
        ints: [
          [1, 2],
          [3, 4],
        ],
        json: { a: [1, null, { b: 'c' }] },
        list: [1, 2],
      },
    ]);
  });

  it('composes queries', async () => {
    const one = sql`SELECT ${1}::int AS n`;
    expect(await sql`SELECT n + ${2} AS n FROM (${one}) AS one ${sql.unsafe('LIMIT 1')}`).toEqual([{ n: 3 }]);
  });

  it('gives rows as arrays, and everything that is known of them', async () => {
    expect(await neon(url, { arrayMode: true })`SELECT 1 AS a, 2 AS a`).toEqual([[1, 2]]);
    expect(await sql.query('SELECT $1::int AS n', [1], { fullResults: true })).toMatchObject({
      rows: [{ n: 1 }],
      fields: [{ name: 'n', dataTypeID: 23, tableID: 0, columnID: 0, dataTypeSize: 4, dataTypeModifier: -1, format: 'text' }],
      command: 'SELECT',
      rowCount: 1,
      rowAsArray: false,
      viaNeonFetch: true,
    });
    expect(await sql.query('CREATE TABLE t (n int)', [], { fullResults: true })).toMatchObject({
      command: 'CREATE',
      rowCount: null,
      rows: [],
    });
    expect(await sql.query('INSERT INTO t VALUES (1), (2)', [], { fullResults: true })).toMatchObject({ command: 'INSERT', rowCount: 2 });
  });

  it('runs transactions', async () => {
    const [created, inserted, counted] = await sql.transaction([
      sql`CREATE TABLE notes (body text)`,
      sql`INSERT INTO notes VALUES (${'a'}), (${'b'}) RETURNING body`,
      sql`SELECT count(*) AS n FROM notes`,
    ]);
    expect([created, inserted, counted]).toEqual([[], [{ body: 'a' }, { body: 'b' }], [{ n: '2' }]]);
    expect(await sql.transaction([])).toEqual([]);
  });

  it('runs transactions with options', async () => {
    const results = await sql.transaction(
      (transaction) => [transaction`SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')`],
      { isolationLevel: 'RepeatableRead', readOnly: true, arrayMode: true },
    );
    expect(results).toEqual([[['repeatable read', 'on']]]);
  });

  it('rolls a transaction back when one of its queries fails', async () => {
    await sql`CREATE TABLE notes (body text PRIMARY KEY)`;
    const failure = await failureOf(sql.transaction([sql`INSERT INTO notes VALUES ('a')`, sql`INSERT INTO notes VALUES ('a')`]));
    expect(failure).toMatchObject({ code: '23505', constraint: 'notes_pkey' });
    expect(await sql`SELECT * FROM notes`).toEqual([]);
  });

  it('throws errors that say what Postgres says', async () => {
    await sql`CREATE TABLE notes (body text PRIMARY KEY)`;
    await sql`INSERT INTO notes VALUES ('a')`;
    const failure = await failureOf(sql`INSERT INTO notes VALUES ('a')`);
    expect(failure).toBeInstanceOf(NeonDbError);
    expect(failure).toMatchObject({
      message: 'duplicate key value violates unique constraint "notes_pkey"',
      severity: 'ERROR',
      code: '23505',
      detail: 'Key (body)=(a) already exists.',
      schema: 'public',
      table: 'notes',
      constraint: 'notes_pkey',
    });
    expect(failure).toHaveProperty('hint', undefined);
  });

  it('throws errors about wrong numbers of parameters', async () => {
    await expect(sql.query('SELECT $1', [])).rejects.toThrow('bind message supplies 0 parameters');
    await expect(sql.query('SELECT $1', [1, 2])).rejects.toThrow('bind message supplies 2 parameters');
  });

  it('is refused with a wrong user, password or database', async () => {
    for (const wrong of [url.replace('//', '//x'), url.replace('@', 'x@')]) {
      expect(await failureOf(neon(wrong)`SELECT 1`)).toMatchObject({
        code: '28P01',
        message: expect.stringContaining('password authentication failed'),
      });
    }
    expect(await failureOf(neon(url.replace('?', 'x?'))`SELECT 1`)).toMatchObject({ code: '3D000' });
  });

  it('takes the key as token', async () => {
    const bySecret = neon(`postgresql://${acme.id}@db.test/${acme.id}`, { authToken: acme.apiKey });
    expect(await bySecret`SELECT current_user AS who`).toEqual([{ who: acme.id }]);
    const byFunction = neon(`postgresql://${acme.id}@db.test/${acme.id}`, { authToken: async () => acme.apiKey });
    expect(await byFunction`SELECT current_user AS who`).toEqual([{ who: acme.id }]);
  });

  it('can be aborted', async () => {
    const signal = AbortSignal.timeout(100);
    await expect(sql.query('SELECT pg_sleep(60)', [], { fetchOptions: { signal } })).rejects.toThrow('Timeout');
    expect(await sql`SELECT 1 AS n`).toEqual([{ n: 1 }]);
  });
});

describe('Pool and Client', () => {
  it('give what neon() gives', async () => {
    await sql`CREATE TABLE t (id serial PRIMARY KEY, name varchar(5))`;
    await sql`INSERT INTO t (name) VALUES ('a'), (NULL)`;
    const queries: [string, unknown[]][] = [
      ['SELECT t.name AS n, t.* FROM t WHERE id = ANY ($1) ORDER BY id', [[1, 2]]],
      ["SELECT '{1,NULL}'::int[] AS list, '1 day 02:03:04'::interval AS interval, '2025-01-31'::date AS day", []],
      ["SELECT '{\"a\": [1]}'::jsonb AS json, '\\xff'::bytea AS bytes, 'NaN'::float8 AS nan, 1.50::numeric AS price", []],
      ['SELECT 1 WHERE $1::bool', [false]],
      ['UPDATE t SET name = $1', [null]],
      ['SET TimeZone = UTC', []],
    ];
    for (const [query, params] of queries) {
      const { rows, fields, command, rowCount } = await pool.query(query, params);
      const viaWebSocket = { rows, fields: fields.map((field) => ({ ...field })), command, rowCount };
      expect(await sql.query(query, params, { fullResults: true })).toMatchObject(viaWebSocket);
    }
  });

  it('throw the errors that neon() throws', async () => {
    const query = 'SELECT 123 WHERE x';
    const [viaFetch, viaWebSocket] = await Promise.all([failureOf(sql.query(query)), failureOf(pool.query(query))]);
    const { code, position, file, line, routine, severity, message } = viaWebSocket as NeonDbError;
    expect(viaFetch).toMatchObject({ code, position, file, line, routine, severity, message });
  });

  it('run a transaction that goes back and forth', async () => {
    const client = await pool.connect();
    await client.query('CREATE TABLE accounts (name text PRIMARY KEY, balance int CHECK (balance >= 0))');
    await client.query("INSERT INTO accounts VALUES ('a', 10), ('b', 0)");
    await client.query('BEGIN');
    const { rows } = await client.query("SELECT balance FROM accounts WHERE name = 'a' FOR UPDATE");
    await client.query("UPDATE accounts SET balance = balance + $1 WHERE name = 'b'", [rows[0].balance]);
    expect((await pool.query("SELECT balance FROM accounts WHERE name = 'b'")).rows).toEqual([{ balance: 0 }]);
    expect(await failureOf(client.query("UPDATE accounts SET balance = -1 WHERE name = 'a'"))).toMatchObject({ code: '23514' });
    await client.query('ROLLBACK');
    await client.query('BEGIN');
    await client.query('UPDATE accounts SET balance = 10 - balance');
    await client.query('COMMIT');
    client.release();
    expect((await pool.query('SELECT * FROM accounts ORDER BY name')).rows).toEqual([
      { name: 'a', balance: 0 },
      { name: 'b', balance: 10 },
    ]);
  });

  it('listen to notifications', async () => {
    const client = new Client(url);
    await client.connect();
    await client.query('LISTEN news');
    const heard = once(client, 'notification');
    await sql`SELECT pg_notify('news', ${'from neon()'})`;
    expect((await heard)[0]).toMatchObject({ channel: 'news', payload: 'from neon()' });
    await client.end();
  });

  it.each([
    ['pipelined', 'password', true],
    ['pipelined, a frame for each message', 'password', false],
    ['waiting for each answer', false, true],
  ] as const)('log in %s', async (_how, pipelineConnect, coalesceWrites) => {
    const client = new Client(url);
    client.neonConfig.pipelineConnect = pipelineConnect;
    client.neonConfig.coalesceWrites = coalesceWrites;
    await client.connect();
    expect((await client.query('SELECT $1::int AS n', [1])).rows).toEqual([{ n: 1 }]);
    await client.end();
  });

  it('keep what a session keeps', async () => {
    const client = new Client(url);
    await client.connect();
    await client.query("SET TimeZone = 'Asia/Tokyo'");
    await client.query('CREATE TEMPORARY TABLE mine AS SELECT 1 AS n');
    expect((await client.query('SHOW TimeZone')).rows).toEqual([{ TimeZone: 'Asia/Tokyo' }]);
    expect((await client.query('SELECT n FROM mine')).rows).toEqual([{ n: 1 }]);
    await client.end();
  });

  it('send a large statement as the first thing they do', async () => {
    const large = 'x'.repeat(5_000_000);
    expect((await pool.query('SELECT length($1) AS n', [large])).rows).toEqual([{ n: 5_000_000 }]);
    expect((await pool.query('SELECT $1 AS text', [large])).rows).toEqual([{ text: large }]);
  });

  it('are refused with a wrong key', async () => {
    const client = new Client(url.replace('@', 'x@'));
    // As it does not wait for an answer, it takes itself to be connected.
    client.on('error', () => {});
    await client.connect();
    expect(await failureOf(client.query('SELECT 1'))).toMatchObject({
      code: '28P01',
      message: `password authentication failed for user "${acme.id}"`,
    });
  });

  it('query by fetch where they are told to', async () => {
    neonConfig.poolQueryViaFetch = true;
    try {
      expect(await pool.query('SELECT $1::int AS n', [1])).toMatchObject({ rows: [{ n: 1 }], viaNeonFetch: true });
      expect(await pool.query({ text: 'SELECT 1 AS n', rowMode: 'array' })).toMatchObject({ rows: [[1]], viaNeonFetch: true });
    } finally {
      neonConfig.poolQueryViaFetch = false;
    }
    expect(await pool.query('SELECT 1 AS n')).not.toHaveProperty('viaNeonFetch');
  });
});

describe('drizzle', () => {
  const orders = pgTable('orders', {
    id: serial('id').primaryKey(),
    customer: text('customer').notNull(),
    quantity: integer('quantity').notNull(),
    total: numeric('total', { precision: 10, scale: 2 }),
    tags: text('tags').array(),
    extra: jsonb('extra').$type<{ gift: boolean }>(),
    placedAt: timestamp('placed_at', { withTimezone: true }).notNull().defaultNow(),
  });
  const placedAt = new Date('2025-01-31T09:30:00.000Z');
  const order = { customer: 'Ada', quantity: 2, total: '12.50', tags: ['a', 'b"c'], extra: { gift: true }, placedAt };
  const create = raw`CREATE TABLE orders (id serial PRIMARY KEY, customer text NOT NULL UNIQUE, quantity int NOT NULL, total numeric(10, 2),
    tags text[], extra jsonb, placed_at timestamptz NOT NULL DEFAULT now())`;

  it('works over HTTP', async () => {
    const db = drizzle(sql);
    await db.execute(create);
    expect(await db.insert(orders).values(order).returning()).toEqual([{ id: 1, ...order }]);
    await db
      .update(orders)
      .set({ quantity: raw`${orders.quantity} + 1` })
      .where(eq(orders.customer, 'Ada'));
    expect(await db.select({ quantity: orders.quantity }).from(orders)).toEqual([{ quantity: 3 }]);
    expect(await db.$count(orders)).toBe(1);
    const failure = await failureOf(db.insert(orders).values(order));
    expect((failure as Error).cause).toMatchObject({ code: '23505' });
    const [inserted, all] = await db.batch([
      db
        .insert(orders)
        .values({ ...order, customer: 'Grace' })
        .returning({ id: orders.id }),
      db.select({ customer: orders.customer }).from(orders).orderBy(orders.customer),
    ]);
    expect([inserted, all]).toEqual([[{ id: 3 }], [{ customer: 'Ada' }, { customer: 'Grace' }]]);
  });

  it('works over a WebSocket, with transactions', async () => {
    const db = drizzleOverWebSocket(pool);
    await db.execute(create);
    await db.transaction(async (transaction) => {
      await transaction.insert(orders).values(order);
      await failureOf(
        transaction.transaction(async (nested) => {
          await nested.insert(orders).values({ ...order, customer: 'Grace' });
          nested.rollback();
        }),
      );
    });
    expect(await db.select().from(orders)).toEqual([{ id: 1, ...order }]);
  });
});
