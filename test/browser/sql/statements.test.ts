import { describe, expect, it } from 'vitest';
import { ApiError } from '../../../http/console/api/client.ts';
import { onlyReads, placeOf } from '../../../http/console/screens/sql/execute-run.ts';
import {
  insertTableOf,
  parameterCount,
  parameterCountIn,
  parametersFor,
  statementAt,
  statementsBetween,
  statementsIn,
  withoutExplain,
} from '../../../http/console/screens/sql/run-request.ts';

/** The text without its mark, and where the cursor is. */
function cursorIn(marked: string): readonly [string, number] {
  return [marked.replace('|', ''), marked.indexOf('|')];
}

describe('the statement at the cursor', () => {
  it.each([
    ['|select 1; select 2', 'select 1'],
    ['select 1|; select 2', 'select 1'],
    ['select 1;| select 2', 'select 1'],
    ['select 1; sel|ect 2', 'select 2'],
    ['select 1;\n|\nselect 2', 'select 2'],
    ['select 1;\n-- about| the second\nselect 2', 'select 2'],
    ['select 1;\nselect 2;\n\n|', 'select 2'],
    ["select 'a;b', $$;|$$ as c; select 2", "select 'a;b', $$;$$ as c"],
    [
      'create function f() returns int begin atomic select 1; |select 2; end; select 3',
      'create function f() returns int begin atomic select 1; select 2; end',
    ],
  ])('of %j is %j', (marked, expected) => {
    const [text, offset] = cursorIn(marked);
    expect(statementAt(text, offset)?.text).toBe(expected);
  });

  it('is none in a text without statements', () => {
    expect(statementAt('-- nothing\n;;', 3)).toBeUndefined();
  });
});

it('the statements of a selection have their places in the whole text', () => {
  const text = 'select 1; select 2; select 3';
  expect(statementsBetween(text, 9, 19)).toEqual([{ text: 'select 2', start: 10 }]);
  expect(statementsIn(text).map(({ start }) => start)).toEqual([0, 10, 20]);
});

describe('parameters', () => {
  it.each([
    ['select $1, $3', 3],
    ['select \'$1\', $$ $2 $$, "$3" -- $4', 0],
    ['create or replace function f(int) returns int return $1', 0],
    ['create procedure p(int) begin atomic select $1; end', 0],
    ['prepare p as select $1', 0],
    ['explain select $2::int', 2],
  ])('of %j are %i', (sql, count) => {
    expect(parameterCount(sql)).toBe(count);
  });

  it('are as many as the statement that has the most', () => {
    expect(parameterCountIn('select $1; select $2; create function f(int, int, int) returns int return $3')).toBe(2);
  });

  it('are NULL where nothing was typed', () => {
    expect(parametersFor('select $1, $2, $3', ['a', null])).toEqual(['a', null, null]);
    expect(parametersFor('select 1', ['a'])).toEqual([]);
  });
});

describe('what EXPLAIN explains', () => {
  it.each([
    ['select 1', 'select 1', true],
    ['EXPLAIN select 1', 'select 1', false],
    ['explain analyze verbose delete from t', 'delete from t', true],
    ['explain (analyze, buffers, format json) delete from t', 'delete from t', true],
    ['explain (costs off) (select 1)', '(select 1)', false],
    ['explain (analyze)\n(select 1) union select 2', '(select 1) union select 2', true],
  ])('in %j is %j', (text, inner, runs) => {
    const explained = withoutExplain({ text, start: 5 });
    expect(explained).toEqual({ statement: { text: inner, start: 5 + text.indexOf(inner) }, runs });
  });
});

describe('whether a statement only reads', () => {
  it.each([
    'select * from big',
    'select md5(i::text), count(*) over (partition by a) from generate_series(1, 10) i where i in (1, 2)',
    'with a as (select 1) select * from a',
    'values (1), (2)',
    'table orders',
  ])('yes: %s', (sql) => {
    expect(onlyReads(sql)).toBe(true);
  });

  it.each([
    'insert into t select * from big returning *',
    'with gone as (delete from t returning *) select * from gone',
    'select own_function(id) from big',
    'select "md5"(a) from big',
    'select * into copy from big',
    "select pg_notify('a', 'b') from big",
    'explain analyze delete from t',
    '',
  ])('no: %s', (sql) => {
    expect(onlyReads(sql)).toBe(false);
  });
});

describe('the table that rows are from', () => {
  it.each([
    ['select * from orders', 'orders'],
    ['select (select 1 from inner_one) from "a b"."c.d" x', '"a b"."c.d"'],
    ['insert into s.t values (1) returning *', 's.t'],
    ['select * from generate_series(1, 2)', 'table_name'],
    ['select 1', 'table_name'],
  ])('in %j is %j', (sql, name) => {
    expect(insertTableOf(sql)).toBe(name);
  });
});

describe('the place of an error', () => {
  const failing = (position?: number) =>
    new ApiError({
      status: 400,
      title: 'SQL error',
      detail: 'it failed',
      code: 'sql_error',
      postgres: { severity: 'ERROR', ...(position === undefined ? {} : { position }) },
    });
  const text = "select 1;\nselect '😀', nope from t";
  const statement = { text: text.slice(10), start: 10 };

  it('counts characters, in its statement', () => {
    expect(placeOf(failing(13), text, statement)).toEqual({ from: 23, to: 27, message: 'It failed.' });
  });

  it('does not count what was put before the statement', () => {
    expect(placeOf(failing(13 + 8), text, statement, 'EXPLAIN ')).toMatchObject({ from: 23, to: 27 });
  });

  it('is the last character for an error at the end of the input', () => {
    expect(placeOf(failing(statement.text.length + 1), text, statement)).toMatchObject({ from: text.length - 1, to: text.length });
  });

  it('is nowhere without a position', () => {
    expect(placeOf(failing(), text, statement)).toBeUndefined();
    expect(placeOf(new Error('other'), text, statement)).toBeUndefined();
  });
});
