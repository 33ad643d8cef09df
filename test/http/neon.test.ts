import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { JsonReply } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/*
 * POST /sql without Neon's client, which is in test/clients. What is expected here is what Neon expects of its own proxy:
 * https://github.com/neondatabase/neon/blob/main/test_runner/regress/test_proxy.py (test_sql_over_http…)
 */
let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  acme = await service.signUp();
});
afterAll(() => service.close());

const connectionString = ({ id, apiKey }: TestOrganization) => `postgresql://${id}:${apiKey}@nowhere.test:1/${id}`;

async function post(body: unknown, headers: Record<string, string> = {}, at = service): Promise<JsonReply> {
  const reply = await fetch(`${at.httpUrl}/sql`, {
    method: 'POST',
    headers: { 'content-type': 'application/sql', 'neon-connection-string': connectionString(acme), ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  return { status: reply.status, headers: reply.headers, body: JSON.parse(await reply.text()) };
}

/** The reply of a statement that succeeds. */
async function run(query: string, params: unknown[] = [], headers: Record<string, string> = {}) {
  const { status, body } = await post({ query, params }, headers);
  expect(status, JSON.stringify(body)).toBe(200);
  return body;
}

describe('a statement', () => {
  it.each([
    ['select 42 as answer', [], 42],
    ['select $1 as answer', [42], '42'],
    ['select $1 * 1 as answer', [42], 42],
    ['select $1::bool as answer', [true], true],
    ['select $1::text is null as answer', [null], true],
    ['select $1::text as answer', ['null'], 'null'],
    ['select $1::int[] as answer', [[1, 2, 3]], [1, 2, 3]],
    ['select $1::text[] as answer', [['a"b\\c\n', null, 'NULL', '']], ['a"b\\c\n', null, 'NULL', '']],
    ['select $1::bool[] as answer', [[[true], [null]]], [[true], [null]]],
    ["select $1::json->'a' as answer", [{ a: { b: 42 } }], { b: 42 }],
    ['select $1::jsonb[] as answer', [[{}]], [{}]],
    ['select $1::jsonb[] as answer', [[{ foo: 1 }, { bar: '"' }]], [{ foo: 1 }, { bar: '"' }]],
  ])('%s with %j is answered', async (query, params, answer) => {
    expect((await run(query, params)).rows).toEqual([{ answer }]);
  });

  it('keeps the digits of large numbers', async () => {
    const { body } = await post(
      '{"query": "select $1 as n, $2::numeric[] as list", "params": [9007199254740993, [1e400, 0.12345678901234567890]]}',
    );
    expect(body.rows[0].n).toBe('9007199254740993');
    expect(body.rows[0].list.map((digits: string) => digits.length)).toEqual([401, 22]);
  });

  it('tells the first word of its command, and how many rows where there is a number', async () => {
    expect(await run('create table t(id serial primary key, val int)')).toMatchObject({ command: 'CREATE', rowCount: null, rows: [] });
    expect(await run('insert into t(val) values (10), (20), (30) returning id')).toMatchObject({
      command: 'INSERT',
      rowCount: 3,
      rows: [{ id: 1 }, { id: 2 }, { id: 3 }],
    });
    expect(await run('select * from t')).toMatchObject({ command: 'SELECT', rowCount: 3 });
    expect(await run('update t set val = 0 where id < 3')).toMatchObject({ command: 'UPDATE', rowCount: 2 });
    expect(await run('drop table t')).toMatchObject({ command: 'DROP', rowCount: null });
  });

  it('describes its columns as node-postgres does', async () => {
    await run('create table described(id int, name varchar(20))');
    const { rows } = await run("select 'described'::regclass::oid::text as oid");
    const { fields } = await run('select name, id, 1.5::numeric(4, 2) as price from described');
    expect(fields).toEqual([
      { name: 'name', dataTypeID: 1043, tableID: Number(rows[0].oid), columnID: 2, dataTypeSize: -1, dataTypeModifier: 24, format: 'text' },
      { name: 'id', dataTypeID: 23, tableID: Number(rows[0].oid), columnID: 1, dataTypeSize: 4, dataTypeModifier: -1, format: 'text' },
      { name: 'price', dataTypeID: 1700, tableID: 0, columnID: 0, dataTypeSize: -1, dataTypeModifier: 262150, format: 'text' },
    ]);
  });

  it('is taken without params, from any content type, and with fields nobody knows yet', async () => {
    expect((await post({ query: 'select 1 as n', future: true })).body.rows).toEqual([{ n: 1 }]);
    expect((await post({ query: 'select 1 as n' }, { 'content-type': 'text/plain;charset=UTF-8' })).body.rows).toEqual([{ n: 1 }]);
    expect((await post({ query: 'select 1 as n' }, { 'content-type': 'application/json' })).body.rows).toEqual([{ n: 1 }]);
  });
});

describe('the output', () => {
  const query = "select 1 as n, 'a' as s, '{1,2,3}'::int4[] as arr, null as nothing";

  it.each([
    [false, false, { arr: [1, 2, 3], n: 1, s: 'a', nothing: null }],
    [false, true, [1, 'a', [1, 2, 3], null]],
    [true, false, { arr: '{1,2,3}', n: '1', s: 'a', nothing: null }],
    [true, true, ['1', 'a', '{1,2,3}', null]],
  ])('with raw text %s and array mode %s', async (raw, array, row) => {
    const headers = { 'neon-raw-text-output': String(raw), 'neon-array-mode': String(array) };
    expect(await run(query, [], headers)).toMatchObject({ rows: [row], rowAsArray: array });
  });

  it('makes numbers, booleans and JSON of what is surely that, and leaves all else as Postgres writes it', async () => {
    const { rows } = await run(
      `select 't'::bool as bool, 2::int2 as int2, 4::int4 as int4, 8::int8 as int8, 1.50::numeric as numeric, 0.5::float4 as float4,
         'NaN'::float8 as nan, '-Infinity'::float8 as low, '[1, {"a": null}]'::json as json, '{"a":1}'::jsonb as jsonb,
         '2025-01-31 09:30:00+00'::timestamptz at time zone 'UTC' as timestamp, '\\xff'::bytea as bytea, 'a"\\ä😀' as text,
         array[[1.5, null]]::float8[] as floats, array['x'::text, 'NULL', null] as texts, '[2:3]={t,f}'::bool[] as bools`,
    );
    expect(rows).toEqual([
      {
        bool: true,
        int2: 2,
        int4: 4,
        int8: '8',
        numeric: '1.50',
        float4: 0.5,
        nan: 'NaN',
        low: '-Infinity',
        json: [1, { a: null }],
        jsonb: { a: 1 },
        timestamp: '2025-01-31 09:30:00',
        bytea: '\\xff',
        text: 'a"\\ä😀',
        floats: [[1.5, null]],
        texts: ['x', 'NULL', null],
        bools: [true, false],
      },
    ]);
  });

  it("knows arrays of the organization's own types", async () => {
    await run("create type foo as enum ('foo', 'bar', 'baz')");
    const { rows } = await run("select array['foo'::foo, 'bar'::foo, 'baz'::foo] as data");
    expect(rows).toEqual([{ data: ['foo', 'bar', 'baz'] }]);
  });
});

describe('a batch', () => {
  const serializable = { 'neon-batch-isolation-level': 'Serializable' };

  it('runs as one transaction, and repeats what was asked of it', async () => {
    const queries = [
      { query: 'select 42 as answer', params: [] },
      { query: 'select $1 as answer', params: [42] },
      { query: 'create table t(id serial primary key, val int)' },
      { query: 'insert into t(val) values (10), (20), (30) returning id' },
      { query: "select current_setting('transaction_isolation') as level, count(*)::int as n from t" },
      { query: 'drop table t' },
    ];
    const headers = { ...serializable, 'neon-batch-read-only': 'false', 'neon-batch-deferrable': 'false' };
    const { status, headers: echoed, body } = await post({ queries }, headers);
    expect(status).toBe(200);
    expect(echoed.get('neon-batch-isolation-level')).toBe('Serializable');
    expect([echoed.has('neon-batch-read-only'), echoed.has('neon-batch-deferrable')]).toEqual([false, false]);
    expect(body.results.map(({ command, rowCount, rows }: Record<string, unknown>) => [command, rowCount, rows])).toEqual([
      ['SELECT', 1, [{ answer: 42 }]],
      ['SELECT', 1, [{ answer: '42' }]],
      ['CREATE', null, []],
      ['INSERT', 3, [{ id: 1 }, { id: 2 }, { id: 3 }]],
      ['SELECT', 1, [{ level: 'serializable', n: 3 }]],
      ['DROP', null, []],
    ]);
  });

  it('can be read only and deferrable', async () => {
    const headers = { ...serializable, 'neon-batch-read-only': 'true', 'neon-batch-deferrable': 'true' };
    const show = "select current_setting('transaction_read_only') as ro, current_setting('transaction_deferrable') as deferrable";
    const { body, headers: echoed } = await post({ queries: [{ query: show }] }, headers);
    expect(body.results[0].rows).toEqual([{ ro: 'on', deferrable: 'on' }]);
    expect([echoed.get('neon-batch-read-only'), echoed.get('neon-batch-deferrable')]).toEqual(['true', 'true']);
    const write = await post({ queries: [{ query: 'create table t()' }] }, headers);
    expect([write.status, write.body.code]).toEqual([400, '25006']);
  });

  it('lets each query choose its array mode', async () => {
    const queries = [
      { query: 'select $1 as answer', params: [42], arrayMode: true },
      { query: 'select $1 as answer', params: [42], arrayMode: false },
    ];
    const { body } = await post({ queries }, serializable);
    expect(body.results).toMatchObject([
      { rowAsArray: true, rows: [['42']] },
      { rowAsArray: false, rows: [{ answer: '42' }] },
    ]);
  });

  it('leaves nothing behind when a statement fails, and tells the first failure', async () => {
    await run('create table failed(id int primary key)');
    const queries = [{ query: 'insert into failed values (1)' }, { query: 'insert into failed values (1)' }, { query: 'select 1 / 0' }];
    const { status, body } = await post({ queries });
    expect([status, body.code, body.constraint]).toEqual([400, '23505', 'failed_pkey']);
    expect((await run('select count(*)::int as n from failed')).rows).toEqual([{ n: 0 }]);
  });

  it('leaves nothing behind when its commit fails', async () => {
    await run('create table deferred(id int primary key deferrable initially deferred)');
    const { status, body } = await post({ queries: [{ query: 'insert into deferred values (1), (1)' }] });
    expect([status, body.code]).toEqual([400, '23505']);
    expect((await run('select count(*)::int as n from deferred')).rows).toEqual([{ n: 0 }]);
  });

  it('may be empty, and no longer than a transaction may', async () => {
    expect((await post({ queries: [] })).body).toEqual({ results: [] });
    const { status, body } = await post({ queries: Array.from({ length: 1001 }, () => ({ query: 'select 1' })) });
    expect([status, body.code]).toEqual([400, '22023']);
  });

  it('has one of four isolation levels', async () => {
    const { status, body } = await post({ queries: [] }, { 'neon-batch-isolation-level': 'serializable' });
    expect([status, body.message]).toEqual([400, 'invalid isolation level']);
  });
});

describe('an error', () => {
  it('is flat, of text, and 400', async () => {
    const { status, headers, body } = await post({ query: 'select x from pg_class' });
    expect(status).toBe(400);
    expect(headers.get('content-type')).toContain('application/json');
    expect(body).toEqual({
      message: 'column "x" does not exist',
      severity: 'ERROR',
      code: '42703',
      detail: null,
      hint: null,
      position: '8',
      internalPosition: null,
      internalQuery: null,
      where: null,
      schema: null,
      table: null,
      column: null,
      dataType: null,
      constraint: null,
      file: 'parse_relation.c',
      line: expect.stringMatching(/^\d+$/),
      routine: 'errorMissingColumn',
    });
  });

  it.each([
    ['too few parameters', { query: 'select $1', params: [] }, '08P01', /bind message supplies 0 parameters/],
    ['too many parameters', { query: 'select $1', params: [1, 2] }, '08P01', /bind message supplies 2 parameters/],
    ['two statements', { query: 'select 1; select 2' }, '42601', /multiple commands/],
    ['a transaction left open', { query: 'begin' }, '0A000', /BEGIN/],
    ['a statement that needs a session', { query: 'listen news' }, '0A000', /LISTEN/],
    ['COPY', { query: 'copy (select 1) to stdout' }, '0A000', /COPY/],
    ['NUL in a parameter', { query: 'select $1', params: ['a\0'] }, '22021', /params\[0\]/],
    ['no statement', {}, '22023', /query/],
    ['a statement that is no text', { query: 1 }, '22023', /query/],
    ['no JSON', 'select 1', '22023', /JSON/],
    ['nothing', '', '22023', /body/],
  ])('of %s says what is wrong', async (_what, request, code, message) => {
    const { status, body } = await post(request);
    expect({ status, code: body.code, message: body.message }).toEqual({ status: 400, code, message: expect.stringMatching(message) });
  });

  it('in one call does no harm to the next', async () => {
    await post({ query: 'begin' });
    await post({ query: 'garbage-lol(&(&(&(&' });
    expect((await run('select 1 as n')).rows).toEqual([{ n: 1 }]);
  });

  it('of a statement that takes too long has its SQLSTATE', async () => {
    const hasty = await startTestService({ POSTERN_STATEMENT_TIMEOUT_MS: '500' });
    const headers = { 'neon-connection-string': connectionString(await hasty.signUp()) };
    const { status, body } = await post({ query: 'select pg_sleep(60)' }, headers, hasty);
    expect([status, body.code]).toEqual([400, '57014']);
    await hasty.close();
  });

  it('of a body that is too large is a 413', async () => {
    const { status, body } = await post({ query: 'select 1', params: ['x'.repeat(16 * 1_048_576)] });
    expect([status, body.message]).toEqual([413, 'request is too large (max is 16777216 bytes)']);
  });

  it('of a result that is too large is a 507', async () => {
    const { status, body } = await post({ query: "select repeat('x', 1000) from generate_series(1, 50000)" });
    expect([status, body.message]).toEqual([507, 'response is too large (max is 33554432 bytes)']);
    expect((await run('select 1 as n')).rows).toEqual([{ n: 1 }]);
  });

  it('of a result that is too large says where the statement was carried out all the same', async () => {
    await run('create table large (x text)');
    const rowsOf = "insert into large select repeat('x', n) from (values (33500000), (50000), (50000)) as lengths (n) returning x";
    const { status, body } = await post({ query: rowsOf });
    expect([status, body.message]).toEqual([507, expect.any(String)]);
    const { rows } = await run('select count(*)::int as n from large');
    expect(body.detail).toBe(rows[0]?.n === 3 ? 'The statement was carried out all the same.' : null);
    await run('drop table large');
  });

  it('of a body that is compressed says so', async () => {
    const { status, body } = await post({ query: 'select 1' }, { 'content-encoding': 'gzip' });
    expect([status, body.message]).toEqual([400, 'a body with Content-Encoding gzip is not accepted']);
  });
});

describe('the caller', () => {
  const as = (url: string) => ({ 'neon-connection-string': url });
  const one = { query: 'select current_user as who' };

  it('is who the key in the connection string says, whatever its host', async () => {
    expect((await post(one)).body.rows).toEqual([{ who: acme.id }]);
    expect((await post(one, as(connectionString(acme).replace('postgresql:', 'postgres:')))).body.rows).toEqual([{ who: acme.id }]);
  });

  it('is who the bearer token says, with a connection string or without', async () => {
    const other = await service.signUp('Other');
    const bearer = { authorization: `Bearer ${other.apiKey}` };
    expect((await post(one, bearer)).body.rows).toEqual([{ who: other.id }]);
    const reply = await fetch(`${service.httpUrl}/sql`, { method: 'POST', headers: bearer, body: JSON.stringify(one) });
    expect(await reply.json()).toMatchObject({ rows: [{ who: other.id }] });
  });

  it.each([
    ['a wrong password', () => connectionString({ ...acme, apiKey: 'wrong' }), '28P01', /password authentication failed for user/],
    [
      'a user that is not there',
      () => connectionString({ ...acme, id: 'nobody' }),
      '28P01',
      /password authentication failed for user "nobody"/,
    ],
    ['another database', () => `postgresql://${acme.id}:${acme.apiKey}@h/other`, '3D000', /database "other" does not exist/],
    ['no password', () => `postgresql://${acme.id}@h/${acme.id}`, '28P01', /API key/],
    ['no database', () => `postgresql://${acme.id}:${acme.apiKey}@h`, '22023', /database/],
    ['another scheme', () => `mysql://${acme.id}:${acme.apiKey}@h/db`, '22023', /postgres:/],
    ['no URL', () => 'nonsense', '22023', /connection string/],
    ['a bad escape', () => 'postgresql://%zz:x@h/db', '22023', /percent/],
    ['session options', () => `${connectionString(acme)}?options=-csearch_path%3Dmine`, '0A000', /session/],
  ])('is told about %s', async (_what, url, code, message) => {
    const { status, body } = await post(one, as(url()));
    expect({ status, code: body.code, message: body.message }).toEqual({ status: 400, code, message: expect.stringMatching(message) });
    expect(JSON.stringify(body)).not.toContain(acme.apiKey);
  });

  it("is told about a key that is another organization's", async () => {
    const other = await service.signUp('Other');
    const { status, body } = await post(one, as(connectionString({ ...acme, apiKey: other.apiKey })));
    expect([status, body.code]).toEqual([400, '28P01']);
  });

  it('is told about a bad bearer token by a 400', async () => {
    const { status, body } = await post(one, { authorization: 'Bearer nonsense' });
    expect([status, body.code]).toEqual([400, '28P01']);
  });

  it('is let in with the new key alone after a rotation', async () => {
    const rotating = await service.signUp('Rotating');
    const { body } = await service.call('POST', '/api/auth/rotate-key', { key: rotating.apiKey });
    expect((await post(one, as(connectionString(rotating)))).body.code).toBe('28P01');
    expect((await post(one, as(connectionString({ ...rotating, apiKey: body.apiKey })))).body.rows).toEqual([{ who: rotating.id }]);
  });

  it('finds its calls in the audit log', async () => {
    const named = `${connectionString(acme)}?application_name=pkg%3Anpm%2F%2540neondatabase%2Fserverless%401.2.0`;
    await post({ query: 'select $1::int', params: ['1'] }, { ...as(named), 'x-request-id': 'mine' });
    const find = async () => (await service.call('GET', '/api/audit?requestId=mine', { key: acme.apiKey })).body.data;
    await eventually('an audit entry', async () => (await find()).length > 0);
    expect(await find()).toMatchObject([
      {
        action: 'neon.sql',
        applicationName: 'pkg:npm/%40neondatabase/serverless@1.2.0',
        statement: { sql: 'select $1::int', command: 'SELECT', paramCount: 1 },
        outcome: { status: 'ok', httpStatus: 200, rowCount: 1 },
      },
    ]);
  });

  it('who goes away has its statement cancelled', async () => {
    const controller = new AbortController();
    const gone = fetch(`${service.httpUrl}/sql`, {
      method: 'POST',
      headers: as(connectionString(acme)),
      body: JSON.stringify({ query: 'select pg_advisory_lock(1), pg_sleep(60)' }),
      signal: controller.signal,
    });
    const lockIsFree = async () => (await run('select pg_try_advisory_xact_lock(1) as free')).rows[0].free;
    await eventually('the lock to be held', async () => !(await lockIsFree()));
    controller.abort();
    await expect(gone).rejects.toThrow();
    await eventually('the lock to be free', lockIsFree);
  });
});

it('every reply has the id of its request as Neon names it, and no page may read it by default', async () => {
  for (const { headers } of [
    await post({ query: 'select 1' }),
    await post({ query: 'nonsense' }),
    await post({ query: 'select 1' }, { 'neon-connection-string': 'x', origin: 'https://page.test' }),
  ]) {
    expect(headers.get('neon-request-id')).toBe(headers.get('x-request-id'));
    expect(headers.has('access-control-allow-origin')).toBe(false);
  }
});

it('what a call does to its session is gone with it', async () => {
  await run('create sequence s');
  await run("select nextval('s')");
  expect((await post({ query: "select currval('s')" })).body.code).toBe('55000');
  await run('set search_path = nowhere');
  expect((await run('show search_path')).rows).toEqual([{ search_path: '"$user", public' }]);
});
