import { open, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import type { Config } from '../config.ts';
import { startOf } from '../embedded/data-directory.ts';
import { type BackingPostgres, startEmbedded } from '../embedded/embedded.ts';
import { stopOrphan } from '../embedded/postmaster.ts';
import { ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import { type AdminLogin, withSession } from '../placement/admin-connection.ts';
import { textOf } from '../protocol/backend.ts';
import { Archive, type BaseBackup, nameOf, SEGMENT_BYTES } from './archive.ts';
import { BackupError, receiveBaseBackup } from './base-backup.ts';
import { PastServers, pastFolder } from './past.ts';
import { restore, UNFINISHED } from './restore.ts';
import { SLOT, WalReceiver } from './wal-receiver.ts';

/** The embedded server, its files and what tells it from others. */
export interface BackedUpServer {
  readonly login: AdminLogin;
  /** Its own folder (PGDATA). */
  readonly folder: string;
  /** In the data directory; undefined: it is in POSTERN_SECRET, and not in backups. */
  readonly secret: string | undefined;
}

/** @returns undefined: the server is another one, which has its own tools */
export function backedUpServer({ admin, secret, folder }: BackingPostgres, config: Config): BackedUpServer | undefined {
  if (folder === undefined || typeof admin === 'string') return undefined;
  return { login: admin, folder, secret: config.POSTERN_SECRET === undefined ? secret : undefined };
}

/** @throws errors of the operating system @see https://github.com/postgres/postgres/blob/master/src/include/catalog/pg_control.h */
export async function systemIdentifierOf(cluster: string): Promise<string> {
  const file = await open(join(cluster, 'global', 'pg_control'));
  try {
    const { buffer } = await file.read(Buffer.alloc(8), 0, 8, 0);
    return buffer.readBigUInt64LE().toString();
  } finally {
    await file.close();
  }
}

/** The backups of a server. @throws BackupError while their folder is gone, or another one is in its place */
export async function archiveOf({ folder }: BackedUpServer, dir: string): Promise<Archive> {
  return Archive.claim(dir, await systemIdentifierOf(folder), join(dirname(folder), 'backup-folder'));
}

/** How long the archive may stand still before the WAL of a base backup is in it. */
const ARCHIVE_TIMEOUT_MS = 60_000;
const ARCHIVE_POLL_MS = 100;

/**
 * Makes a base backup while the service archives the WAL.
 * @throws BackupError, PostgresError, errors of the operating system
 */
export async function createBackup(server: BackedUpServer, archive: Archive, signal?: AbortSignal): Promise<BaseBackup> {
  return withSession(server.login, async (session) => {
    const { rows } = await session.query<{ version: number }>("SELECT current_setting('server_version_num')::int AS version");
    const [{ version = 0 } = {}] = rows;
    await archive.requireRoom((await dataBytesOf(session)) + 4 * SEGMENT_BYTES);
    await archivedUpTo(session);
    return archive.addBase(async (folder) => {
      const data = join(folder, 'data');
      const received = await receiveBaseBackup(server.login, data, signal);
      await untilArchived(session, received.endsAt, signal);
      await addWal(archive, data, received);
      if (server.secret !== undefined) await writeFile(join(folder, 'secret'), `${server.secret}\n`, { mode: 0o600 });
      const facts = { major: Math.floor(version / 10_000), hasSecret: server.secret !== undefined };
      return { ...received, ...facts, ended: new Date().toISOString() };
    });
  });
}

/** How large all databases of a server are. */
export async function dataBytesOf(session: pg.Client): Promise<number> {
  const { rows } = await session.query<{ bytes: string }>('SELECT sum(pg_database_size(oid)) AS bytes FROM pg_database');
  return Number(rows[0]?.bytes);
}

/** @throws BackupError while no WAL is archived */
async function archivedUpTo(session: pg.Client): Promise<number> {
  const { rows } = await session.query<{ at: string; active: boolean }>(
    `SELECT restart_lsn - '0/0'::pg_lsn AS at, active FROM pg_replication_slots WHERE slot_name = '${SLOT}' AND restart_lsn IS NOT NULL`,
  );
  const [slot] = rows;
  if (slot?.active) return Number(slot.at);
  throw new BackupError('no WAL is archived now, without which a base backup is of no use: the log of the service says why');
}

async function untilArchived(session: pg.Client, position: number, signal: AbortSignal | undefined): Promise<void> {
  let archived = await archivedUpTo(session);
  let movedAt = performance.now();
  while (archived < position) {
    if (performance.now() - movedAt > ARCHIVE_TIMEOUT_MS) throw new BackupError('the WAL of the base backup was not archived in time');
    await delay(ARCHIVE_POLL_MS, undefined, { ...(signal === undefined ? {} : { signal }) });
    const now = await archivedUpTo(session);
    if (now > archived) movedAt = performance.now();
    archived = now;
  }
}

/** A copy of the WAL without which it is not consistent: so it can be used alone, and pg_verifybackup finds all that it reads. */
async function addWal(
  archive: Archive,
  data: string,
  { timeline, startsAt, endsAt }: Pick<BaseBackup, 'timeline' | 'startsAt' | 'endsAt'>,
): Promise<void> {
  for (let number = Math.floor(startsAt / SEGMENT_BYTES); number * SEGMENT_BYTES < endsAt; number += 1) {
    const segment = { timeline, number, isPartial: false };
    await archive.copySegment(segment, join(data, 'pg_wal'), nameOf(segment));
  }
}

export interface Verification {
  readonly base: BaseBackup;
  readonly organizations: number;
  readonly tables: number;
  /** As the server says it. */
  readonly lastCommit: string | undefined;
}

interface VerifyOptions {
  readonly archive: Archive;
  /** Default: the newest. */
  readonly base?: BaseBackup | undefined;
  /** Where it is restored for the time being; it is made and removed. */
  readonly folder: string;
  readonly controlDatabase: string;
  /** The server that is backed up, if it runs: it must have as many organizations. */
  readonly running: BackedUpServer | undefined;
  /** The folder of the programs of a PostgreSQL in place of npm's (`POSTERN_POSTGRES_BIN`). */
  readonly programs: string | undefined;
  readonly signal?: AbortSignal;
}

/**
 * Restores a base backup with all WAL that is archived beside the server, reads it and removes it.
 * @throws BackupError, EmbeddedError
 */
export async function verifyBackup({
  archive,
  folder,
  controlDatabase,
  running,
  programs,
  signal,
  ...options
}: VerifyOptions): Promise<Verification> {
  const base = options.base ?? (await archive.bases()).at(-1);
  if (base === undefined) throw new BackupError('there is no base backup');
  await removeTrial(folder);
  try {
    const before = new Date();
    const expected =
      running && (await withSession({ ...running.login, database: controlDatabase }, (session) => organizationsUntil(session, before)));
    if (running !== undefined) {
      await withSession(running.login, async (session) => {
        const { rows } = await session.query<{ at: string }>("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn AS at");
        await untilArchived(session, Number(rows[0]?.at), signal);
      });
    }
    const { lastCommit } = await restore({
      archive,
      at: undefined,
      base,
      to: folder,
      programs,
      ...(signal === undefined ? {} : { signal }),
    });
    const server = await startEmbedded({ dataDir: folder, programs });
    try {
      const login = { host: server.host, port: server.port, ...server.superuser, database: controlDatabase };
      const [organizations, tables] = await withSession(login, async (session) => [
        await organizationsUntil(session, before),
        await readTables(session),
      ]);
      if (expected !== undefined && organizations !== expected) {
        throw new BackupError(`the backup of ${base.time} has ${organizations} organizations, and the server has ${expected}`);
      }
      await archive.setVerified(base);
      return { base, organizations, tables, lastCommit };
    } finally {
      await server.stop();
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** A folder for a trial restore on the disk of the server, or of another one, for a command of this process. */
export function trialFolder(home: string): string {
  return join(home, `verify-${process.pid}`);
}

/** Of processes that were killed. */
async function removeTrials(home: string): Promise<void> {
  for (const name of await readdir(home)) {
    const pid = Number(/^verify-(\d+)$/.exec(name)?.[1]);
    if (pid > 0 && (pid === process.pid || (await startOf(pid)) === undefined)) await removeTrial(join(home, name));
  }
}

/** The server in it may still run. */
async function removeTrial(folder: string): Promise<void> {
  for (const name of ['postgres', UNFINISHED]) await stopOrphan(join(folder, name));
  await rm(folder, { recursive: true, force: true });
}

/** Those that are being made may not stay. */
async function organizationsUntil(session: pg.Client, time: Date): Promise<number> {
  const { rows } = await session.query<{ organizations: string }>(
    "SELECT count(*) AS organizations FROM postern.organizations WHERE status <> 'provisioning' AND created_at <= $1",
    [time],
  );
  return Number(rows[0]?.organizations);
}

/** @returns how many there are @throws pg.DatabaseError */
async function readTables(session: pg.Client): Promise<number> {
  const { rows } = await session.query<{ name: string }>(
    "SELECT oid::regclass AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'postern'::regnamespace",
  );
  for (const { name } of rows) await session.query(`SELECT * FROM ${name} LIMIT 1`);
  return rows.length;
}

/** For metrics. */
export interface BackupsSnapshot {
  /** When the newest base backup was whole, in seconds since 1970; undefined: there is none, or the folder is gone. */
  readonly lastSuccessAt: number | undefined;
  readonly walLagBytes: number | undefined;
  readonly failures: number;
  readonly bytes: number | undefined;
}

const TICK_MS = 10_000;
const HEARTBEAT_MS = 60_000;
const PRUNE_MS = 3_600_000;
const FIRST_RETRY_MS = 15_000;
const LONGEST_RETRY_MS = 600_000;
const HOUR_MS = 3_600_000;

/** Does something again and again, and less often while it fails. */
class Schedule {
  #next = 0;
  #failures = 0;

  get isDue(): boolean {
    return performance.now() >= this.#next;
  }

  again(ms: number): void {
    this.#failures = 0;
    this.#next = performance.now() + ms;
  }

  afterFailure(): void {
    this.#next = performance.now() + Math.min(FIRST_RETRY_MS * 2 ** this.#failures, LONGEST_RETRY_MS);
    this.#failures += 1;
  }
}

/** What the service does for backups of its embedded server: in one process, however many workers there are. */
export class Backups {
  readonly #server: BackedUpServer;
  readonly #config: Config;
  readonly #dir: string;
  readonly #observe: Observe;
  readonly #receiver: WalReceiver;
  readonly #stopping = new AbortController();
  readonly #running: Promise<void>;
  readonly #bases = new Schedule();
  readonly #verifications = new Schedule();
  readonly #prunings = new Schedule();
  readonly #heartbeats = new Schedule();
  #failures = 0;
  #seen: { readonly lastSuccessAt: number | undefined; readonly bytes: number } | undefined;

  /**
   * Begins to make backups if the settings say so; else the server keeps no WAL for them any more.
   * @param postgres the embedded server; with another one nothing is done
   */
  static async start(postgres: BackingPostgres, config: Config, observe: Observe): Promise<Backups | undefined> {
    const server = backedUpServer(postgres, config);
    if (server === undefined) return undefined;
    const { POSTERN_BACKUP_DIR: dir } = config;
    if (dir !== undefined) return new Backups(server, dir, config, observe);
    await withSession(server.login, (session) =>
      session.query(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '${SLOT}' AND NOT active`),
    );
    return undefined;
  }

  private constructor(server: BackedUpServer, dir: string, config: Config, observe: Observe) {
    this.#server = server;
    this.#dir = dir;
    this.#config = config;
    this.#observe = observe;
    this.#receiver = new WalReceiver({
      login: server.login,
      archive: () => archiveOf(server, dir),
      failed: (error, isNews) => this.#failed('no WAL is archived', error, isNews),
      recovered: () => {
        this.#bases.again(0);
        observe({ name: 'backup.resumed', message: 'WAL is archived again' });
      },
      lost: () => {
        this.#bases.again(0);
        const message =
          'the server has removed WAL that was not archived: times since then cannot be restored until the next base backup is whole';
        observe({ name: 'service.warning', message });
      },
    });
    this.#running = this.#run();
  }

  snapshot(): BackupsSnapshot {
    return {
      lastSuccessAt: this.#seen?.lastSuccessAt,
      bytes: this.#seen?.bytes,
      walLagBytes: this.#receiver.lagBytes,
      failures: this.#failures,
    };
  }

  async close(): Promise<void> {
    this.#stopping.abort(new BackupError('the service is stopping'));
    await this.#running;
    await this.#receiver.stop();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    await removeTrials(dirname(this.#server.folder)).catch(() => {});
    let wait = 100;
    while (!signal.aborted) {
      await delay(wait, undefined, { signal }).catch(() => {});
      if (signal.aborted) return;
      wait = this.#receiver.archivedUpTo === 0 ? 100 : TICK_MS;
      await this.#heartbeat();
      // Nothing but the heartbeat is of use without WAL.
      if (this.#receiver.isFailing || this.#receiver.archivedUpTo === 0) continue;
      const archive = await archiveOf(this.#server, this.#dir).catch(() => undefined);
      if (archive === undefined) continue;
      await this.#create(archive);
      await this.#verify(archive);
      await this.#prune(archive);
      await this.#look(archive);
    }
  }

  /** A commit now and then: the server finds a time between two commits only. */
  async #heartbeat(): Promise<void> {
    if (!this.#heartbeats.isDue) return;
    this.#heartbeats.again(HEARTBEAT_MS);
    await withSession(this.#server.login, (session) => session.query("SELECT pg_logical_emit_message(true, 'postern', '')")).catch(
      () => {},
    );
  }

  async #create(archive: Archive): Promise<void> {
    if (!this.#bases.isDue || !(await this.#isBaseDue(archive))) return;
    const startedAt = performance.now();
    this.#observe({ name: 'backup.begun', message: 'a base backup was begun' });
    try {
      const { time, bytes } = await createBackup(this.#server, archive, this.#stopping.signal);
      this.#bases.again(0);
      this.#prunings.again(0);
      this.#observe({
        name: 'backup.done',
        backup: time,
        bytes,
        durationMs: performance.now() - startedAt,
        message: 'a base backup is whole',
      });
    } catch (error) {
      this.#bases.afterFailure();
      this.#failed('no base backup could be made', error);
    }
  }

  /** The time has come, or the newest one is not followed by the WAL of now. */
  async #isBaseDue(archive: Archive): Promise<boolean> {
    const newest = (await archive.bases()).at(-1);
    if (newest === undefined || newest.timeline !== this.#receiver.timeline) return true;
    if (Date.now() - Date.parse(newest.time) >= this.#config.POSTERN_BACKUP_HOURS * HOUR_MS) return true;
    const last = (await archive.segmentsAfter(newest)).at(-1);
    return last === undefined || (last.number + 1) * SEGMENT_BYTES < this.#receiver.archivedUpTo;
  }

  async #verify(archive: Archive): Promise<void> {
    const { POSTERN_BACKUP_VERIFY_HOURS: hours, POSTERN_CONTROL_DATABASE: controlDatabase, POSTERN_POSTGRES_BIN: programs } = this.#config;
    if (hours === 0 || !this.#verifications.isDue) return;
    const bases = await archive.bases();
    const last = Math.max(0, ...bases.map(({ verified }) => Date.parse(verified ?? '1970-01-01T00:00:00Z')));
    if (bases.length === 0 || Date.now() - last < hours * HOUR_MS) return;
    const startedAt = performance.now();
    try {
      const folder = trialFolder(dirname(this.#server.folder));
      const { base, organizations } = await verifyBackup({
        archive,
        folder,
        controlDatabase,
        running: this.#server,
        programs,
        signal: this.#stopping.signal,
      });
      this.#verifications.again(0);
      const message = 'a backup has been restored for a trial';
      this.#observe({ name: 'backup.verified', backup: base.time, organizations, durationMs: performance.now() - startedAt, message });
    } catch (error) {
      this.#verifications.afterFailure();
      this.#failed('a backup could not be restored for a trial', error);
    }
  }

  async #prune(archive: Archive): Promise<void> {
    if (!this.#prunings.isDue) return;
    try {
      await pruneBackups(archive, this.#config);
      this.#prunings.again(PRUNE_MS);
    } catch (error) {
      this.#prunings.afterFailure();
      this.#failed('old backups could not be removed', error);
    }
  }

  async #look(archive: Archive): Promise<void> {
    const newest = (await archive.bases()).at(-1);
    this.#seen = { bytes: await archive.bytes(), lastSuccessAt: newest && Date.parse(newest.ended) / 1_000 };
  }

  #failed(what: string, error: unknown, isNews = true): void {
    if (this.#stopping.signal.aborted) return;
    this.#failures += 1;
    if (isNews) this.#observe({ name: 'backup.failed', message: `${what}: ${textOf(error)}` });
  }
}

/** As {@link Backups.start}, and runs the servers of former times. @param opened gets what ends it */
export async function openBackups(
  postgres: BackingPostgres,
  config: Config,
  observe: Observe,
  opened: (() => Promise<void>)[],
): Promise<Backups | undefined> {
  const server = backedUpServer(postgres, config);
  if (server !== undefined) {
    const { POSTERN_CONTROL_DATABASE: controlDatabase, POSTERN_POSTGRES_BIN: programs } = config;
    const { login, folder } = server;
    const past = new PastServers({ folder: pastFolder(folder), login, secret: postgres.secret, controlDatabase, programs, observe });
    opened.push(() => past.close());
  }
  const backups = await Backups.start(postgres, config, observe);
  if (backups !== undefined) opened.push(() => backups.close());
  return backups;
}

const DAY_MS = 86_400_000;

/** @returns as {@link Archive.prune} */
export function pruneBackups(archive: Archive, { POSTERN_BACKUP_KEEP_DAYS: days }: Config): Promise<number | undefined> {
  return archive.prune(new Date(Date.now() - days * DAY_MS));
}

/** The base backups of a server. */
export interface DescribedArchive {
  /** The server's system identifier. */
  readonly system: string;
  /** Undefined: nothing can be restored. */
  readonly restorableFrom: string | undefined;
  readonly bytes: number;
  /** The earliest first. */
  readonly backups: readonly DescribedBackup[];
}

interface DescribedBackup extends Pick<BaseBackup, 'time' | 'ended' | 'bytes' | 'timeline' | 'major' | 'hasSecret'> {
  readonly verified: string | null;
  readonly walBytes: number;
  /** The WAL that is needed is there. */
  readonly isUsable: boolean;
  readonly lastSegment: string | null;
}

export async function describeArchive(archive: Archive): Promise<DescribedArchive> {
  const backups = await Promise.all((await archive.bases()).map((base) => describeBackup(archive, base)));
  const restorableFrom = backups.find(({ isUsable }) => isUsable)?.ended;
  return { system: archive.systemIdentifier, restorableFrom, bytes: await archive.bytes(), backups };
}

async function describeBackup(archive: Archive, base: BaseBackup): Promise<DescribedBackup> {
  const { time, ended, bytes, timeline, major, hasSecret, verified } = base;
  const segments = await archive.segmentsAfter(base);
  const last = segments.at(-1);
  return {
    ...{ time, ended, bytes, timeline, major, hasSecret, verified: verified ?? null },
    walBytes: segments.length * SEGMENT_BYTES,
    isUsable: segments.length > 0,
    lastSegment: last === undefined ? null : nameOf({ ...last, isPartial: false }),
  };
}

/**
 * The base backups in a folder, each with the system identifier of its server.
 * @param dir undefined: no backups are made
 * @throws ServiceError 58030 while the folder cannot be read
 */
export async function listBackups(dir: string | undefined): Promise<(DescribedBackup & { readonly system: string })[]> {
  if (dir === undefined) return [];
  const archives = await Archive.all(dir).catch((cause: unknown) => {
    throw new ServiceError('not_ready', textOf(cause), { sqlstate: IO_ERROR, cause });
  });
  const described = archives.map(async (archive) => {
    const bases = await archive.bases();
    const { systemIdentifier: system } = archive;
    return Promise.all(bases.map(async (base) => ({ system, ...(await describeBackup(archive, base)) })));
  });
  return (await Promise.all(described)).flat();
}

const IO_ERROR = '58030';
