import type { Lease } from '../router/lease.ts';
import { inTransaction } from './batch.ts';
import { type SessionOptions, SqlSession } from './session.ts';

/**
 * One snapshot that cannot change anything. The search path has no schema in which an organization could have planted a function or an
 * operator that these statements would call. They wait only briefly for tables that a migration has locked.
 */
const BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = '2s'";

/**
 * Reads the catalogs with the organization's own role, whose privileges decide what it sees. Takes over the lease.
 * @param work its statements name every table, function and type with pg_catalog
 */
export async function inspect<T>(lease: Lease, options: SessionOptions, work: (session: SqlSession) => Promise<T>): Promise<T> {
  const session = new SqlSession(lease, options);
  try {
    await session.expect();
    return await inTransaction(session, BEGIN, () => work(session));
  } finally {
    await session.end();
  }
}
