import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { logIn } from '../conversations/login.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { PLACEMENT, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/* Both doors of an organization that has one backend session: whatever one does to it, the other must not notice. */

let service: TestService;
let acme: TestOrganization;
let client: pg.Client;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '1' });
});
afterAll(() => service.close());
beforeEach(async () => {
  acme = await service.signUp();
  client = await service.connect(acme);
  return () => client.end();
});

const VALUES = `SELECT '2025-02-01 03:04:05.6+00'::timestamptz AS at, '1 day 02:00'::interval AS span, '\\x00ff'::bytea AS bytes,
  0.1::float8 + 0.2 AS sum, $1::int AS n, current_setting('TimeZone') AS zone`;
const EXPECTED = { at: '2025-02-01T03:04:05.600000Z', span: '1 day 02:00:00', bytes: '\\x00ff', sum: 0.30000000000000004 };

async function values(n: number) {
  const { body } = await service.query(acme, VALUES, [n]);
  const { zone, ...row } = body.rows[0];
  expect(row).toEqual({ ...EXPECTED, n });
  return zone;
}

it('settings of a wire client do not change what comes over HTTP, nor the other way round', async () => {
  const zone = await values(1);
  await client.query("SET DateStyle = 'German'; SET IntervalStyle = 'iso_8601'; SET bytea_output = 'escape'; SET extra_float_digits = -3");
  await client.query("SET TimeZone = 'Asia/Tokyo'; SET search_path = pg_catalog; SET standard_conforming_strings = off");
  for (const n of [1, 2, 3]) {
    expect(await values(n)).toBe(zone);
    const { rows } = await client.query("SELECT '2025-02-01 00:00+00'::timestamptz::text AS at, current_setting('search_path') AS path");
    expect(rows).toEqual([{ at: '01.02.2025 09:00:00 JST', path: 'pg_catalog' }]);
  }
  await client.query('RESET ALL');
  for (const n of [4, 5, 6]) expect(await values(n)).toBe(zone);
});

it('statements that one has prepared are no trouble to the other', async () => {
  const prepared = (n: number) => client.query({ name: 'mine', text: 'SELECT $1::int + 1 AS next', values: [n] });
  for (const n of [1, 2, 3]) {
    await values(n);
    expect((await prepared(n)).rows).toEqual([{ next: n + 1 }]);
    expect((await client.query('SELECT $1::text AS unnamed', [`${n}`])).rows).toEqual([{ unnamed: `${n}` }]);
  }
  for (const forget of ['DEALLOCATE ALL', 'DISCARD ALL', 'DISCARD PLANS']) {
    await client.query(forget);
    for (const n of [1, 2]) await values(n);
  }
  await service.query(acme, 'DEALLOCATE ALL');
  expect((await client.query({ name: 'other', text: 'SELECT 2 AS two' })).rows).toEqual([{ two: 2 }]);
  expect(
    (await client.query("SELECT count(*)::int AS others FROM pg_prepared_statements WHERE name NOT IN ('mine', 'other')")).rows,
  ).toEqual([{ others: 0 }]);
});

it('tables that one changes, the other sees changed', async () => {
  const prepared = (name: string) => client.query({ name, text: 'SELECT * FROM things' });
  await service.query(acme, 'CREATE TABLE things AS SELECT 1 AS a');
  for (const column of ['b', 'c', 'd']) {
    for (const _ of [1, 2, 3]) {
      const { body } = await service.query(acme, 'SELECT * FROM things');
      expect(body.rows).toEqual((await prepared(`without ${column}`)).rows);
    }
    if (column === 'c') await client.query(`ALTER TABLE things ADD ${column} int DEFAULT 7`);
    else await service.query(acme, `ALTER TABLE things ADD ${column} text DEFAULT 'new'`);
    // As Postgres tells the client of a statement that it has prepared under a name.
    await expect(prepared(`without ${column}`)).rejects.toMatchObject({ code: '0A000' });
  }
  expect((await service.query(acme, 'SELECT * FROM things')).body.rows).toEqual([{ a: 1, b: 'new', c: 7, d: 'new' }]);
  expect((await prepared('with all')).rows).toEqual([{ a: 1, b: 'new', c: 7, d: 'new' }]);
});

it('what sequences gave on the wire is not told over HTTP', async () => {
  await client.query('CREATE TABLE numbered (id serial)');
  await client.query('INSERT INTO numbered DEFAULT VALUES');
  expect((await service.query(acme, 'SELECT lastval()')).body.sqlstate).toBe('55000');
});

/** A client that sets nothing: texts mean to its session what they mean over HTTP. */
async function plainClient() {
  const { id, apiKey } = acme;
  const raw = await WireClient.open('127.0.0.1', service.wirePort);
  await logIn(raw, { user: id, database: id, password: apiKey }, '3.0', new Map());
  return async (...messages: readonly string[]) => {
    await raw.write(Buffer.concat(messages.map(encodeFrontend)));
    const heard: string[] = [];
    for (;;) {
      const message = await raw.read();
      if (message === undefined || message === 'EOF') throw new Error(`heard only ${heard.join('; ')}`);
      heard.push(describeBackend(message));
      if (message.type === 'Z') return heard;
    }
  };
}

it('a text is one prepared statement to both, and is what its tables are now', async () => {
  await client.end();
  client = { end: async () => {} } as pg.Client;
  await service.query(acme, 'CREATE TABLE texts AS SELECT 1 AS a');
  const text = 'SELECT * FROM texts WHERE a = $1';
  const ask = await plainClient();
  const ofHttp = async () => (await service.query(acme, text, [1])).body.rows;
  const ofWire = async (name: string) => {
    const heard = await ask(`Parse ${name} ${text}`, `Bind "" ${name} [1]`, 'Execute "" 0', 'Sync');
    return heard.filter((message) => message.startsWith('DataRow'));
  };
  const count = async () => {
    const sql = 'SELECT count(*)::int AS n FROM pg_prepared_statements WHERE statement = $1';
    return (await service.query(acme, sql, [text])).body.rows[0].n;
  };
  for (const _ of [1, 2]) expect(await ofHttp()).toEqual([{ a: 1 }]);
  expect(await ofWire('one')).toEqual(['DataRow 1']);
  expect(await ofHttp()).toEqual([{ a: 1 }]);
  if (PLACEMENT === 'database') expect(await count()).toBe(1);
  await service.query(acme, "ALTER TABLE texts ADD b text DEFAULT 'new'");
  expect(await ofWire('two')).toEqual(['DataRow 1 new']);
  for (const _ of [1, 2]) expect(await ofHttp()).toEqual([{ a: 1, b: 'new' }]);
  await ask('Query ALTER TABLE texts DROP b');
  expect(await ofHttp()).toEqual([{ a: 1 }]);
  expect(await ofWire('three')).toEqual(['DataRow 1']);
  await service.query(acme, 'ALTER TABLE texts ALTER a TYPE text');
  expect(await ofWire('four')).toEqual(['DataRow 1']);
  expect((await service.query(acme, text, ['1'])).body.rows).toEqual([{ a: '1' }]);
});
