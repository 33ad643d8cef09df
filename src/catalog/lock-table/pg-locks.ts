import type { ControlConnection } from '../database/control-connection.ts';
import type { ControlPool } from '../database/control-pool.ts';
import { ReservedLocks } from './reserved-locks.ts';

/** The server's shared lock table, as the platform role sees it in pg_locks. */
export class PgLocks {
  readonly reserved: ReservedLocks;
  readonly #database: ControlPool;

  constructor(connection: ControlConnection, database: ControlPool) {
    this.reserved = new ReservedLocks(connection);
    this.#database = database;
  }

  /** Whether a backend holds advisory locks. Outside a transaction these are session-level locks. */
  async hasAdvisoryLocks(processId: number): Promise<boolean> {
    const [row] = await this.#database.run(
      (sql) => sql<{ held: boolean }[]>`
        select exists (select from pg_catalog.pg_locks where locktype = 'advisory' and pid = ${processId}) as held`,
    );
    return row?.held ?? true;
  }

  /**
   * The number of locks of each backend that holds more than its part of the table (max_locks_per_transaction), by process id.
   * Fast-path and predicate locks are not in this table and do not count. Empty while half of the table is free: then another
   * kind of memory was exhausted.
   */
  async ofHeavyHolders(): Promise<ReadonlyMap<number, number>> {
    const rows = await this.#database.run(
      (sql) => sql<{ pid: number; locks: number }[]>`
        with held as materialized (
          select pid from pg_catalog.pg_locks where not fastpath and mode <> 'SIReadLock' and pid is not null
        )
        select pid, count(*)::int as locks from held
        where (select count(*) from held) * 2 > current_setting('max_locks_per_transaction')::int * current_setting('max_connections')::int
        group by pid having count(*) > current_setting('max_locks_per_transaction')::int`,
    );
    return new Map(rows.map(({ pid, locks }) => [pid, locks]));
  }
}
