import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startPostgres15 } from '../support/postgres15.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { closeAfterClients } from './address.ts';
import { libpqEnvironment, needDebian, runClient } from './debian.ts';

/** pg_dump refuses a server that is newer than itself, so here the server is as old as Debian's clients. */
const BINARIES = '/usr/lib/postgresql/15/bin';
const FOLDER = fileURLToPath(new URL('pg-restore', import.meta.url));
const QUIET = ['--no-psqlrc', '--quiet', '--output=/dev/null', '--set=ON_ERROR_STOP=1'];

let server: Awaited<ReturnType<typeof startPostgres15>>;
let service: TestService;
let scratch: Scratch;
let acme: TestOrganization;
let before: string;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  scratch = await makeScratch();
  server = await startPostgres15();
  service = await startTestService({ DATABASE_URL: serverUrl(server) });
  acme = await service.signUp();
  await run(acme, 'psql', ...QUIET, '--file', join(FOLDER, 'content.sql'), '--file', join(FOLDER, 'database.sql'));
  before = await dump(acme);
});
afterAll(async () => {
  await closeAfterClients(service);
  await server.stop();
  await scratch.remove();
});

function run(organization: TestOrganization, program: string, ...words: readonly string[]): Promise<string> {
  return runClient(join(BINARIES, program), words, { env: libpqEnvironment(service, organization) });
}

/** Without owners, whose names are an organization's own, and two lines of newer versions that are others each time. */
async function dump(organization: TestOrganization): Promise<string> {
  return (await run(organization, 'pg_dump', '--no-owner')).replaceAll(/^\\(un)?restrict .*\n/gm, '');
}

/** Runs one program and lets another read what it writes. */
async function pipe(from: TestOrganization, dumping: string, to: TestOrganization, restoring: string): Promise<void> {
  const target = libpqEnvironment(service, to);
  const script = `set -o pipefail; "$BIN"/${dumping} | PGUSER=$TO PGDATABASE=$TO PGPASSWORD=$TO_PASSWORD "$BIN"/${restoring}`;
  const env = { ...libpqEnvironment(service, from), BIN: BINARIES, TO: target.PGUSER, TO_PASSWORD: target.PGPASSWORD };
  await runClient('bash', ['--norc', '-c', script], { env });
}

it('pg_dump finds all there is', () => {
  for (const expected of [
    'CREATE DOMAIN public.address AS text COLLATE pg_catalog."C" NOT NULL',
    'CREATE AGGREGATE public.longest(text)',
    'ALTER TABLE ONLY public.events_2025 ATTACH PARTITION public.events_2025_a',
    'CREATE MATERIALIZED VIEW public.unfilled',
    "SELECT pg_catalog.setval('public.tickets', 100007, false)",
    'CREATE POLICY cheap_ones',
    'CREATE EXTENSION IF NOT EXISTS hstore WITH SCHEMA stock',
    "SELECT pg_catalog.lo_create('4712')",
  ]) {
    expect(before).toContain(expected);
  }
});

describe('an organization is dumped and another restored by', () => {
  it('pg_dump | psql', async () => {
    const copy = await service.signUp('Copy');
    await pipe(acme, 'pg_dump --no-owner', copy, `psql ${QUIET.join(' ')}`);
    expect(await dump(copy)).toBe(before);
  });

  it('pg_dump --format=custom | pg_restore, in one transaction', async () => {
    const copy = await service.signUp('Copy');
    await pipe(acme, 'pg_dump --format=custom --compress=1', copy, 'pg_restore --no-owner --single-transaction --dbname=$TO');
    expect(await dump(copy)).toBe(before);
  });

  it('several connections that share a snapshot', async () => {
    const copy = await service.signUp('Copy');
    const folder = join(scratch.path, 'dump');
    await run(acme, 'pg_dump', '--format=directory', '--jobs=3', `--file=${folder}`);
    await run(copy, 'pg_restore', '--no-owner', '--exit-on-error', '--jobs=3', `--dbname=${copy.id}`, folder);
    expect(await dump(copy)).toBe(before);
  });
});
