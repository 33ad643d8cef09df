import { expect, it } from 'vitest';
import { normalizedStatements } from '../../../src/syntax/normalized-text.ts';

it.each([
  ['select 1', ['select $1']],
  ["SELECT  a ,\n\tb FROM t -- 'x'\nWHERE a='it''s' /* 'y' /* 2 */ */ AND b = 2.5e3;", ['SELECT a , b FROM t WHERE a=$1 AND b = $2']],
  ['select id, pg_sleep(2) from t where id = $1', ['select id, pg_sleep($2) from t where id = $1']],
  ['select $3, 1', ['select $3, $4']],
  ['select * from t where id in (1, 2,3) and x = 4', ['select * from t where id in ($1 /*, ... */) and x = $2']],
  ['select * from t where id IN (7) and x = 4', ['select * from t where id IN ($1 /*, ... */) and x = $2']],
  ["select * from t where n in ('a', 'b', null, -1)", ['select * from t where n in ($1 /*, ... */)']],
  ['select * from t where id in ($1,$2,$3) and x = $4 and y = $2', ['select * from t where id in ($1 /*, ... */) and x = $3 and y = $2']],
  ['select * from t where id in ($2,$3) and x = $1', ['select * from t where id in ($2 /*, ... */) and x = $1']],
  ['select * from t where id in (select 1) and x in (f(1), 2)', ['select * from t where id in (select $1) and x in (f($2), $3)']],
  ['select array[1,2], x[1]', ['select array[$1 /*, ... */], x[$2]']],
  ["insert into t values (1, 'a'), (2, 'b'), (3, null) returning id", ['insert into t values ($1, $2) /*, ... */ returning id']],
  ['insert into t values ($1, $2), ($3, $4) on conflict do nothing', ['insert into t values ($1, $2) /*, ... */ on conflict do nothing']],
  ['insert into t values (now(), 1), (2, 3)', ['insert into t values (now(), $1), ($2, $3)']],
  ['insert into t (a, b) select 1, -2 where 3 - 1 = -4', ['insert into t (a, b) select $1, $2 where $3 - $4 = $5']],
  ["select $$it's$$, $q$ $$x$$ $q$, E'\\'', U&'\\0041', X'1F', B'01'", ['select $1, $2, $3, $4, $5, $6']],
  [
    'select "1", "a""b" /* c */ from "T" where x::int > 0x1F and y->>\'k\' = 1_000',
    ['select "1", "a""b" from "T" where x::int > $1 and y->>$2 = $3'],
  ],
  ["create role bob login password 'hunter2'", ['create role bob login password $1']],
  ['alter role bob password "hunter2"', ['alter role bob password $1']],
  ["select 'pst_4fT9aBxxxxxxxx' as pst_4fT9aBxxxxxxxx", ['select $1 as pst_***']],
  ['begin; select 1;; commit', ['begin', 'select $1', 'commit']],
  [
    'create function f() returns int begin atomic select 1; select 2; end; select 3',
    ['create function f() returns int begin atomic select $1; select $2; end', 'select $1'],
  ],
  ['do $$ begin perform 1; end $$', ['do $1']],
  ["select 'a\\d', 1", ['select $1, $2']],
  ["select 'a\\' , 'secret', 'x", ['select $1']],
  [`insert into t values (1, 'a'), (2, 'bc`, ['insert into t values ($1, $2) /*, ... */']],
  ['select * from t where id in (1, 2, 3, 4', ['select * from t where id in ($1 /*, ... */']],
  [
    'select a, count(*) from t where b = 1 group by 1, 2 order by 2 desc, 1 limit 10',
    ['select a, count(*) from t where b = $1 group by 1, 2 order by 2 desc, 1 limit $2'],
  ],
  [
    'select f(a order by 1, 2), 3 from t order by a + 1, 5000, g(b, 2), 3',
    ['select f(a order by 1, 2), $1 from t order by a + $2, $3, g(b, $4), 3'],
  ],
  ['', []],
  [' -- nothing', []],
] as const)('%s', (sql, expected) => {
  expect(normalizedStatements(sql)).toEqual(expected);
});

it('takes time linear in the length of the text', () => {
  const timed = (rows: number) => {
    const sql = `insert into t values ${Array.from({ length: rows }, (_, i) => `(${i}, 'x')`).join(', ')} -- ${'('.repeat(rows)}`;
    const startedAt = performance.now();
    expect(normalizedStatements(sql)).toEqual(['insert into t values ($1, $2) /*, ... */']);
    return performance.now() - startedAt;
  };
  timed(1_000);
  expect(timed(10_000)).toBeLessThan(Math.max(1_000, 200 * timed(1_000)));
});
