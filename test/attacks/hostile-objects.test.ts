import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type OperatorSession, openOperator } from '../../src/admin/operations.ts';
import { readConfig } from '../../src/config.ts';
import { eventually } from '../support/eventually.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { trapsIn } from './traps.ts';

/** Its own: the roles of the platform and of the superuser are at stake, which services of other tests work with. */
let cluster: OwnCluster;
beforeAll(async () => {
  cluster = await makeOwnCluster();
});
afterAll(() => cluster.remove());

describe.each(PLACEMENTS)('with a %s for each organization', (kind) => {
  let variables: Record<string, string>;
  let service: TestService;
  let operating: OperatorSession;
  let hostile: TestOrganization;
  let neighbour: TestOrganization;
  /** In the hostile organization's database. */
  let superuser: pg.Client;
  let home: string;
  let ledger: string;
  let replies: string;
  let before: string[];

  beforeAll(async () => {
    variables = { ...testVariables(), DATABASE_URL: cluster.url, POSTERN_PLACEMENT: kind };
    service = await startTestService(variables);
    operating = await openOperator(readConfig(variables));
    [hostile, neighbour] = [await service.signUp('Hostile'), await service.signUp('Neighbour')];
    home = kind === 'schema' ? hostile.id : 'public';
    superuser = await connectSuperuser(kind === 'schema' ? 'postern_shared' : hostile.id);

    // The tables that Postern keeps are made with their first use.
    await migrate('first', 'CREATE TABLE notes (body text)');
    await call('POST', '/api/query', { sql: 'SELECT 1' }, { 'idempotency-key': 'first' });
    [ledger, replies] =
      kind === 'schema'
        ? [`${home}.postern_migrations`, `${home}.postern_idempotency_keys`]
        : ['postern.migrations', 'postern.idempotency_keys'];
    const client = await service.connect(hostile);
    for (const sql of trapsIn(home, ledger, replies)) await client.query(sql);
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

  const triggerOn = (table: string) => `trigger on ${kind === 'schema' ? 'postern_' : ''}${table}`;

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
    ['a row', () => `INSERT INTO ${home}.bait (note) VALUES ('x')`, 'default', 'check', 'trigger on bait'],
    ['its record of migrations', () => `DELETE FROM ${ledger}`, triggerOn('migrations')],
    ['its kept replies', () => `UPDATE ${replies} SET status = 200`, triggerOn('idempotency_keys')],
    ['a function', () => `SET LOCAL search_path = ${home}, pg_catalog; SELECT lower('X'::varchar)`, 'lower'],
    ['an operator', () => `SET LOCAL search_path = ${home}, pg_catalog; SELECT 'x'::pg_catalog.text = 'x'::varchar`, 'operator'],
    ['a view', () => `SELECT count(*) FROM ${home}.pg_roles`, 'view'],
    ['a cast', () => `SELECT ROW('x')::${home}.trap::pg_catalog.text`, 'cast'],
  ])('a superuser who touched %s would be caught, and lose everything', async (_what, sql, ...traps) => {
    await superuser.query('BEGIN');
    try {
      await superuser.query(sql());
      const found = traps.map((trap) => ({ trap, who: 'postgres', session: 'postgres' }));
      expect(await caught()).toEqual(expect.arrayContaining(found));
      expect(await powers()).toEqual(
        expect.arrayContaining([expect.stringMatching(`^role ${hostile.id} t`), expect.stringMatching(/^role hostile_heir /)]),
      );
    } finally {
      await superuser.query('ROLLBACK');
    }
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
    await onlyItself('lower', 'default', 'check', 'rule', 'trigger on bait');
  });

  it('migrations and kept replies, in tables that are its own', async () => {
    expect((await migrate('second', 'CREATE TABLE more ()')).status).toBe(201);
    expect((await migrate('second', 'CREATE TABLE more ()')).body.alreadyApplied).toBe(true);
    expect((await migrate('third', 'SELECT 1', { transaction: false })).status).toBe(201);
    expect((await migrate('fourth', 'SELECT 1', { dryRun: true, rollbackSql: 'SELECT 2' })).status).toBe(200);
    expect((await migrate('fifth', 'SELECT nonsense')).status).toBe(400);
    expect((await call('GET', '/api/migrations')).status).toBe(200);
    expect((await call('POST', '/api/query', { sql: 'SELECT 1' }, { 'idempotency-key': 'second' })).status).toBe(200);
    await onlyItself('default of the ledger', triggerOn('migrations'), triggerOn('idempotency_keys'));
  });

  it('a view of immense rows in the place of the ledger, of which nobody reads more than a few', async () => {
    const client = await service.connect(hostile);
    await client.query(`ALTER TABLE ${ledger} RENAME TO former_ledger`);
    await client.query(`CREATE VIEW ${ledger} AS SELECT i AS id, 'x' AS name, 'applied' AS status, repeat('x', 1000000) AS checksum, now() AS applied_at,
      1 AS duration_ms, 1 AS statement_count, 1 AS statements_applied, 'SELECT 1' AS rollback_sql, NULL::timestamptz AS rolled_back_at,
      repeat('x', 1000000) AS objects FROM generate_series(1, 30) AS i`);
    const undo = await call('POST', '/api/migrations/x/rollback', {});
    for (const reply of [await call('GET', '/api/migrations'), await migrate('x', 'SELECT 1'), undo]) {
      expect([reply.status, reply.body.code]).toEqual([400, 'response_too_large']);
    }
    await client.query(
      `DROP VIEW ${ledger}; ALTER TABLE ${ledger.replace(/\w+$/, 'former_ledger')} RENAME TO ${ledger.replace(/^\w+\./, '')}`,
    );
    await client.end();
    await onlyItself();
  });

  it('kept replies that no reply can be made of', async () => {
    const repeat = () => call('POST', '/api/query', { sql: 'SELECT 1' }, { 'idempotency-key': 'second' });
    expect((await repeat()).headers.get('idempotency-replayed')).toBe('true');
    for (const change of ['status = 99', 'status = 999', "status = 200, content_type = E'text/html\\r\\nset-cookie: a=b'"]) {
      await call('POST', '/api/query', { sql: `UPDATE ${replies} SET ${change} WHERE key = 'second'` });
      const { status, headers } = await repeat();
      expect([status, headers.get('content-type'), headers.get('set-cookie')]).toEqual([200, 'application/json; charset=utf-8', null]);
    }
    expect((await service.query(neighbour, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
    await onlyItself();
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

  it('the start of another process, which takes rights away once more where an earlier version had not', async () => {
    await superuser.query("COMMENT ON DATABASE postern_shared IS 'Postern, edition 0'");
    const another = await startTestService(variables);
    expect((await another.query(hostile, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
    await another.close();
    const { rows } = await superuser.query(
      "SELECT shobj_description(oid, 'pg_database') AS comment FROM pg_database WHERE datname = 'postern_shared'",
    );
    expect(rows[0].comment).toMatch(/hardened$/);
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
    const answers = async (status: number) => (await call('POST', '/api/query', { sql: 'SELECT 1' })).status === status;
    await operator.suspend(hostile.id, origin);
    await eventually('suspended', () => answers(403));
    await operator.resume(hostile.id, origin);
    await eventually('resumed', () => answers(200));
    await onlyItself();
    await superuser.end();
    await operator.drop(hostile.id, origin);
    superuser = await connectSuperuser(kind === 'schema' ? 'postern_shared' : 'postgres');
    expect(await powers()).toEqual(before.filter((line) => !line.includes(hostile.id)));
  });
});

/** Steps into no trap by itself: it finds nothing but what is the server's. */
async function connectSuperuser(database: string): Promise<pg.Client> {
  const client = new pg.Client({ ...cluster.superuser, database, options: '-c search_path= -c lock_timeout=5s' });
  await client.connect();
  return client;
}

/** The organizations, the platform and the superuser: what they are, whom they can be, what is theirs. */
const POWERS = `
  SELECT concat_ws(' ', 'role', rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls,
    rolconnlimit, nullif(rolvaliduntil, 'infinity'), CASE rolname WHEN $1 THEN '' ELSE md5(rolpassword) END) AS line
  FROM pg_authid WHERE rolname IN ($1, $2, 'postgres', 'postern_platform', 'hostile_heir')
  UNION ALL SELECT concat_ws(' ', 'member', member::regrole, 'of', roleid::regrole, admin_option, inherit_option, set_option)
  FROM pg_auth_members WHERE $1 IN (member::regrole::text, roleid::regrole::text) OR $2 IN (member::regrole::text, roleid::regrole::text)
    OR (member::regrole::text = 'postern_platform' AND roleid::regrole::text !~ '^org_')
  UNION ALL SELECT concat_ws(' ', 'database', datname, datdba::regrole, (SELECT string_agg(acl::text, ' ' ORDER BY acl::text) FROM unnest(datacl) AS acl))
  FROM pg_database WHERE datname IN ($1, $2, 'postern_shared', 'postern_template', 'template1', 'postgres')
  UNION ALL SELECT concat_ws(' ', 'schema', nspname, nspowner::regrole, nspacl)
  FROM pg_namespace WHERE nspname IN ($1, $2, 'pg_catalog', 'information_schema')
  UNION ALL SELECT concat_ws(' ', 'settings', setrole, setdatabase, setconfig)
  FROM pg_db_role_setting WHERE setrole IN (0, 'postgres'::regrole, 'postern_platform'::regrole)
  ORDER BY line`;
