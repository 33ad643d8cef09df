import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { runQuery } from '../../../src/sql/query.ts';
import { createTestDatabase, type TestDatabase } from '../../support/leases.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
  await database.asOwner(`
    CREATE TYPE mood AS ENUM ('ok', 'so "so"');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE DOMAIN pair AS int[] CHECK (cardinality(VALUE) = 2);
    CREATE TYPE point3 AS (x int, label text);
  `);
});

afterAll(() => database.close());

afterEach(async () => {
  if (!roleIsChanged) return;
  await database.admin.query(`ALTER ROLE ${database.name} RESET ALL`);
  database.pool.closeIdle(database.name);
  roleIsChanged = false;
});

let roleIsChanged = false;

/** Lists are not to be quoted as one. */
const quoted = (value: string) =>
  value
    .split(', ')
    .map((part) => `'${part}'`)
    .join(', ');

/** As the organization could do it itself; for sessions from now on. */
async function setForRole(setting: string, value: string): Promise<void> {
  await database.admin.query(`ALTER ROLE ${database.name} SET ${setting} = ${quoted(value)}`);
  database.pool.closeIdle(database.name);
  roleIsChanged = true;
}

async function reply(sql: string, rowMode: 'object' | 'array'): Promise<string> {
  const { body, done } = await runQuery(await database.lease(), { sql, rowMode, timeoutMs: 60_000 });
  await done;
  return body.toString();
}

/** The JSON text of the one value that the expression has. */
async function json(expression: string): Promise<string> {
  const text = await reply(`SELECT ${expression}`, 'array');
  const value = /"rows":\[\[(.*)\]\],"rowCount":1,"command":"SELECT"/s.exec(text)?.[1];
  if (value === undefined) throw new Error(text);
  return value;
}

async function rowsOf(sql: string): Promise<[string, string][]> {
  return JSON.parse(await reply(sql, 'array')).rows;
}

describe('numbers', () => {
  test.each<[string, string]>([
    ['(-32768)::int2', '-32768'],
    ['2147483647::int4', '2147483647'],
    ['9223372036854775807::int8', '"9223372036854775807"'],
    ['(-1)::int8', '"-1"'],
    ['0::int8', '"0"'],
    ['0.1::float8', '0.1'],
    ['0.1::float4', '0.1'],
    ['1e300::float8', '1e+300'],
    ['1e-7::float8', '1e-07'],
    ["'-0'::float8", '-0'],
    ['0.1::float8 + 0.2::float8', '0.30000000000000004'],
    ["'NaN'::float8", '"NaN"'],
    ["'Infinity'::float8", '"Infinity"'],
    ["'-Infinity'::float4", '"-Infinity"'],
    ['12345678901234567890.123456789012345678901234567890::numeric', '"12345678901234567890.123456789012345678901234567890"'],
    ['1.50::numeric', '"1.50"'],
    ["'NaN'::numeric", '"NaN"'],
    ["'-Infinity'::numeric", '"-Infinity"'],
    ['12.5::money', '"$12.50"'],
    ['26::oid', '"26"'],
  ])('%s is %s', async (expression, expected) => {
    expect(await json(expression)).toBe(expected);
  });
});

describe('dates and times', () => {
  test.each<[string, string]>([
    ["timestamptz '2024-01-02 03:04:05.123456+00'", '"2024-01-02T03:04:05.123456Z"'],
    ["timestamptz '2024-01-02 03:04:05.1+05:30'", '"2024-01-01T21:34:05.100000Z"'],
    ["timestamptz '2024-01-02 03:04:05Z'", '"2024-01-02T03:04:05.000000Z"'],
    ["timestamptz '12024-01-02 03:04:05Z'", '"12024-01-02T03:04:05.000000Z"'],
    ["timestamptz '0044-03-15 12:00:00Z BC'", '"0044-03-15T12:00:00.000000Z BC"'],
    ["timestamptz 'infinity'", '"infinity"'],
    ["timestamptz '-infinity'", '"-infinity"'],
    ["timestamp '2024-02-29 23:59:59.999999'", '"2024-02-29T23:59:59.999999"'],
    ["timestamp '2024-02-29'", '"2024-02-29T00:00:00.000000"'],
    ["timestamp '0044-03-15 BC'", '"0044-03-15T00:00:00.000000 BC"'],
    ["timestamp '0044-03-15 12:00:00.5 BC'", '"0044-03-15T12:00:00.500000 BC"'],
    ["timestamp '0044-03-15 12:00:00.123 BC'", '"0044-03-15T12:00:00.123000 BC"'],
    ["timestamp '0044-03-15 12:00:00.123456 BC'", '"0044-03-15T12:00:00.123456 BC"'],
    ["timestamp 'infinity'", '"infinity"'],
    ["date '2024-02-29'", '"2024-02-29"'],
    ["date '0044-03-15 BC'", '"0044-03-15 BC"'],
    ["date '-infinity'", '"-infinity"'],
    ["time '03:04:05.5'", '"03:04:05.5"'],
    ["timetz '03:04:05+02'", '"03:04:05+02"'],
    ["interval '1 year 2 days 03:04:05.5'", '"1 year 2 days 03:04:05.5"'],
  ])('%s is %s', async (expression, expected) => {
    expect(await json(expression)).toBe(expected);
  });

  // Postgres itself says what is expected, for moments all over its range, some of them before time zones were whole minutes.
  test.each(['Asia/Kolkata', 'America/St_Johns', 'Pacific/Kiritimati', 'Europe/Amsterdam'])(
    'in UTC for an organization in %s',
    async (zone) => {
      await setForRole('timezone', zone);
      const rows: [string, string][] = await rowsOf(`
      SELECT t, to_char(t AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || CASE WHEN extract(year FROM t AT TIME ZONE 'UTC') < 0 THEN ' BC' ELSE '' END
      FROM (
        SELECT to_timestamp(-210000000000 + n * 1234567890.123457) t FROM generate_series(0, 400) n
        UNION ALL SELECT timestamptz '0001-01-01 00:00:00Z' + (n || ' hours')::interval FROM generate_series(-30, 30) n
        UNION ALL SELECT timestamptz '2024-02-28 00:00:00Z' + (n || ' hours')::interval FROM generate_series(0, 60) n
        UNION ALL SELECT timestamptz '9999-12-31 12:00:00Z' + (n || ' hours')::interval FROM generate_series(0, 30) n
      ) moments`);
      expect(rows).toHaveLength(554);
      for (const [encoded, expected] of rows) expect(encoded).toBe(expected);
    },
  );

  test.each(["timestamptz '0044-03-15 12:00:00.5Z BC'", "timestamptz '12024-01-02 03:04:05Z'"])(
    'what is written can be read again: %s',
    async (moment) => {
      expect(await json(`${moment} = timestamptz '${JSON.parse(await json(moment))}'`)).toBe('true');
    },
  );
});

describe('other scalars', () => {
  test.each<[string, string]>([
    ['true', 'true'],
    ['false', 'false'],
    ['null', 'null'],
    ["''", '""'],
    [`E'a"b\\\\c/\\n\\r\\t\\b\\f\\x01\\x1f\\x7f é 😀'`, `"a\\"b\\\\c/\\n\\r\\t\\b\\f\\u0001\\u001f\x7f é 😀"`],
    ["'a'::char(3)", '"a  "'],
    ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'],
    ["'\\xdeadBEEF'::bytea", '"\\\\xdeadbeef"'],
    ["''::bytea", '"\\\\x"'],
    ["'10.1.2.0/24'::cidr", '"10.1.2.0/24"'],
    ["B'101'", '"101"'],
    ["point '(1.5,2)'", '"(1.5,2)"'],
    ['int4range(1, 5)', '"[1,5)"'],
    ["'a b'::tsvector", `"'a' 'b'"`],
    ['xmlelement(name a)', '"<a/>"'],
    ['\'so "so"\'::mood', '"so \\"so\\""'],
    ['5::positive', '5'],
    ["ROW(1, 'a,b')::point3", '"(1,\\"a,b\\")"'],
    ["'1 2'::int2vector", '"1 2"'],
  ])('%s is %s', async (expression, expected) => {
    expect(await json(expression)).toBe(expected);
  });
});

describe('json is spliced in as it stands', () => {
  test.each<[string, string]>([
    [`'{"a" : 1.0, "a":12345678901234567890.10}'::json`, '{"a" : 1.0, "a":12345678901234567890.10}'],
    [`'{"n": 12345678901234567890.123456789, "e": 1e400}'::json`, '{"n": 12345678901234567890.123456789, "e": 1e400}'],
    [`'{"b": [1, 2, {"c": null}], "n": 98765432109876543210}'::jsonb`, '{"b": [1, 2, {"c": null}], "n": 98765432109876543210}'],
    [`'"a\\u0041\\n"'::json`, '"a\\u0041\\n"'],
    ["'null'::jsonb", 'null'],
    ['null::jsonb', 'null'],
  ])('%s', async (expression, expected) => {
    expect(await json(expression)).toBe(expected);
  });
});

describe('arrays', () => {
  test.each<[string, string]>([
    ['array[1, 2, null]', '[1,2,null]'],
    ["'{}'::int[]", '[]'],
    ['array[array[1, 2], array[3, 4]]', '[[1,2],[3,4]]'],
    ["'{{{1},{2}},{{3},{null}}}'::int4[]", '[[[1],[2]],[[3],[null]]]'],
    ["'[2:3]={7,8}'::int[]", '[7,8]'],
    ["'[-1:0][5:5]={{1},{2}}'::int[]", '[[1],[2]]'],
    ['array[9007199254740993::int8]', '["9007199254740993"]'],
    ['array[1.50::numeric, null]', '["1.50",null]'],
    ["array['NaN'::float8, 1.5, '-Infinity']", '["NaN",1.5,"-Infinity"]'],
    ['array[true, false, null]', '[true,false,null]'],
    [`array['a,b', 'c"d', E'e\\\\f', '', 'NULL', null, '{x}', ' g ', 'h;i']`, `["a,b","c\\"d","e\\\\f","","NULL",null,"{x}"," g ","h;i"]`],
    ["array['é😀']", '["é😀"]'],
    ["array[timestamptz '2024-01-02 03:04:05.5Z', null]", '["2024-01-02T03:04:05.500000Z",null]'],
    ["array[timestamp '2024-01-02 03:04:05']", '["2024-01-02T03:04:05.000000"]'],
    ["array[date '2024-01-02']", '["2024-01-02"]'],
    [`array['{"a": [1, "x,y"]}', 'null', null, '"q"']::jsonb[]`, '[{"a": [1, "x,y"]},null,null,"q"]'],
    ["array['\\x00ff'::bytea]", '["\\\\x00ff"]'],
    ["array[box '((1,2),(0,0))', box '((3,4),(1,1))']", '["(1,2),(0,0)","(3,4),(1,1)"]'],
    ["array['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid]", '["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]'],
    ["array['ok', 'so \"so\"']::mood[]", '["ok","so \\"so\\""]'],
    ['array[1, 2]::positive[]', '[1,2]'],
    ["array['{1,2}', '{3,4}']::pair[]", '[[1,2],[3,4]]'],
    ["array[ROW(1, 'a')::point3]", '["(1,a)"]'],
    ["array['1 2'::int2vector]", '["1 2"]'],
  ])('%s is %s', async (expression, expected) => {
    expect(await json(expression)).toBe(expected);
  });
});

describe('columns', () => {
  test('have the names of their types, also where the organization made them', async () => {
    const text = await reply(
      `SELECT 1 AS a, array['ok']::mood[] AS b, 'ok'::mood AS c, 1::positive AS d, null::point3 AS e, array[1::positive] AS f`,
      'object',
    );
    expect(JSON.parse(text).fields.map(({ name, dataType }: { name: string; dataType: string }) => [name, dataType])).toEqual([
      ['a', 'int4'],
      ['b', 'mood[]'],
      ['c', 'mood'],
      ['d', 'int4'],
      ['e', 'point3'],
      ['f', 'positive[]'],
    ]);
  });

  test('of one name: the last wins, with a warning', async () => {
    const text = await reply('SELECT 1 AS a, 2 AS b, 3 AS a, 4 AS "é""x"', 'object');
    expect(text).toContain('"rows":[{"b":2,"a":3,"é\\"x":4}]');
    expect(JSON.parse(text).warnings).toEqual([
      {
        severity: 'WARNING',
        code: '42701',
        message: 'several columns are named "a"; only the last of them is in the rows',
        hint: 'Give the columns different names, or ask for rows as arrays.',
      },
    ]);
  });

  test('of one name are both there when rows are arrays', async () => {
    const text = await reply('SELECT 1 AS a, 2 AS b, 3 AS a', 'array');
    expect(text).toContain('"rowAsArray":true,"rows":[[1,2,3]]');
    expect(JSON.parse(text)).not.toHaveProperty('warnings');
  });

  test('may be none at all', async () => {
    expect(await reply('SELECT FROM generate_series(1, 2)', 'object')).toContain(
      '"fields":[],"rowAsArray":false,"rows":[{},{}],"rowCount":2',
    );
    expect(await reply('SELECT FROM generate_series(1, 2)', 'array')).toContain('"rows":[[],[]]');
  });
});

describe('whatever an organization has set for itself, values come in the same form', () => {
  test.each<[string, string, string, string]>([
    ['DateStyle', 'German, DMY', "timestamptz '2024-01-02 03:04:05Z'", '"2024-01-02T03:04:05.000000Z"'],
    ['DateStyle', 'SQL, MDY', "date '2024-01-02'", '"2024-01-02"'],
    ['DateStyle', 'SQL, DMY', "'02/01/2024'::date", '"2024-01-02"'],
    ['IntervalStyle', 'iso_8601', "interval '1 day 2 hours'", '"1 day 02:00:00"'],
    ['bytea_output', 'escape', "'\\x00ff5c'::bytea", '"\\\\x00ff5c"'],
    ['extra_float_digits', '-15', '0.1::float8 + 0.2::float8', '0.30000000000000004'],
    ['standard_conforming_strings', 'off', "'a'", '"a"'],
    ['client_encoding', 'LATIN1', "'é'", '"é"'],
  ])('%s = %s: %s', async (setting, value, expression, expected) => {
    await setForRole(setting, value);
    expect(await json(expression)).toBe(expected);
    expect(await json(expression)).toBe(expected);
  });

  test('and so do they go: null in an array is NULL', async () => {
    await setForRole('array_nulls', 'off');
    const request = { sql: 'SELECT $1::text[], ($1::text[])[1] IS NULL', params: [[null]], rowMode: 'array', timeoutMs: 60_000 } as const;
    const { body, done } = await runQuery(await database.lease(), request);
    await done;
    expect(body.toString()).toContain('"rows":[[[null],true]]');
  });

  test('except where the statement itself changes it', async () => {
    const text = await reply(
      `SELECT set_config('DateStyle', 'German', false), timestamptz '2024-01-02 03:04:05Z', date '2024-01-02'`,
      'array',
    );
    expect(text).toContain('"02.01.2024 03:04:05 UTC","02.01.2024"');
  });
});
