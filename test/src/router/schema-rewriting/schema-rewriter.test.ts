import { expect, test } from 'vitest';
import { SchemaRewriter } from '../../../../src/router/schema-rewriting/schema-rewriter.ts';
import { SCHEMA, TARGET } from './marked.ts';

const ERROR = { severity: 'ERROR', code: '23505', message: 'duplicate key value violates unique constraint "users_key_102008"' };

test("the address of one of Citus' machines is in no error", () => {
  const rewriter = new SchemaRewriter(TARGET);
  const where = 'while executing command on 10.0.7.3:5432\nSQL statement "SELECT 1"\nPL/pgSQL function f() line 3 at SQL statement';
  expect(rewriter.error({ ...ERROR, where }).where).toBe('SQL statement "SELECT 1"\nPL/pgSQL function f() line 3 at SQL statement');
  expect(rewriter.error({ ...ERROR, where: 'while executing command on worker-1.internal:9700' })).toEqual(ERROR);
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
