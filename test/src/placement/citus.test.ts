import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { parseCommand } from '../../../src/admin/admin.ts';
import { openOperator } from '../../../src/admin/operations.ts';
import { runCommand } from '../../../src/backend/own-request.ts';
import { readConfig } from '../../../src/config.ts';
import { letWriteLogins } from '../../../src/placement/citus-setup.ts';
import { type Cluster, Platform } from '../../../src/placement/cluster.ts';
import { prepareCluster } from '../../../src/placement/cluster-setup.ts';
import { ProvisionerByKind } from '../../../src/placement/provisioner-by-kind.ts';
import { newOrganizationId } from '../../../src/router/accounts.ts';
import { startService } from '../../../src/service.ts';
import type { TestCluster } from '../../support/cluster.setup.ts';
import { doorsAt } from '../../support/doors.ts';
import { startPostgres18 } from '../../support/postgres18.ts';
import { makeScratch, type Scratch } from '../../support/scratch.ts';
import { serverUrl } from '../../support/server-url.ts';

/**
 * No package brings Citus. An extension of its name stands in for it: it has a view that shows everybody the schemas of all, and
 * notes what each new schema was told to be. What Citus makes of that was tried out with itself.
 */
const EXTENSION = {
  'citus.control': "default_version = '1'\nschema = pg_catalog\nrelocatable = false\n",
  'citus--1.sql': `
    CREATE SCHEMA citus;
    CREATE TABLE citus.pg_dist_authinfo (nodeid int, rolename name, authinfo text, UNIQUE (rolename, nodeid));
    ALTER TABLE citus.pg_dist_authinfo SET SCHEMA pg_catalog;
    CREATE TABLE citus.pg_dist_local_group (groupid int);
    INSERT INTO citus.pg_dist_local_group VALUES (0);
    ALTER TABLE citus.pg_dist_local_group SET SCHEMA pg_catalog;
    CREATE TABLE citus.pg_dist_node (groupid int, noderole text, isactive bool, nodename text, nodeport int);
    CREATE TABLE citus.pg_dist_shard (logicalrelid regclass, shardid bigint);
    CREATE TABLE citus.pg_dist_placement (shardid bigint, groupid int);
    INSERT INTO citus.pg_dist_node VALUES (1, 'primary', true);
    GRANT SELECT ON citus.pg_dist_node, citus.pg_dist_shard, citus.pg_dist_placement TO PUBLIC;
    ALTER TABLE citus.pg_dist_node SET SCHEMA pg_catalog;
    ALTER TABLE citus.pg_dist_shard SET SCHEMA pg_catalog;
    ALTER TABLE citus.pg_dist_placement SET SCHEMA pg_catalog;
    CREATE TYPE citus.shard_transfer_mode AS ENUM ('auto', 'force_logical', 'block_writes');
    CREATE FUNCTION citus.citus_move_shard_placement(bigint, text, int, text, int, citus.shard_transfer_mode) RETURNS void
      LANGUAGE sql SECURITY DEFINER BEGIN ATOMIC
      UPDATE pg_dist_placement SET groupid = n.groupid FROM pg_dist_node n WHERE shardid = $1 AND nodename = $4 AND nodeport = $5;
    END;
    REVOKE EXECUTE ON FUNCTION citus.citus_move_shard_placement FROM PUBLIC;
    ALTER FUNCTION citus.citus_move_shard_placement SET SCHEMA pg_catalog;
    CREATE FUNCTION citus.worker_copy_table_to_node(regclass, int) RETURNS void LANGUAGE sql RETURN NULL;
    ALTER FUNCTION citus.worker_copy_table_to_node SET SCHEMA pg_catalog;
    CREATE FUNCTION citus.citus_local_disk_space_stats() RETURNS record LANGUAGE sql RETURN NULL;
    ALTER FUNCTION citus.citus_local_disk_space_stats SET SCHEMA pg_catalog;
    CREATE PROCEDURE citus.citus_cleanup_orphaned_resources() LANGUAGE sql BEGIN ATOMIC END;
    ALTER PROCEDURE citus.citus_cleanup_orphaned_resources SET SCHEMA pg_catalog;
    CREATE SCHEMA citus_internal;
    CREATE FUNCTION citus_internal.update_placement_metadata(bigint, int, int) RETURNS void LANGUAGE sql RETURN NULL;
    CREATE TABLE citus.commands (text text, by name);
    CREATE FUNCTION citus.run_command_on_workers(command text) RETURNS TABLE (success boolean, result text)
      LANGUAGE sql SECURITY DEFINER BEGIN ATOMIC
      INSERT INTO citus.commands VALUES ($1, session_user);
      SELECT true, ''::text;
    END;
    ALTER FUNCTION citus.run_command_on_workers SET SCHEMA pg_catalog;
    CREATE FUNCTION citus.worker_hash("any") RETURNS int LANGUAGE internal AS 'hashint4';
    ALTER FUNCTION citus.worker_hash SET SCHEMA pg_catalog;
    CREATE TABLE citus.made (name text, sharded text);
    CREATE VIEW citus.citus_schemas AS SELECT name FROM citus.made;
    GRANT SELECT ON citus.citus_schemas TO PUBLIC;
    ALTER VIEW citus.citus_schemas SET SCHEMA pg_catalog;
    CREATE FUNCTION citus.note() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
    BEGIN
      INSERT INTO citus.made SELECT object_identity, current_setting('citus.enable_schema_based_sharding', true)
      FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE SCHEMA';
    END $$;
    CREATE EVENT TRIGGER note ON ddl_command_end EXECUTE FUNCTION citus.note();`,
};

const SECRET = 'a secret of the tests';
const CONTROL_DATABASE = 'citus_test_control';

let scratch: Scratch;
let server: TestCluster & { stop(): Promise<void> };
let superuser: pg.Client;
beforeAll(async () => {
  scratch = await makeScratch();
  await mkdir(join(scratch.path, 'extension'));
  for (const [name, content] of Object.entries(EXTENSION)) await writeFile(join(scratch.path, 'extension', name), content);
  server = await startPostgres18({ extension_control_path: `${scratch.path}:$system` });
  await prepare();
  superuser = new pg.Client({ ...server, database: 'postern_shared' });
  await superuser.connect();
  await superuser.query('CREATE EXTENSION citus');
  await superuser.query(letWriteLogins('postern_platform'));
  // Of a setting that no library defines.
  await superuser.query('GRANT SET ON PARAMETER citus.enable_unsafe_triggers TO postern_platform');
});
afterAll(async () => {
  await superuser.end();
  await server.stop();
  await scratch.remove();
});

function prepare(): Promise<Cluster> {
  return prepareCluster({ admin: server, secret: SECRET, controlDatabase: CONTROL_DATABASE, observe: () => {} });
}

test('on a coordinator each organization gets a distributed schema, and does not see those of others', async () => {
  const cluster = await prepare();
  const platform = new Platform(cluster);
  const limits = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };
  const provisioner = new ProvisionerByKind({ platform, connectionLimit: 20, limits, observe: () => {} }, 'schema');
  const placement = provisioner.placementFor(newOrganizationId());
  await provisioner.provision(placement);
  const { rows } = await superuser.query('SELECT * FROM citus.made');
  expect(rows).toEqual([{ name: placement.schema, sharded: 'on' }]);
  expect((await superuser.query('SELECT nodeid, rolename FROM pg_dist_authinfo')).rows).toEqual([{ nodeid: 0, rolename: placement.role }]);

  const backend = await provisioner.open(placement);
  expect(await runCommand(backend, 'CREATE TABLE notes (id int)')).toBe('CREATE TABLE');
  for (const closed of ['SELECT FROM citus_schemas', "SELECT FROM run_command_on_workers('SELECT 1')", 'SELECT FROM pg_dist_authinfo']) {
    await expect(runCommand(backend, closed)).rejects.toMatchObject({ fields: { code: '42501' } });
  }
  expect(await runCommand(backend, 'SELECT worker_hash(1)')).toBe('SELECT 1');
  expect(await runCommand(backend, "SELECT WHERE current_setting('citus.enable_unsafe_triggers') = 'on'")).toBe('SELECT 1');
  backend.end();

  const { schema, role } = placement;
  await superuser.query(`INSERT INTO pg_dist_shard VALUES ('${schema}.notes', 1); INSERT INTO pg_dist_placement VALUES (1, 1);
    UPDATE pg_dist_node SET isactive = false; REVOKE USAGE ON SCHEMA ${schema} FROM ${role}`);
  await expect(provisioner.open(placement)).rejects.toMatchObject({ kind: 'not_ready' });
  await expect(provisioner.deprovision(placement)).rejects.toMatchObject({ kind: 'not_ready' });
  await superuser.query('UPDATE pg_dist_node SET isactive = true');
  (await provisioner.open(placement)).end();

  await provisioner.deprovision(placement);
  expect((await superuser.query('SELECT FROM pg_namespace WHERE nspname = $1', [placement.schema])).rowCount).toBe(0);
  expect((await superuser.query('SELECT * FROM citus.commands')).rows).toEqual([
    { text: `GRANT "${placement.role}" TO CURRENT_USER WITH INHERIT TRUE`, by: 'postern_platform' },
  ]);
  expect((await superuser.query('SELECT FROM pg_dist_authinfo')).rowCount).toBe(0);
  await platform.close();
});

test('the platform may make schemas on every worker: the grant is given again at each start', async () => {
  await superuser.query('REVOKE CREATE ON DATABASE postern_shared FROM postern_platform');
  await prepare();
  const { rows } = await superuser.query("SELECT has_database_privilege('postern_platform', 'postern_shared', 'CREATE') AS may");
  expect(rows).toEqual([{ may: true }]);
});

/** An address of the server, as that of a worker. @returns its port */
async function openWorkerPort(): Promise<number> {
  const listener = createServer((client) => {
    const upstream = connect(join(server.host, `.s.PGSQL.${server.port}`));
    client.pipe(upstream).pipe(client);
    client.on('error', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
  });
  await once(listener.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void listener.close());
  return (listener.address() as AddressInfo).port;
}

test('a move to another worker is in the audit log', async () => {
  const config = readConfig({
    DATABASE_URL: serverUrl(server),
    POSTERN_SECRET: SECRET,
    POSTERN_CONTROL_DATABASE: CONTROL_DATABASE,
    POSTERN_PLACEMENT: 'schema',
    POSTERN_HTTP_PORT: '0',
    POSTERN_PG_PORT: '0',
    POSTERN_OPS_PORT: '0',
  });
  const [from, to] = [await openWorkerPort(), await openWorkerPort()];
  await superuser.query(`UPDATE pg_dist_node SET nodename = '127.0.0.1', nodeport = ${from};
    INSERT INTO pg_dist_node VALUES (2, 'primary', true, '127.0.0.1', ${to})`);
  const service = await startService(config, () => {});
  onTestFinished(() => service.close());
  const operator = await openOperator(config);
  onTestFinished(() => operator.close());
  const { signUp, query, call } = doorsAt(service.httpPort, service.wirePort);
  const organization = await signUp();
  const moved = async () => {
    const { body } = await call('GET', '/api/audit?action=organization.moved', { key: organization.apiKey });
    return body.data;
  };
  const move = () => parseCommand(['org', 'move', organization.id, '--to-node', `127.0.0.1:${to}`])(operator, async () => undefined);

  await expect(move()).rejects.toThrow('no tables');
  expect(await moved()).toEqual([]);
  expect((await query(organization, 'CREATE TABLE notes (id int)')).status).toBe(200);
  await superuser.query(`INSERT INTO pg_dist_shard VALUES ('${organization.id}.notes', 2); INSERT INTO pg_dist_placement VALUES (2, 1)`);
  expect(await move()).toContain(`has its tables on 127.0.0.1:${to}: 1`);
  expect((await superuser.query('SELECT groupid FROM pg_dist_placement WHERE shardid = 2')).rows).toEqual([{ groupid: 2 }]);
  const entry = { surface: 'admin', action: 'organization.moved', outcome: { status: 'ok' } };
  expect(await moved()).toMatchObject([entry]);
  await expect(move()).rejects.toThrow('there already');
  expect(await moved()).toHaveLength(1);
});
