import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rolePassword } from '../../src/auth/derived-secrets.ts';
import { DOCUMENTED, textOf } from '../support/documents.ts';
import { makeOwnCluster } from '../support/own-cluster.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { type Installation, makeInstallation } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, TEST_SECRET, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { closeAfterClients } from './address.ts';
import { libpqEnvironment, needDebian, runClient } from './debian.ts';
import { Writers } from './moves/writers.ts';

/** pg_dump refuses a server that is newer than itself, so here the servers are as old as Debian's. */
const BINARIES = '/usr/lib/postgresql/15/bin';
const CONTENT = fileURLToPath(new URL('pg-restore/content.sql', import.meta.url));
const OF_DATABASE = fileURLToPath(new URL('moves/database.sql', import.meta.url));
const QUIET = ['--no-psqlrc', '--quiet', '--output=/dev/null', '--set=ON_ERROR_STOP=1'];

let servers: Awaited<ReturnType<typeof startPostgres15>>[];
let superuser: pg.Client;
let installation: Installation;
let scratch: Scratch;
let variables: Record<string, string>;
let service: TestService;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  servers = [await startPostgres15(), await startPostgres15()];
  [installation, scratch] = await Promise.all([makeInstallation(), makeScratch()]);
  const [url = '', other = ''] = servers.map(serverUrl);
  variables = { ...testVariables(), POSTERN_PLACEMENT: 'database', DATABASE_URL: url, PATH: `${BINARIES}:${process.env.PATH}` };
  service = await startTestService(variables);
  superuser = new pg.Client(url);
  await superuser.connect();
  await writeFile(join(scratch.path, 'other'), other, { mode: 0o600 });
  await done('cluster', 'add', 'other', `file:${join(scratch.path, 'other')}`, '--cap', '1000');
  await done('cluster', 'drain', 'other');
});
afterAll(async () => {
  await closeAfterClients(service);
  await superuser.end();
  await Promise.all([installation.remove(), scratch.remove()]);
  for (const server of servers) await server.stop();
});

const admin = (...words: string[]) => installation.admin(words, variables);

/** @returns what the operator's command has printed */
async function done(...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await admin(...words);
  expect([code, stderr]).toEqual([0, '']);
  return stdout;
}

async function placementOf({ id }: TestOrganization) {
  return (await service.service.operator.organization(id)).placement;
}

const run = (organization: TestOrganization, program: string, ...words: readonly string[]): Promise<string> =>
  runClient(join(BINARIES, program), words, { env: libpqEnvironment(service, organization) });

/** The definitions and rows of an organization, as its clients see them. */
async function dump(organization: TestOrganization): Promise<string> {
  return (await run(organization, 'pg_dump', '--no-owner')).replaceAll(/^\\(un)?restrict .*\n/gm, '');
}

/** Databases and schemas on the first server that have the organization's name. */
async function placesOf({ id }: TestOrganization): Promise<string[]> {
  const shared = new pg.Client({ ...servers[0], database: 'postern_shared' });
  await shared.connect();
  const { rows } = await shared.query<{ place: string }>(
    `SELECT 'database' AS place FROM pg_database WHERE datname = $1 UNION ALL SELECT 'schema' FROM pg_namespace WHERE nspname = $1`,
    [id],
  );
  await shared.end();
  return rows.map(({ place }) => place);
}

describe('org move', () => {
  it('has the commands of the documents', async () => {
    const acme = await service.signUp();
    const [to, placement, finish, abort] = textOf('Moving an organization', 'text')
      .trim()
      .split('\n')
      .map((line) => line.replace(/ +#.*/, '').replace(DOCUMENTED.id, acme.id).replace('eu2', 'other').trim().split(/ +/))
      .map(([npx, postern, command, ...words]) => {
        expect([npx, postern, command]).toEqual(['npx', 'postern', 'admin']);
        return words;
      });
    expect(await done(...(to ?? []))).toMatch(new RegExp(`^${acme.id} is in a database of its own on other: 0 rows in 0 tables`));
    expect(await done(...(finish ?? []))).toBe(`the former copy of ${acme.id} is removed\n`);
    expect(await done(...(placement ?? []))).toMatch(new RegExp(`^${acme.id} is in a schema of its own on other: `));
    expect(await admin(...(abort ?? []))).toMatchObject({ code: 1, stderr: `postern: there is no move of "${acme.id}" to abort\n` });
  });

  it('carries all that a schema can have to the other placement and back', async () => {
    const acme = await service.signUp();
    await run(acme, 'psql', ...QUIET, '--file', CONTENT);
    await service.call('POST', '/api/migrations', { key: acme.apiKey, body: { name: 'one', sql: 'CREATE TABLE one (n int)' } });
    const { body: reader } = await service.call('POST', '/api/keys', { key: acme.apiKey, body: { name: 'reader', scope: 'read' } });
    const asReader = { ...acme, apiKey: reader.apiKey };
    await service.query(acme, `REVOKE SELECT ON parents FROM "${acme.id}_read"`);
    await service.query(acme, `ALTER ROLE CURRENT_USER IN DATABASE "${acme.id}" SET work_mem = '5MB'`);
    const before = await dump(acme);

    expect(await done('org', 'move', acme.id, '--placement', 'schema')).toContain('2011 rows in 11 tables');
    expect(await placementOf(acme)).toMatchObject({ kind: 'schema', schema: acme.id });
    const counted = await service.query(acme, 'SELECT count(*)::int, max(ticket)::int FROM public.books');
    expect(counted.body.rows).toEqual([{ count: 2000, max: 100 + 7 * 1999 }]);
    expect((await service.call('GET', '/api/migrations', { key: acme.apiKey })).body.migrations).toMatchObject([{ name: 'one' }]);
    expect((await service.query(asReader, 'SELECT count(*)::int FROM books')).body.rows).toEqual([{ count: 99 }]);
    expect((await service.query(asReader, 'SELECT FROM parents')).body).toMatchObject({ sqlstate: '42501' });
    expect((await service.query(acme, 'SHOW work_mem')).body.rows).toEqual([{ work_mem: '5MB' }]);
    expect((await placesOf(acme)).sort()).toEqual(['database', 'schema']);
    await done('org', 'move', acme.id, '--finish');
    expect(await placesOf(acme)).toEqual(['schema']);

    await done('org', 'move', acme.id, '--placement', 'database');
    expect(await placementOf(acme)).toMatchObject({ kind: 'database', database: acme.id });
    await done('org', 'move', acme.id, '--finish');
    expect(await placesOf(acme)).toEqual(['database']);
    expect(await dump(acme)).toBe(before);
    expect((await service.query(acme, 'CALL tidy(1)')).status).toBe(200);
    expect((await service.query(asReader, 'SELECT FROM parents')).body).toMatchObject({ sqlstate: '42501' });
    const { data } = await service.service.router.catalog.audit.list(acme.id, { limit: 1000 });
    expect(data.map(({ action }) => action).filter((action) => action.startsWith('organization.move'))).toHaveLength(4);
    await done('org', 'drop', acme.id, '--yes');
    expect(await placesOf(acme)).toEqual([]);
  });

  it('carries a whole database to another server and back', async () => {
    const acme = await service.signUp();
    await run(acme, 'psql', ...QUIET, '--file', CONTENT, '--file', OF_DATABASE);
    const { body: reader } = await service.call('POST', '/api/keys', { key: acme.apiKey, body: { name: 'reader', scope: 'read' } });
    await service.query(acme, "ALTER ROLE CURRENT_USER SET work_mem = '6MB'");
    const before = await dump(acme);
    const stays = await service.connect(acme);
    await stays.query({ name: 'kept', text: 'SELECT count(*)::int FROM stock.places' });

    await done('org', 'move', acme.id, '--to', 'other');
    expect(await placementOf(acme)).toMatchObject({ kind: 'database', cluster: 'other' });
    expect((await stays.query({ name: 'kept', text: 'SELECT count(*)::int FROM stock.places' })).rows).toEqual([{ count: 1 }]);
    expect((await stays.query('SHOW work_mem')).rows).toEqual([{ work_mem: '6MB' }]);
    await stays.end();
    // A process that has not been notified does not get into the former copy.
    const former = new pg.Client({ ...servers[0], user: acme.id, password: rolePassword(TEST_SECRET, acme.id), database: acme.id });
    await expect(former.connect()).rejects.toMatchObject({ code: '28P01' });
    expect(await dump(acme)).toBe(before);
    expect((await service.query({ ...acme, apiKey: reader.apiKey }, 'SELECT count(*)::int FROM parents')).status).toBe(200);
    await done('org', 'move', acme.id, '--finish');
    expect(await placesOf(acme)).toEqual([]);

    await done('org', 'move', acme.id, '--to', 'default', '--placement', 'database');
    expect(await dump(acme)).toBe(before);
    await done('org', 'drop', acme.id, '--yes');
    expect(await placesOf(acme)).toEqual([]);
  });

  it('loses no acknowledged row of clients at both doors that write meanwhile', async () => {
    const acme = await service.signUp();
    const writers = await Writers.start(service, acme);
    for (const [option, where] of [
      ['--placement', 'schema'],
      ['--to', 'other'],
      ['--placement', 'database'],
      ['--to', 'default'],
    ] as const) {
      await writers.writeSome();
      await done('org', 'move', acme.id, option, where, '--force');
      await done('org', 'move', acme.id, '--finish');
    }
    await writers.writeSome();
    await writers.stop();
    expect(await writers.compare()).toEqual({ lost: [], strange: [], doubled: [] });
    expect(await placementOf(acme)).toMatchObject({ kind: 'database', cluster: 'default' });
  });

  it('names what the other placement cannot have, and leaves nothing', async () => {
    const acme = await service.signUp();
    await service.query(acme, 'CREATE SCHEMA stock');
    await service.query(acme, 'CREATE EXTENSION citext');
    await service.query(acme, 'CREATE TABLE named (what regclass)');
    expect(await admin('org', 'move', acme.id, '--placement', 'schema')).toMatchObject({
      code: 1,
      stderr:
        'postern: the other placement cannot have schemas besides public (stock); extensions (citext); columns whose values name objects (named.what)\n',
    });
    expect(await placesOf(acme)).toEqual(['database']);
    expect((await service.query(acme, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  });

  it('runs nothing of a hostile definition as anybody else', async () => {
    const acme = await service.signUp();
    await service.query(acme, `CREATE TABLE "x\n\\! touch ${scratch.path}/hostile\nALTER ROLE CURRENT_USER SUPERUSER; --" (n int)`);
    await service.query(acme, 'CREATE TABLE seen (who text)');
    await service.query(
      acme,
      `CREATE FUNCTION see(n int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
         IF session_user <> '${acme.id}' OR current_user <> session_user THEN RAISE 'as %', session_user; END IF; RETURN true; END $$`,
    );
    await service.query(acme, 'CREATE TABLE checked (n int CHECK (public.see(n)))');
    await service.query(acme, 'CREATE INDEX ON checked (n) WHERE n > 0');
    await service.query(acme, 'INSERT INTO checked VALUES (1)');
    await done('org', 'move', acme.id, '--placement', 'schema');
    const { rows } = await superuser.query('SELECT rolsuper FROM pg_roles WHERE rolname = $1', [acme.id]);
    expect(rows).toEqual([{ rolsuper: false }]);
    await expect(writeFile(join(scratch.path, 'hostile'), '', { flag: 'wx' })).resolves.toBeUndefined();
  });

  it('is refused while a session is pinned, unless it is forced: then that session ends', async () => {
    const acme = await service.signUp();
    const pinned = await service.connect(acme);
    await pinned.query('LISTEN news');
    expect(await admin('org', 'move', acme.id, '--placement', 'schema')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('0 in a transaction, 1 pinned'),
    });
    const lastWords = once(pinned, 'error');
    await done('org', 'move', acme.id, '--placement', 'schema', '--force');
    expect((await lastWords)[0]).toMatchObject({ code: '57P01' });
    expect(await admin('org', 'move', acme.id, '--abort')).toMatchObject({ code: 1 });
    expect(await admin('org', 'move', acme.id, '--placement', 'database')).toMatchObject({
      code: 1,
      stderr: `postern: the last move of "${acme.id}" has not been finished: give --finish first\n`,
    });
  });

  it('moves to a newer server, and back only with its pg_dump', async () => {
    const newer = await makeOwnCluster();
    try {
      const file = join(scratch.path, 'newer');
      await writeFile(file, newer.url, { mode: 0o600 });
      // New organizations may go there as soon as it is added.
      const acme = await service.signUp();
      await done('cluster', 'add', 'newer', `file:${file}`);
      await run(acme, 'psql', ...QUIET, '--file', CONTENT);
      await done('org', 'move', acme.id, '--to', 'newer', '--placement', 'schema');
      expect((await service.query(acme, 'SELECT count(*)::int FROM books')).body.rows).toEqual([{ count: 2000 }]);
      expect(await admin('org', 'move', acme.id, '--to', 'default')).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/^postern: moving needs pg_dump of PostgreSQL 18 or later in PATH, and that is pg_dump .* 15\./),
      });
      await done('org', 'move', acme.id, '--finish');
      await done('org', 'drop', acme.id, '--yes');
      await done('cluster', 'remove', 'newer');
    } finally {
      await newer.remove();
    }
  });

  it('needs a pg_dump that is not older than the server', async () => {
    const acme = await service.signUp();
    const refused = await installation.admin(['org', 'move', acme.id, '--placement', 'schema'], { ...variables, PATH: scratch.path });
    expect(refused).toMatchObject({
      code: 1,
      stderr: 'postern: moving needs pg_dump of PostgreSQL 15 or later in PATH, and there is none\n',
    });
  });
});
