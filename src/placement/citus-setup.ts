import pg from 'pg';
import { rolePassword } from '../auth/derived-secrets.ts';
import type { Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import { textOf } from '../protocol/backend.ts';
import { type AdminLogin, addressOf, type RoleLogin, withSession } from './admin-connection.ts';
import { type Address, closeCitus, installCitus, ON_THIS_NODE } from './citus.ts';
import { type Cluster, ClusterError } from './cluster.ts';
import { type ClusterOptions, prepareWorker } from './cluster-setup.ts';
import { SHARED } from './shared-database.ts';

interface CitusSetup {
  /** How a superuser logs in to the coordinator; the same name and password are used on the workers. */
  readonly admin: AdminLogin;
  readonly workers: readonly Address[];
  /** The set-up coordinator. */
  readonly cluster: Cluster;
  readonly allowXpath: boolean;
}

interface Settings {
  readonly superuser: boolean;
  readonly preloaded: boolean;
  readonly prepared: number;
}

/**
 * Installs Citus in the shared database of a coordinator and its workers, hardens each like a server of its own, and lets the nodes log in
 * to each other. May be repeated, and has to be for each new worker.
 * @returns a line for each node
 * @throws ClusterError that says what has to be done on which node first
 */
export async function setUpCitus(setup: CitusSetup): Promise<string> {
  const { admin, workers, cluster, allowXpath } = setup;
  const nodes = [admin, ...workers.map((worker) => ({ ...admin, ...worker }))];
  await checkNodes(nodes);
  const options: ClusterOptions = {
    admin,
    secret: cluster.secret,
    controlDatabase: cluster.controlDatabase,
    observe: () => {},
    allowXpath,
    waitMs: 0,
  };
  for (const node of nodes.slice(1)) await prepareWorker({ ...options, admin: node });
  for (const node of nodes) await withSession({ ...node, database: SHARED }, (session) => furnishNode(session, setup));
  return withSession({ ...admin, database: SHARED }, async (session) => {
    await closeCitus(session, cluster.platform.user);
    await endInterruptedMoves(session);
    await addNodes(session, admin, workers);
    const own = await ownTransactions(session);
    for (const node of nodes.slice(1))
      await withSession({ ...node, database: SHARED }, async (worker) => {
        await endPreparedTransactions(worker, own);
        await closeCitus(worker, cluster.platform.user);
        await endInterruptedMoves(worker);
        await forgetLogins(worker);
      });
    await furnishRoles(session, cluster);
    return describeNodes(session);
  });
}

async function checkNodes(nodes: readonly AdminLogin[]): Promise<void> {
  const missing = (await Promise.all(nodes.map(whatIsMissing))).flat();
  if (missing.length > 0) throw new ClusterError(`Citus cannot be set up yet:\n${missing.map((line) => `  ${line}`).join('\n')}`);
}

/** @returns what only people with access to the node can do */
async function whatIsMissing(node: AdminLogin): Promise<string[]> {
  const at = addressOf(node);
  try {
    const { superuser, preloaded, prepared } = await withSession({ ...node, database: 'postgres' }, readSettings);
    return [
      ...(superuser ? [] : [`${at}: ALTER ROLE ${pg.escapeIdentifier(node.user)} SUPERUSER, by a superuser; it may be undone afterwards`]),
      ...(preloaded ? [] : [`${at}: shared_preload_libraries = 'citus' in postgresql.conf (first in the list), and a restart`]),
      ...(prepared > 0
        ? []
        : [`${at}: max_prepared_transactions = 200 in postgresql.conf, and a restart: Citus commits on several nodes with it`]),
    ];
  } catch (error) {
    return [`${at}: let the role ${node.user} log in, with the password of DATABASE_URL: ${textOf(error)}`];
  }
}

async function readSettings(session: pg.Client): Promise<Settings> {
  const { rows } = await session.query<Settings>(
    `SELECT rolsuper AS superuser, pg_catalog.current_setting('shared_preload_libraries') ~ '\\mcitus\\M' AS preloaded,
       pg_catalog.current_setting('max_prepared_transactions')::int AS prepared
     FROM pg_catalog.pg_roles WHERE rolname = current_user`,
  );
  return rows[0] ?? { superuser: false, preloaded: false, prepared: 0 };
}

async function furnishNode(session: pg.Client, { admin, cluster }: CitusSetup): Promise<void> {
  const { platform } = cluster;
  await endPreparedTransactions(session, '^citus_');
  await installCitus(session);
  await session.query(ON_THIS_NODE);
  await session.query(`GRANT CREATE ON DATABASE ${SHARED} TO ${pg.escapeIdentifier(platform.user)}`);
  await session.query(letWriteLogins(platform.user));
  for (const login of [admin, platform]) await session.query(letLogin(login));
}

/**
 * Citus ends its own. Those with other names are of an organization that reached PREPARE TRANSACTION by way of a function of Citus.
 * @param own matches the names of Citus' own
 */
async function endPreparedTransactions(session: pg.Client, own: string): Promise<void> {
  const { rows } = await session.query<{ gid: string }>(
    'SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database() AND gid !~ $1',
    [own],
  );
  for (const { gid } of rows) await session.query(`ROLLBACK PREPARED ${pg.escapeLiteral(gid)}`);
}

/** `citus`, the node's group, a process, a transaction and a connection. Names like that of no node's group are nobody's to end. */
async function ownTransactions(session: pg.Client): Promise<string> {
  const { rows } = await session.query<{ groups: string }>(
    "SELECT pg_catalog.string_agg(groupid::text, '|') AS groups FROM pg_catalog.pg_dist_node",
  );
  return `^citus_(${rows[0]?.groups})_\\d+_\\d+_\\d+$`;
}

async function addNodes(session: pg.Client, admin: AdminLogin, workers: readonly Address[]): Promise<void> {
  const { rows } = await session.query<Address & { readonly groupid: number; readonly isactive: boolean }>(
    'SELECT nodename AS host, nodeport AS port, groupid, isactive FROM pg_catalog.pg_dist_node',
  );
  if (!rows.some(({ groupid }) => groupid === 0)) {
    await session.query('SELECT pg_catalog.citus_set_coordinator_host($1, $2)', [admin.host, admin.port]);
  }
  for (const worker of workers) {
    const found = rows.find((node) => node.host === worker.host && node.port === worker.port);
    if (found === undefined) await session.query('SELECT pg_catalog.citus_add_node($1, $2)', [worker.host, worker.port]);
    else if (!found.isactive) {
      await withSession({ ...admin, ...worker, database: SHARED }, (other) => activateWorker(session, other, worker));
    }
  }
}

/** Those of organizations that were there before. */
async function furnishRoles(session: pg.Client, { secret }: Cluster): Promise<void> {
  const { rows } = await session.query<{ name: string }>(
    "SELECT rolname AS name FROM pg_catalog.pg_roles WHERE rolname ~ '^org_[a-z0-9]{12}'",
  );
  for (const { name } of rows) await session.query(letLogin({ user: name, password: rolePassword(secret, name) }));
}

async function describeNodes(session: pg.Client): Promise<string> {
  const { rows } = await session.query<{ line: string }>(
    `SELECT pg_catalog.format('%s:%s is %s', nodename, nodeport, CASE WHEN groupid = 0 THEN 'the coordinator' ELSE 'a worker' END) AS line
     FROM pg_catalog.pg_dist_node WHERE isactive ORDER BY groupid, nodeid`,
  );
  return rows.map(({ line }) => line).join('\n');
}

/** What Citus calls with the role that moves a table, on one node or another. Each checks that its caller owns the table. */
const CALLED = [
  'FUNCTION pg_catalog.citus_move_shard_placement(bigint, text, integer, text, integer, citus.shard_transfer_mode)',
  'FUNCTION pg_catalog.worker_copy_table_to_node(regclass, integer)',
  'FUNCTION pg_catalog.citus_local_disk_space_stats()',
  'FUNCTION citus_internal.update_placement_metadata(bigint, integer, integer)',
  'PROCEDURE pg_catalog.citus_cleanup_orphaned_resources()',
];

interface SchemaMove {
  /** How a superuser logs in to the coordinator and, with the same name and password, to the workers. */
  readonly admin: AdminLogin;
  readonly cluster: Cluster;
  readonly placement: Placement;
  readonly target: Address;
}

interface MovedSchema {
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
async function endInterruptedMoves(node: pg.Client): Promise<void> {
  const { rows } = await node.query<{ name: string }>(
    `SELECT DISTINCT r.rolname AS name
     FROM pg_catalog.pg_proc p, pg_catalog.aclexplode(p.proacl) AS granted, pg_catalog.pg_roles r
     WHERE p.proname IN ('citus_move_shard_placement', 'worker_copy_table_to_node') AND r.oid = granted.grantee
       AND r.rolname ~ '^org_[a-z0-9]{12}'`,
  );
  for (const { name } of rows) await change(node, revocations(name));
}

/** The logins of organizations that interrupted moves have left on a worker. */
async function forgetLogins(worker: pg.Client): Promise<void> {
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
async function activateWorker(session: pg.Client, worker: pg.Client, { host, port }: Address): Promise<void> {
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

/** 0 in a row's `nodeid` means every node. */
const EVERY_NODE = 0;

/**
 * Statements that let Citus log in to other nodes with a role. Citus runs the parts of an organization's statement there in
 * sessions of the organization's own role. The password may be read by superusers only.
 * @see https://docs.citusdata.com/en/stable/develop/api_metadata.html#connection-credentials-table
 */
export function letLogin({ user, password }: RoleLogin): string {
  const value = `password='${password.replace(/['\\]/g, '\\$&')}'`;
  return `${forgetLogin(user)}; INSERT INTO pg_catalog.pg_dist_authinfo (nodeid, rolename, authinfo)
    VALUES (${EVERY_NODE}, ${pg.escapeLiteral(user)}, ${pg.escapeLiteral(value)})`;
}

export function forgetLogin(role: string): string {
  return `DELETE FROM pg_catalog.pg_dist_authinfo WHERE nodeid = ${EVERY_NODE} AND rolename = ${pg.escapeLiteral(role)}`;
}

/** The statement that lets the platform role write such rows, without reading the passwords in them. */
export function letWriteLogins(platform: string): string {
  const role = pg.escapeIdentifier(platform);
  return `GRANT INSERT, DELETE, SELECT (nodeid, rolename) ON pg_catalog.pg_dist_authinfo TO ${role}`;
}
