import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { type Installation, makeInstallation } from '../support/process.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { closeAfterClients } from './address.ts';
import { needDebian } from './debian.ts';
import { Writers } from './moves/writers.ts';

/** pg_dump refuses a server that is newer than itself, so here the server is as old as Debian's. */
const BINARIES = '/usr/lib/postgresql/15/bin';
const ADMIN = fileURLToPath(new URL('../../dist/src/admin.js', import.meta.url));

let server: Awaited<ReturnType<typeof startPostgres15>>;
/** Sessions of the server's superuser in the control database. */
let control: pg.Pool;
let installation: Installation;
let variables: Record<string, string>;
/** Two processes, either of which may undo a move. */
let services: readonly [TestService, TestService];
const movers = new Set<ChildProcess>();
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  [server, installation] = await Promise.all([startPostgres15(), makeInstallation()]);
  const url = serverUrl(server);
  variables = { ...testVariables(), POSTERN_PLACEMENT: 'database', DATABASE_URL: url, PATH: `${BINARIES}:${process.env.PATH}` };
  services = [await startTestService(variables), await startTestService(variables)];
  control = new pg.Pool({ ...server, database: variables.POSTERN_CONTROL_DATABASE });
});
afterAll(async () => {
  for (const mover of movers) mover.kill('SIGKILL');
  await control.end();
  for (const service of services) await closeAfterClients(service);
  await installation.remove();
  await server.stop();
});

async function superuserIn(database: string | undefined): Promise<pg.Client> {
  const client = new pg.Client({ ...server, database });
  await client.connect();
  return client;
}

/** Databases and schemas that have the organization's name. */
async function placesOf({ id }: TestOrganization): Promise<string[]> {
  const shared = await superuserIn('postern_shared');
  const { rows } = await shared.query<{ place: string }>(
    `SELECT 'database' AS place FROM pg_database WHERE datname = $1 UNION ALL SELECT 'schema' FROM pg_namespace WHERE nspname = $1`,
    [id],
  );
  await shared.end();
  return rows.map(({ place }) => place);
}

const exists = async (query: string, { id }: TestOrganization): Promise<boolean> => (await control.query(query, [id])).rows.length > 0;

/** How often a process of the service has undone a move of the organization. */
const timesUndone = ({ id }: TestOrganization): number =>
  services
    .flatMap(({ observations }) => observations)
    .filter((told) => told.name === 'service.warning' && told.message === `an interrupted move of organization ${id} has been undone`)
    .length;

/** Begins a move whose pause would not end before the test does. */
function startMover({ id }: TestOrganization): { readonly mover: ChildProcess; readonly ended: Promise<unknown[]> } {
  const words = [ADMIN, 'org', 'move', id, '--placement', 'schema', '--pause', '3600', '--force'];
  const mover = spawn(process.execPath, words, { env: { ...variables, POSTERN_DATA_DIR: installation.dataDir }, stdio: 'ignore' });
  movers.add(mover);
  return { mover, ended: once(mover, 'exit').finally(() => movers.delete(mover)) };
}

/** A point in a move at which it has to wait. */
interface Stage {
  /** Has it wait. @returns what ends that */
  hold(organization: TestOrganization): Promise<() => Promise<unknown>>;
  readonly reached: string;
}

/** The copy's part of this work does not end. */
async function makeSlow(organization: TestOrganization, where: string): Promise<void> {
  await services[0].query(
    organization,
    `CREATE FUNCTION slow(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
       IF current_database() = 'postern_shared' THEN PERFORM pg_catalog.pg_sleep(3600); END IF; RETURN n; END $$`,
  );
  await services[0].query(organization, where);
}

const STAGES = {
  'before anything is made': {
    async hold({ id }) {
      const holder = await superuserIn(variables.POSTERN_CONTROL_DATABASE);
      await holder.query('SELECT pg_advisory_lock(hashtextextended($1, 0))', [id]);
      return () => holder.end();
    },
    reached: 'SELECT FROM postern.moves WHERE organization_id = $1',
  },
  'while it waits for a transaction': {
    async hold(organization) {
      await makeSlow(organization, 'CREATE INDEX ON written (public.slow(n))');
      const client = await services[1].connect(organization);
      client.on('error', () => {});
      await client.query('BEGIN; SELECT 1');
      return () => client.end();
    },
    reached: 'SELECT FROM postern.organizations WHERE id = $1 AND paused_until IS NOT NULL',
  },
  'while it copies rows': {
    async hold(organization) {
      await makeSlow(organization, 'ALTER TABLE written ADD CHECK (public.slow(n) = n)');
      return async () => {};
    },
    reached: "SELECT FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'PgSleep' AND query ~ '^COPY'",
  },
  'while it makes an index': {
    async hold(organization) {
      await makeSlow(organization, 'CREATE INDEX ON written (public.slow(n))');
      return async () => {};
    },
    reached: "SELECT FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'PgSleep' AND query ~ '^CREATE INDEX'",
  },
  'before the switch': {
    async hold({ id }) {
      const holder = await superuserIn(variables.POSTERN_CONTROL_DATABASE);
      await holder.query('BEGIN');
      // The record of the move is not read again before the switch.
      const lock = 'SELECT FROM postern.moves WHERE organization_id = $1 FOR UPDATE';
      const locked = eventually('the move is recorded', async () => (await holder.query(lock, [id])).rows.length > 0);
      return () => locked.finally(() => holder.end());
    },
    reached: `SELECT FROM pg_stat_activity a JOIN postern.organizations o ON o.id = $1
      WHERE a.wait_event_type = 'Lock' AND a.application_name = 'postern control' AND a.query ~ 'postern.moves'`,
  },
  'after it has closed the former placement': {
    async hold({ id }) {
      const holder = await superuserIn(variables.POSTERN_CONTROL_DATABASE);
      // The switch is recorded in the audit log.
      await holder.query('BEGIN');
      await holder.query('SELECT FROM postern.audit_heads WHERE organization_id = $1 FOR UPDATE', [id]);
      return () => holder.end();
    },
    reached: 'SELECT FROM pg_database WHERE datname = $1 AND NOT datallowconn',
  },
} as const satisfies Readonly<Record<string, Stage>>;

describe.concurrent('a mover that is killed', () => {
  it.each(Object.entries(STAGES))('%s leaves what the service undoes, without an operator', async (_name, { hold, reached }: Stage) => {
    const acme = await services[0].signUp();
    const writers = await Writers.start(services[0], acme);
    await writers.writeSome();
    const release = await hold(acme);
    const { mover, ended } = startMover(acme);
    await eventually('the stage is reached', () => exists(reached, acme));
    mover.kill('SIGKILL');
    await ended;
    await release();
    await writers.writeSome();
    await writers.stop();
    await eventually('the move is undone', async () => !(await exists('SELECT FROM postern.moves WHERE organization_id = $1', acme)));
    await eventually('a process has told so', () => timesUndone(acme) > 0);
    expect(timesUndone(acme)).toBe(1);
    expect(await exists('SELECT FROM postern.organizations WHERE id = $1 AND paused_until IS NOT NULL', acme)).toBe(false);
    expect(await placesOf(acme)).toEqual(['database']);
    expect(await writers.compare()).toEqual({ lost: [], strange: [], doubled: [] });
  });

  it('after the switch has moved the organization', async () => {
    const acme = await services[0].signUp();
    const writers = await Writers.start(services[0], acme);
    await writers.writeSome();
    const { mover, ended } = startMover(acme);
    await eventually('it has switched', () => exists('SELECT FROM postern.moves WHERE organization_id = $1 AND has_switched', acme));
    mover.kill('SIGKILL');
    await ended;
    await writers.writeSome();
    await writers.stop();
    // Another move that is undone meanwhile was begun later.
    const other = await services[0].signUp();
    const release = await STAGES['before anything is made'].hold(other);
    const later = startMover(other);
    await eventually('it has begun', () => exists(STAGES['before anything is made'].reached, other));
    later.mover.kill('SIGKILL');
    await later.ended;
    await release();
    await eventually('that one is undone', () => timesUndone(other) === 1);
    expect((await placesOf(acme)).sort()).toEqual(['database', 'schema']);
    expect((await services[0].service.operator.organization(acme.id)).placement.kind).toBe('schema');
    expect(await writers.compare()).toEqual({ lost: [], strange: [], doubled: [] });
    expect(await installation.admin(['org', 'move', acme.id, '--finish'], variables)).toMatchObject({ code: 0, stderr: '' });
    expect(await placesOf(acme)).toEqual(['schema']);
  });
});

describe.concurrent('a mover that runs', () => {
  it('ends when an operator undoes its move, which can begin again', async () => {
    const acme = await services[0].signUp();
    const writers = await Writers.start(services[0], acme);
    await writers.writeSome();
    const { hold, reached } = STAGES['while it makes an index'];
    await hold(acme);
    const { ended } = startMover(acme);
    await eventually('the stage is reached', () => exists(reached, acme));
    expect(await installation.admin(['org', 'move', acme.id, '--abort'], variables)).toMatchObject({ code: 0, stderr: '' });
    expect(await ended).toEqual([1, null]);
    await writers.writeSome();
    await services[0].query(acme, 'DROP FUNCTION slow CASCADE');
    expect(await placesOf(acme)).toEqual(['database']);
    expect(await startMover(acme).ended).toEqual([0, null]);
    await writers.writeSome();
    await writers.stop();
    expect(await writers.compare()).toEqual({ lost: [], strange: [], doubled: [] });
    expect(timesUndone(acme)).toBe(0);
  });
});

describe.concurrent('a mover that does not run for a while', () => {
  it('notices that its move has been undone, and leaves nothing', async () => {
    const acme = await services[0].signUp();
    const writers = await Writers.start(services[0], acme);
    await writers.writeSome();
    const { hold, reached } = STAGES['while it makes an index'];
    await hold(acme);
    const { mover, ended } = startMover(acme);
    await eventually('the stage is reached', () => exists(reached, acme));
    mover.kill('SIGSTOP');
    await writers.writeSome();
    await eventually('the move is undone', () => timesUndone(acme) === 1);
    mover.kill('SIGCONT');
    expect(await ended).toEqual([1, null]);
    await writers.writeSome();
    await writers.stop();
    expect(await exists('SELECT FROM postern.moves WHERE organization_id = $1', acme)).toBe(false);
    expect(await placesOf(acme)).toEqual(['database']);
    expect(await writers.compare()).toEqual({ lost: [], strange: [], doubled: [] });
  });
});
