import { LosslessNumber } from 'lossless-json';
import { describe, expect, it } from 'vitest';
import { parseJson, readJsonInSlices } from '../../http/json-body.ts';
import { DisconnectSignal } from '../../src/router/lease.ts';
import { SeededRandom } from '../support/random.ts';

const read = (text: string) => readJsonInSlices(Buffer.from(text));

/** The value, or that there is none. */
async function outcome(work: () => unknown): Promise<unknown> {
  try {
    return { value: await work() };
  } catch (error) {
    return (error as Error).message.replace(/^(the body is not valid JSON): .*/s, '$1');
  }
}

async function expectTheSame(text: string): Promise<void> {
  if (text === '') return;
  expect(await outcome(() => read(text)), text).toEqual(await outcome(() => parseJson(Buffer.from(text))));
}

const TEXTS = [
  'null',
  ' true ',
  '"x"',
  '-0',
  '[]',
  '{}',
  '[ ]',
  '{ }',
  '{"params":[1.0,1e5,-0,"1.0",[1.10,{"params":[2.0]}],{"a":3.0}],"params2":[1.0],"n":1.0}',
  '{"statements":[{"params":[ 1.0 ]},{"sql":"","params" : [{"a":1.0}],"t":2.0}],"x":["params",[1.0]]}',
  '[1,2.5,-3e2,1e999,9007199254740993,123456789012345,1234567890123456,0.1234567890123456789,5e-324,-0,0,10]',
  '{"a":{"b":[{"c":null}]},"":"","é":"😀","\\u0061":"\\ud83d\\ude00\\n\\"\\\\"}',
  '{"__proto__":{"polluted":true},"constructor":1,"2":1,"1":2,"a":1,"a":2}',
  '\ufeff[1]',
  `[${'[1],'.repeat(3_000)}"x"]`,
  '['.repeat(100) + ']'.repeat(100),
  '['.repeat(101) + ']'.repeat(101),
  '"\\ud800"',
  '{"\\udc00":1}',
];

const MALFORMED = [' ', '[', '{', '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', '[1,]', '[,1]', '[1 2]', '{"a" 1}', '{1:2}', '{a:1}']
  .concat([
    '{} {}',
    '[1]]',
    '}',
    '[}',
    '{]',
    '{"a":1]',
    '01',
    '-',
    '+1',
    '1.',
    '.5',
    '1e',
    '--1',
    '1e999"x"',
    '{1e999:1}',
    '"x"1e999',
    'nul',
    'truex',
    'NaN',
  ])
  .concat(['"', '"\\x"', '"\\u12"', '"a\nb"', '"\u0001"', "'a'", '/**/1', '[1e9.5]', '00', '-01', '1234567890123456789.', '"\\"']);

describe('read bit by bit, a text has the value that it has read at once', () => {
  it.each(TEXTS)('%s', expectTheSame);

  it.each(MALFORMED)('and is refused where it is refused: %s', expectTheSame);

  it('whatever is taken out of it, put into it, or changed', async () => {
    const random = new SeededRandom(7);
    const marks = '[]{}",:0123456789.eE+-\\u tfn\n';
    for (let n = 0; n < 3_000; n += 1) {
      const text = TEXTS[random.below(11)] ?? '';
      const at = random.below(text.length + 1);
      const mark = marks[random.below(marks.length)] ?? '';
      await expectTheSame(text.slice(0, at) + mark + text.slice(at + random.below(2)));
      await expectTheSame(text.slice(0, at) + text.slice(at + 1 + random.below(3)));
    }
  });
});

describe('a large text', () => {
  it('of numbers with many digits is read while others have their turn', async () => {
    const count = 500_000;
    let turns = 0;
    const counting = setInterval(() => (turns += 1), 1);
    const value = (await read(`[${'1e999,'.repeat(count)}0]`)) as unknown[];
    clearInterval(counting);
    expect(value).toHaveLength(count + 1);
    expect(value.at(-2)).toEqual(new LosslessNumber('1e999'));
    expect(turns).toBeGreaterThan(5);
  });

  const SPECIALS = [
    '\\ud83d\\ude00\\ud83d\\ude00',
    'é😀é😀',
    '\\n\\"\\\\\\u0041',
    '\\ud800x',
    '\\ud800\\ud800\\udc00',
    '\\udc00\\ud800',
    '\\x',
    '\\u00',
    '\t',
  ];
  it.each(SPECIALS)('with %j at any place of a long string is what JSON.parse makes of it', async (special) => {
    for (let before = 0; before < 16; before += 1) {
      const string = `"${'x'.repeat(65_536 - before)}${special}${'é'.repeat(70_000)}${special}"`;
      await expectTheSame(string);
      await expectTheSame(`{${string}:${string}}`);
    }
  });

  it('of one string is read while others have their turn', async () => {
    let turns = 0;
    const counting = setInterval(() => (turns += 1), 1);
    expect(await read(`"${'\\u00e9é'.repeat(2_000_000)}"`)).toBe('éé'.repeat(2_000_000));
    clearInterval(counting);
    expect(turns).toBeGreaterThan(5);
  });

  it('is read no further once nobody waits for it', async () => {
    const disconnect = new DisconnectSignal();
    const reading = readJsonInSlices(Buffer.from(`[${'1e999,'.repeat(500_000)}0]`), disconnect);
    disconnect.happen();
    await expect(reading).rejects.toMatchObject({ kind: 'query_canceled' });
  });

  it.each([
    ['more values than there is memory for', `[${'[],'.repeat(1_000_000)}0]`, 'the JSON body holds more than 1000000 values'],
    [
      'more members than anybody names',
      `[{${Array.from({ length: 100_001 }, (_, n) => `"${n}":0`)}}]`,
      'an object of the JSON body has more than 100000 members',
    ],
    [
      'more fields than any request has',
      `{${Array.from({ length: 1_001 }, (_, n) => `"${n}":0`)}}`,
      'an object of the JSON body has more than 1000 members',
    ],
    ['a number without end', `[${'9'.repeat(150_001)}]`, 'a number of the JSON body has more than 150000 digits'],
    ['levels without end', '['.repeat(1_000_000), 'the JSON body is nested deeper than 100 levels'],
    ['a string without end', `"${'x'.repeat(1_000)}`, /^the body is not valid JSON/],
  ])('is refused with %s', async (_name, text, message) => {
    await expect(read(text)).rejects.toThrow(message);
  });

  it('is refused where it is not UTF-8', async () => {
    await expect(readJsonInSlices(Buffer.from([0x22, 0xff, 0x22]))).rejects.toThrow('the body is not valid UTF-8');
  });
});
