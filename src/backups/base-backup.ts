import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { join, normalize } from 'node:path';
import type { AdminLogin } from '../placement/admin-connection.ts';
import { NOTHING_YET, parseLsn, ReplicationSession } from './replication.ts';

/** Backups cannot be made or used; the message is one line for the operator. */
export class BackupError extends Error {
  override readonly name = 'BackupError';
}

/** What the server says of a base backup. Positions in the WAL are in bytes. */
export interface ReceivedBackup {
  /** Recovery begins here. */
  readonly startsAt: number;
  /** Recovery must get here before the backup is consistent. */
  readonly endsAt: number;
  readonly timeline: number;
  /** Of all files. */
  readonly bytes: number;
}

const COMMAND = "BASE_BACKUP (LABEL 'postern', PROGRESS false, CHECKPOINT 'fast', WAIT false, MANIFEST 'yes', MANIFEST_CHECKSUMS 'SHA256')";

/**
 * Takes a base backup by the replication protocol, unpacked: what `pg_basebackup -Fp -X none` writes. It is not on disk yet when this returns.
 * @param folder made by this
 * @throws BackupError when what has arrived is not what the server has sent; PostgresError; errors of the operating system
 * @see https://www.postgresql.org/docs/current/protocol-replication.html#PROTOCOL-REPLICATION-BASE-BACKUP
 */
export async function receiveBaseBackup(login: AdminLogin, folder: string, signal?: AbortSignal): Promise<ReceivedBackup> {
  const session = await ReplicationSession.open(login);
  const opened: { close(): Promise<void> }[] = [];
  const stop = () => session.close();
  signal?.addEventListener('abort', stop);
  try {
    signal?.throwIfAborted();
    await mkdir(folder, { mode: 0o700 });
    const manifest = await ManifestFile.open(join(folder, 'backup_manifest'));
    opened.push(manifest);
    const files = new TarFiles(folder);
    opened.push(files);
    session.begin(COMMAND);
    let isManifest = false;
    for (let part = await session.read(); part !== undefined; part = await session.read()) {
      if (part === NOTHING_YET) continue;
      const content = part.subarray(1);
      switch (String.fromCharCode(part[0] ?? 0)) {
        case 'n':
          if (content.toString('latin1', 0, content.indexOf(0)) !== 'base.tar')
            throw new BackupError('backups cannot have tablespaces: move what is in them');
          break;
        case 'm':
          isManifest = true;
          break;
        case 'd':
          if (isManifest) await manifest.write(content);
          else await files.write(content);
          break;
        default:
        // Progress.
      }
    }
    const listed = manifest.end();
    if (listed !== files.end()) throw new BackupError('the files that arrived are not those in the manifest of the base backup');
    const [[startsAt = '', timeline = ''] = [], ...others] = session.rows;
    return {
      startsAt: parseLsn(startsAt ?? ''),
      endsAt: parseLsn(others.at(-1)?.[0] ?? ''),
      timeline: Number(timeline),
      bytes: files.bytes,
    };
  } finally {
    signal?.removeEventListener('abort', stop);
    session.close();
    for (const one of opened) await one.close();
  }
}

/** A file as the manifest has it. */
export interface ManifestEntry {
  /** Below the data directory. */
  readonly path: string;
  readonly bytes: number;
  /** In hexadecimal digits. */
  readonly sha256: string;
}

/** Two lists of the same files in the same order have the same digest. A server with ten thousand organizations has millions of files. */
class FileList {
  readonly #hash = createHash('sha256');

  add({ path, bytes, sha256 }: ManifestEntry): void {
    this.#hash.update(`${path}\0${bytes}\0${sha256}\n`);
  }

  digest(): string {
    return this.#hash.digest('hex');
  }
}

const LINE_MAX_BYTES = 65_536;

/**
 * Reads a backup manifest as it arrives. The server writes a line for each file.
 * @see https://www.postgresql.org/docs/current/backup-manifest-format.html
 */
class ManifestReader {
  readonly #hash = createHash('sha256');
  #rest = Buffer.alloc(0);
  /** The digest in the last lines. */
  #stated: string | undefined;

  /** @returns the files of the lines that are whole @throws BackupError */
  push(bytes: Buffer): ManifestEntry[] {
    const entries: ManifestEntry[] = [];
    let text = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    for (let end = text.indexOf(0x0a) + 1; end > 0; end = text.indexOf(0x0a) + 1) {
      const entry = this.#line(text.subarray(0, end));
      if (entry !== undefined) entries.push(entry);
      text = text.subarray(end);
    }
    if (text.length > LINE_MAX_BYTES) throw damaged();
    this.#rest = Buffer.from(text);
    return entries;
  }

  /** @throws BackupError unless the manifest is whole */
  end(): void {
    if (this.#rest.length > 0 || this.#stated === undefined || this.#stated !== this.#hash.digest('hex')) throw damaged();
  }

  #line(line: Buffer): ManifestEntry | undefined {
    if (this.#stated !== undefined) throw damaged();
    const text = line.toString('utf8').trim().replace(/,$/, '');
    this.#stated = /^"Manifest-Checksum": "([0-9a-f]{64})"\}$/.exec(text)?.[1];
    if (this.#stated === undefined) this.#hash.update(line);
    return text.startsWith('{ "Path"') || text.startsWith('{ "Encoded-Path"') ? entryOf(text) : undefined;
  }
}

function entryOf(text: string): ManifestEntry {
  let entry: Readonly<Record<string, unknown>>;
  try {
    entry = JSON.parse(text);
  } catch {
    throw damaged();
  }
  const { Path: plain, 'Encoded-Path': encoded, Size: bytes, 'Checksum-Algorithm': algorithm, Checksum: sha256 } = entry;
  const path = typeof plain === 'string' ? plain : Buffer.from(String(encoded), 'hex').toString();
  if (typeof bytes !== 'number' || algorithm !== 'SHA256' || typeof sha256 !== 'string') throw damaged();
  return { path, bytes, sha256 };
}

function damaged(): BackupError {
  return new BackupError('the manifest of the base backup is damaged');
}

/** The manifest, stored as it arrives. */
class ManifestFile {
  readonly #file: FileHandle;
  readonly #reader = new ManifestReader();
  readonly #list = new FileList();

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  static async open(path: string): Promise<ManifestFile> {
    return new ManifestFile(await open(path, 'wx', 0o600));
  }

  async write(bytes: Buffer): Promise<void> {
    for (const entry of this.#reader.push(bytes)) this.#list.add(entry);
    await this.#file.writeFile(bytes);
  }

  /** @returns the digest of its list of files @throws BackupError */
  end(): string {
    this.#reader.end();
    return this.#list.digest();
  }

  async close(): Promise<void> {
    await this.#file.close();
  }
}

const BLOCK_BYTES = 512;

/** The file that is arriving. */
interface Arriving {
  readonly path: string;
  readonly bytes: number;
  readonly file: FileHandle;
  readonly hash: Hash;
  left: number;
}

/**
 * Unpacks a tar archive as it arrives, in chunks cut anywhere.
 * @see https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html#tag_20_94_13_06 the ustar interchange format
 */
class TarFiles {
  /** Of all files so far. */
  bytes = 0;
  readonly #folder: string;
  readonly #list = new FileList();
  #header = Buffer.alloc(0);
  #arriving: Arriving | undefined;
  /** What fills the last block of a file. */
  #padding = 0;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async write(chunk: Buffer): Promise<void> {
    for (let rest = chunk; rest.length > 0; ) {
      if (this.#arriving !== undefined) rest = await this.#content(this.#arriving, rest);
      else if (this.#padding > 0) {
        const skipped = Math.min(this.#padding, rest.length);
        this.#padding -= skipped;
        rest = rest.subarray(skipped);
      } else {
        const missing = BLOCK_BYTES - this.#header.length;
        this.#header = Buffer.concat([this.#header, rest.subarray(0, missing)]);
        rest = rest.subarray(missing);
        if (this.#header.length === BLOCK_BYTES) await this.#begin();
      }
    }
  }

  /** @returns the digest of the list of files @throws BackupError */
  end(): string {
    if (this.#arriving !== undefined || this.#header.length > 0) throw new BackupError('the base backup ended within a file');
    return this.#list.digest();
  }

  async close(): Promise<void> {
    await this.#arriving?.file.close();
  }

  async #begin(): Promise<void> {
    const header = this.#header;
    this.#header = Buffer.alloc(0);
    if (header.every((byte) => byte === 0)) return;
    const name = stringAt(header, 0, 100);
    const prefix = stringAt(header, 345, 155);
    const path = normalize(prefix === '' ? name : `${prefix}/${name}`);
    if (path.startsWith('/') || path.split('/').includes('..'))
      throw new BackupError('the base backup has a file outside of the data directory');
    const at = join(this.#folder, path);
    const bytes = Number.parseInt(stringAt(header, 124, 12), 8);
    switch (stringAt(header, 156, 1)) {
      case '5':
        // The data directory itself is in it, too.
        await mkdir(at, { recursive: true, mode: 0o700 });
        return;
      case '0':
      case '':
        if (!Number.isSafeInteger(bytes)) throw new BackupError('the base backup has a file of unknown size');
        await this.#finishIfWhole({ path, bytes, left: bytes, file: await open(at, 'wx', 0o600), hash: createHash('sha256') });
        return;
      default:
        throw new BackupError(`backups cannot have links or devices: ${path}`);
    }
  }

  async #content(arriving: Arriving, bytes: Buffer): Promise<Buffer> {
    const part = bytes.subarray(0, arriving.left);
    arriving.hash.update(part);
    await arriving.file.writeFile(part);
    arriving.left -= part.length;
    await this.#finishIfWhole(arriving);
    return bytes.subarray(part.length);
  }

  async #finishIfWhole(arriving: Arriving): Promise<void> {
    this.#arriving = arriving;
    if (arriving.left > 0) return;
    const { path, bytes, file, hash } = arriving;
    this.#arriving = undefined;
    await file.close();
    this.#list.add({ path, bytes, sha256: hash.digest('hex') });
    this.bytes += bytes;
    this.#padding = (BLOCK_BYTES - (bytes % BLOCK_BYTES)) % BLOCK_BYTES;
  }
}

function stringAt(header: Buffer, at: number, length: number): string {
  const field = header.subarray(at, at + length);
  const end = field.indexOf(0);
  return field.toString('utf8', 0, end === -1 ? length : end).trim();
}

/**
 * Compares every file with the manifest.
 * @param manifest its path @param folder where the files are
 * @throws BackupError that names the first file that differs
 */
export async function checkFiles(manifest: string, folder: string, signal?: AbortSignal): Promise<void> {
  const reader = new ManifestReader();
  for await (const chunk of createReadStream(manifest)) {
    for (const { path, bytes, sha256 } of reader.push(chunk)) {
      signal?.throwIfAborted();
      const found = await digestOf(join(folder, path)).catch((cause: unknown) => {
        throw new BackupError(`${path} in the base backup cannot be read`, { cause });
      });
      if (found.bytes !== bytes || found.sha256 !== sha256) throw new BackupError(`${path} in the base backup is not what was backed up`);
    }
  }
  reader.end();
}

/** @throws errors of the operating system */
export async function digestOf(path: string): Promise<{ readonly bytes: number; readonly sha256: string }> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of createReadStream(path, { highWaterMark: 262_144 })) {
    hash.update(chunk);
    bytes += chunk.length;
  }
  return { bytes, sha256: hash.digest('hex') };
}
