import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { channelSecret, channelsOf, formerChannelsOf, rolePassword } from '../../../src/auth/derived-secrets.ts';
import { runCommand } from '../../../src/backend/own-request.ts';
import type { Placement } from '../../../src/catalog/organization.ts';
import type { Observation } from '../../../src/observation.ts';
import { type Cluster, Platform } from '../../../src/placement/cluster.ts';
import { prepareCluster } from '../../../src/placement/cluster-setup.ts';
import { ProvisionerByKind } from '../../../src/placement/provisioner-by-kind.ts';
import { asRestricted } from '../../../src/placement/restricted-roles.ts';
import { newOrganizationId } from '../../../src/router/accounts.ts';
import type { TestCluster } from '../../support/cluster.setup.ts';
import { eventually } from '../../support/eventually.ts';
import { inThisPart } from '../../support/parts.ts';
import { hasPostgres15, startPostgres15 } from '../../support/postgres15.ts';
import { startPostgres18 } from '../../support/postgres18.ts';

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
  let prepare: () => Promise<Cluster>;
  let cluster: Cluster;
  let platform: Platform;
  let provisioner: ProvisionerByKind;
  let seen: Observation[];

  beforeAll(async () => {
    admin = await start();
    let login: TestCluster = admin;
    if (!asSuperuser) {
      await query(admin, "CREATE ROLE manager LOGIN CREATEDB CREATEROLE PASSWORD 'manager'");
      login = { ...admin, user: 'manager', password: 'manager' };
    }
    prepare = () => prepareCluster({ admin: login, secret: 'a secret of the tests', controlDatabase: CONTROL, observe: () => {} });
    cluster = await prepare();
    seen = [];
    platform = new Platform(cluster);
    const limits = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };
    const options = { platform, connectionLimit: 20, limits, observe: (observation: Observation) => seen.push(observation) };
    provisioner = new ProvisionerByKind(options, 'schema');
  });
  afterAll(async () => {
    await platform.close();
    await admin.stop();
  });

  async function provisioned(): Promise<Placement> {
    const placement = provisioner.placementFor(newOrganizationId());
    await provisioner.provision(placement);
    return placement;
  }

  /** A session of the organization's in the driver's hands, as it would be without the gateway's settings. */
  function loginOf({ role, database }: Placement, elsewhere = database): pg.ClientConfig {
    const { host, port } = cluster;
    return { host, port, user: role, password: rolePassword(cluster.secret, role), database: elsewhere };
  }

  /** As the platform, in the shared database. */
  function platformLogin(): pg.ClientConfig {
    return cluster.login({ ...cluster.platform, database: cluster.sharedDatabase });
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

  /** What is left of an organization in the catalogs. */
  function leftOf({ role }: Placement): Promise<object[]> {
    return query(
      { ...admin, database: cluster.sharedDatabase },
      `SELECT 'role' AS what FROM pg_roles WHERE rolname = $1 UNION ALL SELECT 'schema' FROM pg_namespace WHERE nspname = $1
       UNION ALL SELECT 'relation' FROM pg_class WHERE relnamespace = to_regnamespace($1)
       UNION ALL SELECT 'large object' FROM pg_largeobject_metadata WHERE NOT EXISTS (SELECT FROM pg_roles WHERE oid = lomowner)
       UNION ALL SELECT 'default' FROM pg_default_acl WHERE NOT EXISTS (SELECT FROM pg_roles WHERE oid = defaclrole)`,
      [role],
    );
  }

  test('an organization finds its own role and schema under one name, in the database that is shared', async () => {
    const placement = await provisioned();
    const name = expect.stringMatching(/^org_[a-z0-9]{12}$/);
    expect(placement).toEqual({ kind: 'schema', cluster: 'default', database: 'postern_shared', schema: placement.role, role: name });
    expect(await run(placement, 'CREATE TABLE notes (id int); CREATE TEMPORARY TABLE passing ()')).toBe('CREATE TABLE');
    expect(
      await query(loginOf(placement), "SELECT relnamespace::regnamespace::text AS schema FROM pg_class WHERE relname = 'notes'"),
    ).toEqual([{ schema: placement.schema }]);
    const backend = await provisioner.open(placement);
    for (const sql of ['RESET ALL', 'DISCARD ALL', 'SELECT FROM notes']) await runCommand(backend, sql);
    if (cluster.serverVersion >= 180_000) expect(backend.parameters.get('search_path')).toBe(`"$user", ${placement.schema}`);
    backend.end();
  });

  test('its schema belongs to the platform: it can neither drop it, nor rename it, nor open it to others', async () => {
    const [mine, other] = [await provisioned(), await provisioned()];
    await run(mine, 'CREATE TABLE secrets ()');
    for (const sql of [`DROP SCHEMA ${mine.schema} CASCADE`, `ALTER SCHEMA ${mine.schema} RENAME TO mine`]) {
      await expect(run(mine, sql)).rejects.toMatchObject({ fields: { code: '42501' } });
    }
    await run(mine, 'GRANT ALL ON secrets TO PUBLIC');
    await run(mine, `GRANT ALL ON SCHEMA ${mine.schema} TO PUBLIC, ${other.role}`);
    await run(mine, 'ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC; DROP OWNED BY CURRENT_USER');
    await run(mine, `REVOKE ALL ON SCHEMA ${mine.schema} FROM CURRENT_USER`);
    await run(mine, 'CREATE TABLE secrets (); GRANT ALL ON secrets TO PUBLIC');
    const code = '42501';
    await expect(run(other, `SELECT FROM ${mine.schema}.secrets`)).rejects.toMatchObject({ fields: { code } });
    await expect(run(other, `CREATE TABLE ${mine.schema}.planted ()`)).rejects.toMatchObject({ fields: { code } });
    await expect(run(other, 'CREATE SCHEMA public')).rejects.toMatchObject({ fields: { code } });
    await expect(run(other, 'CREATE TABLE public.planted ()')).rejects.toMatchObject({ fields: { code: '3F000' } });
  });

  test('its role can log in to the shared database only, with no rights beyond its schema', async () => {
    const placement = await provisioned();
    const neighbour = new ProvisionerByKind(
      { platform, connectionLimit: 20, limits: { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 }, observe: () => {} },
      'database',
    );
    const theirs = neighbour.placementFor(newOrganizationId());
    await neighbour.provision(theirs);
    for (const database of [theirs.database, CONTROL, ...(asSuperuser ? ['postgres', 'template1'] : [])]) {
      await expect(query(loginOf(placement, database), 'SELECT')).rejects.toMatchObject({ code: '42501' });
    }
    expect(
      await query(
        admin,
        `SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls AS strong, rolconnlimit,
           ARRAY(SELECT roleid::regrole::text FROM pg_auth_members WHERE member = r.oid) AS memberships FROM pg_roles r WHERE rolname = $1`,
        [placement.role],
      ),
    ).toEqual([{ strong: false, rolconnlimit: 20, memberships: asSuperuser ? ['postern_owners'] : [] }]);
    // One placement does not keep the other from working.
    expect(await run(theirs, 'CREATE TABLE public.notes ()')).toBe('CREATE TABLE');
    await provisioner.deprovision(theirs);
  });

  test('it does not see the sessions, locks, counters and large objects of others', async () => {
    const placement = await provisioned();
    const hidden = [
      'SELECT * FROM pg_lock_status()',
      'SELECT * FROM pg_stat_get_activity(NULL)',
      "SELECT pg_stat_get_xact_numscans('pg_class'::regclass)",
      'SELECT * FROM pg_largeobject_metadata',
      'SELECT * FROM pg_shdepend',
      'SELECT * FROM pg_stat_bgwriter',
      'SELECT * FROM pg_stat_wal',
      'SELECT pg_stat_get_buf_alloc()',
      'SELECT pg_control_system()',
      'SELECT pg_tablespace_size(1663)',
      ...(asSuperuser ? ["SELECT pg_logical_emit_message(false, 'a', 'b')"] : []),
    ];
    for (const sql of hidden) {
      const answer = run(placement, sql);
      if (asSuperuser) await expect(answer, sql).rejects.toMatchObject({ fields: { code: '42501' } });
      else await expect(answer, sql).resolves.toMatch(/^SELECT/);
    }
    expect(await run(placement, 'SELECT lo_unlink(lo_from_bytea(0, $$mine$$)), lo_unlink(lo_create(0))')).toBe('SELECT 1');
  });

  if (asSuperuser) {
    test('of sessions and counters it sees its own, and its readers too', async () => {
      const [mine, theirs] = [await provisioned(), await provisioned()];
      for (const placement of [mine, theirs]) {
        const client = new pg.Client({ ...loginOf(placement), options: `-c search_path=${placement.schema}` });
        await client.connect();
        await client.query(`CREATE TABLE counted (id serial PRIMARY KEY, body text); INSERT INTO counted (body) SELECT 'x' FROM generate_series(1, 7);
          CREATE FUNCTION nothing() RETURNS int LANGUAGE sql AS 'SELECT 1'; ANALYZE counted`);
        await client.end();
      }
      await provisioner.admit(mine, 'read');
      const views = ['all', 'user'].flatMap((which) =>
        ['stat_%_tables', 'stat_xact_%_tables', 'stat_%_indexes', 'statio_%_tables', 'statio_%_indexes', 'statio_%_sequences'].map(
          (view) => `pg_${view.replace('%', which)}`,
        ),
      );
      for (const who of [mine, asRestricted(mine, 'read')]) {
        for (const view of views) {
          expect([view, await query(loginOf(who), `SELECT DISTINCT schemaname FROM ${view} WHERE schemaname <> 'pg_toast'`)]).toEqual([
            view,
            [{ schemaname: mine.schema }],
          ]);
        }
        const figures = `SELECT n_live_tup::int AS live, pg_stat_get_live_tuples(relid)::int AS same, last_analyze = pg_stat_get_last_analyze_time(relid) AS analyzed,
            (SELECT most_common_vals::text FROM pg_stats s WHERE s.tablename = t.relname AND attname = 'body') AS common
          FROM pg_stat_user_tables t`;
        expect(await query(loginOf(who), figures)).toEqual([{ live: 7, same: 7, analyzed: true, common: '{x}' }]);
        expect(await query(loginOf(who), 'SELECT DISTINCT usename FROM pg_stat_activity')).toEqual([{ usename: who.role }]);
        expect(await query(loginOf(who), 'SELECT * FROM pg_stat_database')).toEqual([]);
      }
    });

    test('its advisory locks are its own', async () => {
      const [mine, theirs] = [await provisioned(), await provisioned()];
      const free = (who: Placement, lock: string) =>
        query<{ free: boolean }>(loginOf(who), `SELECT pg_try_advisory_xact_lock(${lock}) AS free`);
      const holder = new pg.Client(loginOf(mine));
      await holder.connect();
      const taken = await holder.query(
        'SELECT pg_advisory_lock(72707369), pg_advisory_lock(1, 2) AS other, pg_advisory_lock(NULL) AS none',
      );
      expect(taken.rows).toEqual([{ pg_advisory_lock: '', other: '', none: null }]);
      for (const lock of ['72707369', '1, 2']) {
        expect(await free(mine, lock)).toEqual([{ free: false }]);
        expect(await free(theirs, lock)).toEqual([{ free: true }]);
      }
      for (const lock of ['1', '2', '4294967298', '2, 1']) expect(await free(mine, lock)).toEqual([{ free: true }]);
      expect((await holder.query('SELECT pg_advisory_unlock(72707369) AS first, pg_advisory_unlock(72707369) AS second')).rows).toEqual([
        { first: true, second: false },
      ]);
      expect(await free(mine, '72707369')).toEqual([{ free: true }]);
      await holder.query('SELECT pg_advisory_unlock_all()');
      expect(await free(mine, '1, 2')).toEqual([{ free: true }]);

      await holder.query('SELECT pg_advisory_lock_shared(7), pg_try_advisory_lock_shared(7)');
      expect(await query(loginOf(mine), 'SELECT pg_try_advisory_lock_shared(7) AS shared, pg_try_advisory_lock(7) AS alone')).toEqual([
        { shared: true, alone: false },
      ]);
      expect((await holder.query('SELECT pg_advisory_unlock_shared(7) AS first, pg_advisory_unlock_shared(7) AS second')).rows).toEqual([
        { first: true, second: true },
      ]);
      await holder.query('BEGIN; SELECT pg_advisory_xact_lock(8), pg_advisory_xact_lock_shared(9), pg_try_advisory_xact_lock_shared(10)');
      for (const lock of ['8', '9', '10']) expect(await free(mine, lock)).toEqual([{ free: false }]);
      await holder.query('COMMIT');
      for (const lock of ['8', '9', '10']) expect(await free(mine, lock)).toEqual([{ free: true }]);
      await holder.end();

      for (const sql of ['SELECT postern_pg_advisory_lock(1)', 'SELECT postern_pg_try_advisory_xact_lock(1, 2)']) {
        await expect(query(loginOf(mine), sql)).rejects.toMatchObject({ code: '42501' });
      }
    });

    test('views that list relations list its own and the system’s', async () => {
      const [mine, theirs] = [await provisioned(), await provisioned()];
      for (const { schema, ...placement } of [mine, theirs]) {
        const name = (kind: string) => `${schema}.${schema}_${kind}`;
        await run(
          { ...placement, schema },
          `CREATE TABLE ${name('table')} (id serial PRIMARY KEY); CREATE VIEW ${name('view')} AS SELECT 1;
           CREATE MATERIALIZED VIEW ${name('matview')} AS SELECT 1; CREATE POLICY ${schema}_policy ON ${name('table')};
           CREATE RULE ${schema}_rule AS ON INSERT TO ${name('table')} DO ALSO NOTHING`,
        );
      }
      const views = ['pg_tables', 'pg_views', 'pg_matviews', 'pg_indexes', 'pg_sequences', 'pg_rules', 'pg_policies'];
      for (const view of views) {
        const listed = await query<{ schema: string }>(loginOf(mine), `SELECT DISTINCT schemaname AS schema FROM ${view}`);
        const organizations = listed.map(({ schema }) => schema).filter((schema) => schema.startsWith('org_'));
        expect(organizations, view).toEqual([mine.schema]);
        if (['pg_tables', 'pg_views', 'pg_indexes'].includes(view)) expect(listed).toContainEqual({ schema: 'pg_catalog' });
        const all = await query<{ schema: string }>(
          { ...admin, database: cluster.sharedDatabase },
          `SELECT schemaname AS schema FROM ${view}`,
        );
        expect(all, view).toContainEqual({ schema: theirs.schema });
      }
    });

    test('it cannot choose the ids of its large objects, which others would miss', async () => {
      const placement = await provisioned();
      for (const name of ['', 'postern_']) {
        for (const call of [`${name}lo_create(70002)`, `${name}lo_from_bytea(70002, 'mine')`]) {
          await expect(run(placement, `SELECT ${call}`)).rejects.toMatchObject({ fields: { code: '42501' } });
        }
      }
      const made = await query<{ id: string }>(loginOf(placement), "SELECT lo_from_bytea(0, 'mine')::text AS id");
      const sql = "SELECT convert_from(lo_get($1), 'UTF8') AS content, lo_unlink($1)";
      expect(await query(loginOf(placement), sql, [made[0]?.id])).toEqual([{ content: 'mine', lo_unlink: 1 }]);
    });

    test('nothing in the system catalogs is found changed by a dump', async () => {
      const changed = (catalog: string, acl: string, namespace: string) => `
        SELECT o.oid::bigint FROM ${catalog} o
        LEFT JOIN pg_init_privs i ON i.classoid = '${catalog}'::regclass AND i.objoid = o.oid AND i.objsubid = 0
        WHERE ${namespace} = 'pg_catalog'::regnamespace AND ${acl} IS DISTINCT FROM i.initprivs`;
      const sql = `${changed('pg_class', 'relacl', 'relnamespace')} UNION ALL ${changed('pg_proc', 'proacl', 'pronamespace')}`;
      expect(await query({ ...admin, database: cluster.sharedDatabase }, sql)).toEqual([]);
    });
  }

  test('functions that an organization stored before still notify its channels, and no other organization can use the former prefix', async () => {
    const placement = await provisioned();
    const { role, schema } = placement;
    const former = formerChannelsOf(cluster.secret, role);
    // As edition 5 left it.
    const body = `PERFORM pg_notify('${former}:news', 'a literal'); PERFORM pg_catalog.pg_notify('${former}:' || ('ne' || 'ws'), 'computed')`;
    await run(placement, `CREATE FUNCTION ${schema}.tell() RETURNS void LANGUAGE plpgsql AS $$ BEGIN ${body}; END $$`);
    const shared = { ...admin, database: cluster.sharedDatabase };
    await query(shared, 'DROP SCHEMA postern CASCADE');
    if (asSuperuser) {
      await query(
        shared,
        `SET allow_system_table_mods = on; DROP FUNCTION pg_catalog.pg_notify(text, text);
         ALTER FUNCTION pg_catalog.postern_pg_notify(text, text) RENAME TO pg_notify; GRANT EXECUTE ON FUNCTION pg_notify TO PUBLIC`,
      );
    }
    await query(shared, `COMMENT ON DATABASE ${cluster.sharedDatabase} IS 'Postern, edition 5'`);
    await prepare();

    const heard: string[] = [];
    const listener = new pg.Client(loginOf(placement));
    await listener.connect();
    listener.on('notification', ({ payload = '' }) => heard.push(payload));
    await listener.query(`LISTEN "${channelsOf(channelSecret(cluster.secret), role)}:news"`);
    await run(placement, `SELECT ${schema}.tell()`);
    await run(await provisioned(), `NOTIFY "${former}:news", 'forged'`);
    await run(placement, "SELECT postern.pg_notify('news', 'the end')");
    await eventually('the last notification', () => heard.includes('the end'));
    // Without a superuser the server's pg_notify is what it was: such functions have to be made again.
    expect(heard).toEqual(asSuperuser ? ['a literal', 'computed', 'the end'] : ['the end']);
    await listener.end();
  });

  test('many at once, and each of them twice', async () => {
    const placements = Array.from({ length: 12 }, () => provisioner.placementFor(newOrganizationId()));
    await Promise.all([...placements, ...placements].map((placement) => provisioner.provision(placement)));
    for (const placement of placements) expect(await run(placement, 'CREATE TABLE works ()')).toBe('CREATE TABLE');
    await Promise.all([...placements, ...placements].map((placement) => provisioner.deprovision(placement)));
    for (const placement of placements) expect(await leftOf(placement)).toEqual([]);
  });

  test('provisioning that was cut short is finished, and keeps what is there', async () => {
    const [onlyRole, onlySchema] = [provisioner.placementFor(newOrganizationId()), provisioner.placementFor(newOrganizationId())];
    const [noGrants, whole] = [await provisioned(), await provisioned()];
    await query(platformLogin(), `CREATE ROLE ${onlyRole.role}; CREATE SCHEMA ${onlySchema.schema}`);
    await query(platformLogin(), `REVOKE ALL ON SCHEMA ${noGrants.schema} FROM ${noGrants.role}`);
    await run(whole, 'CREATE TABLE kept ()');
    for (const placement of [onlyRole, onlySchema, noGrants, whole]) {
      await provisioner.provision(placement);
      expect(await run(placement, 'CREATE TABLE works ()')).toBe('CREATE TABLE');
    }
    expect(await run(whole, 'SELECT FROM kept')).toBe('SELECT 0');
  });

  test('deprovisioning ends sessions and removes objects of every kind, and may be repeated', async () => {
    const placement = await provisioned();
    await run(placement, EVERYTHING);
    const session = await provisioner.open(placement);
    const closed = new Promise<void>((resolve) => {
      session.receiver = { data() {}, drain() {}, closed: () => resolve() };
    });
    await provisioner.deprovision(placement);
    await closed;
    expect(await leftOf(placement)).toEqual([]);
    await provisioner.deprovision(placement);
  });

  test('deprovisioning is not kept from it by whoever has come to depend on what goes', async () => {
    const [going, clinging] = [await provisioned(), await provisioned()];
    await run(going, 'CREATE TABLE parent (id int PRIMARY KEY)');
    const [{ oid } = { oid: '' }] = await query<{ oid: string }>(loginOf(going), `SELECT '${going.schema}.parent'::regclass::oid AS oid`);
    await run(
      clinging,
      `CREATE TABLE parasite (host regclass DEFAULT '${oid}'::regclass, kept int); CREATE VIEW leech AS SELECT '${oid}'::regclass AS host`,
    );
    await provisioner.deprovision(going);
    expect(await leftOf(going)).toEqual([]);
    expect(await run(clinging, 'SELECT kept FROM parasite')).toBe('SELECT 0');
  });

  test('deprovisioning that was cut short is finished', async () => {
    const [takenOver, emptied, roleless, onlyRole] = [
      await provisioned(),
      await provisioned(),
      await provisioned(),
      provisioner.placementFor(newOrganizationId()),
    ];
    await run(takenOver, 'CREATE TABLE left_behind ()');
    await query(platformLogin(), `ALTER ROLE ${takenOver.role} PASSWORD 'of a moment' CONNECTION LIMIT 0`);
    await query(platformLogin(), `DROP SCHEMA ${emptied.schema}; CREATE ROLE ${onlyRole.role}`);
    await query(platformLogin(), `REVOKE ALL ON SCHEMA ${roleless.schema} FROM ${roleless.role}; DROP ROLE ${roleless.role}`);
    for (const placement of [takenOver, emptied, roleless, onlyRole]) {
      await provisioner.deprovision(placement);
      expect(await leftOf(placement)).toEqual([]);
    }
  });

  test('an organization that is gone does not come back by a login', async () => {
    const placement = await provisioned();
    await provisioner.deprovision(placement);
    await expect(provisioner.open(placement)).rejects.toMatchObject({ code: '28P01' });
    expect(await leftOf(placement)).toEqual([]);
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
    ['may not use its schema any more', (schema: string) => `REVOKE USAGE ON SCHEMA ${schema} FROM ${schema}`],
    ['may not create in its schema any more', (schema: string) => `REVOKE CREATE ON SCHEMA ${schema} FROM ${schema}`],
    ['has lost its schema', (schema: string) => `DROP SCHEMA ${schema} CASCADE`],
    ['may not log in any more', (schema: string) => `ALTER ROLE ${schema} NOLOGIN VALID UNTIL '2020-01-01'`],
  ])('an organization that %s has everything back in the next session', async (_, sql) => {
    const placement = await provisioned();
    await query(platformLogin(), sql(placement.schema));
    await Promise.all([run(placement, 'CREATE TABLE first ()'), run(placement, 'CREATE TABLE second ()')]);
  });

  test('no setting that an organization leaves on its role gets in the way of the next session', async () => {
    const placement = await provisioned();
    const hostile = [
      "search_path = 'nowhere'",
      'statement_timeout = 1',
      'default_transaction_read_only = on',
      "local_preload_libraries = 'nowhere'",
      `role = '${placement.role}'`,
    ];
    for (const setting of hostile) {
      await run(placement, `ALTER ROLE CURRENT_USER SET ${setting}`);
      await run(placement, `ALTER ROLE CURRENT_USER IN DATABASE ${placement.database} SET ${setting}`);
    }
    const backend = await provisioner.open(placement);
    for (const sql of ['CREATE TABLE here ()', 'SELECT pg_sleep(0.01)', 'DISCARD ALL', 'INSERT INTO here DEFAULT VALUES']) {
      await runCommand(backend, sql);
    }
    backend.end();
  });
});

const LONG = ['an organization with more objects than the server can lock at once can be removed'];
test.each(inThisPart(LONG, () => false))('%s', async () => {
  const admin = await startPostgres18({ max_locks_per_transaction: '10' });
  const cluster = await prepareCluster({ admin, secret: 'a secret of the tests', controlDatabase: CONTROL, observe: () => {} });
  const platform = new Platform(cluster);
  const limits = { statementTimeoutMs: 0, idleInTransactionTimeoutMs: 0 };
  const provisioner = new ProvisionerByKind({ platform, connectionLimit: 20, limits, observe: () => {} }, 'schema');
  const placement = provisioner.placementFor(newOrganizationId());
  await provisioner.provision(placement);
  const backend = await provisioner.open(placement);
  await runCommand(
    backend,
    `DO $$ BEGIN
       FOR n IN 1..6000 LOOP
         EXECUTE format('CREATE FUNCTION f%s(int) RETURNS int LANGUAGE sql AS ''SELECT 1''', n);
         PERFORM lo_create(0) WHERE n % 10 = 0;
       END LOOP;
     END $$`,
  );
  backend.end();
  const owner = cluster.login({ ...cluster.platform, database: cluster.sharedDatabase });
  await expect(query(owner, `DROP SCHEMA ${placement.schema} CASCADE`)).rejects.toMatchObject({ code: '53200' });
  await provisioner.deprovision(placement);
  expect(await query(admin, 'SELECT FROM pg_roles WHERE rolname = $1', [placement.role])).toEqual([]);
  await platform.close();
  await admin.stop();
});

/** One of everything that an organization can own in its schema, some of it with names that need care. */
const EVERYTHING = `
  CREATE TYPE mood AS ENUM ('fine'); CREATE DOMAIN "a ""domain""" AS text CHECK (VALUE <> ''); CREATE TYPE pair AS (a int, b int);
  CREATE TYPE span AS RANGE (subtype = float8);
  CREATE TABLE "Odd; DROP TABLE x" (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, feeling mood, named "a ""domain""", two pair, over span);
  CREATE TABLE child (parent int REFERENCES "Odd; DROP TABLE x", serial serial);
  CREATE TABLE parted (id int) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (9);
  CREATE VIEW seen AS SELECT * FROM child; CREATE MATERIALIZED VIEW kept AS SELECT * FROM seen; CREATE SEQUENCE counter;
  CREATE FUNCTION f(int, "a ""domain""" DEFAULT 'x') RETURNS int LANGUAGE sql AS 'SELECT 1';
  CREATE FUNCTION rings() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
  CREATE TRIGGER alarm BEFORE INSERT ON child FOR EACH ROW EXECUTE FUNCTION rings();
  CREATE PROCEDURE p() LANGUAGE sql AS 'SELECT 1'; CREATE AGGREGATE total(int) (SFUNC = int4pl, STYPE = int);
  CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
  CREATE OPERATOR !! (RIGHTARG = int, FUNCTION = int4um);
  CREATE COLLATION plain FROM "C"; CREATE CONVERSION turn FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8;
  CREATE STATISTICS correlated ON parent, serial FROM child;
  CREATE TEXT SEARCH DICTIONARY words (TEMPLATE = simple); CREATE TEXT SEARCH CONFIGURATION search (COPY = simple);
  ALTER TEXT SEARCH CONFIGURATION search ALTER MAPPING FOR word WITH words;
  CREATE POLICY own ON child USING (true); CREATE RULE quiet AS ON DELETE TO child DO INSTEAD NOTHING;
  ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC; SELECT lo_create(0); GRANT ALL ON child TO PUBLIC;
  COMMENT ON TABLE child IS 'about it'`;

async function query<Row extends object>(login: pg.ClientConfig, sql: string, values: unknown[] = []): Promise<Row[]> {
  const client = new pg.Client(login);
  client.on('error', () => {});
  try {
    await client.connect();
    return (await client.query<Row>(values.length === 0 ? { text: sql } : { text: sql, values })).rows;
  } finally {
    await client.end();
  }
}
