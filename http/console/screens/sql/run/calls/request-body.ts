import type { Call, Settings } from '../run-request-and-result.ts';

/** The body of `POST /api/query`. */
export function bodyOf({ statement, params }: Call, settings: Settings, prefix = ''): object {
  return { ...statementBody({ statement, params }, prefix), rowMode: 'array', ...settingsBody(settings) };
}

/** The body of `POST /api/transaction`. */
export function transactionBody(calls: readonly Call[], settings: Settings): object {
  return { statements: calls.map((call) => statementBody(call)), rowMode: 'array', ...settingsBody(settings) };
}

export function statementBody({ statement, params }: Call, prefix = ''): object {
  return { sql: prefix + statement.text, ...(params.length === 0 ? {} : { params }) };
}

export function settingsBody({ isReadOnly, timeoutMs }: Settings): object {
  return { ...(isReadOnly ? { readOnly: true } : {}), ...(timeoutMs === undefined ? {} : { timeoutMs }) };
}
