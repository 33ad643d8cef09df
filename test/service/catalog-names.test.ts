import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** What migration tools and ORMs ask the catalogs about their own schema and database, in the `schema` placement. */
let service: TestService;
let organization: TestOrganization;
let client: pg.Client;
beforeAll(async () => {
  service = await startTestService({ POSTERN_PLACEMENT: 'schema' });
  organization = await service.signUp();
  client = await service.connect(organization);
  await client.query('CREATE TABLE users (id serial PRIMARY KEY, name text)');
  const other = await service.connect(await service.signUp());
  await other.query('CREATE TABLE others (id int)');
  await other.end();
});
afterAll(async () => {
  await client.end();
  await service.close();
});

const TABLES = 'SELECT table_name FROM information_schema.tables WHERE table_schema';
const USERS = [{ table_name: 'users' }];

describe('the client’s word for its own schema', () => {
  it.each([
    ['node-pg-migrate', `${TABLES} = 'public' AND table_name = 'users'`, USERS],
    ['a list', `${TABLES} IN ('public', 'other')`, USERS],
    ['an exclusion', `${TABLES} NOT IN ('public', 'pg_catalog', 'information_schema') AND table_name = 'users'`, []],
    [
      "PHP's pg_meta_data",
      `SELECT a.attname, a.attnum, t.typname FROM pg_class as c JOIN pg_attribute a ON (a.attrelid = c.oid) JOIN pg_type t ON (a.atttypid = t.oid)
       JOIN pg_namespace n ON (c.relnamespace = n.oid) WHERE a.attnum > 0 AND c.relname = 'users' AND n.nspname = 'public' ORDER BY a.attnum`,
      [
        { attname: 'id', attnum: 1, typname: 'int4' },
        { attname: 'name', attnum: 2, typname: 'text' },
      ],
    ],
    [
      'psql, for \\d public.users',
      `SELECT c.relname FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
       WHERE c.relname OPERATOR(pg_catalog.~) '^(users)$' COLLATE pg_catalog.default AND n.nspname OPERATOR(pg_catalog.~) '^(public)$' COLLATE pg_catalog.default`,
      [{ relname: 'users' }],
    ],
    [
      'JDBC',
      "SELECT c.relname FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND n.nspname LIKE 'public' AND c.relkind = 'r'",
      [{ relname: 'users' }],
    ],
  ])('is understood as a literal: %s', async (_, text, rows) => {
    expect((await client.query(text)).rows).toEqual(rows);
    expect((await service.query(organization, text)).body.rows).toEqual(rows);
  });

  it.each<[string, unknown[], object[]]>([
    [`${TABLES} = $1 AND table_name = $2`, ['public', 'users'], USERS],
    [`${TABLES} = $1::text AND table_name = $2`, ['public', 'users'], USERS],
    [`${TABLES} = $1 AND table_name = $2`, ['other', 'users'], []],
    [`${TABLES} = $1 AND table_name = $2`, [null, 'users'], []],
    [`${TABLES} IN ($1, $2)`, ['other', 'public'], USERS],
    [
      "SELECT relname AS table_name FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE n.nspname = ANY ( $1 ) AND relkind = 'r'",
      [['public']],
      USERS,
    ],
    [
      "SELECT relname AS table_name FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE n.nspname = ANY($1::text[]) AND relkind = 'r'",
      [['x', 'public']],
      USERS,
    ],
    ["SELECT 'users' AS table_name WHERE to_regclass($1) IS NOT NULL AND has_table_privilege($1, 'SELECT')", ['public.users'], USERS],
    [
      "SELECT 'users' AS table_name WHERE $1::regclass = CAST($2 AS regclass) AND nextval($3) > 0",
      ['public.users', '"public".users', 'public.users_id_seq'],
      USERS,
    ],
  ])('is understood in a parameter: %s %j', async (text, values, rows) => {
    expect((await client.query(text, values)).rows).toEqual(rows);
    for (let round = 0; round < 3; round += 1)
      expect((await client.query({ name: text.slice(-50) + text.length, text, values })).rows).toEqual(rows);
    expect((await service.query(organization, text, values)).body.rows).toEqual(rows);
  });

  it.each<[string, string, object[]]>([
    [
      'its name',
      "SELECT table_schema AS s, table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_name = 'users'",
      [{ s: 'public', table_name: 'users' }],
    ],
    [
      'all columns',
      "SELECT * FROM pg_indexes WHERE schemaname = 'public' AND tablename = 'users'",
      [
        {
          schemaname: 'public',
          tablename: 'users',
          indexname: 'users_pkey',
          tablespace: null,
          indexdef: 'CREATE UNIQUE INDEX users_pkey ON public.users USING btree (id)',
        },
      ],
    ],
    [
      'names of roles stay',
      "SELECT schemaname, tableowner FROM pg_tables WHERE schemaname = 'public' AND tablename = 'users'",
      [{ schemaname: 'ORG', tableowner: 'ORG' }],
    ],
    ['a statement that does not ask about it', 'SELECT nspname FROM pg_namespace WHERE nspname = current_schema()', [{ nspname: 'ORG' }]],
  ])('is in the answer to a statement that asks about it: %s', async (_, text, wanted) => {
    const rows = JSON.parse(JSON.stringify(wanted).replaceAll('ORG', organization.id));
    expect((await client.query(text)).rows).toEqual(rows);
    for (let round = 0; round < 3; round += 1) expect((await client.query({ name: String(text.length), text })).rows).toEqual(rows);
    expect((await service.query(organization, text)).body.rows).toEqual(rows);
  });

  it.each<[string, string, unknown[], object[]]>([
    [
      'equal to it',
      'SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = $1 AND table_name = $2',
      ['public', 'users'],
      [{ table_schema: 'public', table_name: 'users' }],
    ],
    [
      'in a list',
      'SELECT nspname, c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = ANY ($1) AND relname = $2',
      [['public', 'other'], 'users'],
      [{ nspname: 'public', name: 'users' }],
    ],
    [
      'by its real name',
      'SELECT table_schema AS s FROM information_schema.tables WHERE table_schema = $1 AND table_name = $2',
      ['ORG', 'users'],
      [{ s: 'ORG' }],
    ],
    [
      'about roles',
      'SELECT schemaname, tableowner FROM pg_tables WHERE schemaname = $1 AND tablename = $2',
      ['public', 'users'],
      [{ schemaname: 'ORG', tableowner: 'ORG' }],
    ],
  ])('is in the answer to a statement that asks about it with a parameter: %s', async (what, text, given, wanted) => {
    const [values, rows] = [given, wanted].map((each) => JSON.parse(JSON.stringify(each).replaceAll('ORG', organization.id)));
    expect((await client.query(text, values)).rows).toEqual(rows);
    for (let round = 0; round < 3; round += 1) expect((await client.query({ name: what, text, values })).rows).toEqual(rows);
    expect((await service.query(organization, text, values)).body.rows).toEqual(rows);
  });

  it('is data in a table of its own', async () => {
    await client.query("CREATE TABLE tenants (schema_name text); INSERT INTO tenants VALUES ('public')");
    expect((await client.query("SELECT * FROM tenants WHERE schema_name = 'public'")).rows).toEqual([{ schema_name: 'public' }]);
    expect((await client.query('SELECT * FROM tenants WHERE schema_name = $1', ['public'])).rows).toEqual([{ schema_name: 'public' }]);
  });

  it('is there already when it is created, by its real name too', async () => {
    const notices: (string | undefined)[][] = [];
    const hear = ({ code, message, where }: { code?: string | undefined; message?: string | undefined; where?: string | undefined }) =>
      notices.push([code, message, where]);
    client.on('notice', hear);
    for (const name of ['public', '"public"', organization.id, `"${organization.id}" AUTHORIZATION current_user`]) {
      await client.query(`CREATE SCHEMA IF NOT EXISTS ${name}`);
      expect(notices.splice(0)).toEqual([['42P06', 'schema "public" already exists, skipping', undefined]]);
      const { status, body } = await service.query(organization, `CREATE SCHEMA ${name}`);
      expect([status, body]).toMatchObject([400, { sqlstate: '42P06', message: 'schema "public" already exists' }]);
    }
    client.off('notice', hear);
    await expect(client.query('CREATE SCHEMA another')).rejects.toMatchObject({ code: '42501' });
  });
});

it("finds the database by the organization's name, as MikroORM asks", async () => {
  const text = `select 1 as found from pg_database where datname = '${organization.id}'`;
  expect((await client.query(text)).rows).toEqual([{ found: 1 }]);
  expect((await service.query(organization, text)).body.rows).toEqual([{ found: 1 }]);
  expect((await client.query(`SELECT count(*)::int AS n FROM ${organization.id}.public.users`)).rows).toEqual([{ n: 0 }]);
  for (const database of [organization.id, 'postern_shared']) {
    const asked = await client.query(`${TABLES} = 'public' AND table_catalog = $1 AND table_name = 'users'`, [database]);
    expect(asked.rows).toEqual(USERS);
  }
});
