import pg from 'pg';
import { rolePassword } from '../../../../auth/derived-secrets.ts';
import type { Placement } from '../../../../catalog/organization.ts';
import { ServiceError } from '../../../../errors.ts';
import type { Cluster } from '../../cluster.ts';
import type { AdminLogin } from '../../server/admin-login.ts';
import { withSession } from '../../server/admin-session.ts';
import type { Address } from './address.ts';
import { forgetLogin, letLogin } from './node-logins.ts';
import { ON_THIS_NODE } from './run-on-nodes.ts';

/** What Citus calls with the role that moves a table, on one node or another. Each checks that its caller owns the table. */
const CALLED = [
  'FUNCTION pg_catalog.citus_move_shard_placement(bigint, text, integer, text, integer, citus.shard_transfer_mode)',
  'FUNCTION pg_catalog.worker_copy_table_to_node(regclass, integer)',
  'FUNCTION pg_catalog.citus_local_disk_space_stats()',
  'FUNCTION citus_internal.update_placement_metadata(bigint, integer, integer)',
  'PROCEDURE pg_catalog.citus_cleanup_orphaned_resources()',
];

export interface SchemaMove {
  /** How a superuser logs in to the coordinator and, with the same name and password, to the workers. */
  readonly admin: AdminLogin;
  readonly cluster: Cluster;
  readonly placement: Placement;
  readonly target: Address;
}

export interface MovedSchema {
  readonly tables: number;
  /** Whether clients could go on writing while rows were copied. */
  readonly isOnline: boolean;
}

interface Source extends Address {
  readonly shard: string;
  readonly tables: number;
  readonly isOnline: boolean;
}

/**
 * Moves the tables of an organization's schema to another worker, as `citus_schema_move` does. That one copies rows with the role that calls
 * it, and functions in the tables' constraints would run with that role. So it is the organization's own role that moves them.
 * @throws ServiceError `invalid_request`, `not_found`, or pg.DatabaseError
 */
export async function moveSchema({ admin, cluster, placement, target }: SchemaMove): Promise<MovedSchema> {
  const at = (node: Address) => ({ ...admin, ...node, database: placement.database });
  const login = { user: placement.role, password: rolePassword(cluster.secret, placement.role) };
  return withSession(at(admin), async (session) => {
    const source = await findSource(session, placement.schema);
    const nodes = await activeNodes(session);
    if (!nodes.some((node) => isSame(node, target))) throw new ServiceError('not_found', 'there is no such worker that is active');
    if (isSame(source, target)) throw new ServiceError('invalid_request', 'the organization is there already');
    // What an earlier move has left keeps Citus from moving it back.
    await session.query('CALL pg_catalog.citus_cleanup_orphaned_resources()');
    try {
      for (const node of nodes) await withSession(at(node), (one) => change(one, grants(login.user)));
      await withSession(at(source), (one) => change(one, [letLogin(login)]));
      await withSession({ ...at(admin), ...login }, (own) =>
        own.query('SELECT pg_catalog.citus_move_shard_placement($1, $2, $3, $4, $5, $6)', [
          source.shard,
          source.host,
          source.port,
          target.host,
          target.port,
          source.isOnline ? 'force_logical' : 'block_writes',
        ]),
      );
    } finally {
      await withSession(at(source), (one) => change(one, [forgetLogin(login.user)]));
      for (const node of nodes) await withSession(at(node), (one) => change(one, revocations(login.user)));
    }
    await session.query('CALL pg_catalog.citus_cleanup_orphaned_resources()');
    return { tables: source.tables, isOnline: source.isOnline };
  });
}

function isSame(one: Address, other: Address): boolean {
  return one.host === other.host && one.port === other.port;
}

/** Takes back what interrupted moves have left on a node. */
export async function endInterruptedMoves(node: pg.Client): Promise<void> {
  const { rows } = await node.query<{ name: string }>(
    `SELECT DISTINCT r.rolname AS name
     FROM pg_catalog.pg_proc p, pg_catalog.aclexplode(p.proacl) AS granted, pg_catalog.pg_roles r
     WHERE p.proname IN ('citus_move_shard_placement', 'worker_copy_table_to_node') AND r.oid = granted.grantee
       AND r.rolname ~ '^org_[a-z0-9]{12}'`,
  );
  for (const { name } of rows) await change(node, revocations(name));
}

/** The logins of organizations that interrupted moves have left on a worker. */
export async function forgetLogins(worker: pg.Client): Promise<void> {
  await worker.query("DELETE FROM pg_catalog.pg_dist_authinfo WHERE rolename ~ '^org_[a-z0-9]{12}'");
}

/**
 * Logical replication needs to identify rows, and would fire triggers that are enabled for replicas once more: without it writers wait.
 * @throws ServiceError `invalid_request` if there is nothing to move
 */
async function findSource(session: pg.Client, schema: string): Promise<Source> {
  const { rows } = await session.query<Source>(
    `SELECT n.nodename AS host, n.nodeport AS port, pg_catalog.min(s.shardid)::text AS shard, pg_catalog.count(*)::int AS tables,
       pg_catalog.bool_and(
         c.relreplident <> 'n' AND (c.relreplident <> 'd' OR EXISTS (
           SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))
         AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled IN ('A', 'R'))
       ) AND pg_catalog.current_setting('wal_level') = 'logical' AS "isOnline"
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_dist_shard s ON s.logicalrelid = c.oid
     JOIN pg_catalog.pg_dist_placement USING (shardid) JOIN pg_catalog.pg_dist_node n USING (groupid)
     WHERE c.relnamespace = pg_catalog.to_regnamespace($1) AND n.noderole = 'primary' AND n.isactive
     GROUP BY n.nodename, n.nodeport`,
    [pg.escapeIdentifier(schema)],
  );
  const [source] = rows;
  if (source === undefined) throw new ServiceError('invalid_request', 'the organization has no tables on an active worker');
  return source;
}

async function activeNodes(session: pg.Client): Promise<readonly Address[]> {
  const { rows } = await session.query<Address>(
    "SELECT nodename AS host, nodeport AS port FROM pg_catalog.pg_dist_node WHERE isactive AND noderole = 'primary' ORDER BY groupid",
  );
  return rows;
}

function grants(role: string): string[] {
  return CALLED.map((called) => `GRANT EXECUTE ON ${called} TO ${pg.escapeIdentifier(role)}`);
}

function revocations(role: string): string[] {
  return CALLED.map((called) => `REVOKE EXECUTE ON ${called} FROM ${pg.escapeIdentifier(role)}`);
}

async function change(session: pg.Client, statements: readonly string[]): Promise<void> {
  await session.query(ON_THIS_NODE);
  await session.query(statements.join('; '));
}
