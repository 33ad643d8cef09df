import { describe, expect, test } from 'vitest';
import { findDestruction } from '../../../src/syntax/destructive-statements.ts';

describe('is reported', () => {
  test.each<[string, RegExp, number]>([
    ['drop table a', /^DROP TABLE/, 0],
    ['DROP SCHEMA a', /^DROP SCHEMA/, 0],
    ['drop materialized view v', /^DROP MATERIALIZED VIEW/, 0],
    ['drop type mood cascade', /^CASCADE/, 15],
    ['truncate a', /^TRUNCATE/, 0],
    ['delete from a', /^DELETE without WHERE/, 0],
    ['delete from a using (select 1 where true) b', /^DELETE without WHERE/, 0],
    ['update a set b = (select 1 where true)', /^UPDATE without WHERE/, 0],
    ['alter table a drop column b', /^DROP COLUMN/, 14],
    ['alter table if exists only s."a" drop if exists "b"', /^DROP COLUMN/, 33],
    ['alter table a add column x int, drop b', /^DROP COLUMN/, 32],
    ['alter table a alter column b type int using b::int', /change of type/, 14],
    ['alter table a alter b set data type int', /change of type/, 14],
    ['alter table a alter b set not null', /^SET NOT NULL/, 14],
    ['alter table a add b int not null', /NOT NULL and has no default/, 14],
    ['alter table a add column b numeric(10, 2) not null check (b > 0)', /NOT NULL and has no default/, 14],
    ['alter type t drop attribute b', /^DROP ATTRIBUTE/, 13],
    ['alter table a alter b set expression as (c + 1)', /^SET EXPRESSION/, 14],
    ['with x as (delete from a returning *) select * from x', /^DELETE without WHERE/, 11],
    ['with recursive x (n) as materialized (select 1), y as not materialized (select 2) update a set b = 1', /^UPDATE without WHERE/, 82],
    ['with x as (with y as (delete from a returning 1) select * from y) select 1', /^DELETE without WHERE/, 22],
    ['merge into a using b on a.i = b.i when matched then do nothing when not matched by source then delete', /^MERGE deletes/, 63],
    ['merge into a using b on true when not matched by source then update set i = 1', /^MERGE changes/, 29],
  ])('%s', (sql, message, offset) => {
    expect(findDestruction(sql)).toEqual([{ message: expect.stringMatching(message), offset }]);
  });

  test('everything in a statement that is', () => {
    expect(findDestruction('alter table a drop b, drop c cascade')).toHaveLength(2);
    expect(findDestruction('drop table a cascade')).toHaveLength(2);
  });
});

describe('is not reported', () => {
  test.each([
    'create table a (b int not null)',
    'with x as (delete from a where b returning *) select * from x',
    'with "delete" as (select 1), x as (select 2) insert into a select * from x',
    'merge into a using b on a.i = b.i when not matched by source and a.j > 1 then delete',
    'merge into a using b on a.i = b.i when matched then delete when not matched then insert values (1)',
    `${'with x as ('.repeat(5_000)}delete from a`,
    'drop function f()',
    'drop index i',
    "select 'drop table a'",
    'delete from a where b',
    'update a set b = 1 where c',
    'alter table a drop constraint c',
    'alter table a alter b drop not null',
    'alter table a alter column b drop default',
    'alter table a alter b set default 1',
    'alter table a add b int',
    'alter table a add b int not null default 0',
    'alter table a add column b bigserial not null',
    'alter table a add b int not null generated always as identity',
    'alter table a add constraint c check (b is not null)',
    'alter table a add check (b is not null)',
    'alter table a rename column b to c',
    "alter type mood add value 'x'",
    'alter sequence s restart',
  ])('%s', (sql) => {
    expect(findDestruction(sql)).toEqual([]);
  });
});

test('of long statements only the beginning is looked at, unless what stands behind could make them harmless', () => {
  const long = `/*${'x'.repeat(100_000)}*/`;
  expect(findDestruction(`drop table a ${long}`)).toHaveLength(1);
  expect(findDestruction(`delete from a ${long} where b`)).toEqual([]);
  expect(findDestruction(`update a set b = 1 ${long}`)).toEqual([]);
});
