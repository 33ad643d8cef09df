import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import type { JsonReply, TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { hasPostgres15, PROGRAMS_OF_15, startPostgres15 } from '../support/postgres15.ts';
import { type Installation, makeInstallation } from '../support/process.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, type TestService, testVariables } from '../support/service.ts';

const variables = { ...testVariables(), POSTERN_PLACEMENT: 'database' };
let service: TestService;
let other: TestService;
let server: pg.Client;
let installation: Installation;
beforeAll(async () => {
  [service, other] = [await startTestService(variables), await startTestService(variables)];
  server = new pg.Client(inject('cluster'));
  await server.connect();
  installation = await makeInstallation();
});
afterAll(async () => {
  await server.end();
  await service.close();
  await other.close();
  await installation.remove();
});

const clone = ({ apiKey: key }: TestOrganization, body: object = {}) => service.call('POST', '/api/clones', { key, body });
const cloned = ({ body: { organizationId, apiKey } }: JsonReply): TestOrganization => ({
  id: organizationId,
  apiKey,
  orgName: '',
  email: '',
});
const remove = ({ apiKey: key }: TestOrganization, id: string) => service.call('DELETE', `/api/clones/${id}`, { key });

async function readKeyOf({ apiKey: key, ...rest }: TestOrganization): Promise<TestOrganization> {
  const { body } = await service.call('POST', '/api/keys', { key, body: { name: 'reader', scope: 'read' } });
  return { ...rest, apiKey: body.apiKey };
}

async function run(organization: TestOrganization, ...statements: string[]): Promise<void> {
  const client = await service.connect(organization);
  for (const statement of statements) await client.query(statement);
  await client.end();
}

/** Runs a query as the server's superuser in a database. */
async function look(database: string, text: string, values: unknown[] = []): Promise<unknown[]> {
  const session = new pg.Client({ ...inject('cluster'), database });
  await session.connect();
  try {
    return (await session.query(text, values)).rows;
  } finally {
    await session.end();
  }
}

/** Where the database mentions one of these roles: as an owner, in privileges, default privileges or policies. */
const MENTIONED = `
  SELECT d.classid::regclass::text AS catalog, d.objid::text AS object, d.deptype FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid
  WHERE d.refclassid = 'pg_authid'::regclass AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND r.rolname = ANY ($1)`;

describe('a clone', () => {
  it("has the data, objects, privileges and settings of the first organization, and nothing in it is the first one's", async () => {
    const organization = await service.signUp();
    const { id } = organization;
    await readKeyOf(organization);
    await run(
      organization,
      'CREATE EXTENSION citext',
      'CREATE SCHEMA "other place"',
      "CREATE TYPE mood AS ENUM ('calm')",
      'CREATE DOMAIN short AS text CHECK (length(value) < 9)',
      'CREATE TABLE notes (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body citext, mood mood)',
      'CREATE TABLE parts (id int, at date) PARTITION BY RANGE (at)',
      "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2020-01-01') TO ('2030-01-01')",
      'CREATE TABLE "other place"."<b>" (secret text, shown text)',
      'CREATE SEQUENCE numbers START 7',
      'CREATE VIEW shown AS SELECT body FROM notes',
      'CREATE MATERIALIZED VIEW kept AS SELECT 1 AS one',
      "CREATE FUNCTION grows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.body := NEW.body || '!'; RETURN NEW; END $$",
      'CREATE TRIGGER grows BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION grows()',
      'CREATE PROCEDURE nothing() LANGUAGE sql AS $$ SELECT 1 $$',
      'CREATE AGGREGATE total (int) (SFUNC = int4pl, STYPE = int)',
      'CREATE STATISTICS both_columns ON id, mood FROM notes',
      'CREATE TEXT SEARCH CONFIGURATION words (COPY = simple)',
      'CREATE PUBLICATION everything FOR TABLE notes',
      'ALTER TABLE parts ENABLE ROW LEVEL SECURITY',
      `CREATE POLICY own ON parts TO "${id}", "${id}_read" USING (true)`,
      `REVOKE SELECT ON "other place"."<b>" FROM "${id}_read"`,
      `GRANT SELECT (shown) ON "other place"."<b>" TO "${id}_read"`,
      `GRANT USAGE ON TYPE mood TO "${id}_read" WITH GRANT OPTION`,
      'REVOKE EXECUTE ON FUNCTION grows() FROM PUBLIC',
      'ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC',
      `ALTER DEFAULT PRIVILEGES IN SCHEMA "other place" GRANT INSERT ON TABLES TO "${id}_read"`,
      'SELECT lo_create(4711)',
      "ALTER ROLE CURRENT_USER SET work_mem = '7MB'",
      'ALTER ROLE CURRENT_USER SET search_path = "a ""quoted""; DROP", public',
      "ALTER ROLE CURRENT_USER SET datestyle = 'SQL, DMY'",
      "INSERT INTO notes (body) VALUES ('first'), ('second')",
      "SELECT nextval('numbers')",
    );
    const reply = await clone(organization, { name: 'preview' });
    expect(reply).toMatchObject({ status: 201, body: { name: 'preview', status: 'active' } });
    const copy = cloned(reply);
    expect(copy.id).not.toBe(id);

    expect(await look(copy.id, MENTIONED, [[id, `${id}_read`]])).toEqual([]);
    const count =
      "SELECT count(*)::int FROM pg_shdepend WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND deptype = 'o'";
    expect(await look(copy.id, count)).toEqual(await look(id, count));
    // ACLs, but for the names of the roles.
    const acls = `SELECT c.oid::regclass::text AS name, replace(c.relacl::text, $1, 'org') AS acl FROM pg_class c
      WHERE c.relnamespace <> 'pg_catalog'::regnamespace AND c.relacl IS NOT NULL ORDER BY 1`;
    const sorted = (rows: unknown[]) => JSON.stringify(rows).split(/[{},]/).sort();
    expect(sorted(await look(copy.id, acls, [copy.id]))).toEqual(sorted(await look(id, acls, [id])));
    const defaults =
      "SELECT defaclobjtype, defaclnamespace::regnamespace::text, replace(defaclacl::text, $1, 'org') AS acl FROM pg_default_acl ORDER BY 1, 2";
    expect(sorted(await look(copy.id, defaults, [copy.id]))).toEqual(sorted(await look(id, defaults, [id])));

    expect((await service.query(copy, 'SELECT body FROM notes ORDER BY id')).body.rows).toEqual([{ body: 'first!' }, { body: 'second!' }]);
    expect((await service.query(copy, "INSERT INTO notes (body) VALUES ('third') RETURNING id, body")).body.rows).toEqual([
      { id: 3, body: 'third!' },
    ]);
    expect((await service.query(copy, "SELECT nextval('numbers')::int AS next")).body.rows).toEqual([{ next: 8 }]);
    const settings = 'SELECT unnest(setconfig) FROM pg_db_role_setting WHERE setrole = to_regrole($1) ORDER BY 1';
    expect(await look(copy.id, settings, [copy.id])).toEqual(await look(id, settings, [id]));
    expect(await look(copy.id, settings, [copy.id])).toContainEqual({ unnest: 'work_mem=7MB' });

    for (const statement of [
      'ALTER TABLE notes ADD more int',
      'DROP SCHEMA "other place" CASCADE',
      'CREATE TABLE mine ()',
      'DROP EXTENSION citext CASCADE',
    ]) {
      expect((await service.query(copy, statement)).status).toBe(200);
    }
    expect((await service.query(organization, 'SELECT count(*)::int FROM notes')).body.rows).toEqual([{ count: 2 }]);
    expect((await service.query(organization, 'SELECT FROM "other place"."<b>"')).status).toBe(200);
  });

  it('has readers who may read what those of the first organization may', async () => {
    const organization = await service.signUp();
    await readKeyOf(organization);
    await run(organization, 'CREATE TABLE open ()', 'CREATE TABLE closed ()', `REVOKE SELECT ON closed FROM "${organization.id}_read"`);
    const reader = await readKeyOf(cloned(await clone(organization)));
    expect((await service.query(reader, 'SELECT FROM open')).status).toBe(200);
    expect((await service.query(reader, 'SELECT FROM closed')).body).toMatchObject({ sqlstate: '42501' });
  });

  it('cannot reach the first organization, nor the other way round', async () => {
    const organization = await service.signUp();
    const copy = cloned(await clone(organization));
    for (const [one, another] of [
      [organization, copy],
      [copy, organization],
    ] as const) {
      const session = new pg.Client({ ...inject('cluster'), database: 'postgres' });
      await session.connect();
      const { rows } = await session.query('SELECT has_database_privilege($1, $2, $3) AS may, pg_has_role($1, $2, $4) AS member', [
        one.id,
        another.id,
        'CONNECT',
        'MEMBER',
      ]);
      await session.end();
      expect(rows).toEqual([{ may: false, member: false }]);
    }
    expect(await service.query({ ...organization, id: copy.id }, 'SELECT current_user::text AS me')).toMatchObject({
      body: { rows: [{ me: organization.id }] },
    });
  });

  it('is listed, deleted, and recorded in the audit log', async () => {
    const organization = await service.signUp();
    const neighbor = await service.signUp();
    const copy = cloned(await clone(organization));
    const list = async ({ apiKey: key }: TestOrganization) => (await service.call('GET', '/api/clones', { key })).body.clones;
    expect(await list(organization)).toMatchObject([{ organizationId: copy.id, status: 'active' }]);
    expect(await list(neighbor)).toEqual([]);
    expect((await remove(neighbor, copy.id)).status).toBe(404);
    expect((await remove(organization, neighbor.id)).status).toBe(404);
    expect(await remove(organization, copy.id)).toMatchObject({ status: 200, body: { organizationId: copy.id, status: 'dropped' } });
    expect(await list(organization)).toEqual([]);
    expect((await service.query(copy, 'SELECT 1')).status).toBe(401);
    expect((await server.query('SELECT FROM pg_database WHERE datname = $1', [copy.id])).rowCount).toBe(0);
    const { audit } = service.service.router.catalog;
    const actions = async (id: string) => (await audit.list(id, { limit: 100 })).data.map(({ action }) => action);
    await eventually('the calls are recorded', async () => (await actions(organization.id)).includes('clones.delete'));
    expect(await actions(organization.id)).toEqual(
      expect.arrayContaining(['clones.create', 'organization.cloned', 'clones.list', 'clones.delete']),
    );
    expect(await actions(copy.id)).toEqual(
      expect.arrayContaining(['organization.cloned', 'organization.dropping', 'organization.dropped']),
    );
  });

  it('is dropped once when its time is over, although several processes look for that', async () => {
    const organization = await service.signUp();
    const expiresAt = new Date(Date.now() + 3_000).toISOString();
    const copy = cloned(await clone(organization, { expiresAt }));
    const { catalog } = service.service.router;
    await eventually('it has been dropped', async () => (await catalog.organizations.find(copy.id))?.status === 'dropped');
    const dropped = (await catalog.audit.list(copy.id, { limit: 100 })).data
      .map(({ action }) => action)
      .filter((action) => action.startsWith('organization.drop'));
    expect(dropped.sort()).toEqual(['organization.dropped', 'organization.dropping']);
    expect((await server.query('SELECT FROM pg_roles WHERE rolname = $1', [copy.id])).rowCount).toBe(0);
    expect((await service.query(organization, 'SELECT 1')).status).toBe(200);
  });

  it('has the limits of the first organization, and later ones too', async () => {
    const organization = await service.signUp();
    const { operator } = service.service;
    const origin = { surface: 'admin', sourceIp: '127.0.0.1' } as const;
    await operator.setLimits(organization.id, { sessions: 7 }, origin);
    const copy = cloned(await clone(organization));
    expect((await operator.organization(copy.id)).limits).toMatchObject({ sessions: 7, diskBytes: null });
    await operator.setLimits(organization.id, { diskBytes: 2 ** 30 }, origin);
    expect((await operator.organization(copy.id)).limits).toMatchObject({ sessions: 7, diskBytes: 2 ** 30 });
    await operator.setLimits(copy.id, { sessions: 3 }, origin);
    expect((await operator.organization(organization.id)).limits.sessions).toBe(7);
    await operator.drop(copy.id, origin);
  });

  it('is suspended, resumed and dropped with the first organization', async () => {
    const organization = await service.signUp();
    const copy = cloned(await clone(organization));
    const { operator } = service.service;
    const origin = { surface: 'admin', sourceIp: '127.0.0.1' } as const;
    await operator.suspend(organization.id, origin);
    expect((await service.query(copy, 'SELECT 1')).status).toBe(403);
    await operator.resume(organization.id, origin);
    expect((await service.query(copy, 'SELECT 1')).status).toBe(200);
    await operator.drop(organization.id, origin);
    await eventually('it has been dropped', async () => (await operator.organization(copy.id)).status === 'dropped');
  });
});

describe('making a clone', () => {
  it('lets clients of every process wait, and loses nothing', async () => {
    const organization = await service.signUp();
    await service.query(organization, 'CREATE TABLE counted (n int)');
    let isDone = false;
    let acknowledged = 0;
    const write = async (at: TestService, door: 'http' | 'wire') => {
      const client = door === 'wire' ? await at.connect(organization) : undefined;
      while (!isDone) {
        if (client === undefined) expect((await at.query(organization, 'INSERT INTO counted VALUES (1)')).status).toBe(200);
        else await client.query('INSERT INTO counted VALUES (1)');
        acknowledged += 1;
      }
      await client?.end();
    };
    const writers = [write(service, 'http'), write(service, 'wire'), write(other, 'http'), write(other, 'wire')];
    const copy = cloned(await clone(organization));
    isDone = true;
    await Promise.all(writers);
    const countOf = async (of: TestOrganization) => (await service.query(of, 'SELECT count(*)::int FROM counted')).body.rows[0].count;
    expect(await countOf(organization)).toBe(acknowledged);
    expect(await countOf(copy)).toBeLessThanOrEqual(acknowledged);
  });

  it('is refused while a transaction or a pinned session does not end, and leaves nothing behind', async () => {
    const organization = await service.signUp();
    const [open, pinned] = [await other.connect(organization), await other.connect(organization)];
    await open.query('BEGIN; SELECT 1');
    await pinned.query('LISTEN news');
    const { status, body } = await clone(organization);
    expect([status, body]).toMatchObject([
      409,
      { code: 'organization_busy', detail: expect.stringContaining('1 in a transaction, 1 pinned') },
    ]);
    await open.query('COMMIT');
    expect((await pinned.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    expect((await service.call('GET', '/api/clones', { key: organization.apiKey })).body.clones).toEqual([]);

    const { code, stdout } = await installation.admin(['org', 'clone', organization.id, '--force', '--name', 'by force'], variables);
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^org_[a-z0-9]{12} is active until .*; its key, shown only now:\n\nexport ORG=org_/),
    ]);
    await expect(pinned.query('SELECT 1')).rejects.toThrow();
    await open.end();
  });

  it('is limited', async () => {
    const organization = await service.signUp();
    expect(await clone(organization, { expiresAt: new Date(Date.now() - 1_000).toISOString() })).toMatchObject({ status: 400 });
    expect(await clone(organization, { expiresAt: new Date(Date.now() + 8 * 86_400_000).toISOString() })).toMatchObject({ status: 400 });
    const first = cloned(await clone(organization));
    expect(await clone(first)).toMatchObject({ status: 400, body: { code: 'invalid_request' } });
    for (let made = 1; made < 5; made += 1) expect((await clone(organization)).status).toBe(201);
    expect(await clone(organization)).toMatchObject({ status: 409, body: { code: 'too_many_clones' } });
    expect((await clone(await readKeyOf(organization))).status).toBe(403);
  });

  it('counts in the limits of the first organization at both doors', async () => {
    const limited = await startTestService({
      ...testVariables(),
      POSTERN_PLACEMENT: 'database',
      POSTERN_CLIENTS_PER_TENANT: '2',
      POSTERN_HTTP_REQUESTS_PER_TENANT: '2',
    });
    try {
      const first = await limited.signUp();
      const second = cloned(await limited.call('POST', '/api/clones', { key: first.apiKey }));
      const stranger = await limited.signUp();

      const clients = [await limited.connect(first), await limited.connect(second)];
      for (const one of [first, second]) await expect(limited.connect(one)).rejects.toMatchObject({ code: '53300' });
      await (await limited.connect(stranger)).end();
      await clients[0]?.end();
      await eventually('there is room for one', async () => {
        const next = await limited.connect(second).catch(() => undefined);
        await next?.end();
        return next !== undefined;
      });
      await clients[1]?.end();

      const slow = [first, second].map((one) => limited.query(one, 'SELECT pg_sleep(4)'));
      await eventually('both are under way', async () => {
        const usage = await Promise.all([first, second].map(({ apiKey: key }) => limited.call('GET', '/api/usage', { key })));
        return usage.every(({ status }) => status === 429);
      });
      for (const one of [first, second]) expect(await limited.query(one, 'SELECT 1')).toMatchObject({ status: 429 });
      expect((await limited.query(stranger, 'SELECT 1')).status).toBe(200);
      expect((await Promise.all(slow)).map(({ status }) => status)).toEqual([200, 200]);
      expect((await limited.query(second, 'SELECT 1')).status).toBe(200);
    } finally {
      await limited.close();
    }
  });

  it('needs pg_dump in the schema placement', async () => {
    const shared = await startTestService({ ...testVariables(), POSTERN_PLACEMENT: 'schema' });
    const { apiKey: key } = await shared.signUp();
    vi.stubEnv('PATH', '');
    const reply = await shared.call('POST', '/api/clones', { key });
    vi.unstubAllEnvs();
    expect(reply).toMatchObject({
      status: 400,
      body: { code: 'unsupported_statement', detail: expect.stringMatching(/: the service needs pg_dump .* in PATH, and there is none$/) },
    });
    await shared.close();
  });

  it.runIf(hasPostgres15)('takes the pg_dump in POSTERN_POSTGRES_BIN before the one in PATH', async () => {
    const server15 = await startPostgres15();
    const own = await startTestService({
      ...testVariables(),
      DATABASE_URL: serverUrl(server15),
      POSTERN_PLACEMENT: 'schema',
      POSTERN_POSTGRES_BIN: PROGRAMS_OF_15,
    });
    const organization = await own.signUp();
    await own.query(organization, 'CREATE TABLE kept (id int PRIMARY KEY)');
    await own.query(organization, 'INSERT INTO kept VALUES (1)');
    vi.stubEnv('PATH', '');
    const reply = await own.call('POST', '/api/clones', { key: organization.apiKey });
    vi.unstubAllEnvs();
    expect(reply.status).toBe(201);
    expect((await own.query(cloned(reply), 'SELECT id FROM kept')).body.rows).toEqual([{ id: 1 }]);
    await own.close();
    await server15.stop();
  });
});
