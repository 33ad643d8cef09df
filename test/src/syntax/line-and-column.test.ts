import { expect, test } from 'vitest';
import { PostgresError } from '../../../src/protocol/backend.ts';
import { LineCounter, lineAndColumn, lineAndColumnAt, lineAndColumnOfError } from '../../../src/syntax/line-and-column.ts';

test.each<[string, number, number, number]>([
  ['select', 1, 1, 1],
  ['select nope', 8, 1, 8],
  ['select\n nope', 9, 2, 2],
  ['a\r\nb', 4, 2, 1],
  ["'😀' nope", 5, 1, 5],
  ['ab', 99, 1, 3],
])('position of %j %i is line %i, column %i', (sql, position, line, column) => {
  expect(lineAndColumn(sql, position)).toEqual({ line, column });
});

test('an offset counts UTF-16 units, a column characters', () => {
  expect(lineAndColumnAt("x\n'😀' nope", 7)).toEqual({ line: 2, column: 5 });
});

test('an error without a position is where its statement begins', () => {
  const sql = "select '😀';\n select 😀";
  const error = new PostgresError({ severity: 'ERROR', code: '42703', message: 'no', position: 8 });
  expect(lineAndColumnOfError(sql, 14, error)).toEqual({ line: 2, column: 9 });
  expect(lineAndColumnOfError(sql, 14, new Error('other'))).toEqual({ line: 2, column: 2 });
});

test('a counter gives each of several offsets the same line and column as a single call', () => {
  const sql = 'a\n😀b\r\n\n\ud83dx\ude00 c\n';
  const counter = new LineCounter(sql);
  for (let offset = 0; offset <= sql.length + 2; offset += 1) {
    const before = sql.slice(0, offset).split('\n');
    // In the middle of a pair its first half counts.
    const column = [...(before.at(-1) ?? '')].length + 1;
    expect(counter.at(offset), `at ${offset}`).toEqual({ line: before.length, column });
    expect(lineAndColumnAt(sql, offset)).toEqual({ line: before.length, column });
  }
});
