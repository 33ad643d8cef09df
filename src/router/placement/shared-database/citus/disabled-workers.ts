import pg from 'pg';
import { ServiceError } from '../../../../errors.ts';
import { ClusterError } from '../../cluster.ts';
import type { Address } from './address.ts';
import { ON_THIS_NODE } from './run-on-nodes.ts';

/** A transaction that waits for a worker's answer to a connection holds its lock for as long as `citus.node_connection_timeout`. */
const LOCK_TIMEOUT = '60s';

const ON_DISABLED = `
  SELECT c.relnamespace FROM pg_catalog.pg_class c JOIN pg_catalog.pg_dist_shard s ON s.logicalrelid = c.oid
  JOIN pg_catalog.pg_dist_placement USING (shardid) JOIN pg_catalog.pg_dist_node n USING (groupid)
  WHERE n.noderole = 'primary' AND NOT n.isactive`;

/**
 * For a schema whose tables are on a disabled worker: most statements fail there, and some of DDL never end.
 * @throws ServiceError `not_ready`
 */
export async function checkWorker(session: pg.ClientBase, schema: string): Promise<void> {
  const { rows } = await session.query(`${ON_DISABLED} AND c.relnamespace = pg_catalog.to_regnamespace($1) LIMIT 1`, [
    pg.escapeIdentifier(schema),
  ]);
  if (rows.length > 0) throw new ServiceError('not_ready', 'the server that holds this data is not available', { retryAfterS: 5 });
}

/**
 * Has Citus do without a worker that is down: it changes no roles, schemas, types and tables there. Organizations whose tables are on it are
 * refused, until {@link activateWorker}. Citus' own `citus_disable_node` does not disable a worker that has the only copy of a table.
 * @param session of a superuser, in the coordinator's shared database
 * @returns how many organizations are refused
 * @throws ClusterError if there is no such worker
 */
export async function disableWorker(session: pg.Client, { host, port }: Address): Promise<number> {
  await session.query(ON_THIS_NODE);
  await session.query(`SET lock_timeout = '${LOCK_TIMEOUT}'`);
  await session.query('BEGIN; LOCK TABLE pg_catalog.pg_dist_node IN EXCLUSIVE MODE');
  const { rowCount } = await session.query(
    `UPDATE pg_catalog.pg_dist_node SET isactive = false, hasmetadata = false, metadatasynced = false
     WHERE nodename = $1 AND nodeport = $2 AND groupid <> 0 AND noderole = 'primary'`,
    [host, port],
  );
  if (rowCount === 0) throw new ClusterError(`the coordinator has no worker ${host}:${port}`);
  const { rows } = await session.query<{ schema: string; role: string }>(
    `SELECT s.nspname AS schema, r.rolname AS role
     FROM pg_catalog.pg_namespace s, pg_catalog.aclexplode(s.nspacl) AS granted, pg_catalog.pg_roles r
     WHERE s.oid IN (${ON_DISABLED}) AND granted.privilege_type = 'USAGE' AND r.oid = granted.grantee AND r.oid <> s.nspowner`,
  );
  // Each new session that lacks the right asks for a repair, which is refused as long as the worker is disabled.
  for (const { schema, role } of rows) {
    await session.query(`REVOKE USAGE ON SCHEMA ${pg.escapeIdentifier(schema)} FROM ${pg.escapeIdentifier(role)}`);
  }
  await session.query('COMMIT');
  const roles = rows.map(({ role }) => role);
  await session.query('SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE usename = ANY ($1)', [roles]);
  return new Set(rows.map(({ schema }) => schema)).size;
}

/**
 * Brings a worker up to date, and has Citus use it again.
 * @param session of a superuser, in the coordinator's shared database
 * @param worker the same on the worker
 */
export async function activateWorker(session: pg.Client, worker: pg.Client, { host, port }: Address): Promise<void> {
  const former = await organizationsOf(worker);
  await session.query(`SET lock_timeout = '${LOCK_TIMEOUT}'`);
  // Transactions that Citus had prepared there would keep the objects locked that are about to be made.
  await session.query('BEGIN');
  await session.query('UPDATE pg_catalog.pg_dist_node SET isactive = true WHERE nodename = $1 AND nodeport = $2', [host, port]);
  await session.query('SELECT pg_catalog.recover_prepared_transactions()');
  await session.query('SELECT pg_catalog.citus_activate_node($1, $2)', [host, port]);
  await session.query('COMMIT');
  await admitOrganizations(session);
  await dropLeft(session, worker, former);
}

/** Gives owners back what {@link disableWorker} has taken; readers are granted theirs with their next session. */
async function admitOrganizations(session: pg.Client): Promise<void> {
  const { rows } = await session.query<{ schema: string; role: string }>(
    `SELECT s.nspname AS schema, r.rolname AS role
     FROM pg_catalog.pg_namespace s, pg_catalog.aclexplode(s.nspacl) AS granted, pg_catalog.pg_roles r
     WHERE granted.privilege_type = 'CREATE' AND r.oid = granted.grantee AND r.rolname = s.nspname
       AND NOT pg_catalog.has_schema_privilege(r.oid, s.oid, 'USAGE') AND s.oid NOT IN (${ON_DISABLED})`,
  );
  for (const { schema, role } of rows) {
    await session.query(`GRANT USAGE ON SCHEMA ${pg.escapeIdentifier(schema)} TO ${pg.escapeIdentifier(role)}`);
  }
}

/** The roles that Citus has made on the worker: it may have others, which are nothing to Citus. */
async function organizationsOf(worker: pg.Client): Promise<readonly string[]> {
  const { rows } = await worker.query<{ name: string }>(
    `SELECT r.rolname AS name FROM pg_catalog.pg_dist_object o JOIN pg_catalog.pg_roles r ON r.oid = o.objid
     WHERE o.classid = 'pg_catalog.pg_authid'::pg_catalog.regclass AND r.rolname ~ '^org_[a-z0-9]{12}'`,
  );
  return rows.map(({ name }) => name);
}

/** Removes the organizations from the worker that were dropped meanwhile. */
async function dropLeft(session: pg.Client, worker: pg.Client, former: readonly string[]): Promise<void> {
  const { rows } = await session.query<{ name: string }>(
    `SELECT name FROM pg_catalog.unnest($1::text[]) AS name
     WHERE name NOT IN (SELECT rolname FROM pg_catalog.pg_roles) ORDER BY pg_catalog.length(name) DESC`,
    [former],
  );
  await worker.query(ON_THIS_NODE);
  for (const { name } of rows) {
    const role = pg.escapeIdentifier(name);
    await worker.query(`DROP SCHEMA IF EXISTS ${role} CASCADE`);
    await worker.query(`DROP OWNED BY ${role} CASCADE`);
    await worker.query(`DROP ROLE ${role}`);
  }
}
