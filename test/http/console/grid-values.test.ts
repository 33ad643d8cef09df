import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { elementsOf, membersOf } from '../../../http/console/api/raw-json.ts';
import { indentJson, isNull, lineOf, previewOf, textOf } from '../../../http/console/grid/value-text.ts';
import { startTestService, type TestOrganization, type TestService } from '../../support/service.ts';

let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  acme = await service.signUp();
  await query("create type mood as enum ('sad', 'very happy')");
  await query('create type pair as (n int, t text)');
  await query('create domain amounts as numeric[]');
  await query('create domain happening as timestamptz');
});
afterAll(() => service.close());

async function query(sql: string, params: readonly unknown[] = []): Promise<string> {
  const response = await fetch(`${service.httpUrl}/api/query`, {
    method: 'POST',
    headers: { authorization: `Bearer ${acme.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ sql, params, rowMode: 'array' }),
  });
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return text;
}

/** The JSON texts of the first row, and the names of its types. */
async function firstRow(sql: string, params: readonly unknown[] = []) {
  const text = await query(sql, params);
  const rowsAt = membersOf(text).get('rows')?.[0] ?? 0;
  const { fields } = JSON.parse(text);
  const types: readonly string[] = fields.map((field: { readonly dataType: string }) => field.dataType);
  return { values: elementsOf(elementsOf(text, rowsAt)[0] ?? '[]'), types };
}

const literal = (text: string) => `'${text.replaceAll("'", "''")}'`;

const VALUES: readonly (readonly [type: string, ...literals: string[]])[] = [
  ['int2', '-32768'],
  ['integer', '2147483647', '0'],
  ['bigint', '9223372036854775807', '9007199254740993', '-9223372036854775808'],
  ['numeric', '12345678901234567890.123456789000', 'NaN', 'Infinity', '-0.00', '1e-20'],
  ['numeric(12,2)', '1.50'],
  ['real', '3.4028235e+38', 'NaN', '-Infinity', '0.1'],
  ['double precision', '1.7976931348623157e+308', '5e-324', 'Infinity', '-0', '1e+20'],
  ['money', '12.34'],
  ['boolean', 'true', 'false'],
  [
    'text',
    '',
    'NULL',
    ' a  b ',
    'a\nb\tc\r',
    '"quoted" \\back\\',
    '\u0001\u001f\u007f',
    '💩 漢字 \u202e',
    '{a,b}',
    '[1]',
    'true',
    "O'Neil",
  ],
  ['varchar(20)', 'x'],
  ['char(5)', 'ab'],
  ['"char"', 'c'],
  ['name', 'n'],
  ['uuid', '3f2b8c1e-0000-4000-8000-000000000001'],
  ['bytea', '\\x00ff', '\\x'],
  ['date', '2025-01-31', 'infinity', '0044-03-15 BC'],
  ['time', '09:30:00.123456'],
  ['timetz', '09:30:00+02'],
  ['interval', '1 year 2 mons 3 days 04:05:06.789', '-1 days'],
  [
    'timestamp',
    '2025-01-31 09:30:00.123456',
    '2025-01-31 09:30:00',
    '2025-01-31 09:30:00.1',
    'infinity',
    '0044-03-15 10:00:00 BC',
    '12025-01-01 00:00:00',
  ],
  [
    'timestamptz',
    '2025-01-31 09:30:00.123456+05:30',
    '2025-01-31 00:00:00Z',
    '-infinity',
    '0044-03-15 10:00:00+00 BC',
    '20250-01-01 00:00:00+00',
  ],
  ['timestamp(3) with time zone', '2025-01-31 09:30:00.120+00'],
  ['json', '{"a":  12345678901234567890.10, "a": [ ]}', '"text"', '12', 'true', '[1, {"b": "\\n"}]'],
  ['jsonb', '{"a": 12345678901234567890.10}', '"text"', '[1, [2]]', 'false', '[]'],
  ['xml', '<a>b</a>'],
  ['inet', '10.0.0.1/8'],
  ['macaddr', '08:00:2b:01:02:03'],
  ['bit(3)', '101'],
  ['point', '(1.5,2)'],
  ['box', '(2,2),(1,1)'],
  ['int4range', '[1,5)', 'empty'],
  ['tstzrange', '["2025-01-31 09:30:00+00",)'],
  ['int4multirange', '{[1,5),[7,9)}'],
  ['tsvector', "'cat':1 'fat':2"],
  ['mood', 'very happy'],
  ['pair', '(1,"a ""b"" c")', '(,)'],
  ['happening', '2025-01-31 09:30:00.5+00'],
  ['int2vector', '1 2 3'],
  ['int[]', '{1,NULL,3}', '{}', '{{1,2},{3,4}}', '{{{1},{2}}}'],
  ['bigint[]', '{9223372036854775807,NULL}'],
  ['numeric(10,2)[]', '{1.50,NaN}'],
  ['float8[]', '{1.5,NaN,-Infinity,NULL}'],
  ['boolean[]', '{t,f,NULL}'],
  ['text[]', '{1,NULL,"a b"}', '{"NULL","null","",a,"a,b","{}","\\"","\\\\"," x","a\nb",é}', '{{"a b",NULL},{"",c}}'],
  ['mood[]', '{sad,"very happy"}'],
  ['pair[]', '{"(1,\\"a b\\")",NULL}'],
  ['bytea[]', '{"\\\\x00ff",NULL}'],
  ['date[]', '{2025-01-31,infinity}'],
  ['timestamptz[]', '{"2025-01-31 09:30:00.12+00",NULL,infinity}'],
  ['timestamp[]', '{"2025-01-31 09:30:00"}'],
  ['json[]', '{"{\\"a\\": [1,  2]}","\\"text\\"",1,NULL}'],
  ['jsonb[]', '{"{\\"a\\": [1, 2]}","[1, 2]","[[3]]","\\"te,xt\\"",true}'],
  ['box[]', '{(2,2),(1,1);(4,4),(3,3)}'],
  ['int4range[]', '{"[1,5)",empty}'],
  ['amounts', '{1.50,NULL}'],
];

const BOOLEANS: Readonly<Record<string, string>> = { t: 'true', f: 'false' };

describe("a value's text", () => {
  it.each(VALUES)('is what PostgreSQL writes and reads: %s', async (type, ...literals) => {
    const columns = literals.map((value) => `${literal(value)}::${type}`);
    const { values, types } = await firstRow(`select ${columns.join(', ')}`);
    // A cast to text would change some values. Of a boolean, a word is easier to read than a letter.
    const { values: written } = await firstRow(`select ${columns.map((column) => `format('%s', ${column})`).join(', ')}`);
    const expected = written.map((json) => JSON.parse(json)).map((text) => (type === 'boolean' ? BOOLEANS[text] : text));
    expect(values.map((json, index) => textOf(json, types[index] ?? ''))).toEqual(expected);

    const sameAs = columns.map((column, index) => `(${column})::text is not distinct from ($${index + 1}::${type})::text`);
    const texts = values.map((json) => textOf(json, type));
    const { values: areSame } = await firstRow(`select ${sameAs.join(', ')}`, texts);
    expect(areSame).toEqual(literals.map(() => 'true'));
  });

  it('is none for NULL, which is not the empty text', async () => {
    const { values } = await firstRow("select null::text, '', 'null', null::int[], null::jsonb");
    expect(values.map((json) => textOf(json, 'text'))).toEqual([undefined, '', 'null', undefined, undefined]);
    expect(values.map(isNull)).toEqual([true, false, false, true, true]);
  });
});

describe('a preview', () => {
  it('is one line, in which nothing is unseen', () => {
    expect(previewOf(JSON.stringify('a\nb\tc\u001b[31m\u202egnp'), 'text')).toBe('a↵b⇥c<U+001B>[31m<U+202E>gnp');
    expect(lineOf('plain')).toBe('plain');
  });

  it.each([
    ['text', JSON.stringify('x'.repeat(1_000_000)), `${'x'.repeat(300)}…`],
    ['text', JSON.stringify('\n'.repeat(1_000_000)), `${'↵'.repeat(300)}…`],
    ['text', `"${'\\u0001'.repeat(5_000)}"`, `${'<U+0001>'.repeat(300)}…`],
    ['text', `"ab${'\\u0001'.repeat(5_000)}"`, `ab${'<U+0001>'.repeat(298)}…`],
    ['text', `"a${'\\\\'.repeat(5_000)}"`, `a${'\\'.repeat(299)}…`],
    ['jsonb', `[${'1, '.repeat(5_000)}1]`, `[${'1, '.repeat(5_000)}`.slice(0, 300).concat('…')],
    ['int4[]', `[${'1,'.repeat(50_000)}1]`, `{${'1,'.repeat(50_000)}`.slice(0, 300).concat('…')],
    ['text', JSON.stringify('x'.repeat(300)), 'x'.repeat(300)],
  ])('of a long %s is its beginning (%#)', (type, json, preview) => {
    expect(previewOf(json, type)).toBe(preview);
  });
});

describe('indented JSON', () => {
  it('keeps digits, repeated members and strings', () => {
    const json = '{"a":12345678901234567890.10,"a":[ ],"b":{},"c":["x, {y}: \\"z\\"",null,{"d":true}]}';
    expect(indentJson(json).split('\n')).toEqual([
      '{',
      '  "a": 12345678901234567890.10,',
      '  "a": [],',
      '  "b": {},',
      '  "c": [',
      '    "x, {y}: \\"z\\"",',
      '    null,',
      '    {',
      '      "d": true',
      '    }',
      '  ]',
      '}',
    ]);
  });

  it('leaves what is no JSON as it is', () => {
    for (const text of ['', '{a:  1}', '[1  2', 'null', '"a  b"', '-0.00']) expect(indentJson(text)).toBe(text);
  });
});
