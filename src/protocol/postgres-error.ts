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
