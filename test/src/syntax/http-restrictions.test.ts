import { describe, expect, test } from 'vitest';
import { ServiceError } from '../../../src/errors.ts';
import { checkStatement, type StatementContext } from '../../../src/syntax/http-restrictions.ts';

function refusal(sql: string, context: StatementContext): string | undefined {
  try {
    checkStatement(sql, context);
  } catch (error) {
    if (error instanceof ServiceError) return error.kind;
    throw error;
  }
  return undefined;
}

describe('a single statement', () => {
  test.each([
    'BEGIN',
    'begin work',
    'START TRANSACTION READ ONLY',
    'COMMIT',
    'commit and chain',
    "commit prepared 'x'",
    'END',
    'ROLLBACK',
    'rollback to savepoint a',
    'ABORT',
    'SAVEPOINT a',
    'release savepoint a',
    "PREPARE TRANSACTION 'x'",
    '/* hidden */ -- well\n ;; commit',
    'LISTEN a',
    'unlisten *',
    'COPY t FROM STDIN',
    'copy t (a, b) from stdin with (format csv)',
    'COPY (select 1) TO STDOUT',
    'copy binary t to/**/stdout',
  ])('is refused when it cannot work alone: %s', (sql) => {
    expect(refusal(sql, 'single')).toBe('unsupported_statement');
  });

  test.each([
    'select 1',
    'with x as (select 1) select * from x',
    'prepare transaction as select 1',
    "copy t from '/etc/passwd'",
    "copy (select 'to stdout') to program 'cat'",
    'notify a',
    'select "commit"',
    'call p()',
    'explain select 1',
  ])('is left to Postgres otherwise: %s', (sql) => {
    expect(refusal(sql, 'single')).toBeUndefined();
  });

  test.each(['', '  \n', '-- nothing', '/* nothing */ ; ;'])('must be there: %j', (sql) => {
    expect(refusal(sql, 'single')).toBe('invalid_request');
  });

  test('must not contain NUL', () => {
    expect(refusal('select 1\0', 'single')).toBe('invalid_request');
  });
});

describe('a statement of a transaction', () => {
  test.each([
    'BEGIN',
    'COMMIT',
    'end',
    'ROLLBACK',
    'rollback work',
    'rollback and chain',
    'abort',
    "prepare transaction 'x'",
    'LISTEN a',
    'COPY t FROM STDIN',
  ])('must not begin or end one: %s', (sql) => {
    expect(refusal(sql, 'transaction')).toBe('unsupported_statement');
  });

  test.each([
    'SAVEPOINT a',
    'ROLLBACK TO a',
    'rollback work to savepoint a',
    'rollback transaction to a',
    'RELEASE a',
    'set local x.y = 1',
  ])('may use savepoints: %s', (sql) => {
    expect(refusal(sql, 'transaction')).toBeUndefined();
  });
});

test('a text with too much white space at its beginning is refused, and so is an empty one', () => {
  const blank = ' \n;'.repeat(100_000);
  for (const sql of [blank, `${blank}select 1`, `/*${blank}*/ begin`]) {
    expect(() => checkStatement(sql, 'single')).toThrow('sql begins with more than 261120 characters that say nothing');
  }
  checkStatement(`select 1${blank}`, 'single');
});
