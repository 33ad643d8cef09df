import { expect, test } from 'vitest';
import { apiKeyPrefix, digestApiKey, generateApiKey, isWellFormedApiKey } from '../../../src/auth/tokens.ts';

/** CRC-32 of `pst_0123456789ABCDEFGHIJKLMNOPQRST` is 4O7hJx in base62. */
const KEY = 'pst_0123456789ABCDEFGHIJKLMNOPQRST4O7hJx';

/** A source of bytes that are given, then zero. */
function bytesFrom(...given: number[]): (length: number) => Uint8Array {
  return (length) => Uint8Array.from({ length }, () => given.shift() ?? 0);
}

test('a key is made of random base62 characters and their checksum', () => {
  expect(generateApiKey(bytesFrom(...Array(30).keys()))).toBe(KEY);
});

test('bytes that would make some characters likelier are drawn again', () => {
  expect(generateApiKey(bytesFrom(248, 255, 61, 247, 62, 63)).slice(0, 8)).toBe('pst_zz01');
});

test('keys are well-formed and differ', () => {
  const keys = Array.from({ length: 200 }, () => generateApiKey());
  for (const key of keys) {
    expect(key).toMatch(/^pst_[0-9A-Za-z]{36}$/);
    expect(isWellFormedApiKey(key)).toBe(true);
  }
  expect(new Set(keys).size).toBe(200);
});

test('every changed character is noticed, and so is every exchange of two neighbours', () => {
  expect(isWellFormedApiKey(KEY)).toBe(true);
  for (let i = 0; i < KEY.length; i++) {
    const other = KEY.charAt(i) === 'x' ? 'y' : 'x';
    expect(isWellFormedApiKey(KEY.slice(0, i) + other + KEY.slice(i + 1))).toBe(false);
    if (i === 0 || KEY.charAt(i) === KEY.charAt(i - 1)) continue;
    expect(isWellFormedApiKey(KEY.slice(0, i - 1) + KEY.charAt(i) + KEY.charAt(i - 1) + KEY.slice(i + 1))).toBe(false);
  }
});

test.each(['', 'pst_', ` ${KEY}`, `${KEY}\n`, `${KEY}0`, KEY.slice(0, -1), KEY.replace('pst_', 'PST_'), 'ключ', 'x'.repeat(100_000)])(
  'no key: %j',
  (text) => {
    expect(isWellFormedApiKey(text)).toBe(false);
  },
);

test('the digest is SHA-256 and the prefix is short', () => {
  expect(digestApiKey(KEY).toString('hex')).toBe('ffee5d62b69ce7a57dfe2ec1b0c64a60d2ad616ea6df87240b13092492cbbb14');
  expect(apiKeyPrefix(KEY)).toBe('pst_012345');
});
