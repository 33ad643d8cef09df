import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { ADMIN, type Installation, makeInstallation } from '../support/process.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { closeAfterClients } from './address.ts';
import { needDebian } from './debian.ts';
import { makeSlow, STAGES, type Stage, superuserIn } from './moves/stages.ts';
import { Writers } from './moves/writers.ts';

/** pg_dump refuses a server that is newer than itself, so here the server is as old as Debian's. */
const BINARIES = '/usr/lib/postgresql/15/bin';

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

/** Databases and schemas that have the organization's name. */
async function placesOf({ id }: TestOrganization): Promise<string[]> {
  const shared = await superuserIn('postern_shared', server);
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
  const words = [...ADMIN, 'org', 'move', id, '--placement', 'schema', '--pause', '3600', '--force'];
  const mover = spawn(process.execPath, words, { env: { ...variables, POSTERN_DATA_DIR: installation.dataDir }, stdio: 'ignore' });
  movers.add(mover);
  return { mover, ended: once(mover, 'exit').finally(() => movers.delete(mover)) };
}

const WAITING: Stage = {
  slow: 'CREATE INDEX ON written (public.slow(n))',
  async hold(_place, organization) {
    const client = await services[1].connect(organization);
    client.on('error', () => {});
    await client.query('BEGIN; SELECT 1');
    return () => client.end();
  },
  reached: 'SELECT FROM postern.organizations WHERE id = $1 AND paused_until IS NOT NULL',
};

/** Has the next move of an organization wait at a stage. @returns what ends that */
async function hold(stage: Stage, organization: TestOrganization): Promise<() => Promise<unknown>> {
  if (stage.slow !== undefined) await makeSlow(services[0], organization, stage.slow);
  return (await stage.hold?.({ server, controlDatabase: variables.POSTERN_CONTROL_DATABASE }, organization)) ?? (async () => {});
}

describe.concurrent('a mover that is killed', () => {
  it.each(Object.entries({ ...STAGES, 'while it waits for a transaction': WAITING }))(
    '%s leaves what the service undoes, without an operator',
    async (_name, stage: Stage) => {
      const acme = await services[0].signUp();
      const writers = await Writers.start(services[0], acme);
      await writers.writeSome();
      const release = await hold(stage, acme);
      const { mover, ended } = startMover(acme);
      await eventually('the stage is reached', () => exists(stage.reached, acme));
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
    },
  );

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
    const release = await hold(STAGES['before anything is made'], other);
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
    const stage = STAGES['while it makes an index'];
    await hold(stage, acme);
    const { ended } = startMover(acme);
    await eventually('the stage is reached', () => exists(stage.reached, acme));
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
    const stage = STAGES['while it makes an index'];
    await hold(stage, acme);
    const { mover, ended } = startMover(acme);
    await eventually('the stage is reached', () => exists(stage.reached, acme));
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
