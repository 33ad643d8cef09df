import { describe, expect, test } from 'vitest';
import { LeadingWhitespace } from '../../../src/syntax/scanner.ts';

const TEXTS: readonly (readonly [blank: string, code: string])[] = [
  ['', 'select 1'],
  [' \t\n\r\f\v', 'select 1'],
  ['-- a comment\n', 'select 1'],
  ['-- a comment\r -- /* another\n', 'select 1'],
  ['/* a comment */', 'select 1'],
  ['/* one */ /*/ two /*/* three ***/ */**/ -- x\n /**/', 'select 1'],
  ['/**/', '- 1'],
  ['--\n', '-/**/ 1'],
  ['/* a */', '/ 1'],
  ['', '/ * no comment */'],
  ['', '* /'],
  ['\n', '-'],
];

describe('code behind white space and comments', () => {
  test.each(TEXTS)('%j %j', (blank, code) => {
    const text = blank + code;
    // `-` and `/` at the very end may still become a comment.
    const isOpen = code.length === 1 && '-/'.includes(code);
    expect(new LeadingWhitespace().codeStart(text)).toBe(isOpen ? -1 : blank.length);
  });

  test.each(TEXTS)('split anywhere: %j %j', (blank, code) => {
    const text = `${blank}${code} end`;
    for (let cut = 0; cut <= text.length; cut += 1) {
      const found = new LeadingWhitespace();
      const [first, second] = [found.codeStart(text.slice(0, cut)), found.codeStart(text.slice(cut))];
      const at = first >= 0 ? first : cut + second;
      // Where a character of its own is cut off that might have begun a comment, the code is told to begin behind it.
      const expected = cut === blank.length + 1 && first < 0 ? cut : blank.length;
      expect([cut, at]).toEqual([cut, expected]);
      if (first >= 0) expect(second).toBe(0);
    }
  });

  test('of comments that are never closed there is none', () => {
    for (const text of ['', '  ', '--', '-- x', '/*', '/* /* */', '/*/']) expect(new LeadingWhitespace().codeStart(text)).toBe(-1);
  });

  test('is found behind many megabytes at once', () => {
    for (const blank of [' '.repeat(8_000_000), '/**/'.repeat(2_000_000), `${'/*'.repeat(2_000_000)}${'*/'.repeat(2_000_000)}`]) {
      const before = process.cpuUsage();
      expect(new LeadingWhitespace().codeStart(`${blank}x`)).toBe(blank.length);
      expect(process.cpuUsage(before).user).toBeLessThan(20_000_000);
    }
  });
});
