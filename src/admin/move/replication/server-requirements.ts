import type pg from 'pg';
import { withSession } from '../../../placement/admin-connection.ts';
import type { ServedCluster } from '../../../router/served-cluster.ts';

/** From 16 on a subscription applies changes with the roles of the tables' owners. */
const OLDEST_SUBSCRIBER = 160_000;

/** For the changes, and for two tables that are copied at the same time. */
const WORKERS = 3;

/** A setting of the source that an operator should know of before its slot is made; undefined: there is none. */
export async function warningOf({ platform: { cluster } }: ServedCluster): Promise<string | undefined> {
  if (cluster.superuser === undefined) return undefined;
  return withSession({ ...cluster.superuser, database: 'postgres' }, async (session) => {
    const { rows } = await session.query<{ limit: string }>("SELECT pg_catalog.current_setting('max_slot_wal_keep_size') AS limit");
    return rows[0]?.limit === '-1'
      ? `${cluster.name} keeps all WAL until the move has ended, and if this command is killed, until a service undoes it: max_slot_wal_keep_size is -1`
      : undefined;
  });
}

interface Publisher {
  readonly wal_level: string;
  readonly slots: number;
  readonly senders: number;
}

/** Why one server cannot replicate to the other one; undefined: as far as their settings tell, it can. */
export async function whyNotReplicated(source: ServedCluster, target: ServedCluster): Promise<string | undefined> {
  const [{ cluster: from }, { cluster: to }] = [source.platform, target.platform];
  if (from.superuser === undefined) return `the role in the URL of ${from.name} is no superuser`;
  if (to.superuser === undefined) return `the role in the URL of ${to.name} is no superuser`;
  if (to.serverVersion < OLDEST_SUBSCRIBER) return `${to.name} has a PostgreSQL before 16, which would apply changes as a superuser`;
  const obstacle = await withSession({ ...from.superuser, database: 'postgres' }, (session) => publisher(session, from.name));
  return obstacle ?? withSession({ ...to.superuser, database: 'postgres' }, (session) => subscriber(session, to.name));
}

async function publisher(session: pg.Client, name: string): Promise<string | undefined> {
  const { rows } = await session.query<Publisher>(`
    SELECT pg_catalog.current_setting('wal_level') AS wal_level,
      pg_catalog.current_setting('max_replication_slots')::int
        - (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots)::int AS slots,
      pg_catalog.current_setting('max_wal_senders')::int
        - (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'walsender')::int AS senders`);
  const [found] = rows;
  if (found?.wal_level !== 'logical') return `wal_level is not logical at ${name}`;
  if (found.slots < WORKERS) return `${name} needs ${WORKERS} free replication slots (max_replication_slots)`;
  return found.senders < WORKERS ? `${name} needs ${WORKERS} free WAL senders (max_wal_senders)` : undefined;
}

async function subscriber(session: pg.Client, name: string): Promise<string | undefined> {
  const { rows } = await session.query<{ free: number }>(`
    SELECT pg_catalog.current_setting('max_logical_replication_workers')::int
      - (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type ~ '^logical replication .*worker')::int AS free`);
  return (rows[0]?.free ?? 0) < WORKERS ? `${name} needs ${WORKERS} free workers (max_logical_replication_workers)` : undefined;
}
