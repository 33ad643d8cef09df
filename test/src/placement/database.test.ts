import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rolePassword } from '../../../src/auth/derived-secrets.ts';
import { runCommand } from '../../../src/backend/own-request.ts';
import type { Placement } from '../../../src/catalog/organization.ts';
import { ServiceError } from '../../../src/errors.ts';
import type { Observation } from '../../../src/observation.ts';
import { type Cluster, Platform } from '../../../src/placement/cluster.ts';
import { prepareCluster } from '../../../src/placement/cluster-setup.ts';
import { DatabaseProvisioner } from '../../../src/placement/database.ts';
import { newOrganizationId } from '../../../src/router/accounts.ts';
import type { TestCluster } from '../../support/cluster.setup.ts';
import { inThisPart } from '../../support/parts.ts';
import { hasPostgres15, startPostgres15 } from '../../support/postgres15.ts';
import { startPostgres18 } from '../../support/postgres18.ts';
import { makeScratch } from '../../support/scratch.ts';

const CONTROL = 'placement_test_control';

const servers = [
  { name: 'PostgreSQL 18', start: startPostgres18, asSuperuser: true },
  { name: 'PostgreSQL 18 without a superuser', start: startPostgres18, asSuperuser: false },
  ...(hasPostgres15
    ? [
        { name: 'PostgreSQL 15', start: startPostgres15, asSuperuser: true },
        { name: 'PostgreSQL 15 without a superuser', start: startPostgres15, asSuperuser: false },
      ]
    : []),
];

const inPart = inThisPart(servers, ({ start, asSuperuser }) => start === startPostgres18 && asSuperuser);

describe.each(inPart)('on $name', ({ start, asSuperuser }) => {
  let admin: TestCluster & { stop(): Promise<void> };
  let cluster: Cluster;
  let platform: Platform;
  let provisioner: DatabaseProvisioner;
  let seen: Observation[];
  const made: Placement[] = [];

  beforeAll(async () => {
    admin = await start();
    let login: TestCluster = admin;
    if (!asSuperuser) {
      await query(admin, "CREATE ROLE manager LOGIN CREATEDB CREATEROLE PASSWORD 'manager'");
      login = { ...admin, user: 'manager', password: 'manager' };
    }
    cluster = await prepareCluster({ admin: login, secret: 'a secret of the tests', controlDatabase: CONTROL, observe: () => {} });
    seen = [];
    platform = new Platform(cluster);
    provisioner = new DatabaseProvisioner({
      platform,
      connectionLimit: 20,
      limits: { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 },
      observe: (observation) => seen.push(observation),
    });
  });
  afterAll(async () => {
    for (const placement of made) await provisioner.deprovision(placement);
    await platform.close();
    await query(admin, `DROP DATABASE ${CONTROL} WITH (FORCE)`);
    await admin.stop();
  });

  function place(): Placement {
    const placement = provisioner.placementFor(newOrganizationId());
    made.push(placement);
    return placement;
  }

  async function provisioned(): Promise<Placement> {
    const placement = place();
    await provisioner.provision(placement);
    return placement;
  }

  /** A session of the organization's, as the gateway opens it, in the driver's hands. */
  function loginOf(placement: Placement, database = placement.database): pg.ClientConfig {
    const { host, port } = cluster;
    return { host, port, user: placement.role, password: rolePassword(cluster.secret, placement.role), database };
  }

  /** Opens a session through the provisioner and runs something in it. */
  async function run(placement: Placement, sql: string): Promise<string> {
    const backend = await provisioner.open(placement);
    try {
      return await runCommand(backend, sql);
    } finally {
      backend.end();
    }
  }

  test('an organization finds its own database, role and public schema under one name', async () => {
    const placement = await provisioned();
    expect(placement).toEqual({
      kind: 'database',
      cluster: 'default',
      database: placement.role,
      schema: 'public',
      role: expect.stringMatching(/^org_[a-z0-9]{12}$/),
    });
    await run(placement, 'CREATE TABLE notes (id int); CREATE SCHEMA app; CREATE EXTENSION citext');
    expect(
      await query(
        loginOf(placement),
        'SELECT current_user AS "user", current_database() AS database, current_schema() AS schema, to_regclass(\'public.notes\')::text AS notes',
      ),
    ).toEqual([{ user: placement.role, database: placement.database, schema: 'public', notes: 'notes' }]);
  });

  test('its role has no rights beyond its database', async () => {
    const { role } = await provisioned();
    expect(
      await query(
        admin,
        `SELECT rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls, rolconnlimit,
           ARRAY(SELECT roleid::regrole::text FROM pg_auth_members WHERE member = r.oid) AS memberships,
           (SELECT setconfig FROM pg_db_role_setting WHERE setrole = r.oid) AS settings
         FROM pg_roles r WHERE rolname = $1`,
        [role],
      ),
    ).toEqual([
      {
        rolsuper: false,
        rolinherit: asSuperuser && cluster.serverVersion < 160_000,
        rolcreaterole: false,
        rolcreatedb: false,
        rolreplication: false,
        rolbypassrls: false,
        rolconnlimit: 20,
        // It may create large objects, which its readers may not.
        memberships: asSuperuser ? ['postern_owners'] : [],
        settings: asSuperuser ? ['temp_file_limit=1GB', 'log_min_messages=fatal'] : null,
      },
    ]);
  });

  test('its role cannot enter the databases of others', async () => {
    const [mine, theirs] = [await provisioned(), await provisioned()];
    const closed = [theirs.database, CONTROL, ...(asSuperuser ? ['postgres', 'template1'] : [])];
    for (const database of closed) {
      await expect(query(loginOf(mine, database), 'SELECT')).rejects.toMatchObject({ code: '42501' });
    }
  });

  test('its database belongs to the platform, so that it cannot lock itself out of it', async () => {
    const placement = await provisioned();
    for (const sql of [
      `ALTER DATABASE ${placement.database} CONNECTION LIMIT 0`,
      `ALTER DATABASE ${placement.database} SET search_path = nowhere`,
      `ALTER DATABASE ${placement.database} RENAME TO other`,
      `DROP DATABASE ${placement.database}`,
    ]) {
      await expect(query(loginOf(placement), sql)).rejects.toThrow(/must be owner|cannot drop the currently open|current database cannot/);
    }
  });

  test('it does not see the sessions, locks and counters of others', async () => {
    const placement = await provisioned();
    const views = [
      'pg_lock_status()',
      'pg_prepared_xact()',
      'pg_stat_get_activity(NULL)',
      'pg_stat_bgwriter',
      'pg_stat_wal',
      'pg_control_system()',
    ];
    for (const view of views) {
      const answer = query(loginOf(placement), `SELECT * FROM ${view}`);
      if (asSuperuser) await expect(answer).rejects.toMatchObject({ code: '42501' });
      else await expect(answer).resolves.toBeInstanceOf(Array);
    }
  });

  if (asSuperuser) {
    test('of the activity of the server it sees its own sessions and its own database', async () => {
      const [mine, theirs] = [await provisioned(), await provisioned()];
      const other = new pg.Client({ ...loginOf(theirs), application_name: 'theirs' });
      await other.connect();
      const sql = `SELECT DISTINCT usename, datname, application_name, query = $1 AS shown FROM pg_stat_activity
        UNION ALL SELECT NULL, datname, NULL, numbackends = 1 FROM pg_stat_database`;
      const own = { ...loginOf(mine), application_name: 'mine' };
      // The sessions that have provisioned it may still be ending.
      await expect
        .poll(() => query(own, sql, [sql]))
        .toEqual([
          { usename: mine.role, datname: mine.database, application_name: 'mine', shown: true },
          { usename: null, datname: mine.database, application_name: null, shown: true },
        ]);
      for (const view of ['postern_pg_stat_activity', 'postern_pg_stat_database', 'postern_pg_locks', 'postern_pg_stat_ssl']) {
        await expect(query(own, `SELECT * FROM ${view}`)).rejects.toMatchObject({ code: '42501' });
      }
      const all = await query({ ...admin, database: mine.database }, "SELECT FROM pg_stat_activity WHERE application_name = 'theirs'");
      expect(all).toHaveLength(1);
      await other.end();
    });
  }

  test('provisioning again changes nothing, also from two sides at once', async () => {
    const placement = place();
    await Promise.all([provisioner.provision(placement), provisioner.provision(placement)]);
    await run(placement, 'CREATE TABLE kept ()');
    await provisioner.provision(placement);
    expect(await run(placement, 'SELECT FROM kept')).toBe('SELECT 0');
  });

  test('provisioning that was cut short is finished', async () => {
    const [onlyRole, noGrants, halfDropped] = [place(), await provisioned(), await provisioned()];
    const platform = { ...cluster.login({ ...cluster.platform, database: CONTROL }) };
    await query(platform, `CREATE ROLE ${onlyRole.role}`);
    await query(platform, `REVOKE ALL ON DATABASE ${noGrants.database} FROM ${noGrants.role}`);
    // How an interrupted DROP DATABASE leaves it.
    await query(admin, 'UPDATE pg_database SET datconnlimit = -2 WHERE datname = $1', [halfDropped.database]);
    for (const placement of [onlyRole, noGrants, halfDropped]) {
      await provisioner.provision(placement);
      expect(await run(placement, 'CREATE TABLE works ()')).toBe('CREATE TABLE');
    }
  });

  test('deprovisioning ends sessions and leaves nothing, and may be repeated', async () => {
    const placement = await provisioned();
    const session = await provisioner.open(placement);
    const closed = new Promise<void>((resolve) => {
      session.receiver = { data() {}, drain() {}, closed: () => resolve() };
    });
    await provisioner.deprovision(placement);
    await closed;
    await provisioner.deprovision(placement);
    expect(
      await query(
        admin,
        'SELECT datname AS name FROM pg_database WHERE datname = $1 UNION SELECT rolname FROM pg_roles WHERE rolname = $1',
        [placement.role],
      ),
    ).toEqual([]);
  });

  test('deprovisioning removes what was cut short', async () => {
    const [onlyRole, halfDropped] = [place(), await provisioned()];
    await query(cluster.login({ ...cluster.platform, database: CONTROL }), `CREATE ROLE ${onlyRole.role}`);
    await query(admin, 'UPDATE pg_database SET datconnlimit = -2 WHERE datname = $1', [halfDropped.database]);
    for (const placement of [onlyRole, halfDropped]) await provisioner.deprovision(placement);
    expect(await query(admin, 'SELECT rolname FROM pg_roles WHERE rolname = ANY ($1)', [[onlyRole.role, halfDropped.role]])).toEqual([]);
  });

  test('letting in readers repairs nothing, whatever the owner has hidden from them', async () => {
    const placement = await provisioned();
    seen.length = 0;
    await provisioner.admit(placement, 'read');
    expect(seen).toEqual([]);
    await run(placement, `ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM ${placement.role}_read`);
    (await provisioner.open({ ...placement, role: `${placement.role}_read` })).end();
    await provisioner.admit(placement, 'read');
    expect(seen).toEqual([]);
  });

  test.each([
    ['sets its password to nothing', 'ALTER ROLE CURRENT_USER PASSWORD NULL'],
    ['changes its password', "ALTER ROLE CURRENT_USER PASSWORD 'its own'"],
  ])('an organization that %s can log in again', async (_, sql) => {
    const placement = await provisioned();
    await run(placement, sql);
    seen.length = 0;
    expect(await run(placement, 'SELECT 1')).toBe('SELECT 1');
    expect(seen).toEqual([{ name: 'backend.login_healed', organizationId: placement.role }]);
    await run(placement, sql);
    await Promise.all([1, 2, 3, 4, 5, 6].map(() => run(placement, 'SELECT 1')));
  });

  test.each([
    ['drops public', 'DROP SCHEMA public CASCADE'],
    ['renames public', 'ALTER SCHEMA public RENAME TO private'],
    ['drops everything it owns', 'DROP OWNED BY CURRENT_USER'],
    [
      'revokes its rights',
      'REVOKE ALL ON DATABASE %d FROM CURRENT_USER; REVOKE ALL ON SCHEMA public FROM CURRENT_USER, PUBLIC; DROP SCHEMA public',
    ],
  ])('an organization that %s has its place back in the next session', async (_, sql) => {
    const placement = await provisioned();
    await run(placement, sql.replace('%d', placement.database));
    await Promise.all([run(placement, 'CREATE TABLE first ()'), run(placement, 'CREATE TABLE second ()')]);
    expect(await query(loginOf(placement), "SELECT nspacl::text AS acl FROM pg_namespace WHERE nspname = 'public'")).toEqual([
      { acl: `{${placement.role}=UC/${placement.role},=U/${placement.role}}` },
    ]);
  });

  test('an organization that holds its own role locked keeps nobody else waiting', async () => {
    const [hostile, other] = [await provisioned(), place()];
    await run(hostile, "ALTER ROLE CURRENT_USER PASSWORD 'its own'");
    const holder = new pg.Client({ ...loginOf(hostile), password: 'its own' });
    await holder.connect();
    await holder.query("BEGIN; ALTER ROLE CURRENT_USER PASSWORD 'its own again'");
    const logins = Array.from({ length: 12 }, () => provisioner.open(hostile));
    await provisioner.provision(other);
    await holder.query('ROLLBACK');
    await holder.end();
    for (const login of logins) (await login).end();
  });

  test('an organization whose right to connect is gone gets it back', async () => {
    const placement = await provisioned();
    await query(admin, `REVOKE ALL ON DATABASE ${placement.database} FROM ${placement.role}`);
    expect(await run(placement, 'CREATE SCHEMA back')).toBe('CREATE SCHEMA');
  });

  test('no setting that an organization leaves on its role gets in the way of the next session', async () => {
    const placement = await provisioned();
    const hostile = [
      "search_path = 'nowhere'",
      'statement_timeout = 1',
      'lock_timeout = 1',
      'idle_in_transaction_session_timeout = 1',
      'idle_session_timeout = 1',
      'default_transaction_read_only = on',
      "default_transaction_isolation = 'serializable'",
      'default_transaction_deferrable = on',
      "local_preload_libraries = 'nowhere'",
      `role = '${placement.role}'`,
      ...(cluster.serverVersion >= 170_000 ? ['transaction_timeout = 1'] : []),
    ];
    for (const setting of hostile) {
      await run(placement, `ALTER ROLE CURRENT_USER SET ${setting}`);
      await run(placement, `ALTER ROLE CURRENT_USER IN DATABASE ${placement.database} SET ${setting}`);
    }
    const backend = await provisioner.open(placement);
    for (const sql of [
      'CREATE TABLE here ()',
      'SELECT pg_sleep(0.01)',
      'RESET ALL',
      'DISCARD ALL',
      'INSERT INTO here DEFAULT VALUES',
      'SELECT FROM public.here',
    ]) {
      await runCommand(backend, sql);
    }
    backend.end();
  });

  test('what is taken away in the system catalogs counts as initial, so that no dump mentions it', async () => {
    expect(await changedByDump(await provisioned())).toEqual([]);
  });

  /** Objects of the system whose rights a dump would tell. */
  function changedByDump({ database }: Placement): Promise<object[]> {
    const changed = (catalog: string, acl: string, namespace: string) => `
      SELECT o.oid::bigint FROM ${catalog} o
      LEFT JOIN pg_init_privs i ON i.classoid = '${catalog}'::regclass AND i.objoid = o.oid AND i.objsubid = 0
      WHERE ${namespace} = 'pg_catalog'::regnamespace AND ${acl} IS DISTINCT FROM i.initprivs`;
    const sql = `${changed('pg_class', 'relacl', 'relnamespace')} UNION ALL ${changed('pg_proc', 'proacl', 'pronamespace')}`;
    return query({ ...admin, database }, sql);
  }

  const testAsSuperuser = asSuperuser ? test : () => {};
  testAsSuperuser('XPath expressions are refused, unless they are allowed, also to those who were there before', async () => {
    const placement = await provisioned();
    const XPATHS = ["SELECT xpath('1', '<a/>')", "SELECT xpath_exists('1', '<a/>')", "SELECT XMLEXISTS('1' PASSING '<a/>')"];
    const refused = async (who: Placement) => {
      for (const sql of XPATHS) await expect(run(who, sql)).rejects.toMatchObject({ fields: { code: '42501' } });
    };
    const start = (allowXpath: boolean) =>
      prepareCluster({ admin, secret: cluster.secret, controlDatabase: CONTROL, observe: () => {}, allowXpath });
    await refused(placement);
    await start(true);
    for (const sql of XPATHS) expect(await run(placement, sql)).toBe('SELECT 1');
    const later = await provisioned();
    expect(await run(later, XPATHS[0] ?? '')).toBe('SELECT 1');
    await start(false);
    await refused(placement);
    await refused(later);
    await refused(await provisioned());
    expect(await changedByDump(later)).toEqual([]);
  });

  testAsSuperuser('one that takes no sessions keeps nobody from starting', async () => {
    const { database } = await provisioned();
    await query(admin, `ALTER DATABASE ${database} WITH ALLOW_CONNECTIONS false`);
    await query(admin, "COMMENT ON DATABASE postern_template IS 'Postern, edition 0'");
    const told: Observation[] = [];
    await prepareCluster({ admin, secret: cluster.secret, controlDatabase: CONTROL, observe: (observation) => told.push(observation) });
    expect(told).toEqual([]);
    await query(admin, `ALTER DATABASE ${database} WITH ALLOW_CONNECTIONS true`);
  });

  // pg_dump goes with the server's version or an older one, and Debian's is 15.
  const testOn15 = start === startPostgres15 ? test : () => {};
  testOn15('its dump has nothing in it but its own', async () => {
    const placement = await provisioned();
    const { stdout } = await promisify(execFile)('pg_dump', ['-h', cluster.host, '-U', placement.role, placement.database], {
      env: { ...process.env, PGPASSWORD: rolePassword(cluster.secret, placement.role) },
    });
    expect(
      stdout.split('\n').filter((line) => line !== '' && !/^(--|SET |SELECT pg_catalog.set_config|\\(un)?restrict )/.test(line)),
    ).toEqual([`ALTER SCHEMA public OWNER TO ${placement.role};`]);
  });

  test('a session of the platform’s that is lost between two statements is told as a server that is not ready', async () => {
    const lost = platform.alone('nobody', async (session) => {
      const { rows } = await session.query('SELECT pg_backend_pid() AS pid');
      const gone = new Promise((resolve) => session.once('end', resolve));
      await query(admin, `SELECT pg_terminate_backend(${rows[0].pid})`);
      await gone;
      await session.query('SELECT 1');
    });
    await expect(lost).rejects.toMatchObject({ kind: 'not_ready' });
  });

  test('a session whose connection has gone silent is not waited for', async () => {
    const scratch = await makeScratch();
    const silence: (() => void)[] = [];
    const network = createServer((client) => {
      const server = connect(`${cluster.host}/.s.PGSQL.${cluster.port}`);
      client.pipe(server).pipe(client);
      client.on('close', () => server.destroy());
      silence.push(() => server.unpipe(client));
    });
    await once(network.listen(join(scratch.path, '.s.PGSQL.5432')), 'listening');
    const distant = new Platform({ ...cluster, host: scratch.path, port: 5432 });
    const alone = () => distant.alone('postern_nobody', async () => 'done');
    await alone();
    for (const fallSilent of silence) fallSilent();
    expect(await alone()).toBe('done');
    await distant.close();
    network.close();
    await scratch.remove();
  });

  test('an error of the server is told apart from a server that is not there', async () => {
    const gone = provisioner.placementFor(newOrganizationId());
    await expect(provisioner.open({ ...(await provisioned()), database: gone.database })).rejects.toMatchObject({ code: '3D000' });
    const nowhere = new Platform({ ...cluster, host: '/nowhere', login: (session) => ({ ...cluster.login(session), host: '/nowhere' }) });
    const elsewhere = new DatabaseProvisioner({
      platform: nowhere,
      connectionLimit: 20,
      limits: { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 },
      observe: () => {},
    });
    await expect(elsewhere.open(gone)).rejects.toThrow(ServiceError);
    await expect(elsewhere.open(gone)).rejects.toMatchObject({ kind: 'not_ready', sqlstate: '57P03' });
    await expect(elsewhere.provision(gone)).rejects.toMatchObject({ kind: 'not_ready' });
    await nowhere.close();
  });
});

async function query<Row extends object>(login: pg.ClientConfig, sql: string, values: unknown[] = []): Promise<Row[]> {
  const client = new pg.Client(login);
  client.on('error', () => {});
  try {
    await client.connect();
    return (await client.query<Row>(sql, values)).rows;
  } finally {
    await client.end();
  }
}
