import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { elementsOf, membersOf } from '../../../http/console/api/raw-json.ts';
import { csvOf, insertOf, jsonOf, tsvOf } from '../../../http/console/grid/clipboard-formats.ts';
import { ReceivedRows } from '../../../http/console/grid/source.ts';
import { startTestService, type TestOrganization, type TestService } from '../../support/service.ts';

let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  acme = await service.signUp();
});
afterAll(() => service.close());

async function reply(path: string, body: object, accept = 'application/json'): Promise<string> {
  const headers = { authorization: `Bearer ${acme.apiKey}`, 'content-type': 'application/json', accept };
  const response = await fetch(`${service.httpUrl}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return text;
}

/** What a query gives, as screens keep it. */
async function storeOf(sql: string): Promise<ReceivedRows> {
  const text = await reply('/api/query', { sql, rowMode: 'array' });
  const { fields } = JSON.parse(text);
  const store = new ReceivedRows(fields.map(({ name, dataType }: Record<string, string>) => ({ name, type: dataType })));
  store.append(elementsOf(text, membersOf(text).get('rows')?.[0]));
  return store;
}

const all = (store: ReceivedRows) => ({ rows: { from: 0, to: store.rowCount }, columns: { from: 0, to: store.columns.length } });
const quoteName = (name: string) => `"${name.replaceAll('"', '""')}"`;

const HOSTILE = `select * from (values
  (9007199254740993::int8, 12.50::numeric, 'plain', '{"a":  1.0}'::json, array['x', null, 'a b'], '\\x00ff'::bytea),
  (null, 'NaN', '', null, '{}', ''),
  (2, 0, E'O''Neil, "said"\\n\\\\ \\t', '"t"', array['"', '\\'], null)) as rows(id, "A mount", "na""me", j, tags, "select")`;

describe('copied cells', () => {
  it('are as PostgreSQL writes them as CSV, with the line ends of RFC 4180', async () => {
    const store = await storeOf(HOSTILE);
    const copied = csvOf(store, all(store));
    expect(copied.replaceAll('\r\n', '\n')).toBe(await reply('/api/query', { sql: HOSTILE }, 'text/csv'));
    expect(copied.split('\r\n')).toHaveLength(5);
  });

  it('have tabs between them, and quotes where they are needed, as TSV', async () => {
    const store = await storeOf(HOSTILE);
    expect(tsvOf(store, { rows: { from: 0, to: 2 }, columns: { from: 0, to: 4 } })).toBe(
      '9007199254740993\t12.50\tplain\t"{""a"":  1.0}"\n\tNaN\t\t',
    );
    expect(tsvOf(store, { rows: { from: 2, to: 3 }, columns: { from: 2, to: 3 } })).toBe(`"O'Neil, ""said""\n\\ \t"`);
  });

  it('keep their digits as JSON', async () => {
    const store = await storeOf(
      'select 12345678901234567890.10::numeric as a, 1.50::float8 as b, \'{"x": 1.00}\'::json as c, null as d, 1 as a',
    );
    const json = '{"a": "12345678901234567890.10", "b": 1.5, "c": {"x": 1.00}, "d": null, "a_2": 1}';
    expect(jsonOf(store, all(store))).toBe(`${json}\n`);
    store.append(['["2",2,[],"x",2]']);
    expect(jsonOf(store, { ...all(store), columns: { from: 1, to: 3 } })).toBe(
      '[\n  {"b": 1.5, "c": {"x": 1.00}},\n  {"b": 2, "c": []}\n]\n',
    );
  });

  it.each(['on', 'off'])('are inserted by their statement, with standard_conforming_strings %s', async (setting) => {
    const table = `copies_${setting}`;
    await reply('/api/query', { sql: `create table ${table} as ${HOSTILE} limit 0` });
    const store = await storeOf(HOSTILE);
    const sql = insertOf(store, all(store), table, quoteName);
    await reply('/api/transaction', { statements: [{ sql: `set local standard_conforming_strings = ${setting}` }, { sql }] });
    const inserted = await storeOf(`select * from ${table}`);
    expect(csvOf(inserted, all(inserted))).toBe(csvOf(store, all(store)));
  });

  it('have backslashes only in literals that say so', async () => {
    const store = new ReceivedRows([
      { name: 'a', type: 'text' },
      { name: 'b', type: 'int4' },
    ]);
    store.append(['["\\\\ \'",1]', '[null,-2]']);
    expect(insertOf(store, all(store), 'public.t', quoteName)).toBe(
      `INSERT INTO public.t ("a", "b") VALUES\n  (E'\\\\ ''', '1'),\n  (NULL, '-2');\n`,
    );
  });
});

describe('a row store', () => {
  it('has the values of its rows as they were sent, and says when there are more', () => {
    const store = new ReceivedRows([
      { name: 'a', type: 'json' },
      { name: 'b', type: 'text' },
    ]);
    expect([store.rowCount, store.version.value]).toEqual([0, 0]);
    store.append(Array.from({ length: 2_000 }, (_, row) => `[{"n":  ${row}.0, "s": "],\\""}, "b${row}"]`));
    expect([store.rowCount, store.version.value]).toEqual([2_000, 1]);
    // Rows that have one place in what it remembers.
    for (const row of [0, 512, 0, 1_024, 1_999, 511]) {
      expect([store.valueAt(row, 0), store.valueAt(row, 1)]).toEqual([`{"n":  ${row}.0, "s": "],\\""}`, `"b${row}"`]);
    }
    expect(store.valueAt(2_000, 0)).toBe('null');
  });
});
