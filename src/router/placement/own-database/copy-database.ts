import pg from 'pg';
import { ServiceError } from '../../../errors.ts';
import { codeOf } from '../../../protocol/backend.ts';

const OBJECT_IN_USE = '55006';
const QUERY_CANCELED = '57014';

/**
 * Copies a database with all that is in it. Nobody may have a session there; while it is copied, nobody can log in.
 * @throws ServiceError `organization_busy`, `statement_timeout`
 */
export async function copyDatabase(session: pg.PoolClient, source: string, copy: string, timeoutMs: number): Promise<void> {
  await session.query(`SET statement_timeout = ${timeoutMs}`);
  try {
    const names = `${pg.escapeIdentifier(copy)} TEMPLATE ${pg.escapeIdentifier(source)}`;
    await session.query(`CREATE DATABASE ${names} STRATEGY wal_log`);
  } catch (cause) {
    if (codeOf(cause) === OBJECT_IN_USE) {
      throw new ServiceError('organization_busy', 'a session in the database has not ended', { cause, retryAfterS: 5 });
    }
    if (codeOf(cause) !== QUERY_CANCELED) throw cause;
    throw new ServiceError('statement_timeout', `the database could not be copied within ${timeoutMs} ms`, { cause });
  }
  await session.query('RESET statement_timeout');
}
