import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, constants, copyFile, cp, mkdir, mkdtemp, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findBinaries } from '../embedded/binaries.ts';
import { type Account, canEnter, lastFatal, runAs, serverAccount } from '../embedded/data-directory.ts';
import { readPostmasterPid } from '../embedded/postmaster.ts';
import { hasCode, reasonOf } from '../system-errors.ts';
import { type Archive, type BaseBackup, nameOf, requireRoom, SEGMENT_BYTES, type Segment } from './archive.ts';
import { BackupError, checkFiles } from './base-backup.ts';

/** Where the server's files are until they are restored. A start removes them. */
export const UNFINISHED = 'postgres.init-restore';

export interface RestoreOptions {
  readonly archive: Archive;
  /** Undefined: all that is in the archive. */
  readonly at: Date | undefined;
  /** The data directory to be: absent or empty. */
  readonly to: string;
  /** Which base backup to begin with; default: the one that is best for the time. */
  readonly base?: BaseBackup;
  /** How large the restored files may become, where that is known to be more than the base backup has. */
  readonly dataBytes?: number;
  /** As root: holds binaries that the server's account can run. */
  readonly sharedFolder?: string;
  /** The folder of the programs of a PostgreSQL in place of npm's (`POSTERN_POSTGRES_BIN`). */
  readonly programs?: string | undefined;
  readonly signal?: AbortSignal;
}

export interface Restored {
  readonly base: BaseBackup;
  /** When the last transaction that is there was committed, as the server says it; undefined if none was after the base backup. */
  readonly lastCommit: string | undefined;
  /** The archive ends before the time that was asked for. */
  readonly isAtEnd: boolean;
}

/**
 * Makes a data directory from a base backup and archived WAL. Every file is compared with its checksum before it is used.
 * @throws BackupError, EmbeddedError
 */
export async function restore({
  archive,
  at,
  to,
  base: given,
  dataBytes = 0,
  sharedFolder = '/var/lib/postern',
  programs,
  signal,
}: RestoreOptions): Promise<Restored> {
  return archive.whileInUse('restore', async () => {
    const base = given ?? chooseBase(await archive.bases(), at);
    const segments = await archive.segmentsAfter(base);
    if (segments.length === 0)
      throw new BackupError(`the base backup of ${base.time} cannot be used: WAL is missing that was written meanwhile`);
    const account = await serverAccount();
    const made = await makeTarget(to, account);
    try {
      await requireRoom(
        to,
        Math.max(base.bytes, dataBytes) + (account === undefined ? 0 : segments.length * SEGMENT_BYTES) + SEGMENT_BYTES,
        'the restored files',
      );
      const unfinished = join(to, UNFINISHED);
      await copyBase(base, unfinished, signal);
      await archive.checkSegments(segments, signal);
      const source = await walSource(archive, segments, to, account);
      if (account !== undefined) await giveTo(unfinished, account);
      const outcome = await recover({
        folder: unfinished,
        log: join(to, 'restore.log'),
        source,
        segments,
        at,
        account,
        major: base.major,
        sharedFolder,
        programs,
        signal,
      });
      if (source !== archive.wal) await rm(source, { recursive: true, force: true });
      for (const name of ['backup_manifest', 'backup_label.old', 'tablespace_map.old']) await rm(join(unfinished, name), { force: true });
      if (base.hasSecret) await cp(join(base.folder, 'secret'), join(to, 'secret'), { errorOnExist: true });
      await rename(unfinished, join(to, 'postgres'));
      await rm(join(to, 'restore.log'), { force: true });
      return { base, ...outcome };
    } catch (error) {
      for (const name of await readdir(to)) await rm(join(to, name), { recursive: true, force: true });
      if (made) await rm(to, { recursive: true, force: true });
      if (error instanceof Error && 'syscall' in error) throw new BackupError(`${to} cannot be restored: ${reasonOf(error)}`);
      throw error;
    }
  });
}

/** The newest that was whole by then. Later ones of that timeline would take longer, or are of another history. @throws BackupError */
function chooseBase(bases: readonly BaseBackup[], at: Date | undefined): BaseBackup {
  const [oldest] = bases;
  if (oldest === undefined) throw new BackupError('there is no base backup');
  const found = at === undefined ? bases.at(-1) : bases.findLast(({ ended }) => Date.parse(ended) <= at.getTime());
  if (found !== undefined) return found;
  throw new BackupError(`the oldest backup was whole at ${oldest.ended}: no earlier time can be restored`);
}

/** @returns whether it was absent @throws BackupError unless it is absent or empty */
async function makeTarget(to: string, account: Account | undefined): Promise<boolean> {
  const made = await mkdir(to, { mode: account === undefined ? 0o700 : 0o711 }).then(
    () => true,
    (error: unknown) => {
      if (!hasCode(error, 'EEXIST')) throw new BackupError(`${to} cannot be made: ${reasonOf(error)}`);
      return false;
    },
  );
  const names = await readdir(to).catch((error: unknown) => {
    throw new BackupError(`${to} cannot be used: ${reasonOf(error)}`);
  });
  if (names.length > 0) throw new BackupError(`${to} is not empty: name a folder that is absent or empty`);
  if (await canEnter(to, account)) return made;
  if (made) await rm(to, { recursive: true });
  throw new BackupError(`the account that PostgreSQL runs as (uid ${account?.uid}) cannot enter ${to}: name a folder where it can`);
}

async function copyBase({ folder }: BaseBackup, to: string, signal: AbortSignal | undefined): Promise<void> {
  const data = join(folder, 'data');
  await cp(data, to, { recursive: true, mode: constants.COPYFILE_FICLONE, errorOnExist: true, force: false });
  // Of the copies: what the disk has done to them meanwhile is found too.
  await checkFiles(join(data, 'backup_manifest'), to, signal);
  await writeFile(join(to, 'recovery.signal'), '', { mode: 0o600 });
}

/** The server's account may not read what root has archived: it gets a copy. @returns the folder to read WAL from */
async function walSource(archive: Archive, segments: readonly Segment[], to: string, account: Account | undefined): Promise<string> {
  if (account === undefined) return archive.wal;
  const copies = join(to, 'postgres.init-wal');
  await mkdir(copies, { mode: 0o700 });
  const histories = (await readdir(archive.wal)).filter((name) => name.endsWith('.history'));
  for (const name of histories) await copyFile(join(archive.wal, name), join(copies, name));
  for (const segment of segments) await archive.copySegment(segment, copies);
  await giveTo(copies, account);
  return copies;
}

async function giveTo(folder: string, { uid, gid }: Account): Promise<void> {
  await chown(folder, uid, gid);
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true }))
    await chown(join(entry.parentPath, entry.name), uid, gid);
}

interface Recovery {
  /** What the base backup is of: 18, … */
  readonly major: number;
  /** The copy of a base backup. */
  readonly folder: string;
  /** What the server says. */
  readonly log: string;
  /** Holds the WAL. */
  readonly source: string;
  readonly segments: readonly Segment[];
  readonly at: Date | undefined;
  readonly account: Account | undefined;
  readonly sharedFolder: string;
  readonly programs: string | undefined;
  readonly signal: AbortSignal | undefined;
}

const AHEAD = 'recovery ended before configured recovery target was reached';

/** Runs the server until it has recovered, and stops it. */
async function recover(recovery: Recovery): Promise<Omit<Restored, 'base'>> {
  const { at, segments } = recovery;
  const { postgres, major } = await findBinaries(recovery.account, recovery.sharedFolder, recovery.programs);
  if (major !== recovery.major) {
    throw new BackupError(`the backup is of PostgreSQL ${recovery.major}, and this one is ${major}: POSTERN_POSTGRES_BIN names another`);
  }
  let isAtEnd = at === undefined;
  let said = await runUntilRecovered(postgres, recovery, at);
  if (said.includes(AHEAD)) {
    isAtEnd = true;
    said += await runUntilRecovered(postgres, recovery, undefined);
  }
  const lastCommit = [...said.matchAll(/last completed transaction was at log time (.+)/g)].at(-1)?.[1];
  const isRecovered = said.includes('archive recovery complete');
  if (!isRecovered) throw new BackupError(`the backup cannot be restored: ${lastFatal(said) ?? 'PostgreSQL has ended'}`);
  // A read that fails looks to the server like the end of the WAL.
  const last = segments.at(-1);
  const name = last && nameOf({ ...last, isPartial: false });
  if (isAtEnd && name !== undefined && !said.includes(`restored log file "${name}"`)) {
    throw new BackupError(`the backup cannot be restored: recovery ended before ${name}, the last of the archived WAL`);
  }
  return { lastCommit, isAtEnd: at !== undefined && isAtEnd };
}

const POLL_MS = 25;

/** @returns what the server has said */
async function runUntilRecovered(
  postgres: string,
  { folder, log, source, account, signal }: Recovery,
  at: Date | undefined,
): Promise<string> {
  const sockets = await mkdtemp(join(tmpdir(), 'postern-restore-'));
  if (account !== undefined) await chown(sockets, account.uid, account.gid);
  const settings = {
    listen_addresses: '',
    unix_socket_directories: `"${sockets.replaceAll('"', '""')}"`,
    // Nobody logs in before the end of recovery, and nobody does then.
    hot_standby: 'off',
    hba_file: join(dirname(folder), 'restore-hba.conf'),
    restore_command: restoreCommand(source),
    recovery_target_action: 'promote',
    // The history that the base backup is of.
    recovery_target_timeline: 'current',
    ...(at === undefined ? {} : { recovery_target_time: targetTime(at) }),
    archive_mode: 'off',
    shared_buffers: '64MB',
    logging_collector: 'off',
    log_destination: 'stderr',
    log_min_messages: 'log',
    lc_messages: 'C',
    log_timezone: 'UTC',
    timezone: 'UTC',
    ...(process.platform === 'linux' ? { recovery_init_sync_method: 'syncfs' } : {}),
  };
  await writeFile(settings.hba_file, 'local all all reject\n', { mode: 0o644 });
  const file = await open(log, 'w', 0o600);
  const words = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const child = spawn(postgres, ['-D', folder, ...words], { ...runAs(account), detached: true, stdio: ['ignore', file.fd, file.fd] });
  const stop = () => void child.kill('SIGINT');
  process.once('exit', stop);
  signal?.addEventListener('abort', stop);
  const ended = once(child, 'exit');
  let hasEnded = false;
  void ended.then(
    () => {
      hasEnded = true;
    },
    () => {
      hasEnded = true;
    },
  );
  try {
    for (let status: string | undefined; status !== 'ready' && !hasEnded; ) {
      await delay(POLL_MS);
      status = (await readPostmasterPid(folder)).status;
    }
    stop();
    await ended;
    signal?.throwIfAborted();
    return await readFile(log, 'utf8');
  } finally {
    process.off('exit', stop);
    signal?.removeEventListener('abort', stop);
    await file.close();
    await rm(sockets, { recursive: true, force: true });
    await rm(settings.hba_file, { force: true });
  }
}

/** With a number for the zone: abbreviations are not known yet when the server reads it. */
function targetTime(at: Date): string {
  return at.toISOString().replace('T', ' ').replace('Z', '+00');
}

/** A segment that is not whole has another name, until it is whole. @see https://www.postgresql.org/docs/current/continuous-archiving.html */
function restoreCommand(source: string): string {
  const folder = `'${source.replaceAll('%', '%%').replaceAll("'", `'\\''`)}'`;
  return ['%f', '%f.partial', '%f'].map((name) => `cp ${folder}/${name} "%p" 2>/dev/null`).join(' || ');
}
