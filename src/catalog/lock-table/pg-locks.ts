import type { ControlConnection } from '../database/control-connection.ts';
import type { ControlPool } from '../database/control-pool.ts';
import { ReservedLocks } from './reserved-locks.ts';

/** The server's one table of locks, as the platform's role sees it. */
export class PgLocks {
  readonly ballast: ReservedLocks;
  readonly #database: ControlPool;

  constructor(connection: ControlConnection, database: ControlPool) {
    this.ballast = new ReservedLocks(connection);
    this.#database = database;
  }

  /** Whether a backend holds advisory locks; while it is in no transaction these are its session's. */
  async areHeldBy(processId: number): Promise<boolean> {
    const [row] = await this.#database.run(
      (sql) => sql<{ held: boolean }[]>`
        select exists (select from pg_catalog.pg_locks where locktype = 'advisory' and pid = ${processId}) as held`,
    );
    return row?.held ?? true;
  }

  /**
   * Backends that hold more locks than the table has places for each, by process id; without those that take up no place
   * there. None as long as half of the table is free: then it is another memory that is short.
   */
  async ofCrowded(): Promise<ReadonlyMap<number, number>> {
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
