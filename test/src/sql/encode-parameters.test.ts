import { parse } from 'lossless-json';
import { describe, expect, test } from 'vitest';
import { BUILTIN_TYPES, type PostgresType } from '../../../src/sql/json-values.ts';
import { areMany, encodeInSlices, encodeParameters, type JsonValue } from '../../../src/sql/parameters.ts';

const OIDS = {
  text: 25,
  int4: 23,
  json: 114,
  jsonb: 3802,
  'text[]': 1009,
  'int8[]': 1016,
  'jsonb[]': 3807,
  'bool[]': 1000,
  'box[]': 1020,
  bytea: 17,
};

function encode(type: keyof typeof OIDS, json: string): string | null | undefined {
  const described = BUILTIN_TYPES.get(OIDS[type]) as PostgresType;
  return encodeParameters([parse(json) as JsonValue], [described])[0];
}

describe('scalars are the same text for every type', () => {
  test.each<[string, string | null]>([
    ['null', null],
    ['true', 'true'],
    ['false', 'false'],
    ['"a\\"b"', 'a"b'],
    ['""', ''],
    ['1', '1'],
    ['-1.50', '-1.50'],
    ['9007199254740993', '9007199254740993'],
    ['123456789012345678901234567890.123456789', '123456789012345678901234567890.123456789'],
    ['1e400', '1e400'],
  ])('%s', (json, expected) => {
    for (const type of ['text', 'int4', 'jsonb', 'text[]', 'bytea'] as const) expect(encode(type, json)).toBe(expected);
  });

  test.each<[keyof typeof OIDS, string, string]>([
    ['int4', '1.0', '1'],
    ['int4', '1e3', '1000'],
    ['int4', '9007199254740993.0', '9007199254740993.0'],
    ['int8[]', '[1.0,2]', '{"1","2"}'],
    ['jsonb', '1.10', '1.10'],
    ['text', '1e5', '1e5'],
  ])('as %s: the number %s', (type, json, expected) => {
    expect(encode(type, json)).toBe(expected);
  });

  test('plain JavaScript numbers too', () => {
    expect(encodeParameters([1, 1.5, -0, 0], [])).toEqual(['1', '1.5', '-0', '0']);
  });
});

describe('arrays and objects', () => {
  test.each<[keyof typeof OIDS, string, string]>([
    ['jsonb', '{"a":[1,{"b":null}]}', '{"a":[1,{"b":null}]}'],
    ['json', '[1,"x",12345678901234567890,1.0]', '[1,"x",12345678901234567890,1.0]'],
    ['jsonb', '[]', '[]'],
    ['text[]', '[]', '{}'],
    ['text[]', '["a","b,c","d\\"e","f\\\\g","","NULL",null,"{x}"]', '{"a","b,c","d\\"e","f\\\\g","","NULL",NULL,"{x}"}'],
    ['text[]', '[["a",null],["b","c"]]', '{{"a",NULL},{"b","c"}}'],
    ['int8[]', '[1,9007199254740993]', '{"1","9007199254740993"}'],
    ['bool[]', '[true,false,null]', '{"true","false",NULL}'],
    ['box[]', '["(1,1),(0,0)","(2,2),(0,0)"]', '{"(1,1),(0,0)";"(2,2),(0,0)"}'],
    ['jsonb[]', '[{"a":"b"},[1,[2]],null,3]', '{"{\\"a\\":\\"b\\"}","[1,[2]]",NULL,"3"}'],
  ])('as %s: %s', (type, json, expected) => {
    expect(encode(type, json)).toBe(expected);
  });

  test.each<[keyof typeof OIDS, string, string]>([
    ['int4', '{"a":1}', 'params[0] is an object, which fits json or jsonb but not int4'],
    ['text', '[1]', 'params[0] is an array, which fits an array type, json or jsonb but not text'],
    ['text[]', '{"a":1}', 'params[0] is an object, which fits json or jsonb but not text[]'],
    ['int8[]', '[1,{"a":1}]', 'params[0] is an object, which fits json or jsonb but not int8'],
    ['text', '"a\\u0000b"', 'params[0] contains a NUL character'],
  ])('are refused where they do not fit: %s %s', (type, json, message) => {
    expect(() => encode(type, json)).toThrow(expect.objectContaining({ kind: 'invalid_request', message }));
  });

  test('the message names the parameter', () => {
    expect(() => encodeParameters([1, 'a', {}], [])).toThrow('params[2] is an object');
  });
});

test('a long element of an array has the same text, whatever is where it is cut', async () => {
  const long = `${'x'.repeat(65_535)}😀"${'\\'.repeat(70_000)}"`;
  const expected = `{"a","${long.replace(/["\\]/g, '\\$&')}"}`;
  const type = [BUILTIN_TYPES.get(1009) as PostgresType];
  expect(encodeParameters([['a', long]], type)).toEqual([expected]);
  expect(areMany([['a', long.repeat(5)]])).toBe(true);
  expect(await encodeInSlices([['a', long]], type)).toEqual([expected]);
});

test('many values have the same text, written bit by bit', async () => {
  const values = parse(
    `[[1,null,"a\\"b",12345678901234567890],[[1,2],[3,4]],{"a":[{},[],{"b":-0,"c":1e999}],"é":"😀"},true]`,
  ) as JsonValue[];
  const many = [...values, Array.from({ length: 20_000 }, (_, n) => [n, `${n}`])];
  const types = [1009, 1016, 3802, 16, 1009].map((oid) => BUILTIN_TYPES.get(oid) as PostgresType);
  expect(areMany(values)).toBe(false);
  expect(areMany(many)).toBe(true);
  let turns = 0;
  const counting = setInterval(() => (turns += 1), 1);
  const written = await encodeInSlices(
    [...many, Array.from({ length: 300_000 }, (_, n) => n)],
    [...types, BUILTIN_TYPES.get(1016) as PostgresType],
  );
  clearInterval(counting);
  expect(written.slice(0, -1)).toEqual(encodeParameters(many, types));
  expect(turns).toBeGreaterThan(1);
});
