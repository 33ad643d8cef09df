import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type postgres from 'postgres';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { LANDMARK, landmarkPassed } from '../support/landmark.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { closeAfterClients, failureOf } from './address.ts';

/** `postgres` as most use it: ten connections that pipeline, every statement prepared. */
let service: TestService;
let organization: TestOrganization;
let sql: postgres.Sql;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4' });
});
afterAll(() => closeAfterClients(service));
beforeEach(async () => {
  organization = await service.signUp();
  sql = service.sql(organization, { max: 10, prepare: true });
});
afterEach(() => sql.end());

it('gives a thousand queries at once their own answers', async () => {
  const ask = async (n: number) => {
    // Thirty texts, each prepared on ten connections under names that differ from connection to connection.
    const [row] = await sql.unsafe(`SELECT $1::int AS n, $2::text AS text, ${n % 30} AS kind`, [n, `text ${n}`], { prepare: true });
    expect({ ...row }).toEqual({ n, text: `text ${n}`, kind: n % 30 });
  };
  await Promise.all(Array.from({ length: 1_000 }, (_, n) => ask(n)));
});

it('lets failing queries fail alone', async () => {
  const asked = Array.from({ length: 300 }, (_, n) => sql`SELECT 10 / ${n % 7}::int AS n`);
  for (const [n, answer] of (await Promise.allSettled(asked)).entries()) {
    if (n % 7 === 0) expect(answer).toMatchObject({ status: 'rejected', reason: { code: '22012', routine: 'int4div' } });
    else expect(answer).toMatchObject({ status: 'fulfilled', value: [{ n: Math.floor(10 / (n % 7)) }] });
  }
});

it('runs more transactions than there are backends', async () => {
  await sql`CREATE TABLE counters (name text PRIMARY KEY, n int)`;
  await sql`INSERT INTO counters VALUES ('all', 0)`;
  const count = (worker: number) =>
    sql.begin('isolation level read committed', async (transaction) => {
      await transaction`SELECT set_config('my.worker', ${String(worker)}, true)`;
      const [seen] = await transaction`SELECT n, current_setting('my.worker') AS worker FROM counters FOR UPDATE`;
      expect(seen?.worker).toBe(String(worker));
      await transaction
        .savepoint((inner) => inner`INSERT INTO counters VALUES ('all', 1)`)
        .catch((error: unknown) => {
          expect(error).toMatchObject({ code: '23505', constraint_name: 'counters_pkey', table_name: 'counters' });
        });
      await transaction`UPDATE counters SET n = ${seen?.n + 1}`;
    });
  await Promise.all(Array.from({ length: 60 }, (_, worker) => count(worker)));
  expect(await sql`SELECT n FROM counters`).toEqual([{ n: 60 }]);
});

it('sends the queries of a transaction in one pipeline', async () => {
  const [, [one], [two]] = await sql.begin((transaction) => [
    transaction`CREATE TABLE t (n int)`,
    transaction`INSERT INTO t VALUES (1) RETURNING n`,
    transaction`INSERT INTO t VALUES (2) RETURNING n`,
  ]);
  expect([one, two]).toEqual([{ n: 1 }, { n: 2 }]);
  const failure = failureOf(
    sql.begin((transaction) => [transaction`INSERT INTO t VALUES (3)`, transaction`SELECT nowhere`, transaction`SELECT 1`]),
  );
  expect(await failure).toMatchObject({ code: '42703' });
  expect(await sql`SELECT n FROM t ORDER BY n`).toEqual([{ n: 1 }, { n: 2 }]);
});

it('reads arrays of types it has to ask for, and describes statements', async () => {
  await sql`CREATE TYPE mood AS ENUM ('sad', 'happy')`;
  await sql`CREATE TABLE people (name text, moods mood[], born date)`;
  const { columns, types } = await sql`SELECT name, born FROM people WHERE name = ${''} AND moods = ${'{}'}`.describe();
  expect(columns.map(({ name, type }) => [name, type])).toEqual([
    ['name', 25],
    ['born', 1082],
  ]);
  expect(types).toHaveLength(2);
  const later = service.sql(organization, { max: 2 });
  await later`INSERT INTO people ${later([{ name: 'Ada', moods: ['happy', 'sad'], born: '1815-12-10' }])}`;
  expect(await later`SELECT moods FROM people`).toEqual([{ moods: ['happy', 'sad'] }]);
  expect(await later`SELECT ${later.array([1, 2])}::int[] AS list, ${later.json({ a: 1 })}::jsonb AS json`).toEqual([
    { list: [1, 2], json: { a: 1 } },
  ]);
  await later.end();
});

it('migrates by a script of many statements, all or nothing', async () => {
  const script = `CREATE TYPE mood AS ENUM ('sad', 'happy');
    CREATE TABLE people (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, mood mood DEFAULT 'happy');
    CREATE FUNCTION shout(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN upper($1) || ';'; END; $$;
    INSERT INTO people (name) VALUES (shout('ada')) RETURNING name, mood`;
  const results = await sql.unsafe(script).simple();
  expect(results.at(-1)).toEqual([{ name: 'ADA;', mood: 'happy' }]);
  expect(await failureOf(sql.unsafe('CREATE TABLE gone (); ALTER TABLE people ADD name text; SELECT 1').simple())).toMatchObject({
    code: '42701',
  });
  expect(await sql`SELECT to_regclass('gone') AS gone`).toEqual([{ gone: null }]);
});

it('is canceled', async () => {
  const watcher = await service.connect(organization);
  const query = sql`SELECT FROM (${sql.unsafe(LANDMARK)}) AS passed, pg_sleep(60)`;
  const ended = failureOf(query);
  await landmarkPassed(watcher);
  query.cancel();
  expect(await ended).toMatchObject({ code: '57014' });
  expect(await Promise.all(Array.from({ length: 20 }, (_, n) => sql`SELECT ${n}::int AS n`))).toHaveLength(20);
  await watcher.end();
});

it('keeps a connection for itself', async () => {
  const reserved = await sql.reserve();
  await reserved`CREATE TEMPORARY TABLE mine AS SELECT 7 AS n`;
  await sql`SELECT 1`;
  expect(await reserved`SELECT n FROM mine`).toEqual([{ n: 7 }]);
  reserved.release();
});

it('reads by cursor while others work, and stops when it has enough', async () => {
  let sum = 0;
  const read = sql`SELECT generate_series(1, 1000) AS n`.cursor(64, ([...rows]) => {
    for (const { n } of rows) sum += n;
  });
  await Promise.all([read, ...Array.from({ length: 40 }, () => sql`SELECT 1`)]);
  expect(sum).toBe(500_500);
  let portions = 0;
  await sql`SELECT generate_series(1, 1000000) AS n`.cursor(10, () => {
    portions += 1;
    return portions === 3 ? sql.CLOSE : undefined;
  });
  expect(portions).toBe(3);
});

it('copies in and streams out, row by row', async () => {
  await sql`CREATE TABLE people (id int, name text)`;
  const lines = Array.from({ length: 10_000 }, (_, id) => `${id}\tname ${id}\n`);
  await pipeline(Readable.from(lines), await sql`COPY people FROM STDIN`.writable());
  let seen = 0;
  await sql`SELECT * FROM people`.forEach(() => {
    seen += 1;
  });
  expect(seen).toBe(10_000);
});

it('listens, on a connection of its own, while all others are busy', async () => {
  const heard: string[] = [];
  const { unlisten } = await sql.listen('news', (payload) => heard.push(payload));
  await Promise.all(Array.from({ length: 50 }, (_, n) => sql.notify('news', String(n))));
  await eventually('all notifications', () => heard.length === 50);
  expect(new Set(heard).size).toBe(50);
  await unlisten();
});

it('is told the settings of its session', async () => {
  const own = service.sql(organization, {
    max: 1,
    connection: { application_name: 'a program', TimeZone: 'Asia/Tokyo', statement_timeout: 66_000 },
  });
  for (let turn = 0; turn < 3; turn += 1) {
    expect(await own`SELECT current_setting('TimeZone') AS zone, current_setting('statement_timeout') AS timeout`).toEqual([
      { zone: 'Asia/Tokyo', timeout: '66s' },
    ]);
  }
  expect(own.parameters).toMatchObject({ application_name: 'a program', TimeZone: 'Asia/Tokyo' });
  await own.end();
});
