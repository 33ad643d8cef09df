import { expect, test } from 'vitest';
import { arrayEncoder } from '../../../src/sql/json/array.ts';
import { JsonBuffer } from '../../../src/sql/json/buffer.ts';
import { encodeTimestamp, encodeTimestamptz } from '../../../src/sql/json/datetime.ts';
import { encodeText, type ValueEncoder } from '../../../src/sql/json/scalars.ts';
import { SeededRandom } from '../../support/random.ts';

/** As if the value stood in the middle of a message. */
function encode(encoder: ValueEncoder, text: string): string {
  const source = Buffer.from(`<<${text}>>`);
  const out = new JsonBuffer();
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

test('texts of any length and content are JSON strings with the same characters', () => {
  const random = new SeededRandom(20_240_102);
  const alphabet = ['a', 'z', '"', '\\', '\n', '\u0001', 'é', '€', '😀', ' '];
  for (let round = 0; round < 2_000; round++) {
    const length = random.below(50) === 0 ? 20_000 : random.below(120);
    const plain = random.below(100);
    const text = Array.from({ length }, () => (random.below(100) < plain ? 'x' : alphabet[random.below(alphabet.length)])).join('');
    expect(JSON.parse(encode(encodeText, text))).toBe(text);
  }
});

test('arrays as Postgres writes them: quotes, backslashes, bounds, an element delimiter of its own', () => {
  expect(encode(arrayEncoder(encodeText), '{a,"b,\\"c\\\\",NULL,"NULL"}')).toBe('["a","b,\\"c\\\\",null,"NULL"]');
  expect(encode(arrayEncoder(encodeText), '[0:1][2:2]={{"="},{b}}')).toBe('[["="],["b"]]');
  expect(encode(arrayEncoder(encodeText, ';'), '{(1,2),(3,4);(5,6),(7,8)}')).toBe('["(1,2),(3,4)","(5,6),(7,8)"]');
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
