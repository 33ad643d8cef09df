import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import pgDriver from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { createPlainTarget, type PlainTarget } from '../conversations/target.ts';
import { SeededRandom } from '../support/random.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/* With `standard_conforming_strings` off, a backslash in a plain string escapes. PostgreSQL itself says what a text means then. */

let plain: PlainTarget;
let direct: pg.Client;
beforeAll(async () => {
  plain = await createPlainTarget(inject('cluster'), `strings_${randomBytes(4).toString('hex')}`);
  direct = new pgDriver.Client({ ...plain });
  await direct.connect();
});
afterAll(async () => {
  await direct.end();
  await plain.drop();
});

const OFF = { sql: 'set local standard_conforming_strings = off' };
const QUIET = { sql: 'set local escape_string_warning = off' };
const INSERT = String.raw`insert into public.t values ('it\'s in public.t now')`;
const SELECT = String.raw`select 'a\'' as a, v from public.t`;
const STORED = { a: "a'", v: "it's in public.t now" };

/** What strings are made of where a wrong reading shows: quotes, backslashes, and what looks like a name or the end of a statement. */
const PIECES = [
  "\\'",
  "\\\\'",
  "''",
  "', '",
  "'), ('",
  "' || '",
  "'\n'",
  '\\\\',
  '\\',
  '\\x70ublic.t',
  ' public.t ',
  '"public".t',
  '::public.t',
  "' || v from public.t -- '",
  "e'",
  "E'\\''",
  ' E',
  'n',
  ' -- ',
  '/*',
  '*/',
  '$$',
  '$1',
  'a',
  '; ',
];

/** @returns what a text has done: its rows, or its error */
async function outcomeOf(client: pg.Client, query: string | pg.QueryConfig) {
  try {
    const results = [await client.query(query)].flat() as pg.QueryResult[];
    return results.map(({ command, rows }) => ({ command, rows }));
  } catch (error) {
    const { code, message, position } = error as pg.DatabaseError;
    // A syntax error repeats a word of the text that the server has got.
    return { code, message: message.replace(/org_\w+/, 'public'), position };
  }
}

describe.each(PLACEMENTS)('in the %s placement', (placement) => {
  let service: TestService;
  let acme: TestOrganization;
  let client: pg.Client;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: placement, POSTERN_SIGNUPS_PER_HOUR: '100' });
    acme = await service.signUp();
    client = await service.connect(acme);
    for (const each of [client, direct]) {
      await each.query('drop table if exists public.t; create table public.t (v text); set escape_string_warning = off');
    }
  });
  afterAll(async () => {
    await client.end();
    await service.close();
  });

  const empty = () => service.query(acme, 'truncate t');
  const rows = async () => (await service.query(acme, 'select v from t')).body.rows;

  it.each(['on', 'off'])('random texts mean what they mean directly, with the setting %s', async (setting) => {
    const random = new SeededRandom(setting === 'on' ? 41 : 42);
    for (const each of [client, direct]) {
      await each.query('truncate t');
      await each.query(`set standard_conforming_strings = ${setting}`);
    }
    for (let n = 0; n < 250; n += 1) {
      const middle = Array.from({ length: 1 + random.below(7) }, () => PIECES[random.below(PIECES.length)]).join('');
      const text = n % 3 === 0 ? `select '${middle}' as a, count(*) from public.t` : `insert into public.t values ('${middle}')`;
      const query = n % 2 === 0 ? text : { name: `${placement} ${setting} ${n}`, text };
      expect(await outcomeOf(client, query), text).toEqual(await outcomeOf(direct, query));
      // A prepared statement keeps its meaning.
      if (typeof query !== 'string' && n % 5 === 0) {
        const other = `set standard_conforming_strings = ${setting === 'on' ? 'off' : 'on'}`;
        for (const each of [client, direct]) await each.query(other);
        expect(await outcomeOf(client, query), text).toEqual(await outcomeOf(direct, query));
        for (const each of [client, direct]) await each.query(`set standard_conforming_strings = ${setting}`);
      }
    }
    const all = 'select v from t';
    expect((await client.query(all)).rows).toEqual((await direct.query(all)).rows);
    expect((await client.query('select v from t limit 100')).rows.length).toBeGreaterThan(20);
  });

  it('the statements of a transaction over HTTP are read one after the other', async () => {
    await empty();
    const statements = [OFF, QUIET, { sql: INSERT }, { sql: SELECT }, { sql: 'set local standard_conforming_strings = on' }];
    const last = { sql: String.raw`select 'a\' as a, v from public.t` };
    const { status, body } = await service.call('POST', '/api/transaction', {
      key: acme.apiKey,
      body: { statements: [...statements, last] },
    });
    expect([status, body.message]).toEqual([200, undefined]);
    expect(body.results[3].rows).toEqual([STORED]);
    expect(body.results[5].rows).toEqual([{ a: 'a\\', v: STORED.v }]);
    const withParameter = { sql: String.raw`select 'it\'s public.t' as a, v from public.t where v <> $1`, params: ['x'] };
    const computed = { sql: `do $$ begin perform set_config('standard_' || 'conforming_strings', 'off', true); end $$` };
    const second = await service.call('POST', '/api/transaction', {
      key: acme.apiKey,
      body: { statements: [computed, QUIET, withParameter] },
    });
    expect(second.body.results?.[2].rows, JSON.stringify(second.body)).toEqual([{ a: "it's public.t", v: STORED.v }]);
    expect((await service.query(acme, last.sql)).body.rows).toEqual([{ a: 'a\\', v: STORED.v }]);
  });

  it('long statements too', async () => {
    await empty();
    const long = `insert into public.t values ('it\\'s in public.t now') /* ${'x'.repeat(40_000)} */`;
    const body = { statements: [{ sql: long.replaceAll("\\'", "''") }, OFF, QUIET, { sql: long }] };
    const { status } = await service.call('POST', '/api/transaction', { key: acme.apiKey, body });
    expect(status).toBe(200);
    expect(await rows()).toEqual([{ v: STORED.v }, { v: STORED.v }]);
    await client.query('set standard_conforming_strings = off');
    await client.query(long);
    await client.query('set standard_conforming_strings = on');
    expect(await rows()).toHaveLength(3);
    expect(new Set((await rows()).map(({ v }: { v: string }) => v))).toEqual(new Set([STORED.v]));
  });

  it("so are the statements of Neon's batches", async () => {
    await empty();
    const url = `postgresql://${acme.id}:${acme.apiKey}@localhost/${acme.id}`;
    const queries = [OFF.sql, QUIET.sql, INSERT, SELECT].map((query) => ({ query, params: [] }));
    const reply = await fetch(`${service.httpUrl}/sql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'neon-connection-string': url },
      body: JSON.stringify({ queries }),
    });
    const { results } = (await reply.json()) as { results: { rows: unknown[] }[] };
    expect(results[3]?.rows).toEqual([STORED]);
  });

  const migrate = async (body: object) => {
    const reply = await service.call('POST', '/api/migrations', { key: acme.apiKey, body });
    expect([reply.status, reply.body.message]).toEqual([(body as { dryRun?: boolean }).dryRun ? 200 : 201, undefined]);
    return reply.body;
  };

  it.each(['set standard_conforming_strings = off', `select set_config('standard_' || 'conforming_strings', 'off', false)`])(
    'a migration is split as its statements change the setting: %s',
    async (off) => {
      const name = off.slice(0, 6);
      const sql = `${off};
        ${INSERT};
        insert into public.t values ('it\\'s; commit; public.t');
        set standard_conforming_strings = on;
        insert into public.t values ('\\'), ('; public.t');`;
      for (const [how, more] of [
        ['dry', { dryRun: true }],
        ['whole', {}],
        ['apart', { transaction: false }],
      ] as const) {
        await empty();
        const { migration } = await migrate({ name: `${name} ${how}`, sql, ...more });
        expect(migration.statementCount).toBe(5);
        const expected = [STORED.v, "it's; commit; public.t", '\\', '; public.t'].map((v) => ({ v }));
        expect(await rows()).toEqual(how === 'dry' ? [] : expected);
      }
      const undo = { name: `${name} undone`, sql, rollbackSql: sql, dryRun: true };
      expect((await migrate(undo)).migration.statementCount).toBe(5);
    },
  );

  it('a migration says where a statement fails that is read otherwise than it was split first', async () => {
    const sql = `do $$ begin perform set_config('standard_conforming_strings', 'off', true); end $$;\nselect 'it\\'s;';\nselect 'a\\'' from public.none`;
    const { status, body } = await service.call('POST', '/api/migrations', { key: acme.apiKey, body: { name: 'fails', sql } });
    expect([status, body.sqlstate, body.statementIndex, body.postgres?.line, body.postgres?.column]).toEqual([400, '42P01', 2, 3, 19]);
  });

  it("the role's default is the value of new sessions, and not of those that have begun", async () => {
    const org = await service.signUp();
    const old = await service.connect(org);
    await old.query('create table t (v text)');
    const query = (sql: string) => service.query(org, sql);
    expect((await query(String.raw`select 'a\' as a, count(*) from public.t`)).body.rows).toEqual([{ a: 'a\\', count: '0' }]);
    await query('alter role current_user set standard_conforming_strings = off');
    await query('alter role current_user set escape_string_warning = off');
    for (let n = 0; n < 4; n += 1) {
      await query(INSERT);
      const reply = await query(SELECT);
      expect(reply.body.rows?.at(-1), JSON.stringify(reply.body)).toEqual(STORED);
    }
    const fresh = await service.connect(org);
    for (const name of [undefined, 'named']) {
      for (let n = 0; n < 4; n += 1) {
        const text = String.raw`select 'a\'' as a, v from public.t limit 1`;
        expect((await fresh.query({ ...(name && { name }), text, values: [] })).rows).toEqual([STORED]);
        const standard = String.raw`select 'a\' as a, v from public.t limit 1`;
        expect((await old.query({ ...(name && { name }), text: standard, values: [] })).rows).toEqual([{ a: 'a\\', v: STORED.v }]);
      }
    }
    await Promise.all([old.end(), fresh.end()]);
  });
});
