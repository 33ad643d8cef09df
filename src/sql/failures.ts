import { ServiceError } from '../errors.ts';
import { PostgresError } from '../protocol/backend.ts';

/** Where a request of several statements failed. */
export interface FailurePlace {
  /**
   * `commit`: every statement succeeded, and COMMIT itself failed (a deferred constraint, a serialization failure). In the trial of a
   * migration, `rollback`: a statement of its `rollbackSql` failed; `repeat`: a statement failed when run again after `rollbackSql`.
   */
  readonly phase: 'statement' | 'commit' | 'rollback' | 'repeat';
  /** The index in the request's list, from 0; undefined in phase `commit`. */
  readonly statementIndex?: number;
  /** The line from 1, in the SQL that the client sent (a migration's whole text); defined when the error has a position. */
  readonly line?: number;
  /** The column from 1, in characters. */
  readonly column?: number;
  /** How many statements of a migration without a transaction succeeded; their effects remain. */
  readonly statementsApplied?: number;
}

/** The failure of a transaction or migration: the error, and where it happened. It had no effect, unless the place says otherwise. */
export class StatementFailure extends Error {
  override readonly name = 'StatementFailure';
  readonly error: PostgresError | ServiceError;
  readonly place: FailurePlace;

  constructor(error: PostgresError | ServiceError, place: FailurePlace) {
    super(error.message, { cause: error });
    this.error = error;
    this.place = place;
  }
}

/** @returns an error of Postgres or Postern with the place where it happened; anything else unchanged */
export function failureAt(error: unknown, place: FailurePlace): unknown {
  return error instanceof PostgresError || error instanceof ServiceError ? new StatementFailure(error, place) : error;
}

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
