import { expect, test } from 'vitest';
import { SchemaRewriter } from '../../../src/rewriting/rewriter.ts';
import { SCHEMA, TARGET } from './marked.ts';

const ERROR = { severity: 'ERROR', code: '23505', message: 'duplicate key value violates unique constraint "users_key_102008"' };

test("the address of one of Citus' machines is in no error", () => {
  const rewriter = new SchemaRewriter(TARGET);
  const where = 'while executing command on 10.0.7.3:5432\nSQL statement "SELECT 1"\nPL/pgSQL function f() line 3 at SQL statement';
  expect(rewriter.error({ ...ERROR, where }).where).toBe('SQL statement "SELECT 1"\nPL/pgSQL function f() line 3 at SQL statement');
  const whole = {
    ...ERROR,
    where: 'while executing command on worker-1.internal:9700',
    detail: 'Key (id)=("a_123456") is not present in table "users_102009".',
  };
  expect(rewriter.error(whole)).toEqual({
    severity: 'ERROR',
    code: '23505',
    message: 'duplicate key value violates unique constraint "users_key"',
    detail: 'Key (id)=("a_123456") is not present in table "users".',
  });
  expect(rewriter.error(ERROR)).toEqual(ERROR);
});

test('of a worker of Citus that cannot be reached, an error says whether the statement can have run there', () => {
  const rewriter = new SchemaRewriter(TARGET);
  const failed = (reason: string) =>
    rewriter.error({
      severity: 'ERROR',
      code: '08006',
      message: `connection to the remote node ${SCHEMA}@10.0.7.3:5432 failed with the following error: ${reason}`,
    });
  expect(failed('Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?')).toEqual({
    severity: 'ERROR',
    code: '57P03',
    message: 'the connection to the server that holds this data failed',
  });
  expect(failed('server closed the connection unexpectedly')).toMatchObject({
    code: '08006',
    message: 'the connection to the server that holds this data was lost',
  });
  const own = { severity: 'ERROR', code: '08006', message: 'raised by a function of the organization' };
  expect(rewriter.error(own)).toEqual(own);
});

test('PREPARE TRANSACTION is refused where the server has it, and a statement of that name is not', () => {
  expect(new SchemaRewriter(TARGET).rewrite("PREPARE TRANSACTION 'x'").sql).toBe("PREPARE TRANSACTION 'x'");
  const rewriter = new SchemaRewriter({ ...TARGET, hasPreparedTransactions: true });
  const refusal = rewriter.rewrite("BEGIN; PREPARE /* */ TRANSACTION E'x'; SELECT 1").sql;
  expect(refusal).toMatch(/^BEGIN; DO 'BEGIN RAISE USING .*END'; SELECT 1$/);
  for (const sql of ['PREPARE transaction AS SELECT 1', 'PREPARE transaction (int) AS SELECT $1', "SELECT prepare FROM t WHERE a = 'x'"]) {
    expect(rewriter.rewrite(sql).sql).toBe(sql);
  }
});

test('the schema of an error is public, whichever field names it', () => {
  const found = new SchemaRewriter(TARGET).error({
    ...ERROR,
    message: `relation "${SCHEMA}.users" does not exist`,
    hint: `Perhaps you meant to reference the table "${SCHEMA}.user".`,
    schema: SCHEMA,
  });
  expect(found).toMatchObject({
    message: 'relation "public.users" does not exist',
    hint: 'Perhaps you meant to reference the table "public.user".',
    schema: 'public',
  });
});
