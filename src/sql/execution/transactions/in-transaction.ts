import { ServiceError } from '../../../errors.ts';
import { PostgresError, type TransactionStatus } from '../../../protocol/backend.ts';
import type { Session } from '../../session/session.ts';
import { type FailurePlace, StatementFailure } from '../statement-failure.ts';

/**
 * Does work between BEGIN and COMMIT. When anything fails, the transaction is left open: the end of the session rolls it back.
 * @param begin is answered before the work begins: where a cancel request meets it, what follows would be committed piece by piece
 * @param end ROLLBACK: the work is a trial
 * @throws StatementFailure with phase `commit` when COMMIT fails; whatever the work throws
 */
export async function inTransaction<T>(
  session: Session,
  begin: string,
  work: () => Promise<T>,
  end: 'COMMIT' | 'ROLLBACK' = 'COMMIT',
): Promise<T> {
  await session.query(begin);
  const result = await work();
  session.throwIfAborted();
  checkInTransaction(session);
  const { tag } = await session.query(end).catch((error: unknown) => {
    throw failureAt(session.isLost ? unknownOutcome(error) : error, { phase: 'commit' });
  });
  if (tag?.command !== end) throw new ServiceError('internal', `${end} was answered with ${tag?.command}`);
  return result;
}

/** Nothing of the work may have ended the transaction: what followed would have been committed by itself. */
export function checkInTransaction({ status }: { readonly status: TransactionStatus }): void {
  if (status !== 'T') throw new ServiceError('unsupported_statement', 'the transaction was ended by one of its statements');
}

/** Errors of Postgres and ours, with the place where they happened; anything else is thrown as it is. */
export function failureAt(error: unknown, place: FailurePlace): unknown {
  return error instanceof PostgresError || error instanceof ServiceError ? new StatementFailure(error, place) : error;
}

function unknownOutcome(cause: unknown): ServiceError {
  return new ServiceError('backend_lost', 'the connection to the database was lost during COMMIT', {
    detail: 'It is not known whether the transaction was committed.',
    cause,
  });
}
