import { execFile } from 'node:child_process';
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Archive, SEGMENT_BYTES } from '../../src/backups/archive.ts';
import { archiveOf, type BackedUpServer, Backups, createBackup, openBackups } from '../../src/backups/backups.ts';
import { restore } from '../../src/backups/restore.ts';
import { readConfig } from '../../src/config.ts';
import { type EmbeddedCluster, startEmbedded } from '../../src/embedded/embedded.ts';
import type { Observation } from '../../src/observation.ts';
import { fill, mountDisk } from '../support/disk.ts';
import { eventually } from '../support/eventually.ts';
import { hasPostgres15 } from '../support/postgres15.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';

const run = promisify(execFile);
const scratch: Scratch = await makeScratch();
const dir = join(scratch.path, 'backups');
const config = readConfig({ POSTERN_BACKUP_DIR: dir, POSTERN_BACKUP_VERIFY_HOURS: '0' });

/** A server, its backups, and what was told of them. */
let cluster: EmbeddedCluster;
let backups: Backups | undefined;
let archive: Archive;
let server: BackedUpServer;
const seen: Observation[] = [];

const settings = { fsync: 'off', max_slot_wal_keep_size: '16MB' };

beforeAll(async () => {
  cluster = await startEmbedded({ dataDir: join(scratch.path, 'data'), settings });
  const { host, port, superuser, secret, folder } = cluster;
  const login = { host, port, ...superuser, database: 'postgres' };
  server = { login, folder, secret };
  await query('CREATE TABLE written (number int, made timestamptz DEFAULT clock_timestamp())');
  backups = await Backups.start({ admin: login, secret, folder }, config, (observation) => seen.push(observation));
  await told('backup.done');
  archive = await archiveOf(server, dir);
});
afterAll(async () => {
  await backups?.close();
  await cluster.stop();
  await scratch.remove();
});

async function query<Row extends object>(sql: string, at: { host: string; port: number; superuser: object } = cluster): Promise<Row[]> {
  const client = new pg.Client({ host: at.host, port: at.port, ...at.superuser, database: 'postgres' });
  client.on('error', () => {});
  try {
    await client.connect();
    return (await client.query<Row>(sql)).rows;
  } finally {
    await client.end().catch(() => {});
  }
}

/** Until the service tells of it, since `seen` was last emptied. */
function told(name: Observation['name'], text = '', timeoutMs?: number): Promise<void> {
  const isTold = () => seen.some((one) => one.name === name && 'message' in one && one.message.includes(text));
  return eventually(`${name} ${text}`, isTold, timeoutMs);
}

/** From the return of the folder, or of room in it, on. */
const CAUGHT_UP_WITHIN_MS = 25_000;

beforeEach(() => {
  seen.length = 0;
});

let written = 0;

/** @returns a time between this row and the next one, by the clock of the machine */
async function write(): Promise<Date> {
  written += 1;
  await query(`INSERT INTO written VALUES (${written})`);
  const before = Date.now();
  await eventually('the next millisecond', () => Date.now() > before + 1);
  return new Date(before + 1);
}

async function archived(): Promise<void> {
  const [{ at } = { at: '' }] = await query<{ at: string }>("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn AS at");
  await eventually('all WAL is archived', async () => {
    const sql = "SELECT restart_lsn - '0/0'::pg_lsn AS at FROM pg_replication_slots WHERE slot_name = 'postern_backup'";
    return Number((await query<{ at: string }>(sql))[0]?.at) >= Number(at);
  });
}

/** Which rows a restored server has. */
async function restoredRows(at: Date | undefined): Promise<{ rows: number[]; isAtEnd: boolean }> {
  const to = join(scratch.path, 'restored');
  const { isAtEnd } = await restore({ archive, at, to });
  const restored = await startEmbedded({ dataDir: to, settings });
  try {
    const rows = await query<{ number: number }>('SELECT number FROM written ORDER BY number', restored);
    return { rows: rows.map(({ number }) => number), isAtEnd };
  } finally {
    await restored.stop();
    await rm(to, { recursive: true });
  }
}

const upTo = (number: number) => Array.from({ length: number }, (_, index) => index + 1);

/** Changes a bit in the middle of a file, and puts it right when it is called. */
async function flipBit(path: string): Promise<() => Promise<void>> {
  const content = await readFile(path);
  const flip = async () => {
    const file = await open(path, 'r+');
    const at = content.length >> 1;
    await file.write(Buffer.from([(content[at] ?? 0) ^ 1]), 0, 1, at);
    await file.close();
  };
  await flip();
  return async () => {
    const file = await open(path, 'r+');
    await file.write(content, 0, content.length, 0);
    await file.close();
  };
}

it('any time since the oldest base backup can be restored, through kills of the server and new segments', {
  timeout: 240_000,
}, async () => {
  const times: Date[] = [];
  for (const step of ['row', 'segment', 'row', 'kill', 'row', 'base', 'row', 'segment', 'row', 'kill', 'row'] as const) {
    times.push(await write());
    if (step === 'segment') await query('SELECT pg_switch_wal()');
    if (step === 'base') await createBackup(server, archive);
    if (step !== 'kill') continue;
    seen.length = 0;
    const former = cluster.pid ?? 0;
    process.kill(former, 'SIGKILL');
    await told('backup.failed');
    await told('backup.resumed');
  }
  await archived();
  expect((await archive.bases()).length).toBe(2);
  for (const at of [0, 1, 3, 4, 5, 7, 8, 9]) expect(await restoredRows(times[at])).toEqual({ rows: upTo(at + 1), isAtEnd: false });
  expect(await restoredRows(undefined)).toEqual({ rows: upTo(times.length), isAtEnd: false });
  expect(await restoredRows(new Date(Date.now() + 3_600_000))).toEqual({ rows: upTo(times.length), isAtEnd: true });
  const [oldest] = await archive.bases();
  const early = restore({ archive, at: new Date(Date.parse(oldest?.ended ?? '') - 1), to: join(scratch.path, 'early') });
  await expect(early).rejects.toThrow(`the oldest backup was whole at ${oldest?.ended}: no earlier time can be restored`);
  const full = restore({ archive, at: undefined, to: scratch.path });
  await expect(full).rejects.toThrow('is not empty');
});

it('a bit that has changed is found, in a base backup and in the WAL', { timeout: 120_000 }, async () => {
  const base = (await archive.bases()).at(-1);
  if (base === undefined) throw new Error('there is no base backup');
  const to = join(scratch.path, 'damaged');
  const repairFile = await flipBit(join(base.folder, 'data', 'global', '1262'));
  await expect(restore({ archive, at: undefined, to })).rejects.toThrow('global/1262 in the base backup is not what was backed up');
  await repairFile();
  const name =
    (await readdir(archive.wal))
      .filter((one) => /^[\dA-F]{24}$/.test(one))
      .sort()
      .at(-1) ?? '';
  const repairWal = await flipBit(join(archive.wal, name));
  await expect(restore({ archive, at: undefined, to })).rejects.toThrow(`${name} in the archived WAL is not what was archived`);
  await repairWal();
  await expect(readdir(to)).rejects.toMatchObject({ code: 'ENOENT' });
  expect((await run('sha256sum', ['--check', '--quiet', `${name}.sha256`], { cwd: archive.wal })).stdout).toBe('');
});

it('a folder that is gone or replaced is told of once, and caught up with when it is back', { timeout: 120_000 }, async () => {
  const away = `${dir}.away`;
  await rename(dir, away);
  await mkdir(dir);
  await told('backup.failed', 'is not the one that backups are in');
  await write();
  await expect(archiveOf(server, dir)).rejects.toThrow('is not the one that backups are in: mount or restore that one');
  await expect(createBackup(server, archive)).rejects.toThrow();
  expect(await readdir(dir)).toEqual([]);
  await rm(dir, { recursive: true });
  await rename(away, dir);
  await told('backup.resumed', '', CAUGHT_UP_WITHIN_MS);
  await archived();
  expect(backups?.snapshot().failures).toBeGreaterThan(0);
  expect((await restoredRows(undefined)).rows).toEqual(upTo(written));
});

it('WAL that was removed before it was archived is told of, and a new base backup is made', { timeout: 120_000 }, async () => {
  const away = `${dir}.away`;
  const former = (await archive.bases()).length;
  await rename(dir, away);
  await told('backup.failed');
  for (let segment = 0; segment < 6; segment += 1) {
    await write();
    await query('SELECT pg_switch_wal()');
  }
  await query('CHECKPOINT');
  await rename(away, dir);
  await told('service.warning', 'has removed WAL that was not archived');
  await eventually('a new base backup', async () => (await archive.bases()).length > former);
  await write();
  await archived();
  expect((await restoredRows(undefined)).rows).toEqual(upTo(written));
});

/** Undefined where this user may not mount one: then a full disk is not tried. */
const disk = await mountDisk(join(scratch.path, 'disk'), 256);
afterAll(async () => disk?.unmount());

it.runIf(disk !== undefined)('a full disk is told of, and caught up with when there is room', { timeout: 120_000 }, async () => {
  const folder = disk?.folder ?? '';
  const own = await startEmbedded({ dataDir: join(scratch.path, 'full'), settings: { fsync: 'off' } });
  const login = { host: own.host, port: own.port, ...own.superuser, database: 'postgres' };
  const other = { ...config, POSTERN_BACKUP_DIR: join(folder, 'backups') };
  const running = await Backups.start({ admin: login, secret: own.secret, folder: own.folder }, other, (one) => seen.push(one));
  try {
    await told('backup.done');
    const full = await archiveOf({ login, folder: own.folder, secret: own.secret }, other.POSTERN_BACKUP_DIR);
    seen.length = 0;
    await fill(folder);
    await query('CREATE TABLE more AS SELECT generate_series(1, 1000) AS number', own);
    await query('SELECT pg_switch_wal()', own);
    await query('INSERT INTO more SELECT 1001', own);
    await told('backup.failed', 'ENOSPC');
    const made = createBackup({ login, folder: own.folder, secret: own.secret }, full);
    await expect(made).rejects.toThrow(/^there is not enough space for a base backup in \S+: \d+ MB are needed, and 0 MB are free$/);
    expect(await query('SELECT count(*)::int AS rows FROM more', own)).toEqual([{ rows: 1_001 }]);
    await rm(join(folder, 'filler'));
    await told('backup.resumed', '', CAUGHT_UP_WITHIN_MS);
    await eventually('all is archived', () => running?.snapshot().walLagBytes === 0);
    const to = join(scratch.path, 'restored');
    await restore({ archive: full, at: undefined, to });
    const restored = await startEmbedded({ dataDir: to, settings });
    expect(await query('SELECT count(*)::int AS rows FROM more', restored).finally(() => restored.stop())).toEqual([{ rows: 1_001 }]);
    await rm(to, { recursive: true });
  } finally {
    await running?.close();
    await own.stop();
  }
});

it('what no time of those to be kept needs is removed, but not while it is restored', async () => {
  const bases = await archive.bases();
  const kept = bases.at(-1);
  const since = new Date();
  await archive.whileInUse('restore', async () => expect(await archive.prune(since)).toBeUndefined());
  expect(await archive.prune(new Date(0))).toBe(0);
  expect(await archive.prune(since)).toBe(bases.length - 1);
  expect((await archive.bases()).map(({ time }) => time)).toEqual([kept?.time]);
  const first = (await archive.segments()).at(0);
  expect(first?.number).toBe(Math.floor((kept?.startsAt ?? 0) / SEGMENT_BYTES));
  expect((await readdir(archive.wal)).filter((name) => name.endsWith('.sha256')).length).toBe(
    (await archive.segments()).filter(({ isPartial }) => !isPartial).length,
  );
});

describe.runIf(hasPostgres15)('with PostgreSQL 15', () => {
  it('pg_verifybackup accepts a base backup, and a server is restored from it', { timeout: 120_000 }, async () => {
    const programs = '/usr/lib/postgresql/15/bin';
    const old = await startEmbedded({ dataDir: join(scratch.path, 'fifteen'), settings, programs });
    const opened: (() => Promise<void>)[] = [];
    try {
      await query('CREATE TABLE written AS SELECT 15 AS number', old);
      const own = { login: { host: old.host, port: old.port, ...old.superuser }, folder: old.folder, secret: old.secret };
      const other = { ...config, POSTERN_BACKUP_DIR: join(scratch.path, 'backups-15'), POSTERN_POSTGRES_BIN: programs };
      await openBackups({ admin: own.login, secret: own.secret, folder: own.folder }, other, (one) => seen.push(one), opened);
      await told('backup.done');
      const kept = await archiveOf(own, other.POSTERN_BACKUP_DIR);
      const [{ folder = '', major = 0 } = {}] = await kept.bases();
      expect(major).toBe(15);
      const verify = () => run(join(programs, 'pg_verifybackup'), [join(folder, 'data')]);
      expect((await verify()).stdout).toBe('backup successfully verified\n');
      const to = join(scratch.path, 'restored-15');
      const wrong = restore({ archive: kept, at: undefined, to });
      await expect(wrong).rejects.toThrow('the backup is of PostgreSQL 15, and this one is 18');
      await restore({ archive: kept, at: undefined, to, programs });
      const restored = await startEmbedded({ dataDir: to, settings, programs });
      expect(await query('SELECT number FROM written', restored).finally(() => restored.stop())).toEqual([{ number: 15 }]);
      await flipBit(join(folder, 'data', 'global', '1262'));
      await expect(verify()).rejects.toThrow('checksum mismatch for file "global/1262"');
    } finally {
      for (const close of opened.reverse()) await close();
      await old.stop();
    }
  });
});
