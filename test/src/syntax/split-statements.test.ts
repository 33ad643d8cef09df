import { describe, expect, test } from 'vitest';
import { eachStatement } from '../../../src/syntax/statements.ts';

function found(sql: string) {
  return [...eachStatement(sql)].filter((statement) => statement !== undefined);
}

function texts(sql: string): string[] {
  return found(sql).map(({ text }) => text);
}

const ATOMIC = `CREATE OR REPLACE FUNCTION f(n int) RETURNS int
BEGIN ATOMIC
  INSERT INTO t VALUES (n);
  SELECT CASE WHEN n > 0 THEN 1 ELSE 0 END;
  SELECT 2;
END`;

describe('statements are split where psql splits them', () => {
  test.each<[string, string[]]>([
    ['select 1', ['select 1']],
    ['select 1; select 2;', ['select 1', 'select 2']],
    [';; select 1 ;; ; select 2', ['select 1', 'select 2']],
    ['select \';\'; select ";"; select $$;$$', ["select ';'", 'select ";"', 'select $$;$$']],
    ["select E'\\';'; select 2", ["select E'\\';'", 'select 2']],
    ['select 1 -- ; not here\n; select /* ; */ 2', ['select 1', 'select /* ; */ 2']],
    ['-- only a comment', []],
    ['\\restrict abc \nselect 1;\n\\unrestrict abc\n', ['\\restrict abc', 'select 1', '\\unrestrict abc']],
    ["\\echo it's; on\nselect 1", ["\\echo it's; on", 'select 1']],
    ['select 1 \\gset', ['select 1 \\gset']],
    ['/* a */ select 1 /* b */; /* c */', ['select 1']],
    [
      'create rule r as on insert to t do also (delete from a; delete from b); select 1',
      ['create rule r as on insert to t do also (delete from a; delete from b)', 'select 1'],
    ],
    ['do $body$ begin perform 1; end $body$; select 1', ['do $body$ begin perform 1; end $body$', 'select 1']],
    [`${ATOMIC}; select 1;`, [ATOMIC, 'select 1']],
    [
      'create procedure p() begin atomic select 1; select 2; end; select 3',
      ['create procedure p() begin atomic select 1; select 2; end', 'select 3'],
    ],
    ['begin; select 1; end; select 2', ['begin', 'select 1', 'end', 'select 2']],
    ['create table "begin atomic" (a int); select 1', ['create table "begin atomic" (a int)', 'select 1']],
    ['select a) ; select 2', ['select a)', 'select 2']],
    ["select 'never closed; select 2", ["select 'never closed; select 2"]],
  ])('%s', (sql, expected) => {
    expect(texts(sql)).toEqual(expected);
  });

  test('and each knows where it begins', () => {
    const sql = '-- first\nselect 1;\n  /* second */ select 2;';
    expect(found(sql)).toEqual([
      { text: 'select 1', start: 9 },
      { text: 'select 2', start: 34 },
    ]);
  });
});
