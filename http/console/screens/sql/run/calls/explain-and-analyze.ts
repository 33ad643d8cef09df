import { call } from '../../../../api/client.ts';
import { ANALYZE_PREFIX, EXPLAIN_PREFIX } from '../explain-prefix.ts';
import type { Call, Settings } from '../run-request-and-result.ts';
import { bodyOf, settingsBody, statementBody } from './request-body.ts';

interface Rows {
  readonly rows: readonly (readonly unknown[])[];
}

/** The plan of a statement, which does not run. @throws ApiError */
export async function explain(wanted: Call, settings: Settings, signal: AbortSignal): Promise<unknown> {
  const { rows } = await call<Rows>('POST', 'api/query', { body: bodyOf(wanted, settings, EXPLAIN_PREFIX), signal, isSafe: true });
  return rows[0]?.[0];
}

/** Runs the statement in a transaction that is rolled back. @throws ApiError */
export async function analyze(wanted: Call, settings: Settings, signal: AbortSignal): Promise<unknown> {
  const body = { statements: [statementBody(wanted, ANALYZE_PREFIX)], rowMode: 'array', rollback: true, ...settingsBody(settings) };
  const { results } = await call<{ readonly results: readonly Rows[] }>('POST', 'api/transaction', { body, signal, isSafe: true });
  return results[0]?.rows[0]?.[0];
}
