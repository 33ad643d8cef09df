import { ServiceError } from '../../../errors.ts';
import type { TransactionStatus } from '../../../protocol/backend.ts';
import type { SqlSession } from '../../session/sql-session.ts';
import { failureAt } from '../statement-failure.ts';

/**
 * Does work between BEGIN and COMMIT. When anything fails, the transaction stays open, and the end of the session rolls it back.
 * @param begin the BEGIN, which is awaited: if a cancel request stopped it, the statements of the work would be committed one by one
 * @param end ROLLBACK for a trial
 * @throws StatementFailure with phase `commit` when COMMIT fails; whatever the work throws
 */
export async function inTransaction<T>(
  session: SqlSession,
  begin: string,
  work: () => Promise<T>,
  end: 'COMMIT' | 'ROLLBACK' = 'COMMIT',
): Promise<T> {
  await session.query(begin);
  const result = await work();
  session.throwIfAborted();
  checkInTransaction(session);
  const { tag } = await session.query(end).catch((error: unknown) => {
    if (end === 'ROLLBACK') throw error;
    throw failureAt(session.isLost ? unknownOutcome(error) : error, { phase: 'commit' });
  });
  if (tag?.command !== end) throw new ServiceError('internal', `${end} was answered with ${tag?.command}`);
  return result;
}

/**
 * Checks deferred constraints, for a trial: otherwise only COMMIT would.
 * @throws StatementFailure with phase `commit`
 */
export async function checkConstraints(session: SqlSession): Promise<void> {
  await session.query('SET CONSTRAINTS ALL IMMEDIATE').catch((error: unknown) => {
    throw failureAt(error, { phase: 'commit' });
  });
}

/** @throws ServiceError when a statement has ended the transaction, since those after it would be committed by themselves */
export function checkInTransaction({ status }: { readonly status: TransactionStatus }): void {
  if (status !== 'T') throw new ServiceError('unsupported_statement', 'the transaction was ended by one of its statements');
}

function unknownOutcome(cause: unknown): ServiceError {
  return new ServiceError('backend_lost', 'the connection to the database was lost during COMMIT', {
    detail: 'It is not known whether the transaction was committed.',
    cause,
  });
}
