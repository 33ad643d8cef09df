import pg from 'pg';

/** Whether Citus is installed in the session's database. */
export async function hasCitus(session: pg.ClientBase): Promise<boolean> {
  const { rows } = await session.query("SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus'");
  return rows.length > 0;
}

/**
 * Installs Citus, or updates it. Its scripts need a schema `public`, and the extension goes on depending on it; it stays empty and closed.
 * @param session of a superuser, in the shared database
 */
export async function installCitus(session: pg.Client): Promise<void> {
  await session.query(ON_THIS_NODE);
  await session.query('CREATE SCHEMA IF NOT EXISTS public; REVOKE ALL ON SCHEMA public FROM PUBLIC');
  // The second one does nothing if the extension is new, or current.
  await session.query('CREATE EXTENSION IF NOT EXISTS citus');
  await session.query('ALTER EXTENSION citus UPDATE');
}

/**
 * The functions of Citus that stay open to everybody: patterns of names. Citus calls them in sessions of an organization's role, for parts of
 * its statements. They compute something of their arguments, read intermediate results of the same transaction, or change what their
 * caller owns. All others are revoked, because they show other organizations or the nodes, or run SQL on these.
 */
const OPEN = [
  'any_value(_agg)?',
  '(array|jsonb?)_cat_agg',
  'coord_combine_agg(_[sf]func)?',
  'worker_partial_agg(_[sf]func)?',
  'citus_jsonb?_concatenate(_final)?',
  'cluster_clock_[a-z]+',
  'worker_hash',
  'assign_distributed_transaction_id',
  '(create|broadcast)_intermediate_result|read_intermediate_results?|fetch_intermediate_results',
  'worker_partition_query_result',
  // In Citus' filter for every read of pg_class, which hides shards.
  'relation_is_a_known_shard',
  // Of the trigger that cleans up after DROP.
  'citus_drop_all_shards|master_remove_(distributed_table_metadata_from_workers|partition_metadata)|notify_constraint_dropped',
  'master_unmark_object_distributed',
];

/** With these, sessions on the coordinator carry DDL out on workers. Each checks that its caller owns the object. */
const OPEN_ON_WORKERS = [
  'worker_apply_(shard_ddl|inter_shard_ddl|sequence)_command',
  'worker_create_or_replace_object(_all)?',
  'worker_(create_truncate_trigger|drop_distributed_table|drop_shell_table|nextval)',
  'worker_(drop|record|change)_sequence_dependency|worker_adjust_identity_column_seq_ranges',
  'worker_(save_query|last_saved)_explain_analyze|worker_fix_partition_shard_index_names',
  // Not delete_placement_metadata, which does not check.
  '(citus_internal_)?(add_(object|partition|shard|placement)_metadata|delete_(partition|shard)_metadata|update_relation_colocation)',
  'lock_(shard_metadata|shard_resources|relation_if_exists)',
];

const IN_CITUS = (catalog: string) => `
  SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
  WHERE d.classid = 'pg_catalog.${catalog}'::pg_catalog.regclass AND d.objid = o.oid AND d.deptype = 'e'
    AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND e.extname IN ('citus', 'citus_columnar')`;

/** Relations, and functions, that PUBLIC may use and should not. */
const TOO_OPEN = `
  SELECT pg_catalog.format('%s %s', CASE o.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, o.oid::pg_catalog.regclass) AS object
  FROM pg_catalog.pg_class o
  WHERE o.relkind IN ('r', 'v', 'm', 'S') AND EXISTS (${IN_CITUS('pg_class')})
    AND EXISTS (SELECT FROM pg_catalog.aclexplode(o.relacl) AS granted WHERE granted.grantee = 0)
  UNION ALL
  SELECT pg_catalog.format('ROUTINE %s', o.oid::pg_catalog.regprocedure)
  FROM pg_catalog.pg_proc o
  WHERE EXISTS (${IN_CITUS('pg_proc')}) AND o.proname !~ $1 AND o.prorettype <> 'pg_catalog.trigger'::pg_catalog.regtype
    AND EXISTS (
      SELECT FROM pg_catalog.aclexplode(coalesce(o.proacl, pg_catalog.acldefault('f', o.proowner))) AS granted WHERE granted.grantee = 0)`;

/**
 * Takes what shows or changes others from PUBLIC, on this node. The platform role keeps it: Citus creates and drops roles and schemas on
 * other nodes with it.
 * @param session of a superuser, in the shared database
 */
export async function closeCitus(session: pg.Client, platform: string): Promise<void> {
  const open = (await isWorker(session)) ? [...OPEN, ...OPEN_ON_WORKERS] : OPEN;
  const { rows } = await session.query<{ object: string }>(TOO_OPEN, [`^(${open.join('|')})$`]);
  if (rows.length === 0) return;
  const role = pg.escapeIdentifier(platform);
  const changes = rows.flatMap(({ object }) => [
    `REVOKE ALL ON ${object} FROM PUBLIC`,
    `GRANT ${object.startsWith('ROUTINE') ? 'EXECUTE' : 'SELECT'} ON ${object} TO ${role}`,
  ]);
  await session.query(['BEGIN', 'SET LOCAL citus.enable_ddl_propagation = off', ...changes, 'COMMIT'].join('; '));
}

/** A node that has not been added to a coordinator yet counts as the coordinator. */
async function isWorker(session: pg.Client): Promise<boolean> {
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_dist_local_group WHERE groupid <> 0');
  return rows.length > 0;
}

/** Of a node, as Citus knows it. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

/** Changes in this session are not made on other nodes. Without Citus it is a setting that nothing reads. */
export const ON_THIS_NODE = 'SET citus.enable_ddl_propagation = off';

/**
 * Runs a statement on every worker with the session's role.
 * @throws Error when it fails on one of them
 */
export async function runOnWorkers(session: pg.ClientBase, statement: string): Promise<void> {
  const { rows } = await session.query<{ result: string }>('SELECT result FROM pg_catalog.run_command_on_workers($1) WHERE NOT success', [
    statement,
  ]);
  const [failed] = rows;
  if (failed !== undefined) throw new Error(`a worker of Citus refused a statement: ${failed.result}`);
}
