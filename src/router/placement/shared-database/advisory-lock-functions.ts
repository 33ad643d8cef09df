import type pg from 'pg';
import { renameServerFunction } from './rename-server-function.ts';

const NAMES = {
  void: ['pg_advisory_lock', 'pg_advisory_lock_shared', 'pg_advisory_xact_lock', 'pg_advisory_xact_lock_shared'],
  boolean: [
    'pg_try_advisory_lock',
    'pg_try_advisory_lock_shared',
    'pg_try_advisory_xact_lock',
    'pg_try_advisory_xact_lock_shared',
    'pg_advisory_unlock',
    'pg_advisory_unlock_shared',
  ],
};

/** The functions that are replaced. */
export const ADVISORY_LOCKS_REPLACED: readonly string[] = Object.values(NAMES).flat();

/** The key of an advisory lock is one bigint or two integers. */
const SIGNATURES = ['bigint', 'integer, integer'];

/**
 * Gives each organization in a shared database advisory locks of its own. Postgres has one set for the whole
 * database, and migration tools all lock the same numbers. The server's functions are renamed,
 * only `owner` may call them, and functions of that owner replace them. They lock a hash of the number and the role
 * that has logged in. (Replacing the server's functions with OR REPLACE has no effect: the executor knows them by their oids.)
 * @see https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADVISORY-LOCKS
 */
export async function separateAdvisoryLocks(session: pg.Client, owner: string): Promise<void> {
  for (const [result, names] of Object.entries(NAMES)) {
    for (const name of names) {
      for (const signature of SIGNATURES) await renameServerFunction(session, name, signature);
      await session.query(`GRANT EXECUTE ON FUNCTION pg_catalog.postern_${name}(bigint) TO ${owner}`);
      for (const signature of SIGNATURES) await session.query(replacementFunctionSql(name, signature, result, owner));
    }
  }
}

/** The body is parsed when the function is created, so its names are fixed and cannot refer to an object of a tenant. */
function replacementFunctionSql(name: string, signature: string, result: string, owner: string): string {
  const number = signature === 'bigint' ? '$1' : "$1 || ',' || $2";
  const digest = `pg_catalog.sha256(pg_catalog.convert_to(session_user || ':' || ${number}, 'UTF8'))`;
  const own = `('x' || pg_catalog.encode(pg_catalog.substr(${digest}, 1, 8), 'hex'))::bit(64)::bigint`;
  return `CREATE OR REPLACE FUNCTION pg_catalog.${name}(${signature}) RETURNS ${result}
      LANGUAGE sql STRICT PARALLEL RESTRICTED SECURITY DEFINER
      BEGIN ATOMIC SELECT pg_catalog.postern_${name}(${own}); END;
    ALTER FUNCTION pg_catalog.${name}(${signature}) OWNER TO ${owner}`;
}
