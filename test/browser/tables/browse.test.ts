import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { loadSchema } from '../../../http/console/api/load-schema.ts';
import { cellCommands, openTable, readPage, TableSource } from '../../../http/console/screens/tables/open-table.ts';
import {
  type Browse,
  type Cursor,
  countSql,
  cursorColumns,
  editorSql,
  type Filter,
  type Operator,
  pageSql,
  valueTextOf,
} from '../../../http/console/screens/tables/sql.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../../support/service.ts';
import { HOSTILE } from '../support/hostile.ts';
import { HOSTILE_NAME, KINDS } from './kinds.ts';
import { browseOf, callAs, tableNamed } from './opened.ts';

const TABLES = `${KINDS}
  CREATE TABLE pages (a int, b text NOT NULL, c int, PRIMARY KEY (c, b));
  INSERT INTO pages SELECT nullif(i % 4, 0), chr(97 + i % 5), i / 3 FROM generate_series(0, 24) i;
  CREATE TABLE nokey AS SELECT a, b FROM pages;
  CREATE VIEW seen AS SELECT a, b, c FROM pages;
  CREATE TABLE unique_key (a int NOT NULL, b int, c text NOT NULL, UNIQUE (b), UNIQUE (c, a));
  CREATE TABLE partial_key (a int NOT NULL); CREATE UNIQUE INDEX ON partial_key (a) WHERE a > 0;
  CREATE TABLE not_valid (a int UNIQUE, b text); INSERT INTO not_valid SELECT CASE WHEN i % 4 > 0 THEN i END, i FROM generate_series(0, 24) i;
  ALTER TABLE not_valid ADD CONSTRAINT late NOT NULL a NOT VALID;
  CREATE TABLE parents (a int PRIMARY KEY, b text); CREATE TABLE children (PRIMARY KEY (a)) INHERITS (parents);
  INSERT INTO parents SELECT i, 'parent' FROM generate_series(1, 13) i; INSERT INTO children SELECT i, 'child' FROM generate_series(1, 12) i;
  CREATE TABLE deferred_key (a int PRIMARY KEY DEFERRABLE);
  CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
  CREATE TABLE caseless_key (a text COLLATE caseless PRIMARY KEY);
  CREATE TABLE finer_key (a pair NOT NULL); CREATE UNIQUE INDEX ON finer_key (a record_image_ops);
  CREATE TABLE caseless_text (id int PRIMARY KEY, a text COLLATE caseless, b text[] COLLATE caseless);
  INSERT INTO caseless_text VALUES (1, 'Straße', '{x,Y}'), (2, 'STRAND', NULL), (3, 'b', '{a}'), (4, 'B', '{A}');
  CREATE TABLE prices (item int4range, price int, during daterange, PRIMARY KEY (item, during WITHOUT OVERLAPS));
  CREATE TABLE sales (item int4range, open daterange, FOREIGN KEY (item, PERIOD open) REFERENCES prices (item, PERIOD during));
  INSERT INTO prices VALUES ('[1,2)', 1, '[2020-01-01,2021-01-01)'), ('[1,2)', 2, '[2021-01-01,2022-01-01)'), ('[2,3)', 3, '[2020-01-01,2021-01-01)');
  INSERT INTO sales VALUES ('[1,2)', '[2020-03-01,2020-04-01)'), ('[1,2)', '[2020-11-01,2021-03-01)');
  CREATE TABLE nothing ();
  CREATE TABLE ${HOSTILE_NAME} (${HOSTILE_NAME} text PRIMARY KEY, "$1" text, "select" int, "line
break" text);
  INSERT INTO ${HOSTILE_NAME} VALUES ('a', $$it's ${HOSTILE}$$, 1, NULL), ('b', '100%', 2, E'back\\\\slash'), ('c', '100 $2', 3, '');`;

describe.each(PLACEMENTS)('in the %s placement', (placement) => {
  let service: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: placement });
    organization = await service.signUp();
    const { status, body } = await service.call('POST', '/api/migrations', {
      key: organization.apiKey,
      body: { name: 'tables', sql: TABLES },
    });
    expect(status, JSON.stringify(body)).toBe(201);
    callAs(service, organization);
  });
  afterAll(() => service.close());

  const { signal } = new AbortController();
  const all = async (browse: Browse, limit: number) => {
    const rows: (readonly string[])[] = [];
    for (let cursor: Cursor | undefined; ; ) {
      const { rows: page } = await readPage(pageSql(browse, cursor, limit).toStatement(), signal);
      rows.push(...page);
      const last = page.at(-1);
      if (last === undefined || page.length < limit) return rows;
      const places = cursorColumns(browse);
      const textAt = (place: number) => {
        const column = browse.columns[place];
        return column === undefined ? JSON.parse(last[place] ?? '') : valueTextOf(column, last[place] ?? 'null');
      };
      cursor = places === undefined ? { offset: rows.length } : { after: places.map(textAt) };
    }
  };

  it.each(['pages', 'nokey', 'seen', 'kinds', 'not_valid', 'parents'])(
    'pages of %s one after the other are all rows, in each order',
    async (name) => {
      const table = await tableNamed(name);
      for (const column of [undefined, ...table.columns.map((one) => one.name)]) {
        for (const isDescending of [false, true]) {
          const browse = browseOf(table, { sort: column === undefined ? undefined : { column, isDescending } });
          const whole = await all(browse, 1_000);
          const paged = await all(browse, 2);
          // Without a key, rows that are equal may come in any order.
          const sortedBy = (rows: readonly (readonly string[])[]) =>
            browse.identity.kind === 'offset' ? rows.map((row) => row[browse.columns.findIndex((one) => one.name === column)]) : rows;
          expect(sortedBy(paged), `${column} ${isDescending}`).toEqual(sortedBy(whole));
          expect(whole.length).toBe(name === 'kinds' ? 4 : 25);
        }
      }
    },
  );

  const find = async (name: string, column: string, operator: Operator, text = ''): Promise<readonly unknown[]> => {
    const filters: Filter[] = [{ column, operator, text }];
    const rows = await all(browseOf(await tableNamed(name), { filters }), 100);
    return rows.map(([first]) => JSON.parse(first ?? ''));
  };

  it('filters are values, whatever they hold', async () => {
    expect(await find(HOSTILE, '$1', 'equal', `it's ${HOSTILE}`)).toEqual(['a']);
    expect(await find(HOSTILE, '$1', 'contains', '0%')).toEqual(['b']);
    expect(await find(HOSTILE, '$1', 'begins', '100 $')).toEqual(['c']);
    expect(await find(HOSTILE, 'line\nbreak', 'contains', '\\')).toEqual(['b']);
    expect(await find(HOSTILE, 'line\nbreak', 'null')).toEqual(['a']);
    expect(await find(HOSTILE, 'line\nbreak', 'equal', '')).toEqual(['c']);
    expect(await find(HOSTILE, 'line\nbreak', 'unequal', '')).toEqual(['a', 'b']);
    expect(await find(HOSTILE, HOSTILE, 'notNull')).toEqual(['a', 'b', 'c']);
    expect(await find(HOSTILE, 'select', 'greaterOrEqual', '2')).toEqual(['b', 'c']);
    expect(await find(HOSTILE, 'select', 'less', '2')).toEqual(['a']);
  });

  it('filters are compared by the type of their column', async () => {
    expect(await find('kinds', 'big', 'equal', '9223372036854775807')).toEqual([1]);
    expect(await find('kinds', 'f8', 'equal', 'NaN')).toEqual([1]);
    expect(await find('kinds', 'ts', 'greater', '2025-01-31 09:30:00.123455Z')).toEqual([1, 3]);
    expect(await find('kinds', 'arr', 'equal', '{1,NULL,3}')).toEqual([1]);
    expect(await find('kinds', 'jb', 'equal', '{"b": "€", "a": 1.0}')).toEqual([1]);
    expect(await find('kinds', 'jb', 'equal', 'null')).toEqual([3]);
    expect(await find('kinds', 'js', 'equal', 'null')).toEqual([3]);
    expect(await find('kinds', 'm', 'equal', 'ok')).toEqual([1]);
    expect(await find('kinds', 'pt', 'equal', '(1,2)')).toEqual([1]);
    expect(await find('kinds', 'bin', 'equal', '\\x00ff10')).toEqual([1]);
    await expect(find('kinds', 'big', 'equal', 'x')).rejects.toThrow('Invalid input syntax for type bigint: "x"');
  });

  it('all rows are counted, or those that match', async () => {
    const count = async (filters: readonly Filter[]) => {
      const { sql, params } = countSql(browseOf(await tableNamed('pages'), { filters })).toStatement();
      return (await service.query(organization, sql, params)).body.rows[0].count;
    };
    expect(await count([])).toBe('25');
    expect(await count([{ column: 'a', operator: 'null', text: '' }])).toBe('7');
  });

  it('the statement for the editor has the values in it, and gives the same rows', async () => {
    const browse = browseOf(await tableNamed(HOSTILE), {
      sort: { column: '$1', isDescending: true },
      filters: [
        { column: 'line\nbreak', operator: 'contains', text: 'k\\' },
        { column: '$1', operator: 'unequal', text: "it's" },
      ],
    });
    const { body } = await service.query(organization, editorSql(browse));
    expect(body.rows).toEqual([{ [HOSTILE]: 'b', $1: '100%', select: 2, 'line\nbreak': 'back\\slash' }]);
  });

  it('a key is the primary one, or a unique one that is never NULL', async () => {
    const identities = await Promise.all(
      ['pages', 'unique_key', 'partial_key', 'nokey', 'seen'].map(async (name) => browseOf(await tableNamed(name)).identity),
    );
    expect(identities).toEqual([
      { kind: 'key', columns: ['c', 'b'] },
      { kind: 'key', columns: ['c', 'a'] },
      { kind: 'ctid' },
      { kind: 'ctid' },
      { kind: 'offset' },
    ]);
    expect(await all(browseOf(await tableNamed('nothing')), 10)).toEqual([]);
  });

  it.each([
    ['may hold NULL while its constraint is not validated', 'not_valid', 'ctid'],
    ['says nothing of child tables', 'parents', 'offset'],
    ['may be the same twice within a transaction', 'deferred_key', 'ctid'],
    ['is equal to another text', 'caseless_key', 'ctid'],
    ['is compared by another operator than =', 'finer_key', 'ctid'],
  ])('what %s is no key', async (_, name, kind) => {
    expect(browseOf(await tableNamed(name)).identity).toEqual({ kind });
  });

  it('a key with a period leads to the rows that contain it, and back', async () => {
    vi.stubGlobal('location', { hash: '' });
    const schema = await loadSchema();
    const follow = async (from: string, row: number, column: string, title: string, to: string) => {
      const open = openTable(await tableNamed(from));
      await open.show({ filters: [] });
      const place = open.columns.findIndex(({ name }) => name === column);
      const commands = cellCommands(open, new TableSource(open), schema, { row, column: place, rows: { from: row, to: row + 1 } });
      commands.find((command) => command.title === title)?.run();
      const target = openTable(await tableNamed(to));
      await expect.poll(() => target.load.peek()).toMatchObject({ isComplete: true, error: undefined });
      return target.rows.map(({ cells }) => cells[1]);
    };
    expect(await follow('sales', 0, 'open', 'Go to the row of prices', 'prices')).toEqual(['1']);
    expect(await follow('sales', 1, 'open', 'Go to the row of prices', 'prices')).toEqual(['1', '2']);
    const referring = await follow('prices', 1, 'price', 'Rows of sales that refer to this', 'sales');
    expect(referring).toEqual(['"[2020-11-01,2021-03-01)"']);
    expect(await follow('prices', 2, 'price', 'Rows of sales that refer to this', 'sales')).toEqual([]);
  });

  it('patterns are found in texts of nondeterministic collations', async () => {
    expect(await find('caseless_text', 'a', 'contains', 'TRA')).toEqual([1, 2]);
    expect(await find('caseless_text', 'a', 'begins', 'b')).toEqual([3, 4]);
    expect(await find('caseless_text', 'b', 'contains', 'y}')).toEqual([1]);
    expect(await find('caseless_text', 'a', 'equal', 'b')).toEqual([3, 4]);
  });
});
