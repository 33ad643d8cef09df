import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** Two organizations; the second one has a secret, the first one wants it. */
let service: TestService;
let intruder: TestOrganization;
let victim: TestOrganization;
let facts: { readonly oid: number; readonly pid: number };
/** A session of the victim's that stays open. */
let resident: pg.Client;
beforeAll(async () => {
  service = await startTestService();
  [intruder, victim] = [await service.signUp('Intruder'), await service.signUp('Victim')];
  await service.query(victim, "CREATE TABLE secrets AS SELECT 'hidden' AS secret");
  resident = await service.connect(victim);
  // What the wire door does not see is the server's number of the process.
  await resident.query("CREATE FUNCTION process() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN pg_backend_pid(); END'; BEGIN");
  const { rows } = await resident.query("SELECT 'secrets'::regclass::oid::int AS oid, process() AS pid");
  facts = rows[0];
});
afterAll(async () => {
  await resident.end();
  await service.close();
});

/** The SQLSTATE that a statement of the intruder's ends with, which must be the same at both doors; 00000 when it ran. */
async function attempt(sql: string): Promise<string> {
  const client = await service.connect(intruder);
  const wire = await client.query(sql).then(
    () => '00000',
    (error: { code: string }) => error.code,
  );
  await client.end();
  const { status, body } = await service.query(intruder, sql);
  expect(status === 200 ? '00000' : body.sqlstate).toBe(wire);
  return wire;
}

describe('an organization cannot reach the rows of another', () => {
  it.each([
    ['by its table name', () => 'SELECT * FROM secrets', '42P01'],
    ['by its schema', () => 'SELECT * FROM public.secrets', '42P01'],
    ['by its database', () => `SELECT * FROM ${victim.id}.public.secrets`, '0A000'],
    ['by its schema name, as the other placement would have it', () => `SELECT * FROM ${victim.id}.secrets`, '42P01'],
    ['by becoming it', () => `SET ROLE ${victim.id}`, '42501'],
    ['by being it', () => `SET SESSION AUTHORIZATION ${victim.id}`, '42501'],
    ['by becoming the platform', () => 'SET ROLE postern_platform', '42501'],
    ['by becoming the superuser', () => 'SET ROLE postgres', '42501'],
    ['by joining it', () => `GRANT ${victim.id} TO ${intruder.id}`, '42501'],
    ['by joining those who may read everything', () => `GRANT pg_read_all_data TO ${intruder.id}`, '42501'],
    ['by changing its password', () => `ALTER ROLE ${victim.id} PASSWORD 'x'`, '42501'],
    ['by making itself more', () => `ALTER ROLE ${intruder.id} SUPERUSER`, '42501'],
    ['by a role of its own', () => 'CREATE ROLE helper', '42501'],
    ['by a copy of its database', () => `CREATE DATABASE stolen TEMPLATE ${victim.id}`, '42501'],
    ['by dropping its database', () => `DROP DATABASE ${victim.id}`, '42501'],
    ['by renaming its database', () => `ALTER DATABASE ${victim.id} RENAME TO mine`, '42501'],
    ['by the files of the server', () => "SELECT pg_read_file('postgresql.conf')", '42501'],
    ['by listing the files of the server', () => "SELECT pg_ls_dir('base')", '42501'],
    ['by COPY from a file', () => "COPY (SELECT 1) TO '/tmp/stolen'", '42501'],
    ['by COPY to a program', () => "COPY (SELECT 1) TO PROGRAM 'cat'", '42501'],
    ['by a large object from a file', () => "SELECT lo_import('/etc/passwd')", '42501'],
    ['by dblink', () => 'CREATE EXTENSION dblink', '42501'],
    ['by postgres_fdw', () => 'CREATE EXTENSION postgres_fdw', '42501'],
    ['by file_fdw', () => 'CREATE EXTENSION file_fdw', '42501'],
    ['by C', () => "CREATE FUNCTION evil() RETURNS int AS 'libc', 'system' LANGUAGE c", '42501'],
    ['by ending its sessions', () => `SELECT pg_terminate_backend(${facts.pid})`, '42501'],
    ['by cancelling its statements', () => `SELECT pg_cancel_backend(${facts.pid})`, '42501'],
    ['by watching its statements', () => 'SELECT query FROM postern_pg_stat_activity', '42501'],
    ['by watching its locks', () => 'SELECT * FROM pg_lock_status()', '42501'],
    ['by writing into its log', () => "SELECT pg_logical_emit_message(false, 'a', 'b')", '42501'],
    ['by following its changes', () => "SELECT pg_create_logical_replication_slot('spy', 'test_decoding')", '42501'],
    ['by the settings of the server', () => "ALTER SYSTEM SET log_statement = 'all'", '42501'],
  ])('%s', async (_way, sql, sqlstate) => {
    expect(await attempt(sql())).toBe(sqlstate);
  });

  it('by its object id, which names nothing here', async () => {
    const { body } = await service.query(intruder, 'SELECT $1::oid::regclass::text AS name, to_regclass($2) AS found', [
      facts.oid,
      'secrets',
    ]);
    expect(body.rows).toEqual([{ name: String(facts.oid), found: null }]);
  });

  it('by notifications, which stay in their own house', async () => {
    const listener = await service.connect(intruder);
    const heard: unknown[] = [];
    listener.on('notification', (notification) => heard.push(notification.payload));
    await listener.query('LISTEN news');
    await service.query(victim, "SELECT pg_notify('news', 'of the victim')");
    await service.query(intruder, "SELECT pg_notify('news', 'of one''s own')");
    await listener.query('SELECT 1');
    expect(heard).toEqual(["of one's own"]);
    await listener.end();
  });

  it('by advisory locks, which are not the same ones', async () => {
    const holder = await service.connect(intruder);
    await holder.query('SELECT pg_advisory_lock(1)');
    const { body } = await service.query(victim, 'SELECT pg_try_advisory_xact_lock(1) AS free');
    expect(body.rows).toEqual([{ free: true }]);
    await holder.end();
  });

  it('by a trigger it leaves for the platform: what runs in its database runs as itself', async () => {
    const migrate = (name: string, sql: string) => service.call('POST', '/api/migrations', { key: intruder.apiKey, body: { name, sql } });
    await migrate(
      'trap',
      `CREATE TABLE caught (who text);
       CREATE FUNCTION spring() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.caught VALUES (current_user); RETURN NEW; END $$;`,
    );
    await migrate('bait', 'CREATE TRIGGER trap BEFORE INSERT ON postern.migrations FOR EACH ROW EXECUTE FUNCTION spring()');
    expect((await migrate('step into it', 'SELECT 1')).status).toBe(201);
    const { body } = await service.query(intruder, 'SELECT DISTINCT who FROM caught');
    expect(body.rows).toEqual([{ who: intruder.id }]);
  });

  it('by the audit log or the migrations', async () => {
    await service.call('POST', '/api/migrations', {
      key: victim.apiKey,
      body: { name: 'private_matters', sql: 'CREATE TABLE private_matters ()' },
    });
    await service.service.router.catalog.audit.flush();
    const [migrations, audit] = await Promise.all(
      ['/api/migrations', '/api/audit?limit=1000'].map((path) => service.call('GET', path, { key: intruder.apiKey })),
    );
    expect([migrations?.status, audit?.status]).toEqual([200, 200]);
    expect(JSON.stringify([migrations?.body, audit?.body])).not.toContain('private_matters');
  });
});

describe('a key opens one database', () => {
  it.each([
    ['the one of another', () => victim.id],
    ['the one that everybody knows', () => 'postgres'],
    ['the template', () => 'postern_template'],
    ['one that is not there', () => 'nowhere'],
    ['one with a name that is none', () => "a'; DROP TABLE x; --"],
  ])('and not %s: 3D000', async (_which, database) => {
    await expect(service.connect(intruder, { database: database() })).rejects.toMatchObject({
      severity: 'FATAL',
      code: '3D000',
      message: `database "${database()}" does not exist`,
      hint: `The database of this key is "${intruder.id}".`,
    });
  });

  it('which is not told before the key has been proved', async () => {
    await expect(service.connect({ ...intruder, apiKey: victim.apiKey }, { database: 'nowhere' })).rejects.toMatchObject({ code: '28P01' });
  });

  it('not under the name of another', async () => {
    await expect(service.connect(intruder, { user: victim.id, database: victim.id })).rejects.toMatchObject({
      severity: 'FATAL',
      code: '28P01',
      message: `password authentication failed for user "${victim.id}"`,
    });
  });

  it.each(['postgres', 'postern_platform', 'org_000000000000'])('not under the name %s', async (user) => {
    await expect(service.connect(intruder, { user })).rejects.toMatchObject({ code: '28P01' });
  });

  it('and over HTTP the one it belongs to, whatever else is asked for', async () => {
    const { status, body } = await service.call('POST', '/api/query', {
      key: intruder.apiKey,
      body: { sql: 'SELECT 1', database: victim.id },
    });
    expect([status, body.message]).toEqual([400, 'unknown field "database"']);
  });
});
