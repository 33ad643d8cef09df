import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import type postgres from 'postgres';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** What programs do with the two drivers of this house; psql and other languages are in test/clients. */
let service: TestService;
let organization: TestOrganization;
let client: pg.Client;
let sql: postgres.Sql;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());
beforeEach(async () => {
  organization = await service.signUp();
  client = await service.connect(organization);
  sql = service.sql(organization, { max: 1 });
});
afterEach(async () => {
  await client.end();
  await sql.end();
});

describe('pg', () => {
  it('runs transactions, and goes on after an error in one', async () => {
    await client.query('CREATE TABLE notes (body text PRIMARY KEY)');
    await client.query('BEGIN');
    await client.query("INSERT INTO notes VALUES ('a')");
    await expect(client.query("INSERT INTO notes VALUES ('a')")).rejects.toMatchObject({
      code: '23505',
      constraint: 'notes_pkey',
      detail: 'Key (body)=(a) already exists.',
    });
    await expect(client.query('SELECT 1')).rejects.toMatchObject({ code: '25P02' });
    await client.query('ROLLBACK');
    expect((await client.query('SELECT body FROM notes')).rows).toEqual([]);
  });

  it('prepares statements by name, each session its own', async () => {
    const other = await service.connect(organization);
    const run = (by: pg.Client, text: string, values: unknown[]) => by.query({ name: 'get', text, values });
    for (let round = 0; round < 3; round += 1) {
      expect((await run(client, 'SELECT $1::int + 1 AS n', [round])).rows).toEqual([{ n: round + 1 }]);
      expect((await run(other, 'SELECT upper($1) AS up', ['a'])).rows).toEqual([{ up: 'A' }]);
    }
    await other.end();
  });

  it('is told notices while the statement runs', async () => {
    const told = once(client, 'notice');
    const done = client.query("DO $$ BEGIN RAISE WARNING 'careful'; END $$");
    expect((await told)[0]).toMatchObject({ severity: 'WARNING', code: '01000', message: 'careful' });
    await done;
  });

  it('listens, and hears others and itself', async () => {
    const heard: string[] = [];
    client.on('notification', ({ channel, payload }) => heard.push(`${channel}: ${payload}`));
    await client.query('LISTEN "News & more"');
    await sql.notify('News & more', 'from postgres');
    await client.query(`NOTIFY "News & more", 'from pg'`);
    await client.query('UNLISTEN *');
    await sql.notify('News & more', 'to nobody');
    await client.query('SELECT 1');
    expect(heard).toEqual(['News & more: from postgres', 'News & more: from pg']);
  });

  it('keeps settings, temporary tables and advisory locks for the session', async () => {
    await client.query("SET TimeZone = 'Asia/Tokyo'; CREATE TEMPORARY TABLE mine (n int); SELECT pg_advisory_lock(7)");
    await client.query('INSERT INTO mine VALUES (1)');
    const { rows } = await client.query("SELECT current_setting('TimeZone') AS zone, (SELECT count(*)::int FROM mine) AS kept");
    expect(rows).toEqual([{ zone: 'Asia/Tokyo', kept: 1 }]);
    expect(await sql`SELECT pg_try_advisory_lock(7) AS free`).toEqual([{ free: false }]);
  });

  it('is told the version and encoding of the server behind', async () => {
    const { rows } = await client.query('SHOW server_version');
    const reported: Record<string, string> = {};
    const again = await service.connect(organization, { application_name: 'reporting' });
    for (const name of ['server_version', 'server_encoding', 'client_encoding', 'application_name', 'is_superuser']) {
      reported[name] = (await again.query(`SHOW ${name}`)).rows[0][name];
    }
    expect(reported).toEqual({
      server_version: rows[0].server_version,
      server_encoding: 'UTF8',
      client_encoding: 'UTF8',
      application_name: 'reporting',
      is_superuser: 'off',
    });
    await again.end();
  });
});

describe('postgres', () => {
  it('pipelines hundreds of statements on one connection, and the failing ones fail alone', async () => {
    const results = await Promise.allSettled(
      Array.from({ length: 500 }, (_, n) => sql`SELECT ${n}::int / ${n % 50 === 7 ? 0 : 1}::int AS n`),
    );
    for (const [n, result] of results.entries()) {
      if (n % 50 === 7) expect(result).toMatchObject({ status: 'rejected', reason: { code: '22012' } });
      else expect(result).toMatchObject({ status: 'fulfilled', value: [{ n }] });
    }
  });

  it('reads a large result by cursor, a portion at a time', async () => {
    const portions: number[] = [];
    for await (const rows of sql`SELECT generate_series(1, 2500) AS n`.cursor(1000)) portions.push(rows.length);
    expect(portions).toEqual([1000, 1000, 500]);
  });

  it('copies in, and out again', async () => {
    await sql`CREATE TABLE people (id int, name text)`;
    const lines = Array.from({ length: 20_000 }, (_, id) => `${id}\tname ${id}\n`);
    await pipeline(lines, await sql`COPY people FROM STDIN`.writable());
    expect(await sql`SELECT count(*)::int AS n, max(name) AS last FROM people`).toEqual([{ n: 20_000, last: 'name 9999' }]);
    expect(await text(await sql`COPY (SELECT * FROM people ORDER BY id) TO STDOUT`.readable())).toBe(lines.join(''));
  });

  it('copies in nothing when it gives up halfway, and goes on', async () => {
    await sql`CREATE TABLE people (id int, name text)`;
    const target = await sql`COPY people FROM STDIN`.writable();
    target.write('1\ta\n');
    target.destroy(new Error('given up'));
    await expect(once(target, 'close')).rejects.toThrow('given up');
    expect(await sql`SELECT count(*)::int AS n FROM people`).toEqual([{ n: 0 }]);
  });

  it('uses savepoints inside a transaction', async () => {
    await sql`CREATE TABLE notes (body text)`;
    await sql.begin(async (transaction) => {
      await transaction`INSERT INTO notes VALUES ('kept')`;
      await transaction
        .savepoint(async (inner) => {
          await inner`INSERT INTO notes VALUES ('dropped')`;
          await inner`SELECT 1 / 0`;
        })
        .catch(() => {});
    });
    expect(await sql`SELECT body FROM notes`).toEqual([{ body: 'kept' }]);
  });

  it('subscribes to a channel by a connection of its own', async () => {
    const heard: string[] = [];
    const { unlisten } = await sql.listen('news', (payload) => heard.push(payload));
    await client.query("NOTIFY news, 'extra'");
    await eventually('the notification', () => heard.length > 0);
    await unlisten();
    expect(heard).toEqual(['extra']);
  });

  it('sends and receives every kind of value', async () => {
    const values = {
      int8: '9223372036854775807',
      numeric: '123456789012345678901234567890.123456789',
      bytea: Buffer.from([0, 1, 2, 255]),
      text: 'äöü 😀 \\ \' " \n',
      json: { a: [1, null, { b: 'c' }] },
      array: ['a', 'b,c', '{d}', 'e"f'],
      moment: new Date('2025-01-31T09:30:00.123Z'),
    };
    const { int8, numeric, bytea, text: string, json, array, moment } = values;
    const [row] = await sql`
      SELECT ${int8}::int8 AS int8, ${numeric}::numeric AS numeric, ${bytea}::bytea AS bytea, ${string}::text AS text,
        ${sql.json(json)}::jsonb AS json, ${array}::text[] AS array, ${moment}::timestamptz AS moment`;
    expect({ ...row }).toEqual(values);
  });
});
