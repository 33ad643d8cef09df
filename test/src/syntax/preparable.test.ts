import { expect, it } from 'vitest';
import { canBePreparedAgain } from '../../../src/syntax/session-traits.ts';

const MOMENTS = ['now', 'today', 'tomorrow', 'yesterday'];
/** How a word may stand in a literal. */
const WRITTEN: readonly ((word: string) => string)[] = [
  (word) => `'${word}'`,
  (word) => `' ${word.toUpperCase()} '`,
  (word) => `'on ${word}'`,
  (word) => `'${word}()'`,
  (word) => `'${word} 12:00'`,
  (word) => `'{${word}}'`,
  (word) => `'{"${word}"}'`,
  (word) => `'{${word[0]}\\${word.slice(1)}}'`,
  (word) => `'(1,${word[0]}"${word.slice(1)}")'`,
  (word) => `'(1,"on""${word}")'`,
  (word) => `'[2000-01-01,${word})'`,
  (word) => `E'${word}'`,
  (word) => `E'\\x${word.charCodeAt(0).toString(16)}${word.slice(1)}'`,
  (word) => `E'\\${word.charCodeAt(0).toString(8)}${word.slice(1)}'`,
  (word) => `U&'\\00${word.charCodeAt(0).toString(16)}${word.slice(1)}'`,
  (word) => `U&'${word.slice(0, 1)}!+0000${word.charCodeAt(1).toString(16)}${word.slice(2)}' UESCAPE '!'`,
  (word) => `$$${word}$$`,
  (word) => `$body$ ${word} $body$`,
  (word) => `'${word[0]}'\n '${word.slice(1)}'`,
  (word) => `'${word[0]}' -- here it goes on\n '${word.slice(1)}'`,
  // With standard_conforming_strings off.
  (word) => `'\\${word.charCodeAt(0).toString(8)}${word.slice(1)}'`,
  (word) => `'\\' || ', '${word}'`,
];

it.each(MOMENTS.flatMap((word) => WRITTEN.map((write) => write(word))))(
  'a text with %s becomes another when it is prepared again',
  (literal) => {
    expect(canBePreparedAgain(`SELECT ${literal}::timestamptz`)).toBe(false);
    expect(canBePreparedAgain(`INSERT INTO t (a, b) VALUES ($1, ${literal})`)).toBe(false);
  },
);

it.each([
  'SELECT * FROM t WHERE a = $1',
  "SELECT * FROM t WHERE status = 'unknown' AND kind IN ('snow', 'knows', 'todays')",
  "UPDATE t SET seen = now(), a = 'x' WHERE day = current_date",
  `SELECT "now", now, today.yesterday FROM today WHERE a = 'b'`,
  "SELECT 'a' /* 'now' */, 'b' -- 'today'",
  "SELECT 'epoch'::timestamptz, 'infinity'::date, 'allballs'::timetz, '2020-01-01'::date",
  "SELECT 'no', 'w', 'n' || 'ow'",
  "SELECT E'a\\n', U&'\\0061', $$b$$, $1 FROM t",
  "SELECT 'it''s', b'1', x'1f', 'C:\\dir'",
])('%s does not', (text) => {
  expect(canBePreparedAgain(text)).toBe(true);
});

it('does not read long texts, and is cautious where they may have one', () => {
  expect(canBePreparedAgain(`SELECT 'a', ${'1, '.repeat(10_000)}2`)).toBe(true);
  expect(canBePreparedAgain(`SELECT 'a', ${'1, '.repeat(10_000)}now()`)).toBe(false);
  expect(canBePreparedAgain(`SELECT E'a\\\\b', ${'1, '.repeat(10_000)}2`)).toBe(false);
});
