import type { ControlPool } from '../database/control-pool.ts';

/** Notifies the other processes that share the control database, if there are any. @throws ServiceError `not_ready` */
export async function notifyOthers(database: ControlPool, own: number, channel: string, payload: string): Promise<void> {
  await database.lowPriorityTransaction(
    (sql) => sql`select pg_notify(${channel}, ${payload}) where exists (select from postern.processes where number <> ${own})`,
  );
}
