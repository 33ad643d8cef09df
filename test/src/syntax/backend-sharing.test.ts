import { expect, test } from 'vitest';
import { mayShare } from '../../../src/syntax/side-effects.ts';

test.each([
  'SELECT 1',
  '  select v FROM t WHERE id = $1 AND w = $2;',
  'SELECT count(*), lower(v) FROM t WHERE id IN ($1, $2) GROUP BY v',
  'SELECT \'nextval(1)\', "for update" FROM t',
])('may share: %s', (text) => {
  expect(mayShare(text)).toBe(true);
});

test.each([
  'INSERT INTO t VALUES (1)',
  'WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone',
  'SELECT 1; DELETE FROM t',
  'SELECT v INTO u FROM t',
  'SELECT v FROM t FOR NO KEY UPDATE',
  'SELECT own(1)',
  'SELECT public.lower(1)',
  'SELECT "lower"(1)',
  'SELECT public . lower(1)',
  'SELECT ran\u212a() OVER ()',
  'SELECT explain(1)',
  'SELECT 1;;',
  'SELECT v FROM t FOR /**/ UPDATE',
  'SELECT lower$1(1)',
  'SELECT älower(1)',
  'SELECT łlower(1)',
  'SELECT $tag$ a $tag$',
  "SELECT ('s'::regclass).nextval",
  'SELECT (0.5)  .  "setseed"',
  'SELECT $1.pg_sleep',
  'SELECT 1 -- more',
  "SELECT E'\\''",
])('may not share: %s', (text) => {
  expect(mayShare(text)).toBe(false);
});
