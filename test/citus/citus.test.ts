import { describe, expect, test } from 'vitest';
import type { TestOrganization } from '../support/doors.ts';
import { doors, operator, rows, useCitus, workerOf, workers } from './installation.ts';
import { asSuperuser } from './nodes.ts';

useCitus();

async function refused(organization: TestOrganization, sql: string): Promise<string> {
  const { body } = await doors.query(organization, sql);
  return body.sqlstate;
}

test('the set-up may be repeated, and lists the nodes', async () => {
  const lines = (await operator.citus.setUp(workers)).split('\n');
  expect(lines).toHaveLength(3);
  expect(lines[0]).toMatch(/ is the coordinator$/);
  expect(lines.slice(1)).toEqual(workers.map(({ host, port }) => `${host}:${port} is a worker`));
});

test('organizations are spread over the workers, and each reads its own', async () => {
  const organizations = await Promise.all([doors.signUp(), doors.signUp()]);
  for (const organization of organizations) {
    await rows(organization, 'CREATE TABLE notes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text)');
    expect(await rows(organization, 'INSERT INTO notes (text) VALUES ($1) RETURNING text', [organization.id])).toEqual([
      { text: organization.id },
    ]);
    expect(await rows(organization, 'SELECT text FROM public.notes')).toEqual([{ text: organization.id }]);
  }
  expect(new Set(await Promise.all(organizations.map((one) => workerOf(one, 'notes')))).size).toBe(2);
});

test('migrations are applied once, with and without a transaction, and listed', async () => {
  const { apiKey: key } = await doors.signUp();
  const migrate = (body: object) => doors.call('POST', '/api/migrations', { key, body });
  const first = { name: 'users', sql: 'CREATE TABLE users (id int PRIMARY KEY, name text); INSERT INTO users VALUES (1)' };
  expect(await migrate(first)).toMatchObject({ status: 201, body: { migration: { status: 'applied' } } });
  expect(await migrate(first)).toMatchObject({ status: 200, body: { alreadyApplied: true } });
  const index = { name: 'index', sql: 'CREATE INDEX CONCURRENTLY ON users (name)', transaction: false };
  expect(await migrate(index)).toMatchObject({ status: 201, body: { migration: { statementsApplied: 1 } } });
  const trial = { name: 'trial', sql: 'CREATE TABLE t (id int)', rollbackSql: 'DROP TABLE t', dryRun: true };
  expect(await migrate(trial)).toMatchObject({ body: { migration: { status: 'dry_run' } } });
  const { body } = await doors.call('GET', '/api/migrations', { key });
  expect(body.migrations.map(({ name }: { name: string }) => name)).toEqual(['users', 'index']);
});

test('a request with an Idempotency-Key is carried out once', async () => {
  const organization = await doors.signUp();
  await rows(organization, 'CREATE TABLE t (id int)');
  const insert = () =>
    doors.call('POST', '/api/query', {
      key: organization.apiKey,
      headers: { 'idempotency-key': 'one' },
      body: { sql: 'INSERT INTO t VALUES (1) RETURNING id' },
    });
  const first = await insert();
  expect(first).toMatchObject({ status: 200, body: { rows: [{ id: 1 }] } });
  expect((await insert()).body).toEqual(first.body);
  expect(await rows(organization, 'SELECT count(*)::int FROM t')).toEqual([{ count: 1 }]);
});

test('triggers, views, foreign keys, types and sequences work', async () => {
  const organization = await doors.signUp();
  const client = await doors.connect(organization);
  await client.query(`CREATE TYPE mood AS ENUM ('fine'); CREATE SEQUENCE numbers;
    CREATE TABLE parent (id int PRIMARY KEY, mood mood); CREATE TABLE child (parent int REFERENCES parent (id));
    CREATE TABLE log (id int); CREATE VIEW moods AS SELECT mood FROM parent`);
  await client.query(
    'CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (new.id); RETURN new; END $$',
  );
  await client.query('CREATE TRIGGER note AFTER INSERT ON parent FOR EACH ROW EXECUTE FUNCTION note()');
  await client.query("INSERT INTO parent VALUES (7, 'fine')");
  expect((await client.query('SELECT id, mood FROM log, moods')).rows).toEqual([{ id: 7, mood: 'fine' }]);
  expect((await client.query("SELECT nextval('numbers')::int")).rows).toEqual([{ nextval: 1 }]);
  await expect(client.query('INSERT INTO child VALUES (8)')).rejects.toMatchObject({
    code: '23503',
    message: 'insert or update on table "child" violates foreign key constraint "child_parent_fkey"',
    detail: 'Key (parent)=(8) is not present in table "parent".',
  });
  await client.query('ALTER TABLE parent ADD COLUMN age int; TRUNCATE parent CASCADE; DROP TABLE child');
  await client.end();
});

test('readers read what is there, and what is made later', async () => {
  const organization = await doors.signUp();
  await rows(organization, 'CREATE TABLE early (id int)');
  const { body } = await doors.call('POST', '/api/keys', { key: organization.apiKey, body: { name: 'reader', scope: 'read' } });
  const reader = { ...organization, apiKey: body.apiKey };
  expect(await rows(reader, 'SELECT FROM early')).toEqual([]);
  await rows(organization, 'CREATE TABLE later (id int)');
  expect(await rows(reader, 'SELECT FROM later')).toEqual([]);
  expect(await refused(reader, 'INSERT INTO later VALUES (1)')).toBe('42501');
});

test('a drop leaves nothing on any node', async () => {
  const organization = await doors.signUp();
  await rows(organization, 'CREATE TABLE t (id int); ');
  await doors.call('POST', '/api/keys', { key: organization.apiKey, body: { name: 'reader', scope: 'read' } });
  await operator.operator.drop(organization.id, operator.origin);
  const left = `SELECT rolname FROM pg_roles WHERE rolname ~ '^${organization.id}'
    UNION ALL SELECT nspname FROM pg_namespace WHERE nspname = '${organization.id}'
    UNION ALL SELECT rolename FROM pg_dist_authinfo WHERE rolename ~ '^${organization.id}'`;
  for (const node of [{}, ...workers]) expect(await asSuperuser(left, { node })).toEqual([]);
});

describe('a hostile organization', () => {
  const closed = [
    "SELECT FROM run_command_on_workers('SELECT 1')",
    "SELECT FROM run_command_on_all_nodes('SELECT 1')",
    "SELECT run_command_on_coordinator('SELECT 1')",
    "SELECT FROM master_run_on_worker(ARRAY['127.0.0.1'], ARRAY[1], ARRAY['SELECT 1'], false)",
    'SELECT FROM citus_stat_activity',
    'SELECT FROM citus_dist_stat_activity',
    'SELECT FROM citus_lock_waits',
    'SELECT FROM citus_locks',
    'SELECT FROM pg_dist_node',
    'SELECT FROM pg_dist_shard',
    'SELECT FROM pg_dist_placement',
    'SELECT FROM pg_dist_partition',
    'SELECT FROM pg_dist_authinfo',
    'SELECT FROM citus_shards',
    'SELECT FROM citus_stat_statements',
    'SELECT FROM get_all_active_transactions()',
    'SELECT FROM citus_check_cluster_node_health()',
    "SELECT undistribute_table('mine')",
    "SELECT create_reference_table('mine')",
  ];
  const onTheWorker = [
    "SELECT run_command_on_workers('SELECT 1') FROM mine",
    'SELECT pg_stat_get_activity(NULL) FROM mine',
    'SELECT (SELECT count(*) FROM pg_stat_activity) FROM mine',
    'SELECT (SELECT count(*) FROM pg_locks) FROM mine',
    "SELECT pg_read_file('/etc/passwd') FROM mine",
    "SELECT xpath('//a', '<a/>') FROM mine",
    'SELECT lo_create(4242) FROM mine',
    'SELECT citus_internal.delete_placement_metadata(1) FROM mine',
    'SELECT citus_internal.delete_tenant_schema(1) FROM mine',
    "SELECT worker_apply_shard_ddl_command(1, 'x', 'ALTER ROLE CURRENT_USER SUPERUSER') FROM mine",
    "SELECT worker_apply_shard_ddl_command(1, 'x', 'SET ROLE postgres') FROM mine",
    "SELECT worker_apply_shard_ddl_command(1, 'x', 'COPY (SELECT 1) TO PROGRAM ''true''') FROM mine",
    "SELECT worker_apply_shard_ddl_command(1, 'x', 'ALTER SYSTEM SET work_mem = ''1MB''') FROM mine",
  ];

  test('learns nothing of the nodes, and runs nothing on them', async () => {
    const organization = await doors.signUp();
    await rows(organization, 'CREATE TABLE mine (id int)');
    await rows(organization, 'INSERT INTO mine VALUES (1)');
    for (const sql of [...closed, ...onTheWorker.slice(0, 9)]) expect(await refused(organization, sql), sql).toBe('42501');
    for (const sql of onTheWorker.slice(9)) expect(await refused(organization, sql), sql).toMatch(/^(42501|25001|0A000|XX000)$/);
    const client = await doors.connect(organization);
    for (const sql of closed) await expect(client.query(sql), sql).rejects.toMatchObject({ code: '42501' });
    await client.query('BEGIN');
    await expect(client.query("PREPARE TRANSACTION 'kept'")).rejects.toMatchObject({ code: '0A000' });
    await client.query('ROLLBACK');
    await client.end();
    expect(await asSuperuser('SELECT gid FROM pg_prepared_xacts')).toEqual([]);
  });

  test.each(['kept', 'citus_kept', 'citus_99_1_1_1'])(
    'may leave the prepared transaction %s on a worker, which the set-up ends',
    async (name) => {
      const organization = await doors.signUp();
      const client = await doors.connect(organization);
      await client.query('CREATE TABLE mine (id int)');
      await client.query('INSERT INTO mine VALUES (1)');
      await client.query('BEGIN');
      await client.query('UPDATE mine SET id = 2');
      await client.query(`SELECT worker_apply_shard_ddl_command(1, 'x', 'PREPARE TRANSACTION ''${name}''') FROM mine`);
      await client.query('COMMIT').catch(() => {});
      await client.end();
      const left = async () => {
        const found = workers.map((node) => asSuperuser(`SELECT gid FROM pg_prepared_xacts WHERE gid = '${name}'`, { node }));
        return (await Promise.all(found)).flat();
      };
      expect(await left()).toEqual([{ gid: name }]);
      await operator.citus.setUp(workers);
      expect(await left()).toEqual([]);
      expect(await rows(organization, 'SELECT id FROM mine')).toEqual([{ id: 1 }]);
    },
  );

  test("cannot touch another's tables by their numbers", async () => {
    const [eve, victim] = await Promise.all([doors.signUp(), doors.signUp()]);
    await rows(eve, 'CREATE TABLE mine (id int)');
    await rows(eve, 'INSERT INTO mine VALUES (1)');
    await rows(victim, 'CREATE TABLE secret (id int)');
    const [table] = await asSuperuser<{ oid: number; shard: string }>(
      `SELECT logicalrelid::oid AS oid, shardid AS shard FROM pg_dist_shard WHERE logicalrelid = '${victim.id}.secret'::regclass`,
    );
    const [oid, name] = [table?.oid, `'${victim.id}', 'secret'`];
    const calls = [
      `citus_drop_all_shards(${oid}, ${name}, false)`,
      `master_remove_partition_metadata(${oid}, ${name})`,
      `master_remove_distributed_table_metadata_from_workers(${oid}, ${name})`,
      `citus_internal.delete_shard_metadata(${table?.shard})`,
      `lock_shard_metadata(7, ARRAY[${table?.shard}])`,
    ];
    for (const call of calls) expect(await refused(eve, `SELECT ${call}`), call).toBe('42501');
    for (const call of calls.slice(3)) expect(await refused(eve, `SELECT ${call} FROM mine`), call).toBe('42501');
    await rows(victim, 'INSERT INTO secret VALUES (1)');
    expect(await rows(victim, 'SELECT id FROM secret')).toEqual([{ id: 1 }]);
  });
});
