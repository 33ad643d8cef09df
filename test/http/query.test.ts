import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { queryReply, transactionReply } from '../../http/reply-schemas.ts';
import type { Observation } from '../../src/observation.ts';
import { eventually } from '../support/eventually.ts';
import { PLACEMENT, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '2', POSTERN_QUEUE_TIMEOUT_MS: '5000' });
  acme = await service.signUp();
});
afterAll(() => service.close());

const query = (body: object, headers: Record<string, string> = {}) =>
  service.call('POST', '/api/query', { key: acme.apiKey, body, headers });
const transaction = (body: object) => service.call('POST', '/api/transaction', { key: acme.apiKey, body });

const SETTINGS_REFUSED =
  'settings: must be an object of at most 32 settings whose names have a dot, with strings of at most 8192 characters';

type Request = Extract<Observation, { name: 'http.request' }>;

/** What became of the call with this request id. */
async function outcomeOf(requestId: string): Promise<Request | undefined> {
  const isIt = (observation: Observation): observation is Request =>
    observation.name === 'http.request' && observation.origin.requestId === requestId;
  await eventually(`the end of call ${requestId}`, () => service.observations.some(isIt));
  return service.observations.find(isIt);
}

/** Resolves once as many statements with this mark in them run as are expected. */
async function running(mark: string, count = 1): Promise<void> {
  const operator = new pg.Client({ connectionString: inject('clusterUrl') });
  await operator.connect();
  const sql = "select 1 from pg_stat_activity where usename = $1 and state = 'active' and query like $2";
  try {
    await eventually(`${count} × ${mark} at work`, async () => (await operator.query(sql, [acme.id, `%${mark}%`])).rowCount === count);
  } finally {
    await operator.end();
  }
}

/** A call over a bare socket, to hang up on. */
async function callOnSocket(body: object, requestId: string) {
  const socket = connect(Number(new URL(service.httpUrl).port), '127.0.0.1');
  await once(socket, 'connect');
  const text = JSON.stringify(body);
  socket.write(
    `POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${acme.apiKey}\r\nX-Request-Id: ${requestId}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  );
  return socket;
}

describe('settings of a call', () => {
  const seen = "current_setting('app.user_id', true)";
  const settings = { 'app.user_id': 'anna \'\\" $1' };
  const value = settings['app.user_id'];

  it.each([
    ['as objects', {}, [{ id: value }]],
    ['as arrays', { rowMode: 'array' }, [[value]]],
    ['in a transaction that only reads', { readOnly: true }, [{ id: value }]],
  ])('are there for its statement %s, and not for the next one', async (_, more, rows) => {
    const sql = `select ${seen} as id`;
    for (let time = 0; time < 3; time += 1) {
      expect((await query({ sql, settings, ...more })).body.rows).toEqual(rows);
      expect((await query({ sql })).body.rows).toEqual([{ id: null }]);
    }
  });

  it('are there for all statements of a transaction, and not for the next one', async () => {
    const sql = `select ${seen} as id, current_setting('request.jwt.claims', true) as claims`;
    const all = { settings: { ...settings, 'request.jwt.claims': '{"sub": "1"}' }, statements: [{ sql }, { sql: 'select 1' }, { sql }] };
    for (const more of [{}, { readOnly: true }, { rollback: true }, { isolationLevel: 'serializable' }]) {
      const { body } = await transaction({ ...all, ...more });
      expect([body.results[0].rows, body.results[2].rows]).toEqual(Array(2).fill([{ id: value, claims: '{"sub": "1"}' }]));
      expect((await transaction({ statements: [{ sql }] })).body.results[0].rows).toEqual([{ id: null, claims: null }]);
    }
  });

  it('are never those of another call, however many share the backends', async () => {
    const sql = `select ${seen} as id`;
    const replies = await Promise.all(
      Array.from({ length: 60 }, (_, n) => query(n % 3 === 0 ? { sql } : { sql, settings: { 'app.user_id': String(n) } })),
    );
    expect(replies.map(({ body }) => body.rows[0].id)).toEqual(replies.map((_, n) => (n % 3 === 0 ? null : String(n))));
  });

  it('are gone when the statement fails, which leaves nothing', async () => {
    await query({ sql: 'create table owned_once (id int primary key, who text)' });
    const insert = { sql: `insert into owned_once values (1, ${seen}) returning who`, settings };
    expect((await query(insert)).body.rows).toEqual([{ who: value }]);
    expect((await query(insert)).body.sqlstate).toBe('23505');
    expect((await query({ sql: 'vacuum owned_once', settings })).body.sqlstate).toBe('25001');
    expect((await query({ sql: `select ${seen} as id, count(*)::int from owned_once` })).body.rows).toEqual([{ id: null, count: 1 }]);
  });

  it('are there once for each Idempotency-Key, and part of what it stands for', async () => {
    const sql = `select ${seen} as id`;
    const headers = { 'idempotency-key': 'with-settings' };
    const first = await query({ sql, settings }, headers);
    expect(first.body.rows).toEqual([{ id: value }]);
    expect((await query({ sql, settings }, headers)).headers.get('idempotency-replayed')).toBe('true');
    expect((await query({ sql, settings: { 'app.user_id': 'bert' } }, headers)).status).toBe(422);
  });

  it.each(
    [
      ['app.user_id'],
      'app.user_id',
      { user_id: '1' },
      { search_path: 'x' },
      { 'app.user id': '1' },
      { 'app.': '1' },
      { 'app.user_id': 1 },
      { 'app.user_id': null },
      { 'app.user_id': 'a\0b' },
      { 'app.user_id': 'a'.repeat(8_193) },
      { [`app.${'a'.repeat(124)}`]: '1' },
      Object.fromEntries(Array.from({ length: 33 }, (_, n) => [`app.n${n}`, ''])),
    ].map((wrong) => ({ wrong })),
  )('that are $wrong are refused', async ({ wrong }) => {
    for (const { status, body } of [
      await query({ sql: 'select 1', settings: wrong }),
      await transaction({ statements: [{ sql: 'select 1' }], settings: wrong }),
    ])
      expect([status, body.code, body.message]).toEqual([400, 'invalid_request', SETTINGS_REFUSED]);
  });
});

describe('a query', () => {
  it('answers as described', async () => {
    const { status, body, headers } = await query({ sql: 'select $1::int4 as n, $2::int8 as big', params: [1, 2] });
    expect(status).toBe(200);
    expect(headers.get('content-type')).toBe('application/json; charset=utf-8');
    expect(queryReply.strict().parse(body)).toEqual({
      rows: [{ n: 1, big: '2' }],
      rowCount: 1,
      command: 'SELECT',
      fields: [
        { name: 'n', dataTypeID: 23, dataType: 'int4' },
        { name: 'big', dataTypeID: 20, dataType: 'int8' },
      ],
      rowAsArray: false,
      durationMs: expect.any(Number),
    });
  });

  it('that has committed a part before it failed is not retryable', async () => {
    await query({ sql: 'create table parts (a int)' });
    const failing = (first: string) => `do $$ begin insert into parts values (1); ${first} raise 'not now' using errcode = '40001'; end $$`;
    expect(await query({ sql: failing('commit;') })).toMatchObject({ status: 409, body: { retryable: false } });
    expect((await query({ sql: 'select a from parts' })).body.rows).toEqual([{ a: 1 }]);
    const once = { 'idempotency-key': 'parts' };
    const [whole, split] = [await query({ sql: failing('') }, once), await query({ sql: failing('commit;') }, once)];
    expect(whole).toMatchObject({ status: 409, body: { retryable: true } });
    expect(split).toMatchObject({ status: 400, body: { sqlstate: '2D000' } });
    expect((await query({ sql: 'select a from parts' })).body.rows).toEqual([{ a: 1 }]);
  });

  it('keeps the digits of every number', async () => {
    const sql = 'select $1::int8 as a, $2::numeric as b, $3::jsonb as c, $4::int8[] as d';
    const body = `{"sql":"${sql}","params":[9223372036854775807,0.12345678901234567890,{"n":[9007199254740993]},[9007199254740993]],"rowMode":"array"}`;
    const reply = await fetch(`${service.httpUrl}/api/query`, {
      method: 'POST',
      headers: { authorization: `Bearer ${acme.apiKey}`, 'content-type': 'application/json' },
      body,
    });
    expect(await reply.text()).toContain(
      '[["9223372036854775807","0.12345678901234567890",{"n": [9007199254740993]},["9007199254740993"]]]',
    );
  });

  it('keeps the digits of numbers in params, and takes 1.0 for an integer', async () => {
    const sql =
      'select $1::numeric as a, $2::int4 as b, $3::int4 as c, $4::numeric as d, $5::numeric[] as e, $6::jsonb as f, $7::bool as g';
    const body = `{"sql":"${sql}","params":[1.50,1.0,1e2,"1.50",[1.0,-0.10],1e5,1.0]}`;
    const reply = await service.call('POST', '/api/query', { key: acme.apiKey, body });
    expect(reply.body.rows).toEqual([{ a: '1.50', b: 1, c: 100, d: '1.50', e: ['1.0', '-0.10'], f: 100000, g: true }]);
  });

  it('has the parameters of the last of two members, however their name is written', async () => {
    const body = '{"sql":"select $1::json::text as a","params":[{"a":1}],"par\\u0061ms":[{"b":2.0}]}';
    const reply = await service.call('POST', '/api/query', { key: acme.apiKey, body });
    expect(reply.body.rows).toEqual([{ a: '{"b":2}' }]);
  });

  it.each(['small', 'large'])('stores a json parameter as it was sent, %s', async (size) => {
    const long = size === 'large' ? `,"long":"${'é'.repeat(200_000)}"` : '';
    const sent = `{ "z":1.0, "10":[ 1e5,"params" ],"2":{"params":[{}]}, "z":-0.10${long}}`;
    const body = `{"sql":"select $1::json::text as a, md5($2::json::text) as b, $3::jsonb::text as c","params":[${sent},[${sent}],{"n": 1.10}]}`;
    const reply = await service.call('POST', '/api/query', { key: acme.apiKey, body });
    expect(reply.body.rows[0].a).toBe(sent);
    expect(reply.body.rows[0].b).toBe(createHash('md5').update(`[${sent}]`).digest('hex'));
    expect(reply.body.rows[0].c).toBe('{"n": 1.10}');
    const statement = `{"sql":"insert into sent values ($1) returning j::text","params":[${sent}]}`;
    await service.query(acme, 'create table if not exists sent (j json)');
    const transaction = await service.call('POST', '/api/transaction', {
      key: acme.apiKey,
      body: `{"statements":[${statement},${statement}]}`,
    });
    expect(transaction.body.results.map(({ rows }: { rows: { j: string }[] }) => rows[0]?.j)).toEqual([sent, sent]);
  });

  it.each([
    [{}, 'sql: is required'],
    [{ sql: '' }, 'sql: must not be empty'],
    [{ sql: ' \n ' }, 'sql: must not be empty'],
    [{ sql: 'select 1\0' }, 'sql: must not contain a NUL character'],
    [{ sql: 1 }, 'sql: must be a string of at least 1 character'],
    [{ sql: 'select 1', params: {} }, 'params: must be an array of at most 65535 items'],
    [{ sql: 'select 1', parms: [] }, 'unknown field "parms"'],
    [{ sql: 'select 1', rowMode: 'tuple' }, 'rowMode: must be "object" or "array"'],
    [{ sql: 'select 1', timeoutMs: 0 }, 'timeoutMs: must be a whole number from 1 to 300000'],
    [{ sql: 'select 1', timeoutMs: 300_001 }, 'timeoutMs: must be a whole number from 1 to 300000'],
    [{ sql: 'select 1', timeoutMs: 1.5 }, 'timeoutMs: must be a whole number from 1 to 300000'],
    [{ sql: 'select 1', params: Array(65_536).fill(1) }, 'params: must be an array of at most 65535 items'],
  ])('that is %.60j is refused before it runs', async (body, message) => {
    const { status, body: problem } = await query(body);
    expect([status, problem.code, problem.message]).toEqual([400, 'invalid_request', message]);
  });

  it.each([
    [{}, 'For example "sql": "select id, total from orders where customer = $1"'],
    [[], 'For example {"sql":"select id, total from orders where customer = $1"}'],
    [{ sql: 'select 1', timeoutMs: 0 }, 'For example "timeoutMs": 5000'],
    [{ sql: 'select 1', rowMode: 1, readOnly: 1 }, 'For example "rowMode": "object". For example "readOnly": false'],
    [{ query: 'select 1' }, 'For example "sql": "select id, total from orders where customer = $1". Did you mean "sql"?'],
    [{ sql: 'select 1', parameters: [] }, 'Did you mean "params"?'],
    [
      { sql: 'select 1', read_only: true, time_out: 1 },
      'Did you mean "readOnly" in place of "read_only" and "timeoutMs" in place of "time_out"?',
    ],
    [{ sql: 'select 1', colour: 1 }, 'There are sql, params, rowMode, timeoutMs, readOnly, settings.'],
  ])('that is %.60j is answered with what would be right', async (body, hint) => {
    expect((await query(body)).body.hint).toBe(hint);
  });

  it.each([
    ['select * from pg_class where oid = ?', /^Parameters are written \$1/],
    ['select 1 where 1=? and true', /^Parameters are written \$1/],
    ['select :id::int', /^Parameters are written \$1/],
    ['select %s', /^Parameters are written \$1/],
    ["select '?' frm x", undefined],
    ['\\dt', /^\\dt is a command of psql, not SQL\. Instead: select table_name/],
    ['\\d orders', /information_schema\.columns where table_name = 'orders'$/],
    ['\\timing', /^\\timing is a command of psql, not SQL/],
    ['create role reader', /keys: POST \/api\/keys makes one/],
    ['create extension nowhere', /pg_available_extensions$/],
    ['create extension dblink', /where trusted$/],
    ['select uuid_generate_v4()', /create extension if not exists "uuid-ossp"\. gen_random_uuid\(\) needs none/],
    ["select 'a'::citext", /"citext"/],
    ['select nothing(1)', /^No function matches/],
  ])('"%s" is refused with a hint', async (sql, hint) => {
    const { status, body } = await query({ sql });
    expect(status).toBe(400);
    if (hint === undefined) expect(body.hint).toBeUndefined();
    else expect(body.hint).toMatch(hint);
  });

  it('says who makes extensions where they are shared', async () => {
    const { status, body } = await query({ sql: 'create extension btree_gist' });
    if (PLACEMENT === 'database') expect(status).toBe(200);
    else expect([status, body.hint]).toEqual([400, expect.stringMatching(/the operator creates them, in the database postern_shared/)]);
  });

  it.each([
    ['json', `'"ada"'`, 'ada', '22P02'],
    ['jsonb', `'"1"'`, '1', '1'],
    ['json', `'null'`, null, null],
    [
      'json[]',
      `array['"1"', 'null', '{"b": 1,  "a": 2, "a": 3}', null]`,
      ['1', null, { b: 1, a: 3 }, null],
      '{1,NULL,"{\\"b\\":1,\\"a\\":3}",NULL}',
    ],
    ['int[]', `'[0:1]={7,8}'`, [7, 8], '{7,8}'],
    ['record', `row(1, 'a')`, '(1,a)', '0A000'],
    ['pg_node_tree', 'select conbin from pg_constraint where conbin is not null limit 1', expect.any(String), '0A000'],
  ])('a value of %s that a reply does not tell whole is another one when it is sent back', async (type, value, told, back) => {
    const reply = await query({ sql: `select (${value})::${type}, (${value})::${type}::text`, rowMode: 'array' });
    expect([reply.status, reply.body.rows[0][0]]).toEqual([200, told]);
    expect(reply.body.rows[0][1]).not.toBe(back);
    const again = await query({ sql: `select $1::${type}::text`, params: [reply.body.rows[0][0]], rowMode: 'array' });
    expect(again.status === 200 ? again.body.rows[0][0] : again.body.sqlstate).toBe(back);
  });

  it('says that new sessions do not start with a value that a role has been given', async () => {
    const told = async (sql: string) => (await query({ sql })).body.warnings;
    expect(await told("ALTER ROLE CURRENT_USER SET statement_timeout TO '1min'")).toMatchObject([
      { severity: 'NOTICE', message: 'new sessions do not start with this value of "statement_timeout"' },
    ]);
    expect(await told("ALTER ROLE CURRENT_USER SET work_mem = '5MB'")).toBeUndefined();
    expect(await told('ALTER ROLE CURRENT_USER RESET ALL')).toBeUndefined();
  });

  it('says that a setting ends with the call', async () => {
    const ends = [expect.objectContaining({ severity: 'WARNING', message: 'the setting ends with this call' })];
    for (const _ of ['described', 'prepared']) expect((await query({ sql: "set work_mem = '8MB'" })).body.warnings).toEqual(ends);
    const local = (await query({ sql: "set local work_mem = '8MB'" })).body.warnings;
    expect(local).toEqual([expect.objectContaining({ code: '25P01' })]);
  });

  it.each([
    ['prepare mine as select 1', 'the prepared statement'],
    ['declare mine cursor with hold for select 1', 'the cursor'],
    ['create temp table mine (id int)', 'what is temporary'],
    ['create temporary table mine as select 1 as id', 'what is temporary'],
    ['create or replace temp view mine as select 1', 'what is temporary'],
  ])('says of "%s" that it ends with the call', async (sql, what) => {
    expect((await query({ sql })).body.warnings).toMatchObject([{ severity: 'WARNING', message: `${what} ends with this call` }]);
  });

  it('says no such thing of what stays', async () => {
    for (const sql of ['create table temp_stays as select 1 as temp', 'drop table temp_stays', 'select 1 as temp'])
      expect((await query({ sql })).body.warnings ?? []).toEqual([]);
  });

  it.each([
    ['selec 1', '42601', 1, 1],
    ['select 1\n  from "nöwhere"', '42P01', 2, 8],
    ['select 1; select 2', '42601', undefined, undefined],
    ['select 1/0', '22012', undefined, undefined],
  ])('"%s" is 400 with SQLSTATE %s', async (sql, sqlstate, line, column) => {
    const { status, body } = await query({ sql });
    expect(status).toBe(400);
    expect(body).toMatchObject({ code: 'sql_error', sqlstate, postgres: { severity: 'ERROR' } });
    expect([body.postgres.line, body.postgres.column]).toEqual([line, column]);
  });

  it('that takes longer than it may is 504', async () => {
    const { status, body } = await query({ sql: 'select pg_sleep(30)', timeoutMs: 100 });
    expect([status, body.code, body.sqlstate]).toEqual([504, 'statement_timeout', '57014']);
  });

  it('that finds no session free in time is 503 and may be tried again', async () => {
    const busy = await Promise.all(['busy-1', 'busy-2'].map((id) => callOnSocket({ sql: 'select pg_sleep(20) as held' }, id)));
    await running('held', 2);
    const { status, body, headers } = await query({ sql: 'select 1' });
    expect([status, body.code, body.retryable, headers.get('retry-after')]).toEqual([503, 'pool_timeout', true, '1']);
    for (const socket of busy) socket.destroy();
    await running('held', 0);
  });

  it('is cancelled when its client goes away', async () => {
    const socket = await callOnSocket({ sql: 'select pg_sleep(20) as left_alone' }, 'gone-1');
    await running('left_alone');
    socket.destroy();
    expect(await outcomeOf('gone-1')).toMatchObject({ outcome: { status: 'error', httpStatus: 499, sqlstate: '57014' } });
    await running('left_alone', 0);
  });
});

it('what a role is changed to start with, the next call starts with', async () => {
  const workMem = async () => (await query({ sql: "select current_setting('work_mem') as size" })).body.rows[0].size;
  const usual = await workMem();
  expect((await query({ sql: "alter role current_user set work_mem = '1234kB'" })).status).toBe(200);
  expect(await workMem()).toBe('1234kB');
  await query({ sql: 'alter role current_user reset work_mem' });
  expect(await workMem()).toBe(usual);
});

describe('a large result', () => {
  it('arrives whole', async () => {
    const { status, body, headers } = await query({ sql: "select g as id, repeat('x', 100) as text from generate_series(1, 100000) g" });
    expect([status, body.rowCount, body.rows.length, body.rows[99_999].id]).toEqual([200, 100_000, 100_000, 100_000]);
    expect(headers.get('content-length')).toBeNull();
  });

  it('that fails on the way breaks the connection, so that nobody takes it for whole', async () => {
    const reply = await fetch(`${service.httpUrl}/api/query`, {
      method: 'POST',
      headers: { authorization: `Bearer ${acme.apiKey}`, 'content-type': 'application/json', 'x-request-id': 'broken-1' },
      body: JSON.stringify({ sql: 'select g, 1 / (100000 - g) as inverse from generate_series(1, 200000) g' }),
    });
    expect(reply.status).toBe(200);
    await expect(reply.text()).rejects.toThrow('terminated');
    expect(await outcomeOf('broken-1')).toMatchObject({ outcome: { status: 'error', httpStatus: 200, sqlstate: '22012' } });
  });

  it('is cancelled when its reader goes away in the middle', async () => {
    const socket = await callOnSocket({ sql: "select repeat('x', 1000) as abandoned from generate_series(1, 10000000)" }, 'gone-2');
    await once(socket, 'data');
    socket.destroy();
    expect(await outcomeOf('gone-2')).toMatchObject({ outcome: { status: 'error', sqlstate: '57014' } });
    await running('abandoned', 0);
  });
});

describe('a transaction', () => {
  it('answers as described', async () => {
    await query({ sql: 'create table notes (body text)' });
    const { status, body } = await transaction({
      statements: [{ sql: 'insert into notes values ($1), ($2)', params: ['a', 'b'] }, { sql: 'select body from notes order by 1' }],
      isolationLevel: 'SERIALIZABLE',
    });
    expect(status).toBe(200);
    expect(transactionReply.strict().parse(body)).toMatchObject({
      results: [
        { rowCount: 2, command: 'INSERT' },
        { rows: [{ body: 'a' }, { body: 'b' }], command: 'SELECT' },
      ],
      status: 'committed',
    });
  });

  it('whose second statement of three fails leaves nothing and says which one it was', async () => {
    await query({ sql: 'create table kept (id int primary key)' });
    const { status, body } = await transaction({
      statements: [
        { sql: 'insert into kept values (1)' },
        { sql: 'insert into kept\nvalues (nope)' },
        { sql: 'insert into kept values (3)' },
      ],
    });
    expect(status).toBe(400);
    expect(body).toMatchObject({
      code: 'sql_error',
      sqlstate: '42703',
      statementIndex: 1,
      phase: 'statement',
      transactionStatus: 'rolled_back',
      postgres: { line: 2, column: 9 },
    });
    expect((await query({ sql: 'select * from kept' })).body.rows).toEqual([]);
  });

  it('may fail at its commit', async () => {
    await query({ sql: 'create table deferred (id int unique deferrable initially deferred)' });
    const { status, body } = await transaction({ statements: [{ sql: 'insert into deferred values (1), (1)' }] });
    expect(status).toBe(400);
    expect(body).toMatchObject({
      sqlstate: '23505',
      phase: 'commit',
      transactionStatus: 'rolled_back',
      postgres: { constraint: 'deferred_id_key' },
    });
  });

  it.each([
    [{ statements: [] }, 'statements: must be an array of 1 to 1000 items'],
    [{ statements: Array(1_001).fill({ sql: 'select 1' }) }, 'statements: must be an array of 1 to 1000 items'],
    [{ statements: [{ sql: 'select 1', rows: 1 }] }, 'unknown field "statements[0].rows"'],
    [{ statements: [{ sql: 'select 1' }, {}] }, 'statements[1].sql: is required'],
    [{ statements: [{ sql: 'select 1' }], isolationLevel: 'chaos' }, /^isolationLevel: must be "read uncommitted" or /],
  ])('that is %.60j is refused before it runs', async (body, message) => {
    const { status, body: problem } = await transaction(body);
    expect([status, problem.code]).toEqual([400, 'invalid_request']);
    expect(problem.message).toEqual(typeof message === 'string' ? message : expect.stringMatching(message));
  });
});

describe('what is observed of a call', () => {
  it('is who, what and how it ended, and no parameter', async () => {
    await query({ sql: 'select $1::text', params: ['confidential'] }, { 'x-request-id': 'seen-1', 'user-agent': 'tester/1' });
    const observation = await outcomeOf('seen-1');
    expect(observation).toEqual({
      name: 'http.request',
      action: 'query',
      origin: { surface: 'http', sourceIp: '127.0.0.1', requestId: 'seen-1', userAgent: 'tester/1' },
      actor: { organizationId: acme.id, keyId: expect.stringMatching(/^key_/), keyPrefix: acme.apiKey.slice(0, 10) },
      statement: { sql: 'select $1::text', paramCount: 1, command: 'SELECT' },
      outcome: { status: 'ok', httpStatus: 200, rowCount: 1, durationMs: expect.any(Number) },
      traffic: { statements: 1, bytesIn: 51, bytesOut: expect.any(Number) },
    });
    expect(JSON.stringify(observation)).not.toContain('confidential');
  });
});

it('many replies of all sizes at once are each their own', async () => {
  const sql = 'select n, repeat(chr(97 + $1::int % 26), $2::int) as text from generate_series(1, $3::int) n';
  const ask = async (call: number) => {
    const [length, rows] = [(call * 7_919) % 5_000, 1 + ((call * 31) % 60)];
    const { status, body } = await query({ sql, params: [call, length, rows] });
    expect(status).toBe(200);
    const text = String.fromCharCode(97 + (call % 26)).repeat(length);
    expect(body.rows).toEqual(Array.from({ length: rows }, (_, index) => ({ n: index + 1, text })));
  };
  for (let round = 0; round < 15; round++) await Promise.all(Array.from({ length: 12 }, (_, n) => ask(round * 12 + n)));
});
