import { type ControlConnection, ControlPool, PgLocks } from '../../catalog/control-pool.ts';
import { TextFileWatch } from '../../catalog/query-statistics.ts';
import type { Observe } from '../../observation.ts';

/** What the platform role sees of a whole server. The catalog has the ones of the control database's server. */
export interface ServerMonitoring {
  readonly locks: PgLocks;
  close(): Promise<void>;
}

/** Opens sessions of its own, so that no other cluster waits for this one. */
export function openServerMonitoring(connection: ControlConnection, observe: Observe, onOutOfMemory: () => void): ServerMonitoring {
  const database = new ControlPool(connection, onOutOfMemory);
  const locks = new PgLocks(connection, database);
  const texts = new TextFileWatch(database, observe);
  texts.start();
  void locks.reserved.hold();
  return {
    locks,
    async close() {
      locks.reserved.close();
      await texts.stop();
      await database.close();
    },
  };
}
