import pg from 'pg';
import { ADVISORY_LOCKS } from '../../../catalog/advisory-locks.ts';

/** In addition to the pool's sessions: one that terminates others, and one that has not quite ended. */
const SPARE_SESSIONS = 2;

/** The number of processes of the service that share the control database; see `ADVISORY_LOCKS.process`. */
const PROCESSES = `
  SELECT greatest(1, pg_catalog.count(DISTINCT objid))::int AS count FROM pg_catalog.pg_locks
  WHERE locktype = 'advisory' AND classid = ${ADVISORY_LOCKS.process} AND objsubid = 2
    AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())`;

/** @param backendsPerTenant how many sessions one process opens for an organization */
export function connectionLimitFor(backendsPerTenant: number): number {
  return backendsPerTenant + SPARE_SESSIONS;
}

/**
 * Sets the connection limit of roles that an earlier version, or one with other settings, has created.
 * @returns the error if one could not be set: the organization may hold a lock on its role
 */
export async function limitConnections(session: pg.PoolClient, roles: readonly string[], limit: number): Promise<unknown> {
  const { rows } = await session.query<{ name: string }>(
    `SELECT rolname AS name FROM pg_catalog.pg_roles, (${PROCESSES}) AS processes
     WHERE rolname = ANY ($1) AND rolconnlimit <> -1 AND rolconnlimit NOT BETWEEN $2 AND $2 * processes.count`,
    [roles, limit],
  );
  let failure: unknown;
  for (const { name } of rows) {
    await session.query(`ALTER ROLE ${pg.escapeIdentifier(name)} CONNECTION LIMIT ${limit}`).catch((error: unknown) => {
      failure = error;
    });
  }
  return failure;
}

/**
 * Raises a role's limit to that of all processes of the service together, when one of them has been refused a session.
 * @param limit of one process
 * @returns whether it was raised
 */
export async function raiseConnectionLimit(session: pg.PoolClient, role: string, limit: number): Promise<boolean> {
  const { rows } = await session.query<{ raised: number }>(
    `SELECT $2 * processes.count AS raised FROM pg_catalog.pg_roles, (${PROCESSES}) AS processes
     WHERE rolname = $1 AND rolconnlimit <> -1 AND rolconnlimit < $2 * processes.count`,
    [role, limit],
  );
  const raised = rows[0]?.raised;
  if (raised !== undefined) await session.query(`ALTER ROLE ${pg.escapeIdentifier(role)} CONNECTION LIMIT ${raised}`);
  return raised !== undefined;
}
