import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** Texts that come again and again without a name are prepared once on each backend, and nobody can tell. */
let service: TestService;
let organization: TestOrganization;
let client: pg.Client;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '2' });
});
afterAll(() => service.close());
beforeEach(async () => {
  organization = await service.signUp();
  client = await service.connect(organization);
  return () => client.end();
});

/** Parse, Bind, Describe, Execute and Sync, without a name. */
async function ask(text: string, values: readonly unknown[] = []): Promise<unknown[]> {
  const { rows } = await client.query({ text, values: [...values], queryMode: 'extended' } as pg.QueryConfig);
  return rows;
}

async function askOften(text: string, values: readonly unknown[] = []): Promise<unknown[]> {
  for (let i = 0; i < 9; i += 1) await ask(text, values);
  return ask(text, values);
}

/** An immutable function is called whenever a statement without parameters is planned, and not when it is executed. */
async function countPlans(): Promise<void> {
  await client.query(`CREATE SEQUENCE plans;
    CREATE FUNCTION planned() RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM nextval(''plans''); RETURN 1; END'`);
}

async function plans(): Promise<number> {
  const { rows } = await client.query<{ n: string }>('SELECT last_value AS n FROM plans');
  return Number(rows[0]?.n);
}

it('is planned a few times only, however often it is asked', async () => {
  await countPlans();
  expect(await askOften('SELECT planned() AS planned')).toEqual([{ planned: 1 }]);
  const before = await plans();
  expect(await askOften('SELECT planned() AS planned')).toEqual([{ planned: 1 }]);
  expect(await plans()).toBe(before);
});

it('shows the table as it is after it has been changed, by whomever', async () => {
  await client.query('CREATE TABLE shape (a int); INSERT INTO shape VALUES (1)');
  expect(await askOften('SELECT * FROM shape')).toEqual([{ a: 1 }]);
  await client.query('ALTER TABLE shape ADD b int DEFAULT 2');
  expect(await ask('SELECT * FROM shape')).toEqual([{ a: 1, b: 2 }]);
  await askOften('SELECT * FROM shape');
  // At the other door, which tells this one nothing.
  expect((await service.query(organization, 'ALTER TABLE shape ADD c int DEFAULT 3')).status).toBe(200);
  expect(await ask('SELECT * FROM shape')).toEqual([{ a: 1, b: 2, c: 3 }]);
  expect(await askOften('SELECT * FROM shape')).toEqual([{ a: 1, b: 2, c: 3 }]);
});

it('shows the table as the transaction has made it', async () => {
  await client.query('CREATE TABLE shape (a int); INSERT INTO shape VALUES (1)');
  await askOften('SELECT * FROM shape');
  await client.query('BEGIN');
  await client.query('ALTER TABLE shape ADD b int DEFAULT 2');
  expect(await askOften('SELECT * FROM shape')).toEqual([{ a: 1, b: 2 }]);
  await client.query('ROLLBACK');
  expect(await askOften('SELECT * FROM shape')).toEqual([{ a: 1 }]);
});

it('shows it to a transaction too, after a function has changed it', async () => {
  await client.query(`CREATE TABLE shape (a int); INSERT INTO shape VALUES (1);
    CREATE FUNCTION widen() RETURNS void LANGUAGE sql AS 'ALTER TABLE shape ADD b int DEFAULT 2'`);
  await askOften('SELECT * FROM shape');
  await client.query('SELECT widen()');
  await client.query('BEGIN');
  expect(await ask('SELECT * FROM shape')).toEqual([{ a: 1, b: 2 }]);
  await client.query('COMMIT');
});

it.each([1, 4, 6, 20])('takes what follows it for no part of it, of which %i bytes have come', async (cut) => {
  await client.query(`CREATE TABLE shape (a int); INSERT INTO shape VALUES (1);
    CREATE FUNCTION widen() RETURNS void LANGUAGE sql AS 'ALTER TABLE shape ADD b int DEFAULT 2'`);
  const raw = await openSession(service, organization);
  const heard: string[] = [];
  const say = async (bytes: Buffer) => {
    await raw.write(bytes);
    for (let isReady = false; !isReady; ) {
      const message = await raw.read();
      heard.push(typeof message === 'object' ? describeBackend(message) : `${message}`);
      isReady = typeof message !== 'object' || message.type === 'Z';
    }
  };
  const asked = Buffer.concat(['Parse "" SELECT * FROM shape', 'Bind "" "" []', 'Execute', 'Sync'].map(encodeFrontend));
  for (let i = 0; i < 9; i += 1) await say(asked);
  await client.query('SELECT widen()');
  const next = encodeFrontend('Query SELECT 3 AS next');
  await say(Buffer.concat([asked, next.subarray(0, cut)]));
  await say(next.subarray(cut));
  expect(heard.slice(-5)).toEqual([
    'ReadyForQuery I',
    'RowDescription next int4',
    'DataRow 3',
    'CommandComplete SELECT 1',
    'ReadyForQuery I',
  ]);
  raw.disconnect();
});

it.each(['CREATE TABLE first.shape (b int)', 'CREATE TABLE first.shape AS SELECT 2 AS b'])('finds what hides it now: %s', async (hide) => {
  await client.query('CREATE TABLE shape (a int); CREATE SCHEMA first; SET search_path = first, public');
  await askOften('SELECT * FROM shape');
  await client.query(hide);
  const { fields } = await client.query({ text: 'SELECT * FROM shape', values: [], queryMode: 'extended' } as pg.QueryConfig);
  expect(fields.map(({ name }) => name)).toEqual(['b']);
});

it('means what it means in the settings of the one who asks', async () => {
  const text = "SELECT '2020-01-02 00:00'::timestamptz = '2020-01-02 00:00Z'::timestamptz AS utc, '01/02/2020'::date::text AS day";
  await client.query("SET TimeZone = 'UTC'; SET DateStyle = 'ISO, MDY'");
  expect(await askOften(text)).toEqual([{ utc: true, day: '2020-01-02' }]);
  await client.query("SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'ISO, DMY'");
  expect(await askOften(text)).toEqual([{ utc: false, day: '2020-02-01' }]);
  await client.query('BEGIN');
  await client.query("SET LOCAL TimeZone = 'UTC'");
  expect(await ask(text)).toEqual([{ utc: true, day: '2020-02-01' }]);
  await client.query('COMMIT');
  expect(await ask(text)).toEqual([{ utc: false, day: '2020-02-01' }]);
});

it('also when it is prepared under a name', async () => {
  const text = "SELECT '2020-01-02 00:00'::timestamptz = '2020-01-02 00:00Z'::timestamptz AS utc";
  const other = await service.connect(organization);
  await client.query("SET TimeZone = 'UTC'");
  await other.query("SET TimeZone = 'Asia/Tokyo'");
  for (let i = 0; i < 5; i += 1) {
    expect((await client.query({ name: 's', text })).rows).toEqual([{ utc: true }]);
    expect((await other.query({ name: 's', text })).rows).toEqual([{ utc: false }]);
  }
  await other.end();
});

it('knows what time it is', async () => {
  const text = "SELECT 'now'::timestamptz = now() AS fresh";
  for (let i = 0; i < 6; i += 1) expect(await ask(text)).toEqual([{ fresh: true }]);
});

it('is refused where Postgres refuses it, and its errors name nothing of ours', async () => {
  const text = 'SELECT $1::int AS n';
  await askOften(text, [1]);
  await client.query('BEGIN');
  await expect(client.query('nonsense')).rejects.toMatchObject({ code: '42601' });
  await expect(ask(text, [1])).rejects.toMatchObject({ code: '25P02' });
  await client.query('ROLLBACK');
  await expect(ask(text, [1, 2])).rejects.toMatchObject({
    code: '08P01',
    message: 'bind message supplies 2 parameters, but prepared statement "" requires 1',
  });
  await expect(ask(text, ['x'])).rejects.toMatchObject({ code: '22P02' });
  expect(await ask(text, [7])).toEqual([{ n: 7 }]);
});

it('finds a temporary table before the one it hides', async () => {
  await client.query('CREATE TABLE shape (a int); INSERT INTO shape VALUES (1)');
  await askOften('SELECT * FROM shape');
  await client.query("CREATE TEMPORARY TABLE shape AS SELECT 'temporary' AS b");
  expect(await askOften('SELECT * FROM shape')).toEqual([{ b: 'temporary' }]);
});
