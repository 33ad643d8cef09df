import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { linesFormat, type RowMode } from '../../../src/sql/formats.ts';
import { runQuery } from '../../../src/sql/query.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});

afterAll(() => database.close());

const finalBytes = (error: Error) => Buffer.from(`${JSON.stringify({ error: error.message })}\n`);

async function start(sql: string, rowMode: RowMode = 'object', signal?: AbortSignal) {
  const format = linesFormat(rowMode);
  const request = { sql, rowMode, format, finalBytes, timeoutMs: 60_000, ...(signal === undefined ? {} : { signal }) };
  return runQuery(await database.lease(), request);
}

async function textOf(body: Buffer | Readable): Promise<string> {
  if (!(body instanceof Readable)) return body.toString();
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

test('a reply is a document a line', async () => {
  const { body, done } = await start("SELECT n AS a, 'x' || n AS b FROM generate_series(1, 2) n");
  const { durationMs } = await done;
  expect(await textOf(body)).toBe(
    `{"fields":[{"name":"a","dataTypeID":23,"dataType":"int4"},{"name":"b","dataTypeID":25,"dataType":"text"}],"rowAsArray":false}
{"row":{"a":1,"b":"x1"}}
{"row":{"a":2,"b":"x2"}}
{"complete":{"rowCount":2,"command":"SELECT","durationMs":${durationMs}}}
`,
  );
});

test('rows may be arrays, and there may be none', async () => {
  const rows = await textOf((await start('SELECT 1 AS a, 2 AS a', 'array')).body);
  expect(rows.split('\n').slice(1, 2)).toEqual(['{"row":[1,2]}']);
  const none = await textOf((await start('CREATE TABLE empty ()')).body);
  expect(none).toMatch(
    /^\{"fields":\[\],"rowAsArray":false\}\n\{"complete":\{"rowCount":null,"command":"CREATE TABLE","durationMs":[\d.]+\}\}\n$/,
  );
});

test('warnings come with the end', async () => {
  const lines = (await textOf((await start('SELECT 1 AS a, 2 AS a')).body)).trimEnd().split('\n');
  expect(JSON.parse(lines[1] ?? '')).toEqual({ row: { a: 2 } });
  expect(JSON.parse(lines[2] ?? '')).toMatchObject({ complete: { warnings: [{ code: '42701' }] } });
});

test('line breaks within json become spaces, those within strings stay', async () => {
  const sql = `SELECT E'{\\n  "a": [1,\\r\\n 2],\\t"b": "x\\\\ny" }\\n'::json AS j, ARRAY[E'[\\n1]', '"\\n"']::json[] AS js, E'one\\ntwo' AS t,
    E'{"k":\\n "v"}'::jsonb AS jb, row(E'{\\n}'::json)::text AS r`;
  const lines = (await textOf((await start(sql)).body)).split('\n');
  expect(lines).toHaveLength(4);
  expect(lines[1]).toBe(
    '{"row":{"j":{   "a": [1,   2],\t"b": "x\\ny" } ,"js":[[ 1],"\\n"],"t":"one\\ntwo","jb":{"k": "v"},"r":"(\\"{\\n}\\")"}}',
  );
});

test('a domain over json is json', async () => {
  await database.asOwner('CREATE DOMAIN public.settings AS json');
  const lines = (await textOf((await start("SELECT E'{\\n}'::settings AS s")).body)).split('\n');
  expect(lines[1]).toBe('{"row":{"s":{ }}}');
});

test('a large result is a stream whose lines are whole', async () => {
  const { body, done } = await start("SELECT n, E'{\\n\"n\":1}'::json AS j, repeat('x', 50) AS x FROM generate_series(1, 20000) n");
  expect(body).toBeInstanceOf(Readable);
  const lines = (await textOf(body)).trimEnd().split('\n');
  expect(lines).toHaveLength(20_002);
  for (const line of lines) JSON.parse(line);
  expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ complete: { rowCount: 20_000 } });
  expect(await done).toMatchObject({ rowCount: 20_000 });
});

test('a failure on the way is the last line', async () => {
  const { body, done } = await start("SELECT n, 1 / (50000 - n) AS inverse, repeat('x', 20) AS x FROM generate_series(1, 60000) n");
  const lines = (await textOf(body)).split('\n');
  expect(lines.slice(-2)).toEqual(['{"error":"division by zero"}', '']);
  for (const line of lines.slice(0, -1)) JSON.parse(line);
  await expect(done).rejects.toMatchObject({ fields: { code: '22012' } });
});

test('a failure before the first line is an error', async () => {
  await expect(start('SELECT 1 / 0')).rejects.toMatchObject({ fields: { code: '22012' } });
});

test('so is one while everything that was written is still at hand', async () => {
  await expect(start('SELECT 1 / (100 - n) FROM generate_series(1, 200) n')).rejects.toMatchObject({ fields: { code: '22012' } });
});
