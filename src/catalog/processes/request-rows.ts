import { ADVISORY_LOCKS } from '../database/advisory-locks.ts';
import type { Sql } from '../database/control-connection.ts';

/** The channel on which processes tell each other of requests and replies. */
export const PROCESSES_CHANNEL = 'postern_processes';

/** A request to other processes. It has to fit in a notification, which may have 8,000 bytes. */
export interface RequestNotice {
  readonly id: string;
  /** The process that asks. */
  readonly from: number;
  /** The process that is asked; absent: all others. */
  readonly to?: number | undefined;
  readonly request: string;
}

/** Sent when the reply of a process is there to be read. Replies are rows, because they may be long, and only one process needs them. */
export interface ReplyNotice {
  readonly id: string;
  readonly replied: number;
}

export interface Reply {
  readonly process: number;
  /** Null: it has not replied. */
  readonly reply: string | null;
}

/** The process receives notifications from now on. The caller has locked its number. */
export async function enterProcess(sql: Sql, number: number): Promise<void> {
  await sql`insert into postern.processes (number) values (${number}) on conflict do nothing`;
}

/**
 * Asks other processes, once the transaction is committed. A process holds a lock on its number as long as it receives notifications;
 * those that do not are forgotten.
 * @returns the processes that are asked
 */
export async function insertRequest(sql: Sql, { id, from, to = 0, request }: RequestNotice): Promise<readonly number[]> {
  const rows = await sql<{ process: number }[]>`
    with others as materialized (
      select number, pg_try_advisory_xact_lock(${ADVISORY_LOCKS.process}, number) as has_ended
      from postern.processes where number <> ${from} and ${to}::integer in (0, number)
    ), forgotten as (
      delete from postern.processes using others where processes.number = others.number and others.has_ended
    )
    insert into postern.process_requests (id, process) select ${id}, number from others where not has_ended returning process`;
  if (rows.length > 0) await notify(sql, { id, from, request, ...(to === 0 ? {} : { to }) });
  return rows.map(({ process }) => process);
}

/** Does nothing when nobody waits for the reply any more. */
export async function insertReply(sql: Sql, id: string, process: number, reply: string): Promise<void> {
  const updated = await sql`update postern.process_requests set reply = ${reply} where id = ${id} and process = ${process} returning id`;
  if (updated.length > 0) await notify(sql, { id, replied: process });
}

/** Ends a request. @returns the replies that have come */
export async function takeReplies(sql: Sql, id: string): Promise<readonly Reply[]> {
  return sql<Reply[]>`delete from postern.process_requests where id = ${id} returning process, reply`;
}

/** Deletes what processes have left that ended while they waited for replies. */
export async function deleteOldRequests(sql: Sql): Promise<void> {
  await sql`delete from postern.process_requests where asked_at < now() - interval '1 minute'`;
}

async function notify(sql: Sql, notice: RequestNotice | ReplyNotice): Promise<void> {
  await sql`select pg_notify(${PROCESSES_CHANNEL}, ${JSON.stringify(notice)})`;
}
