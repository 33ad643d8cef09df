import { expect, it } from 'vitest';
import { prepareStatements, sessionTraitsOf } from '../../../src/syntax/session-traits.ts';

it.each([
  ['PREPARE p AS SELECT 1', [['p', ' SELECT 1']]],
  [
    'select 1; prepare "P ""1""" (int, numeric(10, 2)) as select $1; PREPARE Q as values (1);',
    [
      ['P "1"', ' select $1'],
      ['q', ' values (1)'],
    ],
  ],
  ['/* a */ prepare -- b\n p /* c */ as/**/select 1', [['p', '/**/select 1']]],
  ['prepare prepare as select 2', [['prepare', ' select 2']]],
])('the statements that %j prepares', (text, prepared) => {
  const found = [...prepareStatements(text)];
  expect(found.map(({ name, query }) => [name, query])).toEqual(prepared);
  for (const { query, queryStart } of found) expect(text.startsWith(query, queryStart)).toBe(true);
});

it.each([
  "PREPARE TRANSACTION 'x'",
  "insert into log values ('prepare p as select 1')",
  'prepare p',
  'prepare p (int',
  'prepare U&"p\\0041" as select 1',
  'select prepare as p',
])('%j prepares none', (text) => {
  expect([...prepareStatements(text)]).toEqual([]);
});

it.each([
  ['EXECUTE p (1); execute "P ""1"""', ['p', 'P "1"']],
  ['EXPLAIN ANALYZE EXECUTE p', ['p']],
  ['CREATE TABLE t AS EXECUTE Q', ['q']],
  // These may execute any.
  ["DO $$BEGIN EXECUTE 'execute p'; END$$", []],
  ['EXECUTE /* a */ p', []],
  ['SELECT name FROM pg_prepared_statements; EXECUTE p', []],
])('what %j executes', (text, executes) => {
  expect(sessionTraitsOf(text)).toMatchObject({ namesPrepared: true, executes });
});
