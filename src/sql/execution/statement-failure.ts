import { ServiceError } from '../../errors.ts';
import type { PostgresError } from '../../protocol/backend.ts';

/** Where in a request of several statements it failed. */
export interface FailurePlace {
  /**
   * `commit`: every statement went through, and COMMIT itself failed (a deferred constraint, a serialization failure). Of a
   * migration's trial, `rollback`: a statement of its `rollbackSql`; `repeat`: one that fails once that has been run.
   */
  readonly phase: 'statement' | 'commit' | 'rollback' | 'repeat';
  /** Position in the request's list, from 0; absent in phase `commit`. */
  readonly statementIndex?: number;
  /** From 1, in the SQL that the caller sent (a migration's whole text); present when the error has a position. */
  readonly line?: number;
  /** In characters, from 1. */
  readonly column?: number;
  /** Only of a migration without a transaction: so many statements went through, and stay. */
  readonly statementsApplied?: number;
}

/** The failure of a transaction or migration: the error itself, and where it happened. Unless the place says otherwise, nothing remains. */
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

/** Why a session was aborted, told of a statement that has got to its end in spite of that: nobody is to take it for undone. */
export function carriedOut({ kind, message, hint }: ServiceError): ServiceError {
  return new ServiceError(kind, message, {
    detail: 'The statement was carried out all the same.',
    ...(hint === undefined ? {} : { hint }),
  });
}
