import { describe, expect, it } from 'vitest';
import { ERRORS, type FailedCall, renderError } from '../../http/errors.ts';
import { ServiceError } from '../../src/errors.ts';
import { type ErrorFields, PostgresError } from '../../src/protocol/backend.ts';
import { StatementFailure } from '../../src/sql/failures.ts';

const call: FailedCall = { requestId: 'r1', path: '/api/query', withCredentials: true };

function postgresError(code: string, fields: Partial<ErrorFields> = {}): PostgresError {
  return new PostgresError({ severity: 'ERROR', code, message: 'it failed', ...fields });
}

describe('an error of Postgres', () => {
  it.each([
    ['42P01', {}, 400, 'sql_error', false, undefined],
    ['23505', {}, 400, 'sql_error', false, undefined],
    ['53400', {}, 400, 'sql_error', false, undefined],
    ['XX000', {}, 400, 'sql_error', false, undefined],
    ['40001', {}, 409, 'serialization_failure', true, undefined],
    ['40P01', {}, 409, 'deadlock_detected', true, undefined],
    ['55P03', {}, 400, 'lock_not_available', true, undefined],
    ['57014', { message: 'canceling statement due to statement timeout' }, 504, 'statement_timeout', false, undefined],
    ['57014', { message: 'canceling statement due to user request' }, 400, 'statement_canceled', false, undefined],
    ['53300', {}, 503, 'database_busy', true, '2'],
    ['57P03', {}, 503, 'database_busy', true, '2'],
    ['57P01', {}, 503, 'database_unavailable', false, '5'],
    ['08006', {}, 503, 'database_unavailable', false, '5'],
    ['08P01', {}, 400, 'sql_error', false, undefined],
  ])('%s %o is %i %s', (sqlstate, fields, status, code, retryable, retryAfter) => {
    const { problem, headers, internal } = renderError(postgresError(sqlstate, fields), call);
    expect(problem).toMatchObject({ status, code, retryable, sqlstate, type: `/docs#error-${code}` });
    expect(headers['retry-after']).toBe(retryAfter);
    expect(internal).toBe(false);
  });

  it.each([
    ['update t set a = 1', undefined, true],
    ['call settle()', undefined, false],
    ['call settle()', true, true],
    ['/* once */ do $$ begin commit; end $$', undefined, false],
    ['create index concurrently i on t (a)', undefined, false],
    ['alter table t add a int; update t set a = 1', false, false],
  ])('is not retryable where some of it may have been committed: %s (atomic: %o)', (sql, atomic, retryable) => {
    for (const code of ['40001', '55P03']) {
      expect(renderError(postgresError(code), { ...call, sql, atomic }).problem.retryable).toBe(retryable);
    }
  });

  it('is told with everything Postgres says of it, and with line and column', () => {
    const error = postgresError('42703', {
      message: 'column "nam" does not exist',
      hint: 'Perhaps you meant to reference the column "t.name".',
      position: 20,
      schema: 'public',
      table: 't',
      column: 'nam',
      file: 'parse_relation.c',
      line: 3722,
      routine: 'errorMissingColumn',
    });
    expect(renderError(error, { ...call, sql: "select 'ä😀',\n       nam from t" }).problem).toEqual({
      type: '/docs#error-sql_error',
      title: 'SQL error',
      status: 400,
      detail: 'column "nam" does not exist',
      instance: '/api/query',
      code: 'sql_error',
      sqlstate: '42703',
      error: 'SQL error',
      message: 'column "nam" does not exist',
      requestId: 'r1',
      retryable: false,
      hint: 'Perhaps you meant to reference the column "t.name".',
      postgres: {
        severity: 'ERROR',
        hint: 'Perhaps you meant to reference the column "t.name".',
        position: 20,
        line: 2,
        column: 7,
        schema: 'public',
        table: 't',
        columnName: 'nam',
      },
    });
  });
});

describe('a failure in a transaction', () => {
  const call: FailedCall = { requestId: 'r1', path: '/api/transaction', withCredentials: true, atomic: true };

  it('says which statement, where in it, and that nothing remains', () => {
    const failure = new StatementFailure(postgresError('42601', { position: 3 }), {
      phase: 'statement',
      statementIndex: 1,
      line: 4,
      column: 2,
    });
    expect(renderError(failure, call).problem).toMatchObject({
      status: 400,
      code: 'sql_error',
      statementIndex: 1,
      phase: 'statement',
      transactionStatus: 'rolled_back',
      postgres: { position: 3, line: 4, column: 2 },
    });
  });

  it('may be that of COMMIT', () => {
    const { problem } = renderError(new StatementFailure(postgresError('23503'), { phase: 'commit' }), call);
    expect(problem).toMatchObject({ phase: 'commit', transactionStatus: 'rolled_back' });
    expect(problem).not.toHaveProperty('statementIndex');
  });

  it('does not claim to know how a COMMIT ended whose connection broke', () => {
    const { problem } = renderError(new StatementFailure(postgresError('57P01'), { phase: 'commit' }), call);
    expect(problem).not.toHaveProperty('transactionStatus');
  });

  it('outside of one transaction leaves what went before', () => {
    const failure = new StatementFailure(postgresError('42P07'), { phase: 'statement', statementIndex: 1 });
    expect(renderError(failure, { ...call, atomic: false }).problem).not.toHaveProperty('transactionStatus');
  });

  it('may be one of ours', () => {
    const error = new ServiceError('unsupported_statement', 'COMMIT ends the transaction', { hint: 'Leave it out.' });
    const { problem } = renderError(new StatementFailure(error, { phase: 'statement', statementIndex: 2 }), call);
    expect(problem).toMatchObject({ status: 400, code: 'unsupported_statement', hint: 'Leave it out.', statementIndex: 2 });
  });
});

describe('an error of ours', () => {
  it('carries its SQLSTATE, detail and hint', () => {
    const error = new ServiceError('pool_timeout', 'no session in time', {
      detail: 'all 16 are at work',
      hint: 'Try again.',
      retryAfterS: 7,
    });
    const { problem, headers } = renderError(error, call);
    expect(problem).toMatchObject({
      status: 503,
      sqlstate: '53300',
      message: 'no session in time',
      detail: 'all 16 are at work',
      hint: 'Try again.',
      retryable: true,
    });
    expect(headers).toEqual({ 'retry-after': '7' });
  });

  it('whose outcome is not known is not to be tried again blindly', () => {
    expect(renderError(new ServiceError('backend_lost', 'gone'), call).problem).toMatchObject({ status: 503, retryable: false });
    const repeatable = { ...call, isRepeatable: true };
    expect(renderError(new ServiceError('backend_lost', 'gone'), repeatable).problem).toMatchObject({ status: 503, retryable: true });
    const inParts = { ...repeatable, atomic: false };
    expect(renderError(new ServiceError('backend_lost', 'gone'), inParts).problem).toMatchObject({ status: 503, retryable: false });
  });
});

describe('anything else', () => {
  it.each([
    new Error('secret'),
    new ServiceError('internal', 'secret', { detail: 'secret', hint: 'secret' }),
    'secret',
    undefined,
    { code: 'ECONNREFUSED' },
  ])('%s is "internal error" and nothing more', (error) => {
    const { problem, internal } = renderError(error, call);
    expect(problem).toEqual({
      type: '/docs#error-internal',
      title: 'Internal error',
      status: 500,
      detail: 'internal error',
      instance: '/api/query',
      code: 'internal',
      sqlstate: 'XX000',
      error: 'Internal error',
      message: 'internal error',
      requestId: 'r1',
      retryable: false,
    });
    expect(internal).toBe(true);
  });
});

it('every error has a status that HTTP knows as an error, and a title', () => {
  for (const { status, title } of Object.values(ERRORS)) {
    expect(status).toBeGreaterThanOrEqual(400);
    expect(status).toBeLessThan(600);
    expect(title).not.toBe('');
  }
});
