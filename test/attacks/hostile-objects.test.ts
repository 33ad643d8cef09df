import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type OperatorSession, openOperator } from '../../src/admin/session.ts';
import { readConfig } from '../../src/config.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { connectSuperuser } from './scene.ts';
import { trapsIn } from './traps.ts';

describe.each(PLACEMENTS)('with a %s for each organization', (kind) => {
  let service: TestService;
  let operating: OperatorSession;
  let hostile: TestOrganization;
  let neighbour: TestOrganization;
  /** In the hostile organization's database. */
  let superuser: pg.Client;
  let home: string;
  let before: string[];

  beforeAll(async () => {
    const variables = { ...testVariables(), POSTERN_PLACEMENT: kind };
    service = await startTestService(variables);
    operating = await openOperator(readConfig(variables));
    [hostile, neighbour] = [await service.signUp('Hostile'), await service.signUp('Neighbour')];
    home = kind === 'schema' ? hostile.id : 'public';
    superuser = await connectSuperuser(kind === 'schema' ? 'postern_shared' : hostile.id);

    // The tables that Postern keeps are made with their first use.
    await migrate('first', 'CREATE TABLE notes (body text)');
    await call('POST', '/api/query', { sql: 'SELECT 1' }, { 'idempotency-key': 'first' });
    const own = kind === 'schema' ? `${home}.postern_` : 'postern.';
    const client = await service.connect(hostile);
    for (const sql of trapsIn(home, `${own}migrations`, `${own}idempotency_keys`)) await client.query(sql);
    await client.end();
    before = await powers();
  });
  afterAll(async () => {
    await Promise.all([superuser.end(), operating.close()]);
    await service.close();
  });

  const call = (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
    service.call(method, path, { key: hostile.apiKey, headers, ...(body === undefined ? {} : { body }) });
  const migrate = (name: string, sql: string, more: object = {}) => call('POST', '/api/migrations', { name, sql, ...more });

  /** Who may do what, of those who were there before: all that there is to be gained. */
  async function powers(): Promise<string[]> {
    const { rows } = await superuser.query<{ line: string }>(POWERS, [hostile.id, neighbour.id]);
    return rows.map(({ line }) => line);
  }

  /** Who has stepped into which trap since the last time. */
  async function caught(): Promise<{ trap: string; who: string; session: string }[]> {
    const { rows } = await superuser.query(`DELETE FROM ${home}.caught RETURNING trap, who, session`);
    return rows;
  }

  /** The traps have caught nobody but who set them. */
  async function onlyItself(...traps: string[]): Promise<void> {
    const found = await caught();
    expect(found.filter(({ who, session }) => who !== hostile.id || session !== hostile.id)).toEqual([]);
    expect([...new Set(found.map(({ trap }) => trap))]).toEqual(expect.arrayContaining(traps));
    expect(await powers()).toEqual(before);
  }

  it.each([
    ['a row', () => `INSERT INTO ${home}.bait (note) VALUES ('x')`, 'default'],
    ['a function', () => `SET LOCAL search_path = ${home}, pg_catalog; SELECT lower('X'::varchar)`, 'lower'],
    ['an operator', () => `SET LOCAL search_path = ${home}, pg_catalog; SELECT 'x'::pg_catalog.text = 'x'::varchar`, 'operator'],
    ['a view', () => `SELECT count(*) FROM ${home}.pg_roles`, 'view'],
    ['a cast', () => `SELECT ROW('x')::${home}.trap::pg_catalog.text`, 'cast'],
  ])('a superuser who touched %s would be caught, and lose everything', async (_what, sql, trap) => {
    await superuser.query('BEGIN');
    await superuser.query(sql());
    expect(await caught()).toEqual(expect.arrayContaining([{ trap, who: 'postgres', session: 'postgres' }]));
    const { rows } = await superuser.query('SELECT rolsuper FROM pg_roles WHERE rolname = $1', [hostile.id]);
    expect(rows).toEqual([{ rolsuper: true }]);
    await superuser.query('ROLLBACK');
    expect(await powers()).toEqual(before);
  });

  it('nothing that it asks of the gateway springs a trap on anybody else', async () => {
    for (const sql of [`SELECT lower('X'::varchar) AS x`, `INSERT INTO ${home}.bait (note) VALUES ('x') RETURNING note`]) {
      expect((await call('POST', '/api/query', { sql })).status).toBe(200);
    }
    expect((await call('POST', '/api/transaction', { statements: [{ sql: `INSERT INTO ${home}.bait (note) VALUES ('x')` }] })).status).toBe(
      200,
    );
    const client = await service.connect(hostile, { application_name: 'login' });
    await client.query(`DELETE FROM ${home}.bait`);
    await client.end();
    await onlyItself('lower', 'default', 'check', 'rule', `trigger on bait`);
  });

  it('migrations and kept replies, in tables that are its own', async () => {
    expect((await migrate('second', 'CREATE TABLE more ()')).status).toBe(201);
    expect((await migrate('second', 'CREATE TABLE more ()')).body.alreadyApplied).toBe(true);
    expect((await migrate('third', 'SELECT 1', { transaction: false })).status).toBe(201);
    expect((await migrate('fourth', 'SELECT 1', { dryRun: true, rollbackSql: 'SELECT 2' })).status).toBe(200);
    expect((await migrate('fifth', 'SELECT nonsense')).status).toBe(400);
    expect((await call('GET', '/api/migrations')).status).toBe(200);
    expect((await call('POST', '/api/query', { sql: 'SELECT 1' }, { 'idempotency-key': 'second' })).status).toBe(200);
    const tables =
      kind === 'schema' ? ['postern_migrations', 'postern_idempotency_keys'] : ['postern.migrations', 'postern.idempotency_keys'];
    await onlyItself('default of the ledger', ...tables.map((table) => `trigger on ${table}`));
  });

  it('rotation, audit, health, metrics, the welcome of others', async () => {
    const rotated = await call('POST', '/api/auth/rotate-key');
    expect(rotated.status).toBe(200);
    hostile = { ...hostile, apiKey: rotated.body.apiKey };
    for (const path of ['/api/auth/me', '/api/audit', '/api/audit/verify']) expect((await call('GET', path)).status).toBe(200);
    for (const path of ['/healthz', '/readyz', '/metrics']) expect((await fetch(service.opsUrl + path)).status).toBe(200);
    const newcomer = await service.signUp('Newcomer');
    expect((await service.query(newcomer, "SELECT lower('X'::varchar) AS x")).body.rows).toEqual([{ x: 'x' }]);
    await operating.operator.drop(newcomer.id, operating.origin);
    await onlyItself();
  });

  it('mending what it has broken of its own', async () => {
    const client = await service.connect(hostile);
    await client.query('ALTER ROLE CURRENT_USER PASSWORD NULL');
    await client.query("DO $$ BEGIN EXECUTE format('REVOKE ALL ON DATABASE %I FROM CURRENT_USER', current_database()); END $$");
    await client.end();
    await superuser.query('SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = $1', [hostile.id]);
    expect((await call('POST', '/api/query', { sql: 'SELECT 1 AS one' })).body.rows).toEqual([{ one: 1 }]);
    expect(service.observations.filter(({ name }) => name === 'backend.login_healed')).not.toEqual([]);
    await onlyItself();
  });

  it('its own end', async () => {
    const { operator, origin } = operating;
    await operator.suspend(hostile.id, origin);
    expect((await call('POST', '/api/query', { sql: 'SELECT 1' })).status).toBe(403);
    await operator.resume(hostile.id, origin);
    expect((await call('POST', '/api/query', { sql: 'SELECT 1' })).status).toBe(200);
    await superuser.end();
    await operator.drop(hostile.id, origin);
    superuser = await connectSuperuser('postgres');
    expect(await powers()).toEqual(before.filter((line) => !line.includes(hostile.id)));
  });
});

/** The organizations, the platform and the superuser: what they are, whom they can be, what is theirs. */
const POWERS = `
  SELECT concat_ws(' ', 'role', rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls,
    rolconnlimit, rolvaliduntil, CASE rolname WHEN $1 THEN '' ELSE md5(rolpassword) END) AS line
  FROM pg_authid WHERE rolname IN ($1, $2, 'postgres', 'postern_platform', 'hostile_heir')
  UNION ALL SELECT concat_ws(' ', 'member', member::regrole, 'of', roleid::regrole, admin_option, inherit_option, set_option)
  FROM pg_auth_members WHERE $1 IN (member::regrole::text, roleid::regrole::text) OR $2 IN (member::regrole::text, roleid::regrole::text)
    OR (member::regrole::text = 'postern_platform' AND roleid::regrole::text !~ '^org_')
  UNION ALL SELECT concat_ws(' ', 'database', datname, datdba::regrole, (SELECT string_agg(acl::text, ' ' ORDER BY acl::text) FROM unnest(datacl) AS acl))
  FROM pg_database WHERE datname IN ($1, $2, 'postern_shared', 'postern_template', 'template1', 'postgres')
  UNION ALL SELECT concat_ws(' ', 'settings', setrole, setdatabase, setconfig)
  FROM pg_db_role_setting WHERE setrole IN (0, 'postgres'::regrole, 'postern_platform'::regrole)
  ORDER BY line`;
