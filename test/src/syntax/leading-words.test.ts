import { describe, expect, test } from 'vitest';
import { leadingWords } from '../../../src/syntax/leading-words.ts';

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
