import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { startPostgres18 } from '../support/postgres18.ts';
import { ADMIN, type Installation, makeInstallation } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { closeAfterClients } from './address.ts';
import { libpqEnvironment, needDebian, runClient } from './debian.ts';
import { Writers } from './moves/writers.ts';

const BINARIES = '/usr/lib/postgresql/15/bin';
const REPLICATED = fileURLToPath(new URL('moves/replicated.sql', import.meta.url));

let source: Awaited<ReturnType<typeof startPostgres15>>;
let target: Awaited<ReturnType<typeof startPostgres18>>;
let publisher: pg.Client;
let subscriber: pg.Client;
let control: pg.Client;
let installation: Installation;
let scratch: Scratch;
let variables: Record<string, string>;
let service: TestService;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  [source, target] = [await startPostgres15({ wal_level: 'logical', max_slot_wal_keep_size: '1GB' }), await startPostgres18()];
  [installation, scratch] = await Promise.all([makeInstallation(), makeScratch()]);
  variables = {
    ...testVariables(),
    POSTERN_PLACEMENT: 'database',
    DATABASE_URL: serverUrl(source),
    PATH: `${BINARIES}:${process.env.PATH}`,
    POSTERN_DATA_DIR: scratch.path,
  };
  service = await startTestService(variables);
  publisher = new pg.Client(source);
  subscriber = new pg.Client(target);
  control = new pg.Client({ ...source, database: variables.POSTERN_CONTROL_DATABASE });
  for (const client of [publisher, subscriber, control]) await client.connect();
  await writeFile(join(scratch.path, 'other'), serverUrl(target), { mode: 0o600 });
  await done('cluster', 'add', 'other', `file:${join(scratch.path, 'other')}`, '--cap', '1000');
  await done('cluster', 'drain', 'other');
});
afterAll(async () => {
  await closeAfterClients(service);
  for (const client of [publisher, subscriber, control]) await client.end();
  await Promise.all([installation.remove(), scratch.remove()]);
  for (const server of [source, target]) await server.stop();
});

const admin = (...words: string[]) => installation.admin(words, variables);

/** @returns what the operator's command has printed */
async function done(...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await admin(...words);
  expect([code, stderr]).toEqual([0, '']);
  return stdout;
}

const run = (organization: TestOrganization, program: string, ...words: readonly string[]): Promise<string> =>
  runClient(join(BINARIES, program), words, { env: libpqEnvironment(service, organization) });

const load = (organization: TestOrganization) =>
  run(organization, 'psql', '--no-psqlrc', '--quiet', '--output=/dev/null', '--set=ON_ERROR_STOP=1', '--file', REPLICATED);

/** What a client finds: rows, and what pg_dump of version 15 cannot tell of both servers in the same way. */
async function describeAll(organization: TestOrganization): Promise<unknown[]> {
  const found: unknown[] = [];
  for (const table of TABLES) {
    const { body } = await service.query(organization, `SELECT count(*), sum(hashtextextended(t::text, 0))::text FROM ONLY ${table} t`);
    found.push([table, body.rows]);
  }
  for (const query of DEFINITIONS) found.push((await service.query(organization, query)).body.rows);
  return found;
}

const TABLES = ['customers', 'orders', '"No Key"', 'place_eu', 'place_rest', 'chosen', 'cached', 'stock.items', 'changes', 'totals'];
const DEFINITIONS = [
  'SELECT tgname, tgenabled, obj_description(oid) AS comment FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1',
  "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype NOT IN ('n', 't') AND connamespace::regnamespace::text IN ('public', 'stock') ORDER BY 1",
  "SELECT indexdef FROM pg_indexes WHERE schemaname IN ('public', 'stock') ORDER BY 1",
  'SELECT policyname FROM pg_policies',
  'SELECT schemaname, sequencename, last_value FROM pg_sequences ORDER BY 2',
  "SELECT relname, relreplident, relpersistence FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace::regnamespace::text IN ('public', 'stock') ORDER BY 1",
  'SELECT pubname FROM pg_publication',
];

async function clusterOf({ id }: TestOrganization): Promise<string> {
  return (await service.service.operator.organization(id)).placement.cluster;
}

/** Slots, roles, publications and subscriptions of moves on both servers. */
async function leftovers(): Promise<string[]> {
  const found: string[] = [];
  for (const client of [publisher, subscriber]) {
    const { rows } = await client.query<{ name: string }>(`
      SELECT slot_name AS name FROM pg_replication_slots UNION ALL SELECT subname FROM pg_subscription
      UNION ALL SELECT rolname FROM pg_roles WHERE rolname LIKE 'postern\\_move\\_%'`);
    found.push(...rows.map(({ name }) => name));
  }
  return found;
}

async function publications({ id }: TestOrganization): Promise<string[]> {
  const client = new pg.Client({ ...source, database: id });
  await client.connect();
  const { rows } = await client.query<{ name: string }>('SELECT pubname AS name FROM pg_publication');
  await client.end();
  return rows.map(({ name }) => name);
}

/** Without workers that copy tables a move waits before its first pause. */
async function setCopying(change: string): Promise<void> {
  await subscriber.query(`ALTER SYSTEM ${change}`);
  await subscriber.query('SELECT pg_reload_conf()');
}

/** Whether the tables of the organization have been published. */
async function isPublished({ id }: TestOrganization): Promise<boolean> {
  const client = new pg.Client({ ...source, database: id });
  await client.connect();
  const { rows } = await client.query('SELECT FROM pg_publication_tables');
  await client.end();
  return rows.length > 0;
}

async function hasNoSubscription(): Promise<boolean> {
  return (await subscriber.query('SELECT FROM pg_subscription')).rows.length === 0;
}

async function isPaused({ id }: TestOrganization): Promise<boolean> {
  const query = 'SELECT FROM postern.organizations WHERE id = $1 AND paused_until IS NOT NULL';
  return (await control.query(query, [id])).rows.length > 0;
}

/** How many moves of the organization have not switched. */
async function openMoves({ id }: TestOrganization): Promise<number> {
  const { rows } = await control.query('SELECT FROM postern.moves WHERE organization_id = $1 AND NOT has_switched', [id]);
  return rows.length;
}

function startMover({ id }: TestOrganization) {
  const words = [...ADMIN, 'org', 'move', id, '--to', 'other', '--replicate', '--force', '--pause', '15'];
  return spawn(process.execPath, words, { env: variables, stdio: ['ignore', 'ignore', 'pipe'] });
}

/** A move that waits before its first pause until `ended` or `done` is asked for. */
function whileMoving(organization: TestOrganization) {
  const held = setCopying('SET max_sync_workers_per_subscription = 0');
  const running = held.then(() => admin('org', 'move', organization.id, '--to', 'other', '--replicate', '--force'));
  const goOn = async (): Promise<[number | null, string]> => {
    await setCopying('RESET max_sync_workers_per_subscription');
    const { code, stderr } = await running;
    return [code, stderr];
  };
  return {
    follows: async () => {
      await held;
      await eventually('tables are published', () => isPublished(organization));
    },
    ended: goOn,
    done: async () => expect(await goOn()).toEqual([0, '']),
  };
}

describe('org move --replicate', () => {
  it('carries all of a database, with tables that have no key, and leaves nothing of the replication', async () => {
    const acme = await service.signUp();
    await load(acme);
    const before = await describeAll(acme);
    const printed = await done('org', 'move', acme.id, '--to', 'other', '--replicate');
    expect(printed).toMatch(/ rows in \d+ tables are the same there; its clients waited \d+ and \d+ ms\n/);
    expect(await clusterOf(acme)).toBe('other');
    expect(await describeAll(acme)).toEqual(before);
    await publisher.query(`ALTER DATABASE ${acme.id} ALLOW_CONNECTIONS true`);
    expect([await leftovers(), await publications(acme)]).toEqual([[], []]);
    await done('org', 'move', acme.id, '--finish');
    await done('org', 'drop', acme.id, '--yes');
  });

  it('loses no acknowledged row of clients at both doors that write meanwhile', async () => {
    const acme = await service.signUp();
    const writers = await Writers.start(service, acme, 'PRIMARY KEY');
    try {
      await writers.writeSome();
      await done('org', 'move', acme.id, '--to', 'other', '--replicate', '--force');
      await writers.writeSome();
    } finally {
      await writers.stop();
    }
    expect(await writers.compare()).toEqual({ lost: [], strange: [], doubled: [] });
    expect([await clusterOf(acme), await leftovers()]).toEqual(['other', []]);
    await done('org', 'drop', acme.id, '--yes');
  });

  it('runs nothing of the organization as anybody else, and no trigger twice', async () => {
    const acme = await service.signUp();
    const hostile = (name: string, then: string) => `
      CREATE FUNCTION ${name} LANGUAGE plpgsql AS $$ BEGIN
        IF current_user <> '${acme.id}' THEN RAISE 'as %', current_user; END IF;
        BEGIN EXECUTE 'RESET ROLE'; EXECUTE 'ALTER ROLE ${acme.id} SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN EXECUTE 'SET ROLE postgres'; EXECUTE 'ALTER ROLE ${acme.id} SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END;
        ${then} END $$`;
    for (const sql of [
      'CREATE TABLE fired (id serial PRIMARY KEY, who text)',
      hostile('strike() RETURNS trigger', 'INSERT INTO public.fired (who) VALUES (session_user); RETURN NEW;'),
      hostile('see(n int) RETURNS boolean', 'RETURN true;'),
      hostile('indexed(n int) RETURNS int IMMUTABLE', 'RETURN n;'),
      'CREATE TABLE checked (n int PRIMARY KEY CHECK (public.see(n)))',
      'CREATE INDEX ON checked (public.indexed(n))',
      'CREATE TRIGGER strike AFTER INSERT OR UPDATE ON checked FOR EACH ROW EXECUTE FUNCTION strike()',
      'ALTER TABLE checked ENABLE ALWAYS TRIGGER strike',
      'INSERT INTO checked SELECT generate_series(1, 10)',
    ]) {
      expect([sql, (await service.query(acme, sql)).status]).toEqual([sql, 200]);
    }
    const move = whileMoving(acme);
    await move.follows();
    await service.query(acme, 'INSERT INTO checked SELECT generate_series(11, 20)');
    await move.done();
    const { rows } = await subscriber.query('SELECT rolsuper FROM pg_roles WHERE rolname = $1', [acme.id]);
    expect(rows).toEqual([{ rolsuper: false }]);
    const counted = await service.query(acme, 'SELECT count(*)::int, count(DISTINCT who)::int AS roles FROM fired');
    expect(counted.body.rows).toEqual([{ count: 20, roles: 1 }]);
    await service.query(acme, 'INSERT INTO checked VALUES (21)');
    expect((await service.query(acme, 'SELECT count(*)::int FROM fired')).body.rows).toEqual([{ count: 21 }]);
  });

  it('is undone when a definition was changed meanwhile', async () => {
    const acme = await service.signUp();
    await load(acme);
    for (const change of [
      'CREATE TABLE later (id int PRIMARY KEY)',
      'ALTER TABLE customers ALTER name TYPE text USING upper(name)',
      'BEGIN; DROP TABLE chosen; CREATE TABLE chosen (a int NOT NULL UNIQUE, b text); ALTER TABLE chosen REPLICA IDENTITY USING INDEX chosen_a_key; COMMIT',
    ]) {
      const move = whileMoving(acme);
      await move.follows();
      await run(acme, 'psql', '--no-psqlrc', '--set=ON_ERROR_STOP=1', '--command', change);
      expect([change, await move.ended()]).toEqual([
        change,
        [1, 'postern: tables or other definitions were changed while the data was copied\n'],
      ]);
      expect([await clusterOf(acme), await leftovers(), await publications(acme)]).toEqual(['default', [], []]);
    }
  });

  it.each(['begun', 'published', 'paused', 'completed'] as const)('leaves nothing when it is killed: %s', async (stage) => {
    const acme = await service.signUp();
    await load(acme);
    const writers = await Writers.start(service, acme, 'PRIMARY KEY');
    try {
      await writers.writeSome();
      await setCopying('SET max_sync_workers_per_subscription = 0');
      const mover = startMover(acme);
      const ended = once(mover, 'exit');
      // It may be further by now, and even done.
      const reach = (name: string, isSo: () => Promise<boolean>) => eventually(name, async () => mover.exitCode !== null || (await isSo()));
      await reach('a slot', async () => (await leftovers()).length > 0);
      if (stage !== 'begun') await reach('tables are published', () => isPublished(acme));
      await setCopying('RESET max_sync_workers_per_subscription');
      if (stage === 'paused') await reach('a pause', () => isPaused(acme));
      if (stage === 'completed') await reach('the end of the subscription', hasNoSubscription);
      mover.kill('SIGKILL');
      await ended;
      await writers.writeSome();
    } finally {
      await setCopying('RESET max_sync_workers_per_subscription');
      await writers.stop();
    }
    await eventually('the move is undone or complete', async () => (await openMoves(acme)) === 0);
    expect(await writers.compare()).toEqual({ lost: [], strange: [], doubled: [] });
    const cluster = await clusterOf(acme);
    if (cluster === 'other') await done('org', 'move', acme.id, '--finish');
    const { rows } = await (cluster === 'other' ? publisher : subscriber).query('SELECT FROM pg_database WHERE datname = $1', [acme.id]);
    expect([rows, await leftovers()]).toEqual([[], []]);
  });

  it('names what a server lacks, and copies a large database in the pause then', async () => {
    const acme = await service.signUp();
    await service.query(acme, "CREATE TABLE large AS SELECT n, repeat('x', 1000) FROM generate_series(1, 70000) n");
    const { rows } = await publisher.query(
      "SELECT slot_name FROM generate_series(1, 8) n, pg_create_physical_replication_slot('taken_' || n)",
    );
    try {
      expect(await admin('org', 'move', acme.id, '--to', 'other', '--replicate')).toMatchObject({
        code: 1,
        stderr: 'postern: it cannot be replicated: default needs 3 free replication slots (max_replication_slots)\n',
      });
      expect(await done('org', 'move', acme.id, '--to', 'other')).toMatch(
        /waited \d+ ms\nall rows were copied meanwhile: default needs 3 free replication slots/,
      );
    } finally {
      for (const { slot_name } of rows) await publisher.query('SELECT pg_drop_replication_slot($1)', [slot_name]);
    }
    expect((await service.query(acme, 'SELECT count(*)::int FROM large')).body.rows).toEqual([{ count: 70000 }]);
  });
});
