import { Lexer, Token } from '../../../../src/syntax/scanner.ts';
import { leadingKeywords } from '../../../../src/syntax/statements.ts';
import { call } from '../../api/client.ts';
import { QUERY_TEXT_MAX_CHARACTERS, type QueryStatistic } from './insights-calls.ts';

const PLANNED = new Set(['SELECT', 'WITH', 'INSERT', 'UPDATE', 'DELETE', 'MERGE', 'VALUES', 'TABLE']);

/** Why the statement has no plan that can be shown; undefined: it has one. */
export function whyNoPlan({ sql }: QueryStatistic): string | undefined {
  if (sql.length >= QUERY_TEXT_MAX_CHARACTERS) return 'The text is cut, so it cannot be planned.';
  const [first = 'SELECT'] = leadingKeywords(sql, 1);
  return PLANNED.has(first) ? undefined : `${first} is not planned.`;
}

interface TransactionReply {
  readonly results: readonly { readonly rows: readonly (readonly string[])[] }[];
}

/**
 * The generic plan of the statement, which does not depend on the values of $1, $2, …. EXPLAIN (GENERIC_PLAN) cannot be used: the API
 * requires a value for each parameter, and PostgreSQL would plan with these values. Nothing is executed.
 */
export async function explain({ sql }: QueryStatistic, signal: AbortSignal): Promise<string> {
  const nulls = Array.from({ length: countParameters(sql) }, () => 'NULL');
  const statements = [
    'SET LOCAL plan_cache_mode = force_generic_plan',
    `PREPARE console_plan AS ${sql}`,
    `EXPLAIN EXECUTE console_plan${nulls.length === 0 ? '' : `(${nulls.join(', ')})`}`,
    'DEALLOCATE console_plan',
  ];
  const body = { statements: statements.map((one) => ({ sql: one })), readOnly: true, rollback: true, rowMode: 'array' };
  const { results } = await call<TransactionReply>('POST', 'api/transaction', { body, signal, isSafe: true });
  return (results[2]?.rows ?? []).map(([line]) => line).join('\n');
}

/** The largest n of `$n`. */
function countParameters(sql: string): number {
  const lexer = new Lexer(sql);
  let count = 0;
  while (lexer.next() !== Token.End) {
    if (lexer.kind === Token.Parameter) count = Math.max(count, Number(sql.slice(lexer.start + 1, lexer.end)));
  }
  return count;
}
