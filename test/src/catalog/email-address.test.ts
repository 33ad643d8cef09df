import { describe, expect, test } from 'vitest';
import { emailKey, parseEmail } from '../../../src/catalog/organization.ts';

describe('an e-mail address', () => {
  test.each([
    ['a@acme.test', 'a@acme.test'],
    ['Jane.Doe+lists@Acme.TEST', 'Jane.Doe+lists@acme.test'],
    ["o'hara!#$%&*/=?^_`{|}~-@acme.test", "o'hara!#$%&*/=?^_`{|}~-@acme.test"],
    ['jörg@bücher.example', 'jörg@bücher.example'],
    ['jo\u0308rg@BU\u0308CHER.example', 'jörg@bücher.example'],
    ['用户@例え。テスト', '用户@例え.テスト'],
    ['отдел@пример.рф', 'отдел@пример.рф'],
    ['a@xn--bcher-kva.example', 'a@xn--bcher-kva.example'],
    ['a@نامه\u200cای.example', 'a@نامه\u200cای.example'],
    [`${'a'.repeat(242)}@acme.test`.slice(-254), `${'a'.repeat(242)}@acme.test`.slice(-254)],
  ])('is %s, stored as %s', (text, stored) => {
    expect(parseEmail(text)).toBe(stored);
  });

  test.each([
    '',
    '@',
    'acme.test',
    '@acme.test',
    'a@',
    'a@acme',
    'a@acme.t',
    'a@acme.123',
    'a@127.0.0.1',
    'a@acme..test',
    'a@-acme.test',
    'a@ac_me.test',
    'a@acme.test/x',
    'a@ac%41me.test',
    'a@xn--a.test',
    `a@${'x'.repeat(64)}.test`,
    '.a@acme.test',
    'a..b@acme.test',
    'a b@acme.test',
    'a@b@acme.test',
    '"a"@acme.test',
    'a\u200bb@acme.test',
    'a\u202eb@acme.test',
    'a\u2028b@acme.test',
    'a\u3164@acme.test',
    'a\ud800@acme.test',
    `${'ö'.repeat(123)}@acme.test`,
    `${'a'.repeat(255)}@acme.test`,
  ])('is not %j', (text) => {
    expect(parseEmail(text)).toBeUndefined();
  });

  test.each([
    ['JANE@acme.test', 'jane@acme.test'],
    ['ÄRGER@acme.test', 'ärger@acme.test'],
    ['a@bücher.example', 'a@xn--bcher-kva.example'],
    ['a@faß.example', 'a@xn--fa-hia.example'],
  ])('%s is the same as %s', (one, other) => {
    expect(emailKey(parseEmail(one) ?? '')).toBe(emailKey(parseEmail(other) ?? ' '));
  });

  test('is another where only an accent differs', () => {
    expect(emailKey('jörg@acme.test')).not.toBe(emailKey('jorg@acme.test'));
  });
});
