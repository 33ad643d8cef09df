import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { ADMIN, type Installation, makeInstallation } from '../support/process.ts';
import { serverUrl } from '../support/server-url.ts';
import { type TestOrganization, testVariables } from '../support/service.ts';
import { needDebian } from './debian.ts';
import { makeSlow, STAGES, type Stage, superuserIn } from './moves/stages.ts';
import { TwoServers } from './moves/two-servers.ts';

/** pg_dump refuses a server that is newer than itself, so here the server is as old as Debian's. */
const PATH = `/usr/lib/postgresql/15/bin:${process.env.PATH}`;

/** Each case starts eight processes one after another. */
const MAX_MS = 300_000;

let server: Awaited<ReturnType<typeof startPostgres15>>;
let installation: Installation;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  [server, installation] = await Promise.all([startPostgres15(), makeInstallation()]);
});
afterAll(async () => {
  await installation.remove();
  await server.stop();
});

/** What the server has of an organization, and which sessions of a mover. */
async function foundOf({ id }: TestOrganization): Promise<unknown[]> {
  const shared = await superuserIn('postern_shared', server);
  const { rows } = await shared.query<{ what: string }>(
    `SELECT 'database' AS what FROM pg_database WHERE datname = $1 UNION ALL SELECT 'schema' FROM pg_namespace WHERE nspname = $1
     UNION ALL SELECT 'a session in ' || datname FROM pg_stat_activity WHERE usename = $1 AND application_name = 'postern move'
     UNION ALL SELECT 'a closed ' || obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = $1 AND nspacl::text !~ $1`,
    [id],
  );
  await shared.end();
  return rows.map(({ what }) => what);
}

/** What is removed where, and what is opened again, depends on the stage in a database; in a schema on whether it is closed. */
const IN_SCHEMA = ['while it copies rows', 'after it has closed the former placement'] as const;
const CASES = [
  ...Object.entries(STAGES).map(([name, stage]) => ['database', name, stage] as const),
  ...IN_SCHEMA.map((name) => ['schema', name, STAGES[name]] as const),
];

describe('a move whose mover was killed while no service ran', () => {
  it.each(CASES)('from the %s placement %s is undone by --abort, and can begin again', { timeout: MAX_MS }, async (from, _name, stage) => {
    const { slow, hold, reached }: Stage = stage;
    const to = from === 'database' ? 'schema' : 'database';
    const variables: Record<string, string> = { ...testVariables(), POSTERN_PLACEMENT: from, DATABASE_URL: serverUrl(server), PATH };
    const admin = (...words: string[]) => installation.admin(words, variables);
    const service = await installation.start(variables);
    const acme = await service.signUp();
    await service.call('POST', '/api/keys', { key: acme.apiKey, body: { name: 'reader', scope: 'read' } });
    await service.query(acme, 'CREATE TABLE written AS SELECT generate_series(1, 3) AS n');
    if (slow !== undefined) await makeSlow(service, acme, slow);
    expect((await service.end('SIGTERM')).code).toBe(0);

    const controlDatabase = variables.POSTERN_CONTROL_DATABASE;
    const release = await hold?.({ server, controlDatabase }, acme);
    const control = await superuserIn(controlDatabase, server);
    onTestFinished(() => control.end());
    const recorded = async (query: string) => (await control.query(query, [acme.id])).rows;
    const words = [...ADMIN, 'org', 'move', acme.id, '--placement', to, '--pause', '3600'];
    const mover = spawn(process.execPath, words, { env: { ...variables, POSTERN_DATA_DIR: installation.dataDir }, stdio: 'ignore' });
    const ended = once(mover, 'exit');
    onTestFinished(() => void mover.kill('SIGKILL'));
    await eventually('the stage is reached', async () => (await recorded(reached)).length > 0);
    mover.kill('SIGKILL');
    await ended;
    await release?.();

    expect(await admin('org', 'move', acme.id, '--abort')).toMatchObject({
      code: 0,
      stderr: '',
      stdout: `${acme.id} stays where it is; nothing of the move is left\n`,
    });
    expect(await recorded('SELECT FROM postern.moves WHERE organization_id = $1')).toEqual([]);
    expect(await recorded('SELECT paused_by, paused_until FROM postern.organizations WHERE id = $1')).toEqual([
      { paused_by: null, paused_until: null },
    ]);
    expect(await foundOf(acme)).toEqual([from]);
    const again = await installation.start(variables);
    await again.query(acme, 'DROP FUNCTION IF EXISTS slow CASCADE');
    expect((await again.query(acme, 'INSERT INTO written VALUES (4)')).status).toBe(200);
    expect(await admin('org', 'move', acme.id, '--placement', to)).toMatchObject({ code: 0, stderr: '' });
    expect(await admin('org', 'move', acme.id, '--finish')).toMatchObject({ code: 0, stderr: '' });
    expect(await foundOf(acme)).toEqual([to]);
    expect((await again.query(acme, 'SELECT sum(n)::int FROM written')).body.rows).toEqual([{ sum: 10 }]);
    await again.end('SIGTERM');
  });

  it('to another server is undone by --abort when both servers answer, and keeps no WAL before that', { timeout: MAX_MS }, async () => {
    const servers = await TwoServers.start();
    onTestFinished(() => servers.stop(), 120_000);
    const [service] = servers.services;
    const acme = await service.signUp();
    await service.query(acme, 'CREATE TABLE written (n int PRIMARY KEY)');
    await service.query(acme, 'INSERT INTO written VALUES (1), (2)');
    await servers.stopServices();
    await servers.setCopying(false);
    const { mover, ended } = servers.startMover(acme);
    await servers.published(acme);
    mover.kill('SIGKILL');
    await ended;
    await servers.target.stop();
    const abort = () => servers.admin('org', 'move', acme.id, '--abort');
    expect(await abort()).toMatchObject({
      code: 1,
      stderr:
        'postern: the cluster other does not answer; the move cannot be completed any more; ' +
        'a running service removes what is left, and so does --abort again\n',
    });
    expect(await servers.look('source', 'SELECT FROM pg_replication_slots')).toEqual([]);
    await servers.target.start();
    expect(await abort()).toMatchObject({ code: 0, stderr: '' });
    expect(await servers.record('SELECT FROM postern.moves WHERE organization_id = $1', acme)).toEqual([]);
    expect(await servers.leftovers(acme)).toEqual([]);
    expect(await servers.look('target', 'SELECT FROM pg_database WHERE datname = $1', [acme.id])).toEqual([]);

    const again = await servers.startService();
    onTestFinished(() => again.close());
    expect((await again.query(acme, 'SELECT n FROM written ORDER BY n')).body.rows).toEqual([{ n: 1 }, { n: 2 }]);
    await servers.setCopying(true);
    expect(await servers.admin('org', 'move', acme.id, '--to', 'other', '--replicate')).toMatchObject({ code: 0, stderr: '' });
    expect((await again.query(acme, 'SELECT n FROM written ORDER BY n')).body.rows).toEqual([{ n: 1 }, { n: 2 }]);
  });
});

it('a former copy that is in use is removed by --finish given again', { timeout: MAX_MS }, async () => {
  const variables: Record<string, string> = { ...testVariables(), POSTERN_PLACEMENT: 'database', DATABASE_URL: serverUrl(server), PATH };
  const service = await installation.start(variables);
  const acme = await service.signUp();
  const inUse = await superuserIn(acme.id, server);
  const move = (...words: string[]) => installation.admin(['org', 'move', acme.id, ...words], variables);
  expect(await move('--placement', 'schema')).toMatchObject({ code: 0, stderr: '' });
  expect(await move('--finish')).toMatchObject({
    code: 1,
    stderr: 'postern: still running: a session of a superuser; give --finish again\n',
  });
  await inUse.end();
  expect(await move('--finish')).toMatchObject({ code: 0, stderr: '' });
  expect(await foundOf(acme)).toEqual(['schema']);
  await service.end('SIGTERM');
});
