import { describe, expect, test } from 'vitest';
import { leadingWords, tokens } from '../../../src/syntax/scanner.ts';

function texts(sql: string, standardStrings = true): string[] {
  return [...tokens(sql, { standardStrings })].map(({ start, end }) => sql.slice(start, end));
}

describe('tokens', () => {
  test.each<[string, string[]]>([
    ['select a,b from t', ['select', 'a', ',', 'b', 'from', 't']],
    ["'it''s'", ["'it''s'"]],
    ["'a\\' b", ["'a\\'", 'b']],
    ["E'a\\' b'", ["E'a\\' b'"]],
    ["e'\\\\' b", ["e'\\\\'", 'b']],
    ["E'a'\n  'b\\'c' d", ["E'a'\n  'b\\'c'", 'd']],
    ["'a' 'b'", ["'a'", "'b'"]],
    ["B'01' x'ff' N'n' U&'\\0041'", ["B'01'", "x'ff'", "N'n'", "U&'\\0041'"]],
    ['"a""b;" U&"c"', ['"a""b;"', 'U&"c"']],
    ['$$a;b$$ c', ['$$a;b$$', 'c']],
    ['$x$ $y$ $$ $x$ c', ['$x$ $y$ $$ $x$', 'c']],
    ['a$b$c', ['a$b$c']],
    ['$1 $23', ['$1', '$23']],
    ['1.5e10 0x1F 1_000', ['1.5e10', '0x1F', '1_000']],
    ['a -- b\nc', ['a', 'c']],
    ['a --b\rc', ['a', 'c']],
    ['a /* b /* c */ d */ e', ['a', 'e']],
    ['a/*/ b */c', ['a', 'c']],
    ['a-->b', ['a']],
    ['a->>b', ['a', '-', '>', '>', 'b']],
    ['größe ünï', ['größe', 'ünï']],
    ['a\f\v\tb', ['a', 'b']],
  ])('%s', (sql, expected) => {
    expect(texts(sql)).toEqual(expected);
  });

  test('a backslash escapes in plain strings where standard_conforming_strings is off', () => {
    expect(texts("'a\\' b' c", false)).toEqual(["'a\\' b'", 'c']);
  });

  test.each(["'never closed", '"never', '$a$ never $b$', "E'\\"])('what is never closed reaches to the end: %s', (sql) => {
    expect(texts(sql)).toEqual([sql]);
  });

  test('a comment that is never closed hides the rest', () => {
    expect(texts('a /* b /* c */')).toEqual(['a']);
  });

  test('reads two million characters of string in no time', () => {
    const sql = `select '${'x'.repeat(2_000_000)}', E'${'\\n'.repeat(1_000_000)}'`;
    const before = process.cpuUsage();
    expect(texts(sql)).toHaveLength(4);
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / sql.length).toBeLessThan(0.25);
  });
});

describe('leadingWords', () => {
  test.each<[string, string[]]>([
    ['select 1', ['SELECT']],
    ['  ;; /* x */ -- y\n commit and chain', ['COMMIT', 'AND', 'CHAIN']],
    ['rollback to "x"', ['ROLLBACK', 'TO']],
    ['(select 1)', []],
    ["'begin'", []],
    ['"begin"', []],
    ['', []],
  ])('%s', (sql, expected) => {
    expect(leadingWords(sql, 3)).toEqual(expected);
  });
});
