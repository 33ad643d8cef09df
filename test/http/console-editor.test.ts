import { describe, expect, it } from 'vitest';
import { cursorIn } from '../../http/console/editor/completion/cursor.ts';
import { Ranking } from '../../http/console/editor/completion/match.ts';
import { rangeAtPlace, rangeAtPosition } from '../../http/console/editor/error-range.ts';

/** @param marked with `|` where the cursor is */
function at(marked: string) {
  return cursorIn(marked.replace('|', ''), marked.indexOf('|'));
}

describe('the place of the cursor in the console’s editor', () => {
  it.each([
    ['sel|', { path: [], typed: 'sel', from: 0, to: 3, expectsTable: false }],
    ['select 1; select * from ord|; select 2', { path: [], typed: 'ord', expectsTable: true, tables: [] }],
    ['select * from ord|\nwhere id = 1', { typed: 'ord', expectsTable: true }],
    ['select * from a, |', { typed: '', expectsTable: true }],
    ['select * from a where x, |', { expectsTable: false }],
    ['select * from (select * from |', { expectsTable: true }],
    ['select extract(year from |', { expectsTable: false }],
    ['delete from |', { expectsTable: true }],
    ['insert into t|', { typed: 't', expectsTable: true, tables: [] }],
    ['insert into t (|', { expectsTable: false, tables: [{ schema: undefined, name: 't', alias: undefined }] }],
    ['alter table if exists |', { expectsTable: true }],
    ['grant select on |', { expectsTable: true }],
    ['select "Wei|rd" from x', { typed: 'Wei', isQuoted: true, from: 7, to: 14 }],
    ['select a.b.c|', { path: ['a', 'b'], typed: 'c' }],
    ['select "A ""b".|', { path: ['A "b'], typed: '' }],
  ])('%s', (marked, expected) => {
    expect(at(marked)).toMatchObject(expected);
  });

  it('is not in strings, comments and numbers, nor behind a name', () => {
    for (const marked of ["select 'a|", "select 'a|b'", '-- a|', '/* a |', 'select 12|', 'select $1|', 'select "a"|', 'select a. |']) {
      expect(at(marked), marked).toBeUndefined();
    }
  });

  it('knows the tables of its statement, wherever they stand', () => {
    const cursor = at('select o.| from public.Orders as o join "Weird ""x" w on o.id = w.id, only lines; select 1 from other');
    expect(cursor).toMatchObject({ path: ['o'], typed: '' });
    expect(cursor?.tables).toEqual([
      { schema: 'public', name: 'orders', alias: 'o' },
      { schema: undefined, name: 'Weird "x', alias: 'w' },
      { schema: undefined, name: 'lines', alias: undefined },
    ]);
  });

  it('knows WITH queries', () => {
    expect(at('with q (a, b) as (select 1, 2), r as not materialized (select 2) select | from q')?.queries).toEqual(['q', 'r']);
  });

  it('reads the body of a function as a text of its own', () => {
    const marked = 'create function f() returns void as $x$ begin; select t.na| from tables t; end $x$ language plpgsql';
    const cursor = at(marked);
    expect(cursor).toMatchObject({ path: ['t'], typed: 'na', tables: [{ name: 'tables', alias: 't' }] });
    expect(cursor?.to).toBe(marked.indexOf('|'));
  });

  it('reads only a part of a long text', () => {
    const before = 'select 1;\n'.repeat(20_000);
    const cursor = at(`${before}select o.| from orders o;\n${before}`);
    expect(cursor).toMatchObject({ path: ['o'], from: before.length + 9, tables: [{ name: 'orders' }] });
  });
});

it('ranks names by where they have what is typed, then by kind, then by length', () => {
  const ranking = new Ranking<string>('Or');
  const asIs = (name: string) => name;
  ranking.add(['for', 'order', 'my_orders', 'x'], 1, asIs, asIs);
  ranking.add(['orders', 'or'], 5, asIs, asIs);
  expect(ranking.best(4)).toEqual(['or', 'orders', 'order', 'my_orders']);
});

describe('what the console underlines for an error', () => {
  const parts = (text: string, { from, to }: { readonly from: number; readonly to: number }) => text.slice(from, to);

  it.each([
    ['select nothing', 1, 8, 'nothing'],
    ['select 1;\nselect o.nam from o', 2, 8, 'o.nam'],
    ["select '😀', oops", 1, 13, 'oops'],
    ['select "a b"."c ""d" from x', 1, 8, '"a b"."c ""d"'],
    ["select 'open\nstring", 1, 8, "'open"],
    ['select ', 1, 8, ''],
    ['select 1', 9, 9, ''],
  ])('%j, line %i, column %i', (text, line, column, expected) => {
    expect(parts(text, rangeAtPlace(text, line, column))).toBe(expected);
  });

  it('a position is counted in characters from the beginning of the statement', () => {
    const text = "select '😀'; select '😀', oops";
    expect(parts(text, rangeAtPosition(text, 13, text.lastIndexOf('select')))).toBe('oops');
  });
});
