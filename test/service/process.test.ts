import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { doorsAt, type TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { landmark, landmarkPassed } from '../support/landmark.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { testVariables } from '../support/service.ts';

describe('a Postern with its own PostgreSQL', () => {
  let installation: Installation;
  let postern: PosternProcess;
  let organization: TestOrganization;
  const start = () => installation.start({ POSTERN_SHUTDOWN_TIMEOUT_MS: '10000' });
  beforeAll(async () => {
    installation = await makeInstallation();
  });
  beforeEach(async () => {
    postern = await start();
    organization = await postern.signUp();
  });
  afterEach(() => postern.end('SIGTERM'));
  afterAll(() => installation.remove());

  it('keeps a second one off its data directory, and goes on', async () => {
    const second = await installation.run();
    const advice = 'stop it, or set POSTERN_DATA_DIR to another folder';
    expect(second).toMatchObject({ code: 1, stdout: '' });
    expect(second.stderr).toBe(
      `postern: data directory ${installation.dataDir} is in use by another Postern (process ${postern.pid}): ${advice}\n`,
    );
    expect((await postern.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
  });

  it('stops on SIGTERM with everything it started, and has everything when it starts again', async () => {
    await postern.query(organization, 'CREATE TABLE notes (body text)');
    const client = await postern.connect(organization);
    await client.query("INSERT INTO notes VALUES ('kept')");
    await client.end();
    const server = await installation.postgres();
    expect(await postern.end('SIGTERM')).toMatchObject({ code: 0, signal: null, stderr: '' });
    expect(await server.isRunning()).toBe(false);

    postern = await start();
    const { body } = await postern.query(organization, 'SELECT body FROM notes');
    expect(body.rows).toEqual([{ body: 'kept' }]);
    const again = await postern.connect(organization);
    expect((await again.query('SELECT body FROM notes')).rows).toEqual([{ body: 'kept' }]);
    await again.end();
  });

  it('tells wire sessions that it stops: idle ones at once, those in a transaction when it waits no longer', async () => {
    await postern.query(organization, 'CREATE TABLE notes (body text)');
    const [idle, inTransaction] = [await postern.connect(organization), await postern.connect(organization)];
    await inTransaction.query("BEGIN; INSERT INTO notes VALUES ('half')");
    const [first, second] = [once(idle, 'error'), once(inTransaction, 'error')];
    const stopped = postern.end('SIGTERM');
    const told = { severity: 'FATAL', code: '57P01', message: 'terminating connection due to administrator command' };
    expect((await first)[0]).toMatchObject(told);
    expect((await second)[0]).toMatchObject(told);
    expect(await stopped).toMatchObject({ code: 0, stderr: '' });

    postern = await start();
    expect((await postern.query(organization, 'SELECT body FROM notes')).body.rows).toEqual([]);
  });

  it('lets requests under way end when it stops, and stops on SIGINT too', async () => {
    const connect = () => postern.connect(organization);
    const [client, holder, watcher] = [await connect(), await connect(), await connect()];
    // Both requests wait for a lock, which is let go of when the service has said what it waits for.
    await holder.query('BEGIN; SELECT pg_advisory_xact_lock(3)');
    const over = (door: string, key: number) =>
      `SELECT '${door}' AS door FROM (${landmark(key)}) AS passed, pg_advisory_xact_lock_shared(3)`;
    const overHttp = postern.query(organization, over('http', 1));
    const overWire = client.query(over('wire', 2));
    // A session whose statement has not arrived yet is idle.
    for (const key of [1, 2]) await landmarkPassed(watcher, key);
    const stopped = postern.end('SIGINT');
    const message = 'stopping: waits up to 10 s for 2 transactions and 1 request; a second Ctrl-C or signal ends it at once';
    await eventually('it says so', async () => postern.log().some(({ level, msg }) => level === 'info' && msg === message));
    await holder.query('COMMIT');
    const [http, wire] = await Promise.all([overHttp, overWire]);
    expect([http.body.rows, wire.rows]).toEqual([[{ door: 'http' }], [{ door: 'wire' }]]);
    expect(await stopped).toMatchObject({ code: 0, signal: null, stderr: '' });
    await expect(postern.query(organization, 'SELECT 1')).rejects.toThrow('fetch failed');
  });

  it('tells of what looks like a setting and is none, without what it was set to', async () => {
    await postern.end('SIGTERM');
    postern = await installation.start({ POSTERN_SECRT: 'not to be told' });
    const message = 'unknown settings are ignored: POSTERN_SECRT (did you mean POSTERN_SECRET?)';
    expect(postern.log()).toContainEqual(expect.objectContaining({ level: 'warn', msg: message }));
    expect(JSON.stringify(postern.log())).not.toContain('not to be told');
  });

  it('stops when npm, which has started it, is told to', async () => {
    await postern.end('SIGTERM');
    postern = await installation.startByNpm();
    const server = await installation.postgres();
    await postern.end('SIGTERM');
    await expect(postern.query(organization, 'SELECT 1')).rejects.toThrow('fetch failed');
    expect(await server.isRunning()).toBe(false);
  });

  it('takes a signal that npm repeats for one, and ends at once on another that comes later', async () => {
    const client = await postern.connect(organization);
    client.on('error', () => {});
    await client.query('BEGIN');
    const server = await installation.postgres();
    postern.signal('SIGINT');
    postern.signal('SIGINT');
    expect((await postern.end('SIGINT')).code).toBe(0);
    expect(await server.isRunning()).toBe(false);

    postern = await start();
    const other = await postern.connect(organization);
    other.on('error', () => {});
    await other.query('BEGIN');
    postern.signal('SIGINT');
    await eventually('it has taken the signal', async () => postern.log().some(({ msg }) => String(msg).startsWith('stopping: ')));
    await setTimeout(1_000);
    expect((await postern.end('SIGINT')).code).toBe(1);
  });
});

describe('a Postern whose log', () => {
  const MAIN = new URL('../../dist/src/main.js', import.meta.url).pathname;

  async function freePort(): Promise<number> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    server.close();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  it.each([
    ['cannot be written', 'exec "$0" "$1" > /dev/full 2> /dev/full', true],
    ['nobody reads', 'exec "$0" "$1" 2>&1 | (sleep 600)', false],
    ['nobody can read any more', 'exec "$0" "$1" 2> /dev/full | true', true],
  ])('%s serves, and counts the lines', async (_, script, areDropped) => {
    const [http, pgPort, ops] = [await freePort(), await freePort(), await freePort()];
    const { POSTERN_LOG_LEVEL: _level, ...variables } = testVariables();
    const ports = { POSTERN_HTTP_PORT: String(http), POSTERN_PG_PORT: String(pgPort), POSTERN_OPS_PORT: String(ops) };
    const env = { PATH: process.env.PATH ?? '', ...variables, ...ports, POSTERN_LOG_LEVEL: 'trace', POSTERN_SIGNUPS_PER_HOUR: '1000' };
    // A group of its own, which is ended as a whole.
    const child = spawn('bash', ['-c', script, process.execPath, MAIN], { env, detached: true, stdio: 'ignore' });
    try {
      await eventually('it serves', async () => {
        const reply = await fetch(`http://127.0.0.1:${ops}/readyz`).catch(() => undefined);
        return reply?.ok === true;
      });
      const doors = doorsAt(http, pgPort);
      const organization = await doors.signUp();
      // More than a pipe holds.
      for (let n = 0; n < 300; n += 1) expect((await doors.query(organization, 'SELECT 1 AS one')).status).toBe(200);
      await (await doors.connect(organization)).end();
      const metrics = await (await fetch(`http://127.0.0.1:${ops}/metrics`)).text();
      const dropped = Number(/^postern_log_dropped_total (\d+)$/m.exec(metrics)?.[1]);
      expect(dropped > 0).toBe(areDropped);
      expect(child.exitCode).toBeNull();
    } finally {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    }
  });
});

describe('a Postern that cannot start', () => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await makeInstallation();
  });
  afterAll(() => installation.remove());

  it.each([
    ['a port that is none', { POSTERN_PG_PORT: 'abc' }, 'POSTERN_PG_PORT: must be a whole number from 0 to 65535'],
    [
      'files that are not there',
      { POSTERN_TLS_CERT: '/nowhere.pem', POSTERN_TLS_KEY: '/nowhere.key' },
      'POSTERN_TLS_CERT: /nowhere.pem cannot be read: no such file or directory',
    ],
    ['a data directory that is a file', { POSTERN_DATA_DIR: '/etc/hostname' }, 'data directory /etc/hostname cannot be used: '],
  ])('because of %s says so in one line', async (_what, variables, message) => {
    const { code, stdout, stderr } = await installation.run(variables);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^postern: [^\n]+\n$/);
    expect(stderr).toContain(`postern: ${message}`);
  });

  it.each(['POSTERN_HTTP_PORT', 'POSTERN_PG_PORT', 'POSTERN_OPS_PORT'])('because somebody else listens on %s says so', async (variable) => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const address = other.address();
    const port = typeof address === 'object' ? String(address?.port) : '';
    const { code, stderr } = await installation.run({ [variable]: port });
    other.close();
    const advice = `set ${variable}=0 for any free port, or another number`;
    expect([code, stderr]).toEqual([1, `postern: ${variable}: port ${port} is taken: ${advice}\n`]);
    expect(existsSync(installation.dataDir)).toBe(false);
  });

  it('because a newer version has written its control database says so in one line', async () => {
    const variables = testVariables();
    await (await installation.start(variables)).end('SIGTERM');
    const url = new URL(variables.DATABASE_URL ?? '');
    url.pathname = variables.POSTERN_CONTROL_DATABASE ?? '';
    const control = new pg.Client(url.href);
    await control.connect();
    await control.query("INSERT INTO postern.migrations (position, name, checksum) VALUES (999, '999 of tomorrow', '')");
    await control.end();
    const { code, stderr } = await installation.run(variables);
    const message = 'the control database was written by a newer version: it has migration "999 of tomorrow"';
    expect([code, stderr]).toEqual([1, `postern: ${message}\n`]);
  });

  it('because its address is not of this machine says so', async () => {
    const { code, stderr } = await installation.run({ ...testVariables(), POSTERN_LOG_LEVEL: 'error', POSTERN_HOST: '192.0.2.1' });
    expect([code, stderr]).toEqual([1, 'postern: POSTERN_HOST: cannot listen on 192.0.2.1: this machine does not have this address\n']);
    const ops = await installation.run({ ...testVariables(), POSTERN_LOG_LEVEL: 'error', POSTERN_OPS_HOST: '192.0.2.1' });
    expect([ops.code, ops.stderr]).toEqual([1, stderr.replace('POSTERN_HOST', 'POSTERN_OPS_HOST')]);
  });

  it('because the server has no room for so many backends says how many it has', async () => {
    const { code, stderr } = await installation.run({ ...testVariables(), POSTERN_LOG_LEVEL: 'error', POSTERN_BACKENDS_MAX: '100000' });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^postern: POSTERN_BACKENDS_MAX: must be a whole number from 0 to \d+: the server allows \d+ sessions/);
  });

  it('because PostgreSQL refuses its login says so, without the password', async () => {
    const url = new URL(testVariables().DATABASE_URL ?? '');
    url.password = 'hunter2';
    const { code, stderr } = await installation.run({ ...testVariables(), DATABASE_URL: url.href });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^postern: PostgreSQL at [^\n]+ cannot be used: password authentication failed for user "postgres"\n$/);
    expect(stderr).not.toContain('hunter2');
  });
});
