import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import {
  constants,
  copyFile,
  type FileHandle,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  statfs,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import * as z from 'zod';
import { hasCode, reasonOf } from '../system-errors.ts';
import { BackupError, digestOf } from './base-backup.ts';

/** As initdb makes it by default. */
export const SEGMENT_BYTES = 16 * 1024 * 1024;
const SEGMENTS_PER_NAME = 2 ** 32 / SEGMENT_BYTES;

const baseSchema = z.object({
  /** When it was whole: no earlier time can be restored from it. RFC 3339. */
  ended: z.iso.datetime(),
  timeline: z.int().positive(),
  /** Positions in the WAL, in bytes. */
  startsAt: z.int().nonnegative(),
  endsAt: z.int().nonnegative(),
  bytes: z.int().nonnegative(),
  /** 18, … */
  major: z.int().positive(),
  /** Whether the secret is beside the data. */
  hasSecret: z.boolean(),
});

/** What is stored beside a base backup. */
export type BaseFacts = Readonly<z.output<typeof baseSchema>>;

export interface BaseBackup extends BaseFacts {
  /** When it was begun, RFC 3339: its name. */
  readonly time: string;
  /** Holds `data` and maybe `secret`. */
  readonly folder: string;
  /** When it was last restored for a trial. */
  readonly verified: string | undefined;
}

/** A part of the WAL. */
export interface Segment {
  readonly timeline: number;
  /** Counted from the beginning of the WAL. */
  readonly number: number;
  /** More of it may arrive. */
  readonly isPartial: boolean;
}

/** How long somebody who uses the folder is believed to live after the last sign of it. */
const HELD_MS = 60_000;
const SIGN_EVERY_MS = 10_000;

/**
 * The backups of one server:
 *
 *     <system identifier>/id              tells this folder from another one in its place
 *                         base/<time>/data, secret, facts.json, verified
 *                         wal/<segment>, <segment>.sha256, <segment>.partial, <timeline>.history
 *                         in-use/         a file for each process that reads or writes a base backup
 */
export class Archive {
  readonly folder: string;
  readonly systemIdentifier: string;

  constructor(dir: string, systemIdentifier: string) {
    this.folder = join(dir, systemIdentifier);
    this.systemIdentifier = systemIdentifier;
  }

  /** Those in a backup folder. @throws BackupError when it cannot be read */
  static async all(dir: string): Promise<Archive[]> {
    const names = await readdir(dir).catch((error: unknown) => {
      throw new BackupError(`the backup folder ${dir} cannot be read: ${reasonOf(error)}`);
    });
    return names.filter((name) => /^\d{10,20}$/.test(name)).map((name) => new Archive(dir, name));
  }

  /**
   * Makes the folders when they are used for the first time, and otherwise makes sure that they are the same as before.
   * @param record a file in the data directory that names them
   * @throws BackupError
   */
  static async claim(dir: string, systemIdentifier: string, record: string): Promise<Archive> {
    const archive = new Archive(dir, systemIdentifier);
    try {
      const known = await readFile(record, 'utf8').then(parseRecord, () => undefined);
      const id = await archive.id();
      if (known?.dir === dir) {
        if (id === known.id) return archive;
        throw new BackupError(
          `the backup folder ${dir} is not the one that backups are in: mount or restore that one; to begin anew in this one, remove ${record}`,
        );
      }
      for (const folder of [dir, archive.folder, archive.#bases, archive.wal, archive.#holders]) await makeFolder(folder);
      const own = id ?? randomUUID();
      if (id === undefined) await writeDurably(join(archive.folder, 'id'), `${own}\n`);
      await writeDurably(record, `${JSON.stringify({ dir, id: own })}\n`);
      return archive;
    } catch (error) {
      if (error instanceof BackupError) throw error;
      throw new BackupError(`the backup folder ${dir} cannot be used: ${reasonOf(error)}`);
    }
  }

  /** Undefined: there is no such folder, or it is not ready. */
  async id(): Promise<string | undefined> {
    const text = await readFile(join(this.folder, 'id'), 'utf8').catch(() => '');
    return text.trim() || undefined;
  }

  get wal(): string {
    return join(this.folder, 'wal');
  }

  get #bases(): string {
    return join(this.folder, 'base');
  }

  get #holders(): string {
    return join(this.folder, 'in-use');
  }

  /** The earliest first. */
  async bases(): Promise<BaseBackup[]> {
    const names = await readdir(this.#bases).catch(() => []);
    const found = await Promise.all(names.sort().map((name) => this.#base(name)));
    return found.flatMap((base) => base ?? []);
  }

  async #base(time: string): Promise<BaseBackup | undefined> {
    const folder = join(this.#bases, time);
    if (Number.isNaN(Date.parse(time))) return undefined;
    const facts = await readFile(join(folder, 'facts.json'), 'utf8').then(parseFacts, () => undefined);
    if (facts === undefined) return undefined;
    const verified = await readFile(join(folder, 'verified'), 'utf8').catch(() => undefined);
    return { ...facts, time, folder, verified: verified?.trim() };
  }

  /**
   * Adds a base backup. It gets its name only when it is whole and on disk.
   * @param make fills the folder
   * @returns its name
   */
  async addBase(make: (folder: string) => Promise<BaseFacts>): Promise<BaseBackup> {
    const time = new Date().toISOString();
    const folder = join(this.#bases, time);
    const unfinished = `${folder}.unfinished`;
    return this.whileInUse('create', async () => {
      try {
        await mkdir(unfinished, { mode: 0o700 });
        const facts = await make(unfinished);
        await writeFile(join(unfinished, 'facts.json'), `${JSON.stringify(facts)}\n`, { mode: 0o600 });
        await syncTree(unfinished);
        await rename(unfinished, folder);
        await syncFolder(this.#bases);
        return { ...facts, time, folder, verified: undefined };
      } catch (error) {
        await rm(unfinished, { recursive: true, force: true }).catch(() => {});
        throw error;
      }
    });
  }

  async setVerified({ folder }: BaseBackup): Promise<void> {
    await writeDurably(join(folder, 'verified'), `${new Date().toISOString()}\n`);
  }

  /** All there are, by number. */
  async segments(): Promise<Segment[]> {
    const names = await readdir(this.wal).catch(() => []);
    return names.flatMap((name) => segmentNamed(name) ?? []).sort((one, other) => one.number - other.number);
  }

  /**
   * The segments that recovery reads after a base backup, without a gap.
   * @returns none if what makes the base backup consistent is not there
   */
  async segmentsAfter({ timeline, startsAt, endsAt }: BaseFacts): Promise<Segment[]> {
    const byNumber = new Map((await this.segments()).filter((one) => one.timeline === timeline).map((one) => [one.number, one]));
    const found: Segment[] = [];
    let number = Math.floor(startsAt / SEGMENT_BYTES);
    for (let next = byNumber.get(number); next !== undefined; next = byNumber.get(number)) {
      found.push(next);
      number += 1;
    }
    return (found.at(-1)?.number ?? -1) >= Math.floor((endsAt - 1) / SEGMENT_BYTES) ? found : [];
  }

  /** Compares whole segments with their checksums. @throws BackupError that names the first one that differs */
  async checkSegments(segments: readonly Segment[], signal?: AbortSignal): Promise<void> {
    for (const segment of segments) {
      signal?.throwIfAborted();
      if (segment.isPartial) continue;
      const path = join(this.wal, nameOf(segment));
      const stated = await readFile(`${path}.sha256`, 'utf8').catch(() => '');
      const { sha256 } = await digestOf(path).catch(() => ({ sha256: undefined }));
      if (stated.split(' ')[0] !== sha256) throw new BackupError(`${nameOf(segment)} in the archived WAL is not what was archived`);
    }
  }

  /** Copies a segment, which may have become whole meanwhile. @param to the folder @param name default: as it is in the archive */
  async copySegment(segment: Segment, to: string, name?: string): Promise<void> {
    const copy = async (isPartial: boolean) => {
      const own = nameOf({ ...segment, isPartial });
      await copyFile(join(this.wal, own), join(to, name ?? own), constants.COPYFILE_FICLONE);
    };
    await copy(false).catch(() => copy(true).catch(() => copy(false)));
  }

  /** Of all files below it. */
  async bytes(): Promise<number> {
    const bases = await this.bases();
    return bases.reduce((sum, { bytes }) => sum + bytes, 0) + (await this.segments()).length * SEGMENT_BYTES;
  }

  /**
   * Removes what is not needed to restore any second since then.
   * @returns how many base backups have been removed; undefined if somebody uses one
   */
  async prune(since: Date): Promise<number | undefined> {
    const holders = await this.#living();
    if (!holders.includes('create')) await this.#removeUnfinished();
    if (holders.some((purpose) => purpose !== 'create')) return undefined;
    const bases = await this.bases();
    const needed = bases.findLastIndex(({ ended }) => Date.parse(ended) <= since.getTime());
    const old = bases.slice(0, Math.max(0, needed));
    for (const { folder } of old) {
      // From now on nobody takes it for a whole one.
      await rename(folder, `${folder}.unfinished`);
      await rm(`${folder}.unfinished`, { recursive: true, force: true });
    }
    const kept = bases.slice(old.length);
    const first = Math.min(...kept.map(({ startsAt }) => Math.floor(startsAt / SEGMENT_BYTES)));
    // Without a base backup the WAL is of no use, but one may be on its way.
    for (const segment of kept.length === 0 ? [] : await this.segments()) {
      if (segment.number >= first) continue;
      const path = join(this.wal, nameOf(segment));
      await rm(`${path}.sha256`, { force: true });
      await rm(path, { force: true });
    }
    return old.length;
  }

  async #removeUnfinished(): Promise<void> {
    for (const name of await readdir(this.#bases).catch(() => [])) {
      if (name.endsWith('.unfinished')) await rm(join(this.#bases, name), { recursive: true, force: true });
    }
  }

  /** Nothing is removed meanwhile by {@link prune}, in this process or in another, on this machine or on another. */
  async whileInUse<Result>(purpose: 'create' | 'restore' | 'verify', use: () => Promise<Result>): Promise<Result> {
    return whileSigned(join(this.#holders, `${purpose}-${randomUUID()}`), use);
  }

  /** What those who use it do. A file that nobody touches any more is of a process that was killed. */
  async #living(): Promise<string[]> {
    const living: string[] = [];
    for (const name of await readdir(this.#holders).catch(() => [])) {
      const path = join(this.#holders, name);
      if (await hasSign(path)) living.push(name.split('-')[0] ?? '');
    }
    return living;
  }

  /** @throws BackupError unless so much is free */
  async requireRoom(bytes: number): Promise<void> {
    await requireRoom(this.folder, bytes, `a base backup in ${this.folder}`);
  }
}

/** Others see by a file that somebody is at work. @throws BackupError when it cannot be made; and what `use` throws */
export async function whileSigned<Result>(path: string, use: () => Promise<Result>): Promise<Result> {
  await writeFile(path, '', { mode: 0o600 }).catch((error: unknown) => {
    throw new BackupError(`${path} cannot be written: ${reasonOf(error)}`);
  });
  const sign = setInterval(() => void utimes(path, new Date(), new Date()).catch(() => {}), SIGN_EVERY_MS);
  try {
    return await use();
  } finally {
    clearInterval(sign);
    await rm(path, { force: true }).catch(() => {});
  }
}

/** Whether somebody is at work. A file that nobody touches any more is of a process that was killed, and is removed. */
export async function hasSign(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) return false;
  if (Date.now() - found.mtimeMs < HELD_MS) return true;
  await rm(path, { force: true });
  return false;
}

/** @throws BackupError unless so much is free on the disk of the folder */
export async function requireRoom(folder: string, bytes: number, what: string): Promise<void> {
  const { bavail, bsize } = await statfs(folder).catch((error: unknown) => {
    throw new BackupError(`${folder} cannot be used: ${reasonOf(error)}`);
  });
  const megabytes = (amount: number) => Math.ceil(amount / 1e6);
  if (bavail * bsize >= bytes) return;
  throw new BackupError(
    `there is not enough space for ${what}: ${megabytes(bytes)} MB are needed, and ${megabytes(bavail * bsize)} MB are free`,
  );
}

function parseFacts(text: string): BaseFacts | undefined {
  try {
    return baseSchema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

const recordSchema = z.object({ dir: z.string(), id: z.string() });

function parseRecord(text: string): z.output<typeof recordSchema> | undefined {
  try {
    return recordSchema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

const PARTIAL = '.partial';

/** The name of its file. @see https://www.postgresql.org/docs/current/wal-internals.html */
export function nameOf({ timeline, number, isPartial }: Segment): string {
  const parts = [timeline, Math.floor(number / SEGMENTS_PER_NAME), number % SEGMENTS_PER_NAME];
  return `${parts.map((part) => part.toString(16).toUpperCase().padStart(8, '0')).join('')}${isPartial ? PARTIAL : ''}`;
}

function segmentNamed(name: string): Segment | undefined {
  const [, timeline = '', high = '', low = '', partial] = /^([\dA-F]{8})([\dA-F]{8})([\dA-F]{8})(\.partial)?$/.exec(name) ?? [];
  if (timeline === '') return undefined;
  const number = Number.parseInt(high, 16) * SEGMENTS_PER_NAME + Number.parseInt(low, 16);
  return { timeline: Number.parseInt(timeline, 16), number, isPartial: partial !== undefined };
}

async function makeFolder(path: string): Promise<void> {
  await mkdir(path, { mode: 0o700 }).catch((error: unknown) => {
    if (!hasCode(error, 'EEXIST')) throw error;
  });
}

/** Replaces a file, which is on disk when this returns. */
export async function writeDurably(path: string, content: string | Uint8Array): Promise<void> {
  const draft = `${path}.new`;
  const file = await open(draft, 'w', 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
  await syncFolder(join(path, '..'));
}

export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

const run = promisify(execFile);

/** Writes everything below a folder to disk. One file after the other would take a minute for a few hundred databases. */
async function syncTree(folder: string): Promise<void> {
  const isWritten =
    process.platform === 'linux' &&
    (await run('sync', ['-f', folder]).then(
      () => true,
      () => false,
    ));
  if (isWritten) return;
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    if (!entry.isFile() && !entry.isDirectory()) continue;
    const file: FileHandle = await open(join(entry.parentPath, entry.name));
    await file.sync().finally(() => file.close());
  }
}
