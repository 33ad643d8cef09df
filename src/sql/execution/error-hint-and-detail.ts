import { ServiceError } from '../../errors.ts';
import { PostgresError } from '../../protocol/backend.ts';

/** Adds a hint to errors of Postgres that do not say what the client can do about them. */
export function withHint(error: unknown): unknown {
  if (!(error instanceof PostgresError)) return error;
  const { code, routine } = error.fields;
  if (routine === 'exec_parse_message' && code === '42601') {
    return new PostgresError({
      hint: 'Send one statement per call, or several as one transaction: POST /api/transaction.',
      ...error.fields,
    });
  }
  if (routine === 'PreventInTransactionBlock') {
    return new PostgresError({ hint: 'With an Idempotency-Key it would run in a transaction: leave out the key.', ...error.fields });
  }
  return error;
}

/** @returns the reason why a session was aborted, with the detail that its statement has completed nevertheless */
export function withCompletion({ kind, message, hint }: ServiceError): ServiceError {
  return new ServiceError(kind, message, {
    detail: 'The statement was carried out all the same.',
    ...(hint === undefined ? {} : { hint }),
  });
}
