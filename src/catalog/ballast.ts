import { ADVISORY_LOCKS } from './advisory-locks.ts';
import type { Sql } from './session.ts';

/** More than a login and a statement or two take; of some ten thousand that the server has room for. */
const LOCKS = 128;

/**
 * Takes locks that nobody wants, as far as this session does not hold them: room in the server's table of locks that can be
 * given back when there is none, without which nobody could be let in who might make some.
 */
export async function takeBallast(sql: Sql): Promise<void> {
  await sql`
    with own as materialized (select pg_catalog.pg_backend_pid() * ${LOCKS} + n as key from pg_catalog.generate_series(0, ${LOCKS - 1}) n),
    held as materialized (
      select objid::bigint from pg_catalog.pg_locks
      where locktype = 'advisory' and pid = pg_catalog.pg_backend_pid() and classid = ${ADVISORY_LOCKS.ballast}
    )
    select count(pg_catalog.pg_advisory_lock(${ADVISORY_LOCKS.ballast}, key)) from own where key not in (select objid from held)`;
}

/** Gives them back. It needs no room itself. */
export async function dropBallast(sql: Sql): Promise<void> {
  await sql`
    with held as materialized (
      select objid::bigint::int as key from pg_catalog.pg_locks
      where locktype = 'advisory' and pid = pg_catalog.pg_backend_pid() and classid = ${ADVISORY_LOCKS.ballast}
    )
    select count(pg_catalog.pg_advisory_unlock(${ADVISORY_LOCKS.ballast}, key)) from held`;
}
