import { LosslessNumber } from 'lossless-json';
import { describe, expect, it } from 'vitest';
import { parseJson } from '../../http/json-body.ts';

const parse = (text: string) => parseJson(Buffer.from(text));

describe('numbers', () => {
  it('that a double holds are numbers', () => {
    expect(parse('[0, -1, 1.5, 9007199254740, 1e5, -2.5E-3, 123456789012345]')).toEqual([
      0, -1, 1.5, 9007199254740, 100000, -0.0025, 123456789012345,
    ]);
  });

  it('that are written as programs write them are numbers, whatever their digits', () => {
    expect(parse('[0.12345678901234568, 1.7976931348623157e+308, 5e-324, 9007199254740992]')).toEqual([
      0.12345678901234568, 1.7976931348623157e308, 5e-324, 9007199254740992,
    ]);
  });

  it.each([
    '9007199254740993',
    '-9223372036854775808',
    '0.1234567890123456789',
    '123456789.123456789',
    '1e400',
    '1e-400',
    '12345678901234567890123456789012345678901234567890',
  ])('%s keeps its digits', (digits) => {
    const value = parse(`{"params":[1,${digits},"x"]}`);
    expect(value).toEqual({ params: [1, new LosslessNumber(digits), 'x'] });
  });

  it('keep their digits wherever they stand, and however many there are', () => {
    const value = parse(`{"a":{"b":[1e999,"x",{"c":-1e999}]},"many":[${'1e999,'.repeat(100_000)}0]}`) as { a: object; many: unknown[] };
    expect(value.a).toEqual({ b: [new LosslessNumber('1e999'), 'x', { c: new LosslessNumber('-1e999') }] });
    expect(value.many).toHaveLength(100_001);
    expect(value.many.at(-2)).toEqual(new LosslessNumber('1e999'));
  });

  it('keep their digits in params, and nowhere else', () => {
    const value = parse('{"params":[1.0,2,[1e5]],"timeoutMs":1.0,"sql":"params"}');
    expect(value).toEqual({ params: [new LosslessNumber('1.0'), 2, [new LosslessNumber('1e5')]], timeoutMs: 1, sql: 'params' });
  });

  it('are left alone inside strings', () => {
    expect(parse('["9007199254740993", "\\"9007199254740993", "\\\\"]')).toEqual(['9007199254740993', '"9007199254740993', '\\']);
  });

  it('zeros are numbers, however long they are written', () => {
    expect(parse('[0.00000000000000000000, -0]')).toEqual([0, -0]);
  });

  it.each(['01234567890123456789', '12345678901234567.', '--12345678901234567', '+12345678901234567'])('%s is no JSON', (text) => {
    expect(() => parse(text)).toThrow(/^the body is not valid JSON/);
  });
});

describe('keys', () => {
  it.each(['1', '12345678901234567890'])('__proto__ is a key like any other (beside %s)', (number) => {
    const value = parse(`{"n":${number},"__proto__":{"polluted":true}}`);
    expect(Object.keys(value as object)).toEqual(['n', '__proto__']);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect((value as { polluted?: boolean }).polluted).toBeUndefined();
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });
});

describe('refused with a clear reason', () => {
  it.each([
    ['nothing', '', 'the request has no body; a JSON document is expected'],
    ['half a document', '{"sql":', /^the body is not valid JSON: /],
    ['two documents', '{} {}', /^the body is not valid JSON: /],
    ['half a surrogate pair', '{"sql":"\\ud800"}', 'the body holds half of a surrogate pair (\\ud800 to \\udfff)'],
    ['half a surrogate pair in a key', '{"\\udc00":1}', 'the body holds half of a surrogate pair (\\ud800 to \\udfff)'],
    ['101 levels', '['.repeat(101) + ']'.repeat(101), 'the JSON body is nested deeper than 100 levels'],
    ['a million levels', '['.repeat(1_000_000), 'the JSON body is nested deeper than 100 levels'],
    ['a million levels of objects', '{"a":'.repeat(1_000_000), 'the JSON body is nested deeper than 100 levels'],
  ])('%s', (_name, text, message) => {
    expect(() => parse(text)).toThrow(message);
  });

  it('bytes that are not UTF-8', () => {
    expect(() => parseJson(Buffer.from([0x22, 0xff, 0x22]))).toThrow('the body is not valid UTF-8');
  });
});

describe('taken', () => {
  it('100 levels', () => {
    expect(() => parse('['.repeat(100) + ']'.repeat(100))).not.toThrow();
  });

  it('brackets inside strings, whatever their number', () => {
    expect(parse(JSON.stringify('['.repeat(1_000)))).toBe('['.repeat(1_000));
  });

  it('whole surrogate pairs, escaped or not', () => {
    expect(parse('["\\ud83d\\ude00", "😀"]')).toEqual(['😀', '😀']);
  });

  it('a byte order mark', () => {
    expect(parse('\ufeff{"a":1}')).toEqual({ a: 1 });
  });

  it('16 MiB of one string, and of numbers with many digits, in reasonable time', () => {
    const long = 'x'.repeat(16 * 1_024 * 1_024);
    expect(parse(`{"a":"${long}","n":12345678901234567890}`)).toEqual({ a: long, n: new LosslessNumber('12345678901234567890') });
  });
});
