import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import { codeOf } from '../protocol/backend.ts';
import { withSession } from './admin-connection.ts';
import type { Platform } from './cluster.ts';

const POLL_MS = 50;
const SLOTS_TIMEOUT_MS = 10_000;

/** A slot that is in use, or that has been dropped meanwhile. */
const NOT_NOW = ['55006', '42704'];

/** What the subscription, publication, slot and role are called with which an organization is replicated while it is moved. */
export function replicationName({ role }: Pick<Placement, 'role'>): string {
  return `postern_move_${role}`;
}

const ANY = `
  SELECT 1 FROM pg_catalog.pg_subscription WHERE subname = $1
  UNION ALL SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = $1
  UNION ALL SELECT 1 FROM pg_catalog.pg_replication_slots WHERE slot_name = $1`;

/**
 * Removes what the replication of an organization has left at one of its placements, be it the publisher or the subscriber. The other
 * server is not needed for that. May be repeated.
 * @throws ServiceError `invalid_request` if there is something and the server's URL has no superuser, `organization_busy`
 */
export async function removeReplication(platform: Platform, { kind, role, database }: Placement): Promise<void> {
  const name = replicationName({ role });
  const isThere = await platform.run(async (session) => (await session.query(ANY, [name])).rows.length > 0);
  if (kind !== 'database' || !isThere) return;
  const { superuser } = platform.cluster;
  if (superuser === undefined) throw new ServiceError('invalid_request', `only a superuser can remove the replication ${name}`);
  await withSession({ ...superuser, database: 'postgres' }, async (session) => {
    const exists = async (query: string, value: string) => (await session.query(query, [value])).rows.length > 0;
    const hasRole = await exists('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1', name);
    // A subscriber's worker cannot come back to a slot.
    if (hasRole) await session.query(`ALTER ROLE ${name} NOLOGIN`);
    await dropSlots(session, name, database);
    // One that is closed has nothing that is not dropped with it.
    if (await exists('SELECT FROM pg_catalog.pg_database WHERE datname = $1 AND datallowconn', database))
      await withSession({ ...superuser, database }, (own) => removeObjects(own, name));
    // The last one: what is left is found by it.
    if (hasRole) await session.query(`DROP ROLE ${name}`);
  });
}

async function removeObjects(session: pg.Client, name: string): Promise<void> {
  const { rows } = await session.query(
    `SELECT FROM pg_catalog.pg_subscription WHERE subname = $1
       AND subdbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())`,
    [name],
  );
  if (rows.length > 0) {
    await session.query(`ALTER SUBSCRIPTION ${name} DISABLE`);
    // Without it the other server would be asked to drop the slot.
    await session.query(`ALTER SUBSCRIPTION ${name} SET (slot_name = NONE)`);
    await session.query(`DROP SUBSCRIPTION ${name}`);
  }
  await session.query(`DROP PUBLICATION IF EXISTS ${name}`);
}

/** Which subscription the role is for: the names of the slots by which it copies tables at first have its oid and its server's number. */
const SUBSCRIPTION = {
  text: (oid: string, systemIdentifier: string) => `subscription ${oid} of server ${systemIdentifier}`,
  pattern: '^subscription ([0-9]+) of server ([0-9]+)$',
} as const;

/**
 * Notes at the publisher, on the role, which subscription is its own, before any table is copied.
 * @param oid of the subscription @param systemIdentifier of its server
 */
export async function noteSubscription(publisher: pg.Client, name: string, oid: string, systemIdentifier: string): Promise<void> {
  await publisher.query(`COMMENT ON ROLE ${name} IS ${pg.escapeLiteral(SUBSCRIPTION.text(oid, systemIdentifier))}`);
}

/**
 * The subscription's slot, and those by which it copies single tables. Other subscriptions to the same database have such slots too.
 * @see https://www.postgresql.org/docs/current/logical-replication-subscription.html#LOGICAL-REPLICATION-SUBSCRIPTION-SLOT
 */
const SLOTS = `SELECT slot_name AS name FROM pg_catalog.pg_replication_slots
  WHERE slot_name = $1 OR (database = $2 AND slot_name ~ (
    SELECT pg_catalog.format('^pg_%s_sync_[0-9]+_%s$', own[1], own[2])
    FROM pg_catalog.pg_roles r, pg_catalog.regexp_match(pg_catalog.shobj_description(r.oid, 'pg_authid'), '${SUBSCRIPTION.pattern}') AS own
    WHERE r.rolname = $1))`;

async function dropSlots(session: pg.Client, name: string, database: string): Promise<void> {
  const deadline = performance.now() + SLOTS_TIMEOUT_MS;
  for (;;) {
    await session.query('SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE usename = $1', [name]);
    const { rows } = await session.query<{ name: string }>(SLOTS, [name, database]);
    if (rows.length === 0) return;
    for (const slot of rows) {
      await session.query('SELECT pg_catalog.pg_drop_replication_slot($1)', [slot.name]).catch((error: unknown) => {
        if (!NOT_NOW.includes(codeOf(error))) throw error;
      });
    }
    if (performance.now() > deadline) throw new ServiceError('organization_busy', `the replication slot ${name} is still in use`);
    await delay(POLL_MS);
  }
}
