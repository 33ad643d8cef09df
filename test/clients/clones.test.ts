import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { JsonReply } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { type Installation, makeInstallation } from '../support/process.ts';
import { serverUrl } from '../support/server-url.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { closeAfterClients } from './address.ts';
import { libpqEnvironment, needDebian, runClient } from './debian.ts';
import { Writers } from './moves/writers.ts';

/** pg_dump refuses a server that is newer than itself, so here the server is as old as Debian's. */
const BINARIES = '/usr/lib/postgresql/15/bin';
const CONTENT = fileURLToPath(new URL('pg-restore/content.sql', import.meta.url));
const PATH = `${BINARIES}:${process.env.PATH}`;

let server: Awaited<ReturnType<typeof startPostgres15>>;
let installation: Installation;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  process.env.PATH = PATH;
  [server, installation] = await Promise.all([startPostgres15(), makeInstallation()]);
});
afterAll(async () => {
  await installation.remove();
  await server.stop();
});

/** Runs a query as the server's superuser. */
async function look(database: string, text: string, values: unknown[] = []): Promise<unknown[]> {
  const session = new pg.Client({ ...server, database });
  await session.connect();
  try {
    return (await session.query(text, values)).rows;
  } finally {
    await session.end();
  }
}

/** Roles, databases and schemas that have the organization's name. */
const placesOf = (id: string) =>
  look(
    'postern_shared',
    `SELECT 'database' AS place FROM pg_database WHERE datname = $1 UNION ALL SELECT 'schema' FROM pg_namespace WHERE nspname = $1
     UNION ALL SELECT 'role' FROM pg_roles WHERE rolname IN ($1, $1 || '_read')`,
    [id],
  );

const cloned = ({ body: { organizationId, apiKey } }: JsonReply): TestOrganization => ({
  id: organizationId,
  apiKey,
  orgName: '',
  email: '',
});

/** What the operator's command prints: the clone's id and key. */
function printed(stdout: string): TestOrganization {
  const [, id = '', apiKey = ''] = /export ORG=(org_\w+)[\s\S]*API_KEY=(\S+)/.exec(stdout) ?? [];
  return { id, apiKey, orgName: '', email: '' };
}

describe.each(PLACEMENTS)('a clone of an organization in the %s placement', (placement) => {
  let variables: Record<string, string>;
  let service: TestService;
  beforeAll(async () => {
    variables = { ...testVariables(), POSTERN_PLACEMENT: placement, DATABASE_URL: serverUrl(server), PATH };
    service = await startTestService(variables);
  });
  afterAll(() => closeAfterClients(service));

  const clone = ({ apiKey: key }: TestOrganization, body: object = {}) => service.call('POST', '/api/clones', { key, body });
  const admin = (...words: string[]) => installation.admin(words, variables);
  const psql = (organization: TestOrganization, ...words: string[]) =>
    runClient(join(BINARIES, 'psql'), ['--no-psqlrc', '--quiet', '--output=/dev/null', '--set=ON_ERROR_STOP=1', ...words], {
      env: libpqEnvironment(service, organization),
    });

  /** All definitions and rows, without Postern's own tables, with a word for the names that an organization has of its own. */
  async function dump(organization: TestOrganization): Promise<string> {
    const words = placement === 'schema' ? ['-n', organization.id, '--exclude-table=postern_*'] : [];
    const text = await runClient(join(BINARIES, 'pg_dump'), ['--no-owner', ...words], { env: libpqEnvironment(service, organization) });
    return text.replaceAll(/^\\(un)?restrict .*\n/gm, '').replaceAll(organization.id, 'the_organization');
  }

  async function run(organization: TestOrganization, ...statements: string[]): Promise<void> {
    for (const sql of statements) expect([sql, (await service.query(organization, sql)).status]).toEqual([sql, 200]);
  }

  async function readerOf(organization: TestOrganization): Promise<TestOrganization> {
    const { body } = await service.call('POST', '/api/keys', { key: organization.apiKey, body: { name: 'reader', scope: 'read' } });
    return { ...organization, apiKey: body.apiKey };
  }

  it('has all of it, and nothing of it belongs to anybody else', async () => {
    const acme = await service.signUp();
    await psql(acme, '--file', CONTENT);
    await readerOf(acme);
    await service.call('POST', '/api/migrations', { key: acme.apiKey, body: { name: 'one', sql: 'CREATE TABLE one (n int)' } });
    await run(
      acme,
      `CREATE POLICY own ON public.books TO "${acme.id}_read" USING (title <> 'public.')`,
      `REVOKE SELECT ON parents FROM "${acme.id}_read"`,
      'ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC',
      'CREATE FUNCTION counted() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM public.books); END $$',
      "CREATE VIEW listed AS SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
      "ALTER ROLE CURRENT_USER SET work_mem = '7MB'",
      'ALTER ROLE CURRENT_USER SET search_path = public, pg_catalog',
    );
    const before = await dump(acme);
    const reply = await clone(acme, { name: 'preview' });
    expect(reply).toMatchObject({ status: 201, body: { name: 'preview', status: 'active' } });
    const copy = cloned(reply);
    expect(await dump(copy)).toBe(before);
    expect(await dump(acme)).toBe(before);

    await run(
      copy,
      'CALL tidy(1)',
      'SELECT counted()',
      "INSERT INTO public.authors (name, mail) VALUES ('new', 'n@w')",
      'DROP TABLE books CASCADE',
    );
    expect((await service.query(copy, 'SELECT max(id)::int FROM authors')).body.rows).toEqual([{ max: 40 }]);
    expect((await service.query(copy, 'SHOW work_mem')).body.rows).toEqual([{ work_mem: '7MB' }]);
    expect((await service.query(copy, 'SELECT tablename FROM listed')).body.rows).toContainEqual({ tablename: 'authors' });
    expect((await service.call('GET', '/api/migrations', { key: copy.apiKey })).body.migrations).toMatchObject([{ name: 'one' }]);
    expect(await service.call('POST', '/api/migrations', { key: copy.apiKey, body: { name: 'two', sql: 'SELECT 1' } })).toMatchObject({
      status: 201,
    });
    const reader = await readerOf(copy);
    expect((await service.query(reader, 'SELECT count(*)::int FROM authors')).body.rows).toEqual([{ count: 4 }]);
    expect((await service.query(reader, 'SELECT FROM parents')).body).toMatchObject({ sqlstate: '42501' });
    expect((await service.query(acme, 'SELECT count(*)::int FROM books')).body.rows).toEqual([{ count: 2000 }]);

    const shared = placement === 'schema' ? 'postern_shared' : copy.id;
    const schema = placement === 'schema' ? copy.id : 'public';
    expect(
      await look(
        shared,
        `SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = to_regnamespace($1) AND relowner = to_regrole($2)
         UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace = to_regnamespace($1) AND proowner = to_regrole($2)
         UNION ALL SELECT prosrc FROM pg_proc WHERE pronamespace = to_regnamespace($1) AND strpos(prosrc, $2) > 0
         UNION ALL SELECT c.oid::regclass::text FROM pg_class c, aclexplode(relacl) a
           WHERE relnamespace = to_regnamespace($1) AND a.grantee = ANY (ARRAY[to_regrole($2), to_regrole($2 || '_read')]::oid[])`,
        [schema, acme.id],
      ),
    ).toEqual([]);
    for (const [one, other] of [
      [acme, copy],
      [copy, acme],
    ] as const) {
      const may =
        placement === 'schema' ? "has_schema_privilege($1, $2::text, 'USAGE')" : "has_database_privilege($1, $2::text, 'CONNECT')";
      expect(await look('postern_shared', `SELECT ${may} AS may, pg_has_role($1, $2, 'MEMBER') AS member`, [one.id, other.id])).toEqual([
        { may: false, member: false },
      ]);
    }
  });

  it('is made while clients wait, and nothing is lost', async () => {
    const acme = await service.signUp();
    const writers = await Writers.start(service, acme);
    await writers.writeSome();
    const copy = cloned(await clone(acme));
    await writers.writeSome();
    await writers.stop();
    expect(await writers.compare()).toEqual({ lost: [], strange: [], doubled: [] });
    const countOf = async (of: TestOrganization): Promise<number> =>
      (await service.query(of, 'SELECT count(*)::int FROM written')).body.rows[0].count;
    expect(await countOf(copy)).toBeGreaterThan(0);
    expect(await countOf(copy)).toBeLessThan(await countOf(acme));
  });

  it('is made by the operator, also by force, and is suspended and dropped with the first one', async () => {
    const acme = await service.signUp();
    await run(acme, 'CREATE TABLE notes AS SELECT 1 AS n');
    const pinned = await service.connect(acme);
    pinned.on('error', () => {});
    await pinned.query('LISTEN news');
    expect(await admin('org', 'clone', acme.id)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('0 in a transaction, 1 pinned'),
    });
    expect(await service.call('GET', '/api/clones', { key: acme.apiKey })).toMatchObject({ body: { clones: [] } });
    const { code, stdout } = await admin('org', 'clone', acme.id, '--force', '--name', 'by force', '--expires', '30m');
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^org_[a-z0-9]{12} is active until .*; its key, shown only now:\n/)]);
    await expect(pinned.query('SELECT 1')).rejects.toThrow();
    const copy = printed(stdout);
    expect((await service.query(copy, 'SELECT n FROM notes')).body.rows).toEqual([{ n: 1 }]);
    // The service hears of what the command has done.
    const status = async () => (await service.query(copy, 'SELECT 1')).status;
    await admin('org', 'suspend', acme.id);
    await expect.poll(status).toBe(403);
    await admin('org', 'resume', acme.id);
    await expect.poll(status).toBe(200);
    expect(await admin('org', 'drop', acme.id, '--yes')).toMatchObject({ code: 0 });
    await eventually('nothing is left of the clone', async () => (await placesOf(copy.id)).length === 0);
  });

  it('is limited, listed, recorded in the audit log, and gone when its time is over', async () => {
    const acme = await service.signUp();
    const at = (ms: number) => ({ expiresAt: new Date(Date.now() + ms).toISOString() });
    expect(await clone(acme, at(-1_000))).toMatchObject({ status: 400 });
    expect(await clone(acme, at(8 * 86_400_000))).toMatchObject({ status: 400 });
    expect((await clone(await readerOf(acme))).status).toBe(403);
    const first = cloned(await clone(acme, at(86_400_000)));
    expect(await clone(first)).toMatchObject({ status: 400, body: { code: 'invalid_request' } });
    const short = cloned(await clone(acme, at(10_000)));
    await eventually('it is gone', async () => (await placesOf(short.id)).length === 0);
    for (let made = 1; made < 5; made += 1) expect((await clone(acme)).status).toBe(201);
    expect(await clone(acme)).toMatchObject({ status: 409, body: { code: 'too_many_clones' } });
    expect((await service.call('GET', '/api/clones', { key: acme.apiKey })).body.clones).toHaveLength(5);
    expect(await service.call('DELETE', `/api/clones/${first.id}`, { key: acme.apiKey })).toMatchObject({ body: { status: 'dropped' } });
    expect(await placesOf(first.id)).toEqual([]);
    expect((await service.query(first, 'SELECT 1')).status).toBe(401);
    const { audit } = service.service.router.catalog;
    const actions = async (id: string) => (await audit.list(id, { limit: 1000 })).data.map(({ action }) => action);
    await eventually('the calls are recorded', async () => (await actions(acme.id)).includes('clones.delete'));
    expect(await actions(acme.id)).toEqual(expect.arrayContaining(['clones.create', 'organization.cloned', 'clones.list']));
    for (const { id } of [first, short])
      expect((await actions(id)).filter((action) => action.startsWith('organization.')).sort()).toEqual([
        'organization.cloned',
        'organization.dropped',
        'organization.dropping',
      ]);
  });
});

describe('a clone in the schema placement', () => {
  let variables: Record<string, string>;
  let service: TestService;
  beforeAll(async () => {
    variables = { ...testVariables(), POSTERN_PLACEMENT: 'schema', DATABASE_URL: serverUrl(server), PATH };
    service = await startTestService(variables);
  });
  afterAll(() => closeAfterClients(service));

  const clone = ({ apiKey: key }: TestOrganization) => service.call('POST', '/api/clones', { key });

  const schemas = () => look('postern_shared', 'SELECT nspname FROM pg_namespace ORDER BY oid');

  /** Nothing of a failed clone is left, and the organization's clients go on. */
  async function expectNothing(acme: TestOrganization, before: unknown[]): Promise<void> {
    expect((await service.call('GET', '/api/clones', { key: acme.apiKey })).body.clones).toEqual([]);
    const sessions = () => look('postgres', "SELECT FROM pg_stat_activity WHERE application_name = 'postern clone'");
    await expect.poll(sessions).toEqual([]);
    expect(await look(variables.POSTERN_CONTROL_DATABASE ?? '', "SELECT FROM postern.organizations WHERE status = 'provisioning'")).toEqual(
      [],
    );
    expect(await schemas()).toEqual(before);
    expect((await service.query(acme, 'CREATE TABLE after_that ()')).status).toBe(200);
  }

  it.each([
    ['CREATE TABLE named (what regclass)', 'columns whose values name objects (named.what)'],
    ['CREATE TABLE hidden (n int); ALTER TABLE hidden FORCE ROW LEVEL SECURITY', 'tables with FORCE ROW LEVEL SECURITY (hidden)'],
    ['CREATE TYPE a AS (n int); CREATE TYPE b AS (n int); CREATE CAST (a AS b) WITH INOUT', 'casts'],
  ])('is refused if it cannot have all: %s', async (sql, what) => {
    const acme = await service.signUp();
    const before = await schemas();
    for (const statement of sql.split('; ')) expect((await service.query(acme, statement)).status).toBe(200);
    expect(await clone(acme)).toMatchObject({
      status: 400,
      body: { code: 'unsupported_statement', detail: expect.stringContaining(`a clone in the schema placement cannot have ${what}`) },
    });
    await expectNothing(acme, before);
  });

  it('is refused while there are large objects', async () => {
    const acme = await service.signUp();
    const before = await schemas();
    await service.query(acme, 'SELECT lo_create(0)');
    expect(await clone(acme)).toMatchObject({
      status: 400,
      body: { code: 'unsupported_statement', detail: 'large objects cannot be copied' },
    });
    await expectNothing(acme, before);
  });

  it('has tables, columns and sequences that are named like the organization by the name of the clone', async () => {
    const acme = await service.signUp();
    for (const sql of [
      `CREATE TABLE ${acme.id} (id serial PRIMARY KEY, ${acme.id} text UNIQUE, "of ${acme.id}!" int GENERATED ALWAYS AS (1) STORED)`,
      `CREATE SEQUENCE "${acme.id} 2"`,
      `SELECT nextval('"${acme.id} 2"'), nextval('"${acme.id} 2"')`,
      `INSERT INTO ${acme.id} (${acme.id}) VALUES ('one'), ('${acme.id}')`,
      `CREATE MATERIALIZED VIEW ${acme.id}_read AS SELECT ${acme.id}.${acme.id} FROM public.${acme.id}`,
      `CREATE TABLE "${acme.id}_notes" AS SELECT 1 AS "${acme.id}_n"`,
      `CREATE FUNCTION counted() RETURNS bigint LANGUAGE sql AS 'SELECT count(${acme.id}.id) FROM public.${acme.id}'`,
    ])
      expect([sql, (await service.query(acme, sql)).status]).toEqual([sql, 200]);
    const reply = await clone(acme);
    expect(reply).toMatchObject({ status: 201 });
    const copy = cloned(reply);
    const rows = async (sql: string) => (await service.query(copy, sql)).body.rows;
    expect(await rows(`SELECT ${copy.id} AS text FROM ${copy.id} ORDER BY id`)).toEqual([{ text: 'one' }, { text: acme.id }]);
    expect(await rows(`SELECT ${copy.id} AS text FROM ${copy.id}_read ORDER BY 1 DESC`)).toEqual(
      [{ text: acme.id }, { text: 'one' }].sort(),
    );
    expect(await rows(`SELECT "${acme.id}_n" AS n FROM "${acme.id}_notes"`)).toEqual([{ n: 1 }]);
    expect(await rows(`SELECT counted()::int, nextval('"${copy.id} 2"')::int AS next`)).toEqual([{ counted: 2, next: 3 }]);
    expect(await rows(`INSERT INTO ${copy.id} (${copy.id}) VALUES ('three') RETURNING id`)).toEqual([{ id: 3 }]);
    expect((await service.query(acme, 'SELECT counted()::int')).body.rows).toEqual([{ counted: 2 }]);
  });

  it("keeps the organization's id where that is a value, and has its own where that is a name", async () => {
    const acme = await service.signUp();
    const { id } = acme;
    for (const sql of [
      `CREATE TYPE kind AS ENUM ('${id}', 'other')`,
      `CREATE DOMAIN label AS text CHECK (value ~ '${id}')`,
      `CREATE TABLE of_enum AS SELECT '${id}'::kind AS a`,
      `CREATE TABLE of_check AS SELECT 'for ${id}'::label AS a`,
      `ALTER TABLE of_check ADD b text CHECK (b IN ('${id}', 'b')) DEFAULT '${id}', ADD c text GENERATED ALWAYS AS ('${id}.' || 1) STORED`,
      `CREATE TABLE parts (a text) PARTITION BY LIST (a)`,
      `CREATE TABLE part PARTITION OF parts FOR VALUES IN ('${id}')`,
      `INSERT INTO parts VALUES ('${id}')`,
      `COMMENT ON TABLE parts IS '${id}'`,
      `CREATE FUNCTION in_body(n int DEFAULT 1) RETURNS text LANGUAGE sql AS $$ SELECT '${id}' FROM public.parts $$`,
      `CREATE FUNCTION in_code() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN '${id}.' || (SELECT a FROM public.parts); END $$`,
      `CREATE VIEW values_shown AS SELECT '${id}'::text AS a, current_user = '${id}' AS b, to_regclass('public.parts') IS NOT NULL AS c`,
      `CREATE VIEW schemas_shown AS SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename = 'part'`,
      'CREATE TABLE secured (a text, by text DEFAULT current_user)',
      'ALTER TABLE secured ENABLE ROW LEVEL SECURITY',
      `CREATE POLICY own ON secured TO "${id}" USING (a = '${id}' AND current_user = '${id}')`,
    ])
      expect([sql, (await service.query(acme, sql)).status]).toEqual([sql, 200]);
    const reply = await clone(acme);
    expect(reply).toMatchObject({ status: 201 });
    const copy = cloned(reply);
    const rows = async (sql: string) => (await service.query(copy, sql)).body.rows;
    expect(await rows('SELECT a FROM of_enum')).toEqual([{ a: id }]);
    expect(await rows('INSERT INTO of_check (a) SELECT a FROM of_check RETURNING a, b, c')).toEqual([
      { a: `for ${id}`, b: id, c: `${id}.1` },
    ]);
    expect(await rows("SELECT a, obj_description('parts'::regclass) AS b, tableoid::regclass::text AS c FROM parts")).toEqual([
      { a: id, b: id, c: 'part' },
    ]);
    expect(await rows('SELECT in_body() AS a, in_code() AS b')).toEqual([{ a: id, b: `${id}.${id}` }]);
    expect(await rows('SELECT * FROM values_shown, schemas_shown')).toEqual([{ a: id, b: true, c: true, tablename: 'part' }]);
    expect(await look('postern_shared', 'SELECT roles::text AS a, qual AS b FROM pg_policies WHERE schemaname = $1', [copy.id])).toEqual([
      { a: `{${copy.id}}`, b: `((a = '${id}'::text) AND (CURRENT_USER = '${copy.id}'::name))` },
    ]);
  });

  it('says in the words of clients what keeps it from being made', async () => {
    const acme = await service.signUp();
    await service.query(acme, 'CREATE TABLE limits AS SELECT 1 AS n');
    await service.query(
      acme,
      `CREATE FUNCTION kept(n int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
         IF n > (SELECT l.n FROM public.limits l) THEN RAISE 'public.limits says no'; END IF; RETURN true; END $$`,
    );
    await service.query(acme, 'CREATE TABLE amounts (n int CHECK (public.kept(n)))');
    await service.query(acme, 'INSERT INTO amounts VALUES (1)');
    await service.query(acme, 'UPDATE limits SET n = 0');
    const before = await schemas();
    expect(await clone(acme)).toMatchObject({
      status: 400,
      body: { code: 'invalid_request', detail: 'the data cannot be copied: public.limits says no' },
    });
    await expectNothing(acme, before);
  });

  it('runs nothing of the organization as anybody but the clone', async () => {
    const acme = await service.signUp();
    await service.query(acme, `CREATE TABLE "x\n\\! false\nALTER ROLE CURRENT_USER SUPERUSER; --" (n int)`);
    await service.query(
      acme,
      `CREATE FUNCTION see(n int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
         IF session_user <> '${acme.id}' OR current_user <> session_user THEN RAISE 'as %', session_user; END IF; RETURN true; END $$`,
    );
    await service.query(acme, 'CREATE TABLE checked (n int CHECK (public.see(n)))');
    await service.query(acme, 'CREATE INDEX ON checked (n) WHERE n > 0');
    await service.query(acme, 'INSERT INTO checked VALUES (1)');
    const copy = cloned(await clone(acme));
    expect((await service.query(copy, 'INSERT INTO checked VALUES (2)')).status).toBe(200);
    expect(await look('postgres', 'SELECT rolsuper FROM pg_roles WHERE rolname = ANY ($1)', [[acme.id, copy.id]])).toEqual([
      { rolsuper: false },
      { rolsuper: false },
    ]);
  });

  describe.concurrent('when it takes too long', () => {
    /** What is asked of the clone's rows does not end. */
    async function makeSlow(acme: TestOrganization): Promise<void> {
      await service.query(
        acme,
        `CREATE FUNCTION slow(n int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
           IF current_setting('application_name') = 'postern clone' THEN PERFORM pg_catalog.pg_sleep(3600); END IF; RETURN true; END $$`,
      );
      await service.query(acme, 'CREATE TABLE slowly (n int CHECK (public.slow(n)))');
      await service.query(acme, 'INSERT INTO slowly VALUES (1)');
    }
    const isCopying = ({ id }: TestOrganization, copy = '') =>
      look(
        'postgres',
        `SELECT FROM pg_stat_activity WHERE usename = $1 AND application_name = 'postern clone' AND state = 'idle in transaction'
           AND EXISTS (SELECT FROM pg_stat_activity WHERE usename = $2 AND wait_event = 'PgSleep' AND query ~ '^COPY')`,
        [id, copy],
      );

    it('is given up, and the clients go on', async () => {
      const acme = await service.signUp();
      await makeSlow(acme);
      expect(await clone(acme)).toMatchObject({ status: 504, body: { code: 'statement_timeout' } });
      expect((await service.query(acme, 'INSERT INTO slowly VALUES (2)')).status).toBe(200);
    });

    it('does not keep anything when its process is killed', async () => {
      const other = { ...variables, POSTERN_CONTROL_DATABASE: testVariables().POSTERN_CONTROL_DATABASE ?? '' };
      const first = await installation.start(other);
      const acme = await first.signUp();
      for (const sql of [
        `CREATE FUNCTION slow(n int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
           IF current_setting('application_name') = 'postern clone' THEN PERFORM pg_catalog.pg_sleep(3600); END IF; RETURN true; END $$`,
        'CREATE TABLE slowly (n int CHECK (public.slow(n)))',
        'INSERT INTO slowly VALUES (1)',
      ])
        await first.query(acme, sql);
      const asked = first.call('POST', '/api/clones', { key: acme.apiKey }).catch(() => {});
      const made = "SELECT id FROM postern.organizations WHERE status = 'provisioning'";
      const beingMade = async () => ((await look(other.POSTERN_CONTROL_DATABASE, made)) as { id: string }[])[0];
      await eventually('rows are copied', async () => (await isCopying(acme, (await beingMade())?.id)).length > 0);
      const copy = await beingMade();
      expect(await placesOf(copy?.id ?? '')).toContainEqual({ place: 'schema' });
      await first.end('SIGKILL');
      await asked;
      const second = await installation.start(other);
      await eventually('the clients go on', async () => (await second.query(acme, 'INSERT INTO slowly VALUES (2)')).status === 200);
      const all = () => look(other.POSTERN_CONTROL_DATABASE, 'SELECT id FROM postern.organizations');
      await eventually('the clone is forgotten', async () => (await all()).length === 1);
      expect(await all()).toEqual([{ id: acme.id }]);
      const roles = () => look('postgres', 'SELECT FROM pg_roles WHERE rolname = $1', [copy?.id]);
      await eventually('its role is gone', async () => (await roles()).length === 0);
      await second.end('SIGTERM');
    });
  });
});
