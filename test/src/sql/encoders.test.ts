import { expect, test } from 'vitest';
import { JsonBuffer } from '../../../src/sql/json-buffer.ts';
import {
  arrayEncoder,
  encodeFloat,
  encodeText,
  encodeTimestamp,
  encodeTimestamptz,
  encodeVerbatim,
  type Field,
  objectRows,
  type ValueEncoder,
} from '../../../src/sql/json-values.ts';
import { SeededRandom } from '../../support/random.ts';

/** As if the value stood in the middle of a message, between bytes that are none of its business. */
function encode(encoder: ValueEncoder, text: string, room?: number): string {
  const source = Buffer.from(`"\\${text}\\"`);
  const out = new JsonBuffer(room);
  out.text('before ');
  encoder(out, source, 2, source.length - 2);
  out.text(' after');
  const all = out.take().toString();
  expect(all.startsWith('before ') && all.endsWith(' after')).toBe(true);
  return all.slice(7, -6);
}

test('every character survives, and control characters are escaped', () => {
  for (let code = 0; code < 0x800; code++) {
    const text = `a${String.fromCharCode(code)}b`;
    const json = encode(encodeText, text);
    expect(JSON.parse(json)).toBe(text);
    expect([...json].every((character) => character >= ' ')).toBe(true);
  }
});

/** All that needs an escape, what comes right before and behind that, and characters of several bytes. */
const PARTICULAR = [
  ...Array.from({ length: 0x24 }, (_, code) => String.fromCharCode(code)),
  '[',
  '\\',
  ']',
  '~',
  '\x7f',
  '\x80',
  'é',
  '€',
  '😀',
];

test.each(PARTICULAR)('%j is written as JSON.stringify does, anywhere in a text', (particular) => {
  for (let length = 1; length <= 40; length++) {
    for (let at = 0; at < length; at++) {
      const text = `${'x'.repeat(at)}${particular}${'y'.repeat(length - at - 1)}`;
      expect(encode(encodeText, text)).toBe(JSON.stringify(text));
    }
  }
});

test('two that need an escape, with anything between them', () => {
  for (const [first, second] of ['"\\', '\\"', '""', '\n"', '\0\x1f'].map((pair) => [...pair])) {
    for (let between = 0; between <= 20; between++) {
      const text = `12345${first}${'é'.repeat(between)}${second}`;
      expect(encode(encodeText, text)).toBe(JSON.stringify(text));
    }
  }
});

test('memory grows in the middle of a text', () => {
  for (let room = 1; room <= 80; room++) {
    const text = `0123456789"0123456789\n\u0001\u0001\u0001\\0123456789€`;
    expect(encode(encodeText, text, room)).toBe(JSON.stringify(text));
  }
});

test('texts of several messages in turn', () => {
  const out = new JsonBuffer();
  const sources = ['a text of one message', 'and one "of another"'].map((text) => Buffer.from(text));
  for (const source of [...sources, ...sources]) encodeText(out, source, 0, source.length);
  expect(out.take().toString()).toBe('"a text of one message""and one \\"of another\\""'.repeat(2));
});

const COLUMN: Omit<Field, 'name'> = {
  tableOid: 0,
  columnNumber: 0,
  dataTypeOid: 25,
  dataTypeSize: -1,
  typeModifier: -1,
  format: 0,
  type: { oid: 25, name: 'text', scalarOid: 25, delimiter: ',' },
};

test('columns have names of any length', () => {
  for (let length = 1; length <= 20; length++) {
    const names = ['a', 'b', 'é'].map((letter) => letter.repeat(length));
    const out = new JsonBuffer(1);
    const row = Buffer.from('\0\x03\0\0\0\x01x\xff\xff\xff\xff\0\0\0\0', 'latin1');
    objectRows(names.map((name) => ({ ...COLUMN, name })))(out, row, 0);
    expect(out.whole().toString()).toBe(`{"${names[0]}":"x","${names[1]}":null,"${names[2]}":""}`);
  }
});

test('texts of any length and content are JSON strings with the same characters', () => {
  const random = new SeededRandom(20_240_102);
  const alphabet = ['a', 'z', '"', '\\', '\n', '\u0001', 'é', '€', '😀', ' '];
  for (let round = 0; round < 2_000; round++) {
    const length = random.below(50) === 0 ? 20_000 : random.below(120);
    const plain = random.below(100);
    const text = Array.from({ length }, () => (random.below(100) < plain ? 'x' : alphabet[random.below(alphabet.length)])).join('');
    expect(encode(encodeText, text)).toBe(JSON.stringify(text));
  }
});

test('arrays as Postgres writes them: quotes, backslashes, bounds, an element delimiter of its own', () => {
  expect(encode(arrayEncoder(encodeText), '{a,"b,\\"c\\\\",NULL,"NULL"}')).toBe('["a","b,\\"c\\\\",null,"NULL"]');
  expect(encode(arrayEncoder(encodeText), '[0:1][2:2]={{"="},{b}}')).toBe('[["="],["b"]]');
  expect(encode(arrayEncoder(encodeText, ';'), '{(1,2),(3,4);(5,6),(7,8)}')).toBe('["(1,2),(3,4)","(5,6),(7,8)"]');
});

/** What comes of a value in parts, and how much at most between two of them. */
function inParts({ inParts }: ValueEncoder, text: string): { written: string; longest: number } {
  const source = Buffer.from(`"\\${text}\\"`);
  const out = new JsonBuffer();
  const pieces: Buffer[] = [];
  for (const _ of inParts?.(out, source, 2, source.length - 2) ?? []) pieces.push(out.take());
  pieces.push(out.take());
  return { written: Buffer.concat(pieces).toString(), longest: Math.max(...pieces.map(({ length }) => length)) };
}

const LITERALS = new Map([
  ['nothing', [encodeText, '']],
  ['plain text', [encodeText, 'x'.repeat(300_000)]],
  ['quotes', [encodeText, '"'.repeat(300_000)]],
  ['control characters', [encodeText, '\u0001'.repeat(300_000)]],
  ['text of several bytes a character', [encodeText, 'é€😀'.repeat(40_000)]],
  ['JSON', [encodeVerbatim, `["${'x'.repeat(300_000)}"]`]],
  ['no array literal', [arrayEncoder(encodeText), 'x'.repeat(300_000)]],
  ['an empty array', [arrayEncoder(encodeText), '{}']],
  ['NULLs', [arrayEncoder(encodeVerbatim), `{${Array(90_000).fill('NULL')}}`]],
  ['numbers and NULLs', [arrayEncoder(encodeVerbatim), `{${Array(30_000).fill('1,-20,NULL,3')}}`]],
  ['floats', [arrayEncoder(encodeFloat), `{${Array(30_000).fill('1.5e-10,-Infinity,NaN,{2,NULL}')}}`]],
  ['a number of many digits', [arrayEncoder(encodeVerbatim), `{1,${'1'.repeat(300_000)},2}`]],
  ['timestamps', [arrayEncoder(encodeTimestamptz), `{${Array(10_000).fill('"2024-01-02 03:04:05.1+00"')}}`]],
  ['texts with escapes', [arrayEncoder(encodeText), `{${Array(30_000).fill('a,"b c","\\"\\\\",NULL,"NULL"')}}`]],
  ['a long text in quotes', [arrayEncoder(encodeText), `{a,"${'x y'.repeat(100_000)}",b}`]],
  ['a long text without quotes', [arrayEncoder(encodeText), `{a,${'xyz'.repeat(100_000)},b}`]],
  ['long texts of escapes', [arrayEncoder(encodeText), `{"${'\\"'.repeat(90_001)}","${'\\\\'.repeat(90_000)}"}`]],
  ['a long text and an escape anywhere', [arrayEncoder(encodeText), `{"${'x'.repeat(32_767)}\\"${'y'.repeat(32_765)}\\\\"}`]],
  ['arrays in arrays', [arrayEncoder(arrayEncoder(encodeText)), `{${Array(20_000).fill('"{a,\\"b\\\\\\\\c\\"}"')}}`]],
] satisfies [string, [ValueEncoder, string]][]);

test.each([...LITERALS])('%s: in parts it is the same as at once, and no part is long', (_, [encoder, text]) => {
  const { written, longest } = inParts(encoder, text);
  expect(written === encode(encoder, text)).toBe(true);
  expect(longest).toBeLessThan(300_000);
});

test('an array of anything, in parts and at once', () => {
  const random = new SeededRandom(20_241_123);
  const plain = ['NULL', 'a', 'null', 'x'.repeat(40_000), '{b,{c}}'];
  const quoted = ['', 'a b', '\\"', '\\\\', 'é', 'NULL', 'y'.repeat(20_000)];
  for (let round = 0; round < 300; round++) {
    const elements = Array.from({ length: random.below(60) }, () => {
      if (random.below(2) === 0) return plain[random.below(plain.length)];
      return `"${Array.from({ length: random.below(8) }, () => quoted[random.below(quoted.length)]).join('')}"`;
    });
    const text = `{${elements}}`;
    const encoder = arrayEncoder(encodeText);
    const whole = encode(encoder, text);
    expect(inParts(encoder, text).written === whole).toBe(true);
    JSON.parse(whole);
  }
});

test('numbers that are none in JSON', () => {
  expect(encode(arrayEncoder(encodeFloat), '{1.5,-Infinity,NaN,-2e-7,NULL,Infinity}')).toBe(
    '[1.5,"-Infinity","NaN",-2e-7,null,"Infinity"]',
  );
  expect(encode(arrayEncoder(encodeVerbatim), '{{1,-2},{NULL,3}}')).toBe('[[1,-2],[null,3]]');
  expect(encode(arrayEncoder(encodeVerbatim), '{12,"{\\"a\\": 1}",true,null}')).toBe('[12,{"a": 1},true,null]');
});

test('what is no array literal is passed on as text', () => {
  expect(encode(arrayEncoder(encodeText), '1 2 3')).toBe('"1 2 3"');
});

test.each([
  '',
  'infinity',
  '-infinity',
  '02.01.2024 03:04:05 UTC',
  'Tue Jan 02 03:04:05 2024 UTC',
  '2024-01-02 03:04',
  '2024-01-02 03:04:05x',
])('what is no ISO timestamp is passed on as text: %j', (text) => {
  expect(encode(encodeTimestamp, text)).toBe(JSON.stringify(text));
  expect(encode(encodeTimestamptz, text)).toBe(JSON.stringify(text));
});

test.each<[string, string]>([
  ['2024-01-02 03:04:05+00', '2024-01-02T03:04:05.000000Z'],
  ['2024-01-02 03:04:05.12+00', '2024-01-02T03:04:05.120000Z'],
  ['2024-01-01 00:00:00+01', '2023-12-31T23:00:00.000000Z'],
  ['2024-02-28 23:30:00.5-02:30', '2024-02-29T02:00:00.500000Z'],
  ['1883-11-18 12:03:57-00:01:15', '1883-11-18T12:05:12.000000Z'],
  ['0001-01-01 00:00:00+01', '0001-12-31T23:00:00.000000Z BC'],
  ['0001-12-31 23:30:00-01 BC', '0001-01-01T00:30:00.000000Z'],
  ['294276-12-31 23:59:59.999999+00', '294276-12-31T23:59:59.999999Z'],
  ['4714-11-24 00:00:00+00 BC', '4714-11-24T00:00:00.000000Z BC'],
])('%s is %s', (text, expected) => {
  expect(encode(encodeTimestamptz, text)).toBe(`"${expected}"`);
});
