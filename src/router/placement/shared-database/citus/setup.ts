import pg from 'pg';
import { rolePassword } from '../../../../auth/derived-secrets.ts';
import { textOf } from '../../../../protocol/backend.ts';
import { type Cluster, ClusterError } from '../../cluster.ts';
import { type ClusterOptions, prepareWorker } from '../../cluster-setup.ts';
import { type AdminLogin, addressOf } from '../../server/admin-login.ts';
import { withSession } from '../../server/admin-session.ts';
import { SHARED } from '../shared-database-setup.ts';
import type { Address } from './address.ts';
import { closeCitus } from './closed-functions.ts';
import { activateWorker } from './disabled-workers.ts';
import { installCitus } from './extension.ts';
import { endInterruptedMoves, forgetLogins } from './move-schema.ts';
import { letLogin, letWriteLogins } from './node-logins.ts';
import { ON_THIS_NODE } from './run-on-nodes.ts';

export interface CitusSetup {
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
