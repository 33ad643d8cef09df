import { randomBytes } from 'node:crypto';
import { type FileHandle, open, rm, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import { reasonOf } from '../system-errors.ts';

/** From this part of the disk on, the log warns. */
const LOW = 0.1;
/** From this part on, nothing is begun that needs much space. */
const SCARCE = 0.05;
/** How much more has to be free before a warning is given anew, so that a disk that is just there does not warn all the time. */
const RECOVERED = 0.02;
const WARN_EVERY_MS = 3_600_000;
const CHECK_EVERY_MS = 1_000;

const WAL_SEGMENT_BYTES = 16 * 1024 * 1024;
const RESERVE_MAX_BYTES = 4 * WAL_SEGMENT_BYTES;
/** On a small disk the reserve is this part of it. */
const RESERVE_SHARE = 0.1;
const CHUNK_BYTES = 1024 * 1024;

/** What statfs tells of a file system, in blocks of `bsize` bytes. */
export interface FileSystemBlocks {
  readonly bsize: number;
  readonly blocks: number;
  readonly bfree: number;
  /** Without those that only root may use. The server never runs as root. */
  readonly bavail: number;
}

export type StatFileSystem = (folder: string) => Promise<FileSystemBlocks>;

export interface DiskUse {
  readonly freeBytes: number;
  /** Of all that the server may use: what is in use, and what is free. */
  readonly sizeBytes: number;
}

/** The disk that the embedded server's files are on. Every process asks for itself. */
export class DiskSpace {
  readonly #folder: string;
  readonly #statfs: StatFileSystem;

  /** @param folder on that disk */
  constructor(folder: string, statFileSystem: StatFileSystem = statfs) {
    this.#folder = folder;
    this.#statfs = statFileSystem;
  }

  /** @returns undefined if the system does not tell */
  async use(): Promise<DiskUse | undefined> {
    try {
      const { bsize, blocks, bfree, bavail } = await this.#statfs(this.#folder);
      // As df calculates it.
      const sizeBytes = (blocks - bfree + bavail) * bsize;
      return sizeBytes > 0 ? { freeBytes: bavail * bsize, sizeBytes } : undefined;
    } catch {
      return undefined;
    }
  }

  /** Whether there is room for another copy of something. What is not known does not keep anybody from working. */
  async mayGrow(): Promise<boolean> {
    const use = await this.use();
    return use === undefined || shareOf(use) > SCARCE;
  }

  /** @throws ServiceError `insufficient_storage` unless it {@link mayGrow} */
  async requireRoom(): Promise<void> {
    if (await this.mayGrow()) return;
    throw new ServiceError('insufficient_storage', `the disk of the PostgreSQL server is nearly full: ${percent(SCARCE)} or less is free`, {
      hint: 'Statements go on. Copies are made again when there is space: the operator has to see to that.',
    });
  }
}

/** Whether it is time to make room. */
export function isLow(use: DiskUse): boolean {
  return shareOf(use) <= LOW;
}

function shareOf({ freeBytes, sizeBytes }: DiskUse): number {
  return freeBytes / sizeBytes;
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

export interface DiskWatchOptions {
  readonly disk: DiskSpace;
  /** Where the reserve is kept: on the same disk, and only Postern writes there. */
  readonly folder: string;
  readonly observe: Observe;
  readonly now?: () => number;
}

/** How short space is; each has warnings of its own. */
type Shortage = 'none' | 'low' | 'scarce';

const SHORTAGES: readonly Shortage[] = ['none', 'low', 'scarce'];
const LIMITS: Readonly<Record<Shortage, number>> = { none: 1, low: LOW, scarce: SCARCE };

/**
 * Warns while the disk is nearly full, and keeps a file in reserve. PostgreSQL goes down when it cannot write its WAL, and does not come up
 * again before it can. So the file is removed when less than the server needs is left, and made again when there is room.
 */
export class DiskWatch {
  readonly #options: Required<DiskWatchOptions>;
  readonly #reserve: string;
  #told: Shortage = 'none';
  #warnedAt = 0;
  /** The reserve could not be made. */
  #hasFailed = false;
  #isStopped = false;
  #checking: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: DiskWatchOptions) {
    this.#options = { now: () => performance.now(), ...options };
    this.#reserve = join(options.folder, 'disk-reserve');
  }

  /** Goes on checking until it is stopped. */
  start(): void {
    this.#timer = setInterval(() => void this.check(), CHECK_EVERY_MS).unref();
  }

  /** Nothing is written any more when this returns. The reserve stays where it is. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearInterval(this.#timer);
    await this.#checking;
  }

  /** Also called when the server has ended: that may be why. A second call waits for the first. */
  check(): Promise<void> {
    this.#checking ??= this.#check().finally(() => {
      this.#checking = undefined;
    });
    return this.#checking;
  }

  /** Removes the reserve if the server may not be able to start without. */
  async makeRoom(): Promise<void> {
    const use = await this.#options.disk.use();
    if (use !== undefined && use.freeBytes < neededBytes(use)) await this.#release(use);
  }

  async #check(): Promise<void> {
    const use = await this.#options.disk.use();
    if (use === undefined || this.#isStopped) return;
    this.#warnOf(use);
    if (use.freeBytes < neededBytes(use)) await this.#release(use);
    // It must not be the reserve that makes space scarce.
    else if (shareOf({ ...use, freeBytes: use.freeBytes - reserveBytes(use) }) > SCARCE) await this.#keep(use);
  }

  #warnOf(use: DiskUse): void {
    const share = shareOf(use);
    const shortage = share <= SCARCE ? 'scarce' : share <= LOW ? 'low' : 'none';
    const { observe, now } = this.#options;
    const isWorse = SHORTAGES.indexOf(shortage) > SHORTAGES.indexOf(this.#told);
    if (isWorse || (shortage !== 'none' && now() - this.#warnedAt >= WARN_EVERY_MS)) {
      this.#told = shortage;
      this.#warnedAt = now();
      const effect = shortage === 'scarce' ? '; organizations are not cloned or moved until there is more' : '';
      observe({ name: 'service.warning', message: `the disk of the data directory is nearly full: ${amounts(use)}${effect}` });
    } else if (share > LIMITS[this.#told] + RECOVERED) this.#told = shortage;
  }

  async #release(use: DiskUse): Promise<void> {
    const { observe } = this.#options;
    if (!(await stat(this.#reserve).catch(() => undefined))) return;
    try {
      await rm(this.#reserve, { force: true });
      const message = `the disk of the data directory is full (${amounts(use)}): what was kept in reserve is left to PostgreSQL for its WAL`;
      observe({ name: 'service.warning', message });
    } catch (cause) {
      observe({ name: 'service.failure', message: 'the reserve in the data directory could not be removed', cause });
    }
  }

  async #keep(use: DiskUse): Promise<void> {
    const bytes = reserveBytes(use);
    const found = await stat(this.#reserve).catch(() => undefined);
    if (found?.isFile() && found.size >= bytes) return;
    try {
      await rm(this.#reserve, { force: true, recursive: true });
      await this.#write(bytes);
      this.#hasFailed = false;
    } catch (error) {
      await rm(this.#reserve, { force: true }).catch(() => {});
      // It is tried again with the next check, and told of with the first only.
      if (this.#hasFailed) return;
      this.#hasFailed = true;
      this.#options.observe({ name: 'service.warning', message: `no reserve can be kept in the data directory: ${reasonOf(error)}` });
    }
  }

  /** Random bytes: a file system that compresses, or leaves out blocks of zeros, would keep nothing. */
  async #write(bytes: number): Promise<void> {
    const chunk = randomBytes(Math.min(bytes, CHUNK_BYTES));
    const file: FileHandle = await open(this.#reserve, 'wx', 0o600);
    try {
      for (let left = bytes; left > 0; left -= chunk.length) {
        if (this.#isStopped) break;
        await file.writeFile(chunk.subarray(0, Math.min(left, chunk.length)));
      }
      await file.sync();
    } finally {
      await file.close();
    }
  }
}

function reserveBytes({ sizeBytes }: DiskUse): number {
  return Math.floor(Math.min(RESERVE_MAX_BYTES, sizeBytes * RESERVE_SHARE));
}

/** With less than a segment the server cannot begin the next one. */
function neededBytes(use: DiskUse): number {
  return Math.min(WAL_SEGMENT_BYTES, reserveBytes(use));
}

function amounts({ freeBytes, sizeBytes }: DiskUse): string {
  return `${megabytes(freeBytes)} of ${megabytes(sizeBytes)} MB, ${((freeBytes / sizeBytes) * 100).toFixed(1)} %, are free`;
}

function megabytes(bytes: number): number {
  return Math.floor(bytes / 1e6);
}
