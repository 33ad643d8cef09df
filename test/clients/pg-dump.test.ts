import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeSchema } from '../src/rewriting/dump/describe-schema.ts';
import type { TestCluster } from '../support/cluster.setup.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { serverUrl } from '../support/server-url.ts';
import { PLACEMENT, startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { libpqEnvironment, needDebian, runClient } from './debian.ts';

const SOURCE = new URL('../src/rewriting/dump/source.sql', import.meta.url);

/** Its rows, which say `public` in every way that data can. */
const TABLES = ['teams', 'users', 'public', 'audit', 'measures', 'events', 'logins', 'moods', 'team_sizes'];

/** The server that Debian's pg_dump is of one age with, and a service on it. */
let server: TestCluster & { stop(): Promise<void> };
let service: TestService;
let scratch: Scratch;
let organization: TestOrganization;
/** In the database that is dumped, and in the organization's. */
let source: pg.Client;
let there: pg.Client;
/** The schema that `public` is for the organization. */
let schema: string;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  server = await startPostgres15();
  service = await startTestService({ DATABASE_URL: serverUrl(server) });
  scratch = await makeScratch();
  organization = await service.signUp();
  schema = PLACEMENT === 'schema' ? organization.id : 'public';
  source = await makeDatabase('source');
  await source.query(await readFile(SOURCE, 'utf8'));
  // Is of the role that has given it, and only good where there is one of that name.
  await source.query('ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE SELECT ON TABLES FROM PUBLIC');
  there = await connect(PLACEMENT === 'schema' ? 'postern_shared' : organization.id);
});
afterAll(async () => {
  await Promise.all([source?.end(), there?.end()]);
  await service?.close();
  await server?.stop();
  await scratch?.remove();
});

async function connect(database: string): Promise<pg.Client> {
  const client = new pg.Client({ ...server, database });
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function makeDatabase(name: string): Promise<pg.Client> {
  const admin = await connect('postgres');
  await admin.query(`CREATE DATABASE ${name} TEMPLATE template0`);
  await admin.end();
  return connect(name);
}

/** On the server itself, as its superuser. */
const superuser = (database: string): NodeJS.ProcessEnv => ({
  PATH: process.env.PATH,
  PGHOST: server.host,
  PGPORT: String(server.port),
  PGUSER: server.user,
  PGPASSWORD: server.password,
  PGDATABASE: database,
});

/** @param env where to, and as whom */
async function load(dump: string, env: NodeJS.ProcessEnv): Promise<void> {
  await writeFile(join(scratch.path, 'dump.sql'), dump);
  await runClient('psql', ['--quiet', '--no-psqlrc', '--set', 'ON_ERROR_STOP=1', '--file', 'dump.sql'], { env, cwd: scratch.path });
}

async function rowsOf(client: pg.Client, inSchema: string): Promise<Record<string, unknown[]>> {
  const found: Record<string, unknown[]> = {};
  await client.query(`SET search_path = "${inSchema}"`);
  for (const table of TABLES) {
    const { rows } = await client.query(`SELECT t::text AS line FROM "${table}" AS t ORDER BY 1`);
    found[table] = rows;
  }
  return found;
}

/** In an organization's place, as if they were the superuser's. */
async function objectsOf(client: pg.Client): Promise<string[]> {
  const lines = await describeSchema(client, schema);
  return lines.map((line) => line.replaceAll(organization.id, server.user));
}

it('a plain dump of another database loads with psql, and makes the same objects with the same rows', async () => {
  await load(await runClient('pg_dump', ['--no-owner'], { env: superuser('source') }), libpqEnvironment(service, organization));
  const wanted = await describeSchema(source, 'public');
  expect(wanted.length).toBeGreaterThan(150);
  expect(await objectsOf(there)).toEqual(wanted);
  expect(await rowsOf(there, schema)).toEqual(await rowsOf(source, 'public'));
});

it('pg_dump gives it back', async () => {
  const words = PLACEMENT === 'schema' ? ['--schema', organization.id] : [];
  const dump = await runClient('pg_dump', words, { env: libpqEnvironment(service, organization) });
  const copy = await makeDatabase('copy');
  await load(dump, superuser('copy'));
  const wanted = await objectsOf(there);
  // A cast is in no schema, so that the dump of one has none.
  expect(await objectsOf(copy)).toEqual(PLACEMENT === 'schema' ? wanted.filter((line) => !line.startsWith('cast ')) : wanted);
  expect(await rowsOf(copy, schema)).toEqual(await rowsOf(source, 'public'));
  await copy.end();
});

it('the application that comes with it works: triggers, functions, defaults', async () => {
  const client = await service.connect(organization);
  await client.query("INSERT INTO public.users (team_id, email, home) VALUES (3, 'd@public.x', ROW('C', 'Bonn'))");
  const { rows } = await client.query("SELECT relation, operation FROM public.audit WHERE row_data ->> 'email' = 'd@public.x'");
  expect(rows).toEqual([{ relation: 'users', operation: 'INSERT' }]);
  await client.query("CALL rename_team(2, 'renamed')");
  expect((await client.query('SELECT name, slug FROM teams WHERE id = 2')).rows).toEqual([
    { name: 'renamed public.x', slug: 'renamed-public-x' },
  ]);
  await client.end();
});
