import type { Client } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readPage } from '../../../http/console/screens/tables/open-table.ts';
import { isWritable, pageSql, valueTextOf } from '../../../http/console/screens/tables/sql.ts';
import {
  changesOf,
  type EditableTable,
  NOTHING,
  overwrite,
  type ReadRow,
  type SaveResult,
  type Staged,
  save,
  stageCell,
  stageDelete,
  stageInsert,
  withConflicts,
} from '../../../http/console/screens/tables/staged-changes.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../../support/service.ts';
import { HOSTILE } from '../support/hostile.ts';
import { HOSTILE_NAME, KINDS } from './kinds.ts';
import { browseOf, callAs, editable, tableNamed } from './opened.ts';

const TABLES = `
  CREATE TABLE accounts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, balance numeric NOT NULL DEFAULT 5, note json, CHECK (balance >= 0));
  CREATE TABLE ${HOSTILE_NAME} (${HOSTILE_NAME} text PRIMARY KEY, "$1" text, "'" json);
  CREATE TABLE guarded (id int PRIMARY KEY, v text); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY; ALTER TABLE guarded FORCE ROW LEVEL SECURITY;
  CREATE POLICY p ON guarded FOR SELECT USING (true); CREATE POLICY q ON guarded FOR INSERT WITH CHECK (v <> 'no');
  CREATE TABLE kept (id int PRIMARY KEY, v text);
  CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
  CREATE TABLE texts (id int PRIMARY KEY, v text COLLATE caseless, w text[] COLLATE caseless);
  CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
  CREATE TRIGGER keep BEFORE UPDATE ON kept FOR EACH ROW EXECUTE FUNCTION keep();
  INSERT INTO guarded VALUES (1, 'a'); INSERT INTO kept VALUES (1, 'a');
  ${KINDS}`;

describe.each(PLACEMENTS)('in the %s placement', (placement) => {
  let service: TestService;
  let organization: TestOrganization;
  let client: Client;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: placement });
    organization = await service.signUp();
    client = await service.connect(organization);
    await client.query(TABLES);
    callAs(service, organization);
  });
  afterAll(async () => {
    await client.end();
    await service.close();
  });
  beforeEach(async () => {
    await client.query(
      `TRUNCATE accounts RESTART IDENTITY; INSERT INTO accounts (name, note) VALUES ('ada', '{"a":  1}'), ('alan', NULL), ('grace', 'null')`,
    );
  });

  const open = async (name: string) => {
    const table = editable(await tableNamed(name));
    const { rows } = await readPage(pageSql(browseOf(table.table), undefined, 100).toStatement(), new AbortController().signal);
    return { table, rows: rows.map((cells): ReadRow => ({ id: table.key.map((place) => cells[place]).join(), cells })) };
  };
  const placeOf = ({ columns }: EditableTable, name: string) => columns.findIndex((column) => column.name === name);
  const rowAt = (rows: readonly ReadRow[], index: number): ReadRow => rows[index] ?? { id: '', cells: [] };
  const names = async () => (await client.query('SELECT name FROM accounts ORDER BY id')).rows.map(({ name }) => name);
  const failureOf = (result: SaveResult) => (result.state === 'failed' ? result.error : undefined);

  it('every value of every kind is written back as it was', async () => {
    const before = (await client.query('SELECT k::text FROM kinds k ORDER BY id')).rows;
    const { table, rows } = await open('kinds');
    let staged = NOTHING;
    for (const row of rows) {
      for (const [place, column] of table.columns.entries()) {
        if (isWritable(column)) staged = stageCell(staged, row, place, valueTextOf(column, row.cells[place] ?? 'null'), false);
      }
    }
    const result = await save(table, staged, 1_000);
    expect(failureOf(result)?.message).toBeUndefined();
    expect(result).toMatchObject({ state: 'saved', rows: { updated: new Map(rows.map(({ id, cells }) => [id, cells])) } });
    expect((await client.query('SELECT k::text FROM kinds k ORDER BY id')).rows).toEqual(before);
  });

  it('a row of every kind is deleted as it was read', async () => {
    const { table, rows } = await open('kinds');
    const staged = rows.reduce((all, row) => stageDelete(all, row, true), NOTHING);
    await client.query('CREATE TABLE copied AS SELECT * FROM kinds');
    expect(failureOf(await save(table, staged, 1_000))?.message).toBeUndefined();
    expect((await client.query('SELECT count(*) FROM kinds')).rows).toEqual([{ count: '0' }]);
    await client.query('ALTER TABLE copied DROP COLUMN gen; INSERT INTO kinds SELECT * FROM copied; DROP TABLE copied');
  });

  it('changes, new rows and deleted ones are saved together', async () => {
    const { table, rows } = await open('accounts');
    const name = placeOf(table, 'name');
    let staged: Staged = stageCell(NOTHING, rowAt(rows, 0), name, 'Ada\'s \\ "$1"', false);
    staged = stageCell(staged, rowAt(rows, 0), placeOf(table, 'note'), null, false);
    staged = stageDelete(staged, rowAt(rows, 1), true);
    staged = stageInsert(staged, new Map([[name, 'edsger']]));
    const result = await save(table, staged, 1_000);
    expect(result).toMatchObject({ state: 'saved', rows: { inserted: [['"4"', '"edsger"', '"5"', 'null']] } });
    expect(await names()).toEqual(['Ada\'s \\ "$1"', 'grace', 'edsger']);
  });

  it('saving the same changes again does them once', async () => {
    const { table } = await open('accounts');
    const staged = stageInsert(NOTHING, new Map([[placeOf(table, 'name'), 'once']]));
    const first = await save(table, staged, 1_000);
    expect(await save(table, staged, 1_000)).toEqual(first);
    expect(await names()).toEqual(['ada', 'alan', 'grace', 'once']);
  });

  it('where somebody has changed a row meanwhile, nothing is saved, and their values are known', async () => {
    const { table, rows } = await open('accounts');
    const [name, balance] = [placeOf(table, 'name'), placeOf(table, 'balance')];
    let staged: Staged = stageCell(NOTHING, rowAt(rows, 0), name, 'mine', false);
    staged = stageCell(staged, rowAt(rows, 1), balance, '8', false);
    staged = stageDelete(staged, rowAt(rows, 2), true);
    await client.query(`UPDATE accounts SET balance = 6 WHERE name IN ('alan', 'grace')`);
    const result = await save(table, staged, 1_000);
    expect(result).toEqual({
      state: 'conflict',
      current: new Map([
        ['"2"', ['"2"', '"alan"', '"6"', 'null']],
        ['"3"', ['"3"', '"grace"', '"6"', '"null"']],
      ]),
    });
    expect(await names()).toEqual(['ada', 'alan', 'grace']);

    const conflicts = withConflicts(staged, result.state === 'conflict' ? result.current : new Map());
    const decided = [...conflicts.rows.values()].reduce((all, row) => overwrite(all, row), conflicts);
    expect(await save(table, decided, 1_000)).toMatchObject({ state: 'saved' });
    expect((await client.query('SELECT name, balance FROM accounts ORDER BY id')).rows).toEqual([
      { name: 'mine', balance: '5' },
      { name: 'alan', balance: '8' },
    ]);
  });

  it.each([
    ['a json value', 'note', `UPDATE accounts SET note = '{"a": 1}' WHERE id = 1`],
    ['NULL', 'note', `UPDATE accounts SET note = NULL WHERE id = 1`],
    ['the row', 'name', `DELETE FROM accounts WHERE id = 1`],
  ])('a change of %s that means the same, or nothing, is seen', async (_, column, sql) => {
    const { table, rows } = await open('accounts');
    await client.query(sql);
    const staged = stageCell(NOTHING, rowAt(rows, 0), placeOf(table, column), column === 'note' ? '1' : 'x', false);
    expect(await save(table, staged, 1_000)).toMatchObject({ state: 'conflict' });
  });

  it.each([
    ['v', 'B', 'mine'],
    ['w', '{B}', '{mine}'],
  ])('a text of a nondeterministic collation in %s is another one when its letters are', async (column, theirs, mine) => {
    await client.query(`TRUNCATE texts; INSERT INTO texts VALUES (1, 'b', '{b}')`);
    const { table, rows } = await open('texts');
    const staged = stageCell(NOTHING, rowAt(rows, 0), placeOf(table, column), mine, false);
    await client.query(`UPDATE texts SET ${column} = '${theirs}'`);
    expect(await save(table, staged, 1_000)).toMatchObject({ state: 'conflict' });
    const { rows: read } = await open('texts');
    expect(await save(table, stageCell(NOTHING, rowAt(read, 0), placeOf(table, column), mine, false), 1_000)).toMatchObject({
      state: 'saved',
    });
  });

  it('other columns of the row may have changed', async () => {
    const { table, rows } = await open('accounts');
    await client.query(`UPDATE accounts SET balance = 7 WHERE id = 1`);
    const result = await save(table, stageCell(NOTHING, rowAt(rows, 0), placeOf(table, 'name'), 'mine', false), 1_000);
    expect(result).toMatchObject({ state: 'saved', rows: { updated: new Map([['"1"', ['"1"', '"mine"', '"7"', '"{\\"a\\":  1}"']]]) } });
  });

  it('a failure names its statement, and nothing is saved', async () => {
    const { table, rows } = await open('accounts');
    let staged: Staged = stageDelete(NOTHING, rowAt(rows, 1), true);
    staged = stageCell(staged, rowAt(rows, 0), placeOf(table, 'balance'), '-1', false);
    const result = await save(table, staged, 1_000);
    expect(result).toMatchObject({ state: 'failed', change: { of: { row: { id: '"1"' } } } });
    expect(failureOf(result)?.message).toContain('violates check constraint');
    expect(await names()).toEqual(['ada', 'alan', 'grace']);
  });

  it('values that are too long are refused, not cut', async () => {
    const { table, rows } = await open('kinds');
    for (const [column, message] of [
      ['v3', 'Value too long for type character varying(3).'],
      ['s', 'Value too long for type character varying(3).'],
      ['b3', 'Bit string length 4 does not match type bit(3).'],
    ] as const) {
      const staged = stageCell(NOTHING, rowAt(rows, 0), placeOf(table, column), '1010', false);
      expect(failureOf(await save(table, staged, 1_000))?.message).toBe(message);
    }
  });

  it('what a policy or a trigger prevents is said', async () => {
    for (const name of ['guarded', 'kept']) {
      const { table, rows } = await open(name);
      const result = await save(table, stageCell(NOTHING, rowAt(rows, 0), placeOf(table, 'v'), 'b', false), 1_000);
      expect(failureOf(result)?.message, name).toBe(
        'The row is as it was, but PostgreSQL has not changed it: a trigger or a row-level security policy prevents that.',
      );
    }
    const { table } = await open('guarded');
    const refused = await save(
      table,
      stageInsert(
        NOTHING,
        new Map([
          [0, '2'],
          [1, 'no'],
        ]),
      ),
      1_000,
    );
    expect(failureOf(refused)?.message).toBe('New row violates row-level security policy for table "guarded".');
  });

  it('names are quoted, and the statements that are shown are those that run', async () => {
    await client.query(`INSERT INTO ${HOSTILE_NAME} VALUES ('k', 'v', '[]')`);
    const { table, rows } = await open(HOSTILE);
    let staged: Staged = stageCell(NOTHING, rowAt(rows, 0), placeOf(table, HOSTILE), HOSTILE, false);
    staged = stageCell(staged, rowAt(rows, 0), placeOf(table, "'"), '{"$1": "\'"}', false);
    const shown = changesOf(table, staged).map((change) => `${change.shown}`);
    expect(shown).toEqual([
      `UPDATE public.${HOSTILE_NAME}\nSET ${HOSTILE_NAME} = '${HOSTILE}', "'" = '{"$1": "''"}'\nWHERE ${HOSTILE_NAME} = 'k'\n  AND "'"::text = '[]'`,
    ]);
    expect(await save(table, staged, 1_000)).toMatchObject({
      state: 'saved',
      rows: { updated: new Map([['"k"', [JSON.stringify(HOSTILE), '"v"', expect.anything()]]]) },
    });
    expect((await client.query(`TABLE ${HOSTILE_NAME}`)).rows).toEqual([{ [HOSTILE]: HOSTILE, $1: 'v', "'": { $1: "'" } }]);
  });

  it('more changes than one transaction takes are refused', async () => {
    const { table, rows } = await open('accounts');
    const staged = rows.reduce((all, row) => stageCell(all, row, placeOf(table, 'name'), 'x', false), NOTHING);
    expect(failureOf(await save(table, staged, 5))?.message).toContain('At most 5 statements');
    expect(await names()).toEqual(['ada', 'alan', 'grace']);
  });
});
