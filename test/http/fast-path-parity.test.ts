import { afterAll, beforeAll, describe, it } from 'vitest';
import { Parity } from './parity.ts';

let parity: Parity;
beforeAll(async () => {
  parity = await Parity.start({ POSTERN_HTTP_BODY_MAX_BYTES: '40000' });
  await parity.service.query(
    parity.acme,
    'create table t (id int primary key, parent int references t, name varchar(3) not null check (name > $$a$$))',
  );
});
afterAll(() => parity.close());

describe('on the fast path a query is answered and told as elsewhere', () => {
  it.each<[name: string, body: unknown, status: number]>([
    ['that has rows', { sql: 'select 1 as a, null as b, $$ü$$ as "ö"' }, 200],
    ['with parameters', { sql: 'select $1::int + $2 as sum, $3::jsonb as j', params: [1, 2, { a: ['ä', null, true] }] }, 200],
    ['with numbers that no double holds', '{"sql":"select $1::numeric as n","params":[12345678901234567890.123456789012345678901]}', 200],
    ['without rows', { sql: 'create temporary table gone (a int)' }, 200],
    ['that is nothing but a comment', { sql: '-- nothing' }, 400],
    ['that is nothing but a semicolon', { sql: ';' }, 400],
    ['that has a syntax error', { sql: 'selec\n 1' }, 400],
    ['that divides by zero', { sql: 'select 1/0' }, 400],
    ['that names no table', { sql: 'select * from "nö" where a = $1', params: [1] }, 400],
    ['that violates a key', { sql: 'insert into t values (1, null, $$b$$), (1, null, $$b$$)' }, 400],
    ['that violates a reference', { sql: 'insert into t values (2, 99, $$b$$)' }, 400],
    ['that violates a check', { sql: 'insert into t values (3, null, $$a$$)' }, 400],
    ['that leaves out a value', { sql: 'insert into t (id) values (4)' }, 400],
    ['that is two', { sql: 'select 1; select 2' }, 400],
    ['that may not be sent here', { sql: 'begin' }, 400],
    ['that listens', { sql: 'listen a' }, 400],
    ['that has a parameter too many', { sql: 'select $1::int', params: [1, 2] }, 400],
    ['that has a parameter too few', { sql: 'select $1::int, $2::int', params: [1] }, 400],
    ['that has a parameter of another type', { sql: 'select $1::int', params: ['x'] }, 400],
    [
      'that raises with a hint and a detail',
      { sql: 'do $$ begin raise sqlstate $a$P0099$a$ using message = $a$né$a$, detail = $a$d$a$, hint = $a$h$a$; end $$' },
      400,
    ],
    ['of 8 kB', { sql: 'select repeat($1, 4000) as a, repeat($1, 4000) as b', params: ['xy'] }, 200],
    ['of 60 kB', { sql: "select repeat('x', 1000) as text from generate_series(1, 59)" }, 200],
    ['of 5 MB', { sql: "select g, repeat('ü', 1000) as text from generate_series(1, 2500) g" }, 200],
    ['that is 40,000 bytes', `{"sql":"select 1${' '.repeat(40_000 - 18)}"}`, 200],
  ])('%s', (_name, body, status) => parity.expectSame(parity.asking(body), status));

  it.each<[name: string, body: string | Buffer, status: number]>([
    ['that is larger than it may be', `{"sql":"select 1${' '.repeat(40_001 - 18)}"}`, 413],
    ['that is larger than the fast path takes', `{"sql":"select 1${' '.repeat(70_000)}"}`, 413],
    ['that is no JSON', '{"sql":', 400],
    ['that is no UTF-8', Buffer.from('{"sql":"select $$\xff$$"}', 'latin1'), 400],
    ['that is empty', '{"sql":""}', 400],
    ['that is blank', '{"sql":" \\n"}', 400],
    ['with a NUL', '{"sql":"select \\u0000"}', 400],
    ['with half of a surrogate pair', '{"sql":"select $1::text","params":["\\ud800"]}', 400],
    ['that is a number', '{"sql":1}', 400],
    ['with an unknown field', '{"sql":"select 1","parms":[]}', 400],
    ['with a prototype', '{"sql":"select 1","__proto__":{"params":[1]}}', 400],
    ['with rows as arrays', '{"sql":"select 1","rowMode":"array"}', 200],
    ['that reads only', '{"sql":"create table never (a int)","readOnly":true}', 400],
    ['with a time of its own', '{"sql":"select pg_sleep(60)","timeoutMs":500}', 504],
    ['in an array', '[{"sql":"select 1"}]', 400],
    ['of null', 'null', 400],
    ['nested too deeply', `{"sql":"select 1","params":[${'['.repeat(100)}${']'.repeat(100)}]}`, 400],
  ])('%s, which leaves it', (_name, body, status) => parity.expectSame(parity.asking(body), status, false));

  it('that takes too long', async () => {
    const hasty = await Parity.start({ POSTERN_STATEMENT_TIMEOUT_MS: '300' });
    await hasty.expectSame(hasty.asking({ sql: 'select pg_sleep(60)' }), 504);
    await hasty.close();
  });

  it('with a field twice', () => parity.expectSame(parity.asking('{"sql":"select 1","sql":"select 2 as two"}'), 200));
});
