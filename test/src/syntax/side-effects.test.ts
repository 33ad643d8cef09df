import { describe, expect, test } from 'vitest';
import { optionsSetFirst, SideEffectsCache, sideEffectsOf } from '../../../src/syntax/side-effects.ts';

describe('leaves nothing behind:', () => {
  test.each([
    'SELECT 1',
    'select count(*), max(a) filter (where a > 1) over (partition by b) from t where id in (1, 2) and (a or b)',
    'SELECT a::numeric(10, 2), cast(b AS varchar(20)), coalesce(c, now()) FROM t JOIN u USING (id)',
    'INSERT INTO orders (id, total) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET total = excluded.total RETURNING id',
    'insert into "Orders" ("id") values (1)',
    "insert into public.orders (id) values (nextval('s'))",
    'UPDATE t SET a = lower(b) WHERE id = ANY ($1)',
    'DELETE FROM t WHERE id = $1',
    'WITH x AS (SELECT 1), y AS MATERIALIZED (SELECT 2) SELECT * FROM x, y',
    'WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT * FROM n',
    'SELECT * FROM generate_series(1, 3) AS g(n), LATERAL (SELECT n) AS l',
    'SELECT pg_catalog.count(*) FROM t',
    'MERGE INTO t USING u ON (t.id = u.id) WHEN MATCHED THEN DELETE',
    'VALUES (1), (2)',
    'TABLE t',
    'SELECT (t).*, public.t.b, t."c", .5 FROM t',
    'SET LOCAL app.user = 1',
    'set transaction read only',
    "SELECT set_config('app.user', $1, true)",
    'SELECT \'set_config(a, b, false)\', "temp" -- setseed(1)',
    'LOCK TABLE t',
    'SAVEPOINT a',
    'EXPLAIN (ANALYZE) SELECT 1',
  ])('%s', (sql) => {
    expect(sideEffectsOf(sql).leavesState).toBe('no');
  });
});

describe('may leave something behind:', () => {
  test.each([
    'SET TimeZone = UTC',
    'RESET ALL',
    'CREATE TABLE t (a int)',
    'ALTER TABLE t ADD COLUMN b int',
    'DO $$ BEGIN END $$',
    'CALL p()',
    'PREPARE x AS SELECT 1',
    'EXECUTE x',
    'DEALLOCATE ALL',
    'DISCARD ALL',
    'DECLARE c CURSOR WITH HOLD FOR SELECT 1',
    'SELECT 1 INTO TEMP t',
    'SELECT 1 INTO TEMPORARY TABLE t',
    'SELECT * FROM pg_temp_3.t',
    'SELECT 1 INTO "pg_temp".t',
    'SELECT 1 INTO U&"pg\\005ftemp".t',
    'EXPLAIN ANALYZE CREATE TABLE "pg_temp".t AS SELECT 1',
    "SELECT set_config('app.user', 'a', false)",
    "SELECT set_config('app.user', 'a', $1)",
    "SELECT set_config('app.user', set_config('app.b', 'b', true), false)",
    "SELECT set_config('app.user', ', true)', false)",
    "SELECT set_config('app.user', '1', /* , true) */ false)",
    'SET local.x = 1',
    "SET local$a.b = 'x'",
    'SET transaction\u00e9.x = 1',
    'SELECT (1::bigint).pg_advisory_lock',
    'SELECT (t.a)."pin" FROM t',
    'SELECT a[1].pin FROM t',
    'SELECT $1.setseed',
    'SET transaction . x = 1',
    'SET LOCAL /* a comment */ .x = 1',
    "UPDATE pg_settings SET setting = '1MB' WHERE name = 'work_mem'",
    'WITH x AS (SELECT 1) UPDATE pg_catalog.pg_settings SET setting = 1',
    "SELECT '\\', '||set_config(a, b, false)||'' FROM t",
    'SELECT \u017fum(1)',
    'SELECT setseed(0.5)',
    'SELECT pg_advisory_lock(1)',
    'SELECT pg_try_advisory_lock(1)',
    'SELECT sign_in($1)',
    'SELECT app.now()',
    'SELECT app . count ( * )',
    'SELECT "count"(*) FROM t',
    'INSERT INTO t VALUES (sign_in(1))',
    'WITH x AS (SELECT sign_in(1)) SELECT * FROM x',
    '(SELECT 1)',
    '',
    `SELECT '${'x'.repeat(70_000)}'`,
  ])('%.60s', (sql) => {
    expect(sideEffectsOf(sql).leavesState).toBe('unknown');
  });
});

test.each([
  ["SELECT currval('s')", true],
  ['INSERT INTO t DEFAULT VALUES RETURNING lastval()', true],
  ["SELECT 'lastval()'", false],
  ['SELECT "lastval"()', true],
  ['DO $$ BEGIN PERFORM lastval(); END $$', true],
  ["SELECT nextval('s')", false],
  ['SELECT U&"last\\0076al"()', true],
  ["SELECT query_to_xml('select lastval()', true, true, '')", true],
])('%s reads what a sequence last gave: %s', (sql, readsSequences) => {
  expect(sideEffectsOf(sql).readsSequences).toBe(readsSequences);
});

test.each([
  ["ALTER ROLE me SET work_mem = '1MB'", true],
  ['alter user current_user reset all', true],
  ['ALTER DATABASE d SET x.y = 1', true],
  ['ALTER /* a comment */ ROLE me RESET ALL', true],
  ['DO $$ BEGIN ALTER ROLE me RESET ALL; END $$', true],
  ["INSERT INTO notes VALUES ('alter role')", false],
  ['ALTER TABLE role ADD a int', false],
  ['SELECT 1', false],
])('%s changes what new sessions start with: %s', (sql, changesDefaults) => {
  expect(sideEffectsOf(sql).changesDefaults).toBe(changesDefaults);
});

test.each([
  ['SELECT 1', true],
  ['INSERT INTO t VALUES (1)', true],
  ['CALL p()', false],
  ['EXPLAIN ANALYZE DELETE FROM t', false],
  ['VACUUM', false],
])('%s only reads or writes rows: %s', (sql, isPlain) => {
  expect(sideEffectsOf(sql).isPlain).toBe(isPlain);
});

test.each([
  ['SELECT 1 AS a INTO t', true],
  ['WITH w AS (SELECT 1) SELECT * INTO TABLE t FROM w', true],
  ['CREATE TABLE t AS SELECT 1', true],
  ['EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1', true],
  ['INSERT INTO t SELECT 1', false],
  ['WITH w AS (INSERT INTO t SELECT 1 RETURNING a) SELECT a FROM w', false],
  ["SELECT 'into'", false],
])('%s creates a table from a query: %s', (sql, createsFromQuery) => {
  expect(sideEffectsOf(sql)).toMatchObject(createsFromQuery ? { createsFromQuery, isPlain: false } : { createsFromQuery });
});

test('of statements that belong together no more is read than of one, and of each text once', () => {
  const footprints = new SideEffectsCache();
  const sql = `select '${'x'.repeat(40_000)}'`;
  expect([sql, sql, sql].map((one) => footprints.of(one).leavesState)).toEqual(['no', 'no', 'no']);
  expect(footprints.of('select 1').leavesState).toBe('no');
  expect(footprints.of(`${sql} as other`).leavesState).toBe('unknown');
  expect(footprints.of('select 2').leavesState).toBe('unknown');
  expect(footprints.of('select 1').leavesState).toBe('no');
});

test('more tokens than are looked at are a doubt', () => {
  const sum = (count: number) => `select ${'1+'.repeat(count)}1`;
  expect(sideEffectsOf(sum(4_000))).toMatchObject({ leavesState: 'no', isPlain: true });
  expect(sideEffectsOf(sum(5_000))).toEqual({
    leavesState: 'unknown',
    readsSequences: true,
    changesDefaults: false,
    createsFromQuery: false,
    isPlain: false,
    customOptions: new Set(),
  });
});

describe('customized options', () => {
  test.each([
    ['set my.own = 1', ['my.own']],
    ['SET LOCAL "My".own TO 1', ['my.own']],
    ["select set_config('my.own', $1, true), set_config('my.other', 'x', false)", ['my.own', 'my.other']],
    ['select set_config($1, $2, true)', ['*']],
    ['reset my.own', ['my.own']],
    ["do $$begin perform set_config('my.own', '1', true); end$$", ['my.own']],
    ["do $$begin execute 'set local my.' || 'own = 1'; end$$", ['*']],
    ["alter role current_user set my.own = 'x'", ['my.own']],
    ["select set_config('work_mem', '1MB', true)", []],
    ['set local work_mem = 1000', []],
    ["insert into texts values ('set my.own = 1')", []],
    ['update t set part.field = 1', []],
    [`select set_config($1, $2, true), '${' '.repeat(70_000)}'`, ['*']],
  ])('may exist after %s', (sql, names) => expect([...sideEffectsOf(sql).customOptions]).toEqual(names));

  test.each<[readonly string[], readonly string[]]>([
    [["select set_config('my.own', $1, true)", 'select 1'], ['my.own']],
    [
      ["set local my.own = 'x'", "select set_config('my.other', 'y', true) as other", 'select 1', 'set my.third = 1'],
      ['my.own', 'my.other'],
    ],
    [['select 1', "set local my.own = 'x'"], []],
    [["select set_config('my.own', current_setting('my.own', true), true)"], []],
    [["select set_config('my.own', 'x', true) from notes"], []],
    [["select set_config('my.own', (select 'x'), true)"], []],
  ])('are set first by %j', (statements, names) => {
    expect([...optionsSetFirst(statements.map((sql) => ({ sql })))]).toEqual(names);
  });
});
