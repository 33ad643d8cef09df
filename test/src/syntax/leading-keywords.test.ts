import { describe, expect, test } from 'vitest';
import { leadingKeywords } from '../../../src/syntax/statements.ts';

describe('leadingKeywords', () => {
  test.each<[string, string[]]>([
    ['select 1', ['SELECT']],
    ['  ;; /* x */ -- y\n commit and chain', ['COMMIT', 'AND', 'CHAIN']],
    ['rollback to "x"', ['ROLLBACK', 'TO']],
    ['(select 1)', []],
    ["'begin'", []],
    ['"begin"', []],
    ['', []],
  ])('%s', (sql, expected) => {
    expect(leadingKeywords(sql, 3)).toEqual(expected);
  });
});
