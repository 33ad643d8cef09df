import type { ErrorFields } from './error-fields.ts';

/** An error that Postgres raised, with all its fields. */
export class PostgresError extends Error {
  override readonly name = 'PostgresError';
  readonly fields: ErrorFields;

  constructor(fields: ErrorFields) {
    super(fields.message);
    this.fields = fields;
  }
}

/** SQLSTATE or errno name; empty when there is none. */
export function codeOf(error: unknown): string {
  if (error instanceof PostgresError) return error.fields.code;
  if (error instanceof AggregateError && !('code' in error)) return codeOf(error.errors[0]);
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
}

/** One line; an AggregateError (a name with several addresses) has no message of its own. */
export function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return textOf(error.errors[0]);
  const message = error instanceof Error ? error.message : String(error);
  return message.split('\n')[0] || codeOf(error);
}
