import { createHash, type Hash } from 'node:crypto';
import { type FileHandle, open, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { AdminLogin } from '../placement/admin-connection.ts';
import { codeOf, textOf } from '../protocol/backend.ts';
import { type Archive, nameOf, SEGMENT_BYTES, syncFolder, writeDurably } from './archive.ts';
import { BackupError } from './base-backup.ts';
import { formatLsn, NOTHING_YET, parseLsn, ReplicationSession } from './replication.ts';

export const SLOT = 'postern_backup';

const FLUSH_EVERY_MS = 1_000;
/** How often the server is told when nothing is written: less than its wal_sender_timeout. */
const SIGN_EVERY_MS = 10_000;
/** The server may just be starting again, or has not noticed yet that a former receiver was killed. */
const FIRST_RETRY_MS = 250;
const LONGEST_RETRY_MS = 5_000;
const OBJECT_IN_USE = '55006';
/** What the receiver asks for has been removed from the server. */
const UNDEFINED_FILE = '58P01';

export interface WalReceiverOptions {
  readonly login: AdminLogin;
  /** @throws BackupError while the folder is not there */
  readonly archive: () => Promise<Archive>;
  /** Called when WAL could not be archived; again only after another reason, or after it could. */
  readonly failed: (error: unknown, isNews: boolean) => void;
  /** WAL is archived, after it could not be. */
  readonly recovered: () => void;
  /** The slot is lost, and with it WAL that has not been archived. */
  readonly lost: () => void;
}

/** Archives the WAL of a server as it is written. It never gives up. */
export class WalReceiver {
  /** How much WAL there is that is not archived; undefined: not known yet. */
  lagBytes: number | undefined;
  /** Where in the WAL the archive ends, by what is on disk. */
  archivedUpTo = 0;
  timeline = 0;
  readonly #options: WalReceiverOptions;
  readonly #stopping = new AbortController();
  #reason: string | undefined;
  /** The archive lacks what comes next. */
  #hasGap = false;
  #session: ReplicationSession | undefined;
  readonly #ended: Promise<void>;

  constructor(options: WalReceiverOptions) {
    this.#options = options;
    this.#ended = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#session?.close();
    await this.#ended;
  }

  get isFailing(): boolean {
    return this.#reason !== undefined;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    for (let wait = FIRST_RETRY_MS; !signal.aborted; wait = Math.min(2 * wait, LONGEST_RETRY_MS)) {
      try {
        await this.#receive();
      } catch (error) {
        if (signal.aborted) return;
        // It was archived until now.
        if (!this.isFailing) wait = FIRST_RETRY_MS;
        if (codeOf(error) !== OBJECT_IN_USE) this.#fail(error);
        await delay(wait, undefined, { signal }).catch(() => {});
      }
    }
  }

  #fail(error: unknown): void {
    const reason = textOf(error);
    this.#options.failed(error, reason !== this.#reason);
    this.#reason = reason;
  }

  async #receive(): Promise<void> {
    const session = await ReplicationSession.open(this.#options.login);
    this.#session = session;
    let writer: SegmentWriter | undefined;
    try {
      this.#stopping.signal.throwIfAborted();
      // The lag is known also while the folder is gone.
      const slot = await this.#slot(session);
      const archive = await this.#options.archive();
      const [[, timeline = ''] = []] = await session.run('IDENTIFY_SYSTEM');
      this.timeline = Number(timeline);
      await archiveHistory(session, archive, this.timeline);
      const next = await startOf(archive, this.timeline);
      const kept = Math.floor(slot / SEGMENT_BYTES) * SEGMENT_BYTES;
      const at = next === undefined || (this.#hasGap && next < kept) ? kept : next;
      session.begin(`START_REPLICATION SLOT ${SLOT} PHYSICAL ${formatLsn(at)} TIMELINE ${this.timeline}`);
      writer = await SegmentWriter.open(archive, this.timeline, at);
      await this.#stream(session, writer);
    } catch (error) {
      // What is missing in the archive is gone from the server too.
      if (codeOf(error) === UNDEFINED_FILE) this.#loseSome();
      throw error;
    } finally {
      this.#session = undefined;
      session.close();
      await writer?.close();
    }
  }

  /** @returns where the server begins to keep WAL */
  async #slot(session: ReplicationSession): Promise<number> {
    const question = `SELECT restart_lsn, wal_status, pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), restart_lsn)
      FROM pg_catalog.pg_replication_slots WHERE slot_name = '${SLOT}'`;
    const [[restart, status, lag] = []] = await session.run(question);
    if (typeof restart === 'string' && status !== 'lost') {
      this.lagBytes = Number(lag);
      return parseLsn(restart);
    }
    if (status !== undefined) {
      this.#loseSome();
      await session.run(`SELECT pg_catalog.pg_drop_replication_slot('${SLOT}')`);
    }
    const [[made] = []] = await session.run(`SELECT lsn FROM pg_catalog.pg_create_physical_replication_slot('${SLOT}', true)`);
    return parseLsn(made ?? '');
  }

  #loseSome(): void {
    this.#hasGap = true;
    this.#options.lost();
  }

  async #stream(session: ReplicationSession, writer: SegmentWriter): Promise<void> {
    let flushedAt = performance.now();
    let serverAt = writer.at;
    for (;;) {
      const sinceFlush = performance.now() - flushedAt;
      const message = await session.read(Math.max(0, (writer.isDirty ? FLUSH_EVERY_MS : SIGN_EVERY_MS) - sinceFlush));
      if (message === undefined) throw new BackupError('the server has ended the stream of WAL');
      let isAsked = false;
      if (message !== NOTHING_YET) {
        const isWal = message[0] === 'w'.charCodeAt(0);
        if (isWal) await writer.write(Number(message.readBigInt64BE(1)), message.subarray(25));
        serverAt = Math.max(serverAt, Number(message.readBigInt64BE(isWal ? 9 : 1)), writer.at);
        isAsked = !isWal && message[17] === 1;
      }
      const isDue = performance.now() - flushedAt >= (writer.isDirty ? FLUSH_EVERY_MS : SIGN_EVERY_MS);
      this.lagBytes = serverAt - this.archivedUpTo;
      if (!isDue && !isAsked && this.archivedUpTo !== 0 && !this.isFailing) continue;
      await writer.flush();
      flushedAt = performance.now();
      this.archivedUpTo = writer.at;
      this.lagBytes = serverAt - writer.at;
      session.send(standbyStatus(writer.at));
      if (!this.isFailing) continue;
      this.#reason = undefined;
      this.#options.recovered();
    }
  }
}

/** After the last whole segment, as pg_receivewal does. @returns undefined if there is none */
async function startOf(archive: Archive, timeline: number): Promise<number | undefined> {
  const last = (await archive.segments()).findLast((one) => one.timeline === timeline && !one.isPartial);
  return last === undefined ? undefined : (last.number + 1) * SEGMENT_BYTES;
}

/** A server that was restored is on a timeline of its own, and needs this file to be restored again. */
async function archiveHistory(session: ReplicationSession, archive: Archive, timeline: number): Promise<void> {
  if (timeline === 1) return;
  const [[name, content] = []] = await session.run(`TIMELINE_HISTORY ${timeline}`);
  if (typeof name === 'string' && typeof content === 'string') await writeDurably(join(archive.wal, name), content);
}

/** That so much of the WAL is written and flushed. @see https://www.postgresql.org/docs/current/protocol-replication.html */
function standbyStatus(position: number): Buffer {
  const status = Buffer.alloc(34);
  status.write('r');
  for (const at of [1, 9, 17]) status.writeBigInt64BE(BigInt(position), at);
  return status;
}

/** Writes WAL to segments. One that is not whole has the ending `.partial`, and the length of a whole one. */
class SegmentWriter {
  /** Where in the WAL the next byte belongs. */
  at: number;
  /** Something has been written since the last flush. */
  isDirty = false;
  readonly #archive: Archive;
  readonly #timeline: number;
  /** Tells the folder from another one of that name. */
  readonly #inode: number;
  #open: { readonly file: FileHandle; readonly hash: Hash; readonly name: string } | undefined;

  private constructor(archive: Archive, timeline: number, at: number, inode: number) {
    this.#archive = archive;
    this.#timeline = timeline;
    this.at = at;
    this.#inode = inode;
  }

  static async open(archive: Archive, timeline: number, at: number): Promise<SegmentWriter> {
    const { ino } = await stat(archive.wal);
    return new SegmentWriter(archive, timeline, at, ino);
  }

  async write(at: number, bytes: Buffer): Promise<void> {
    if (at !== this.at) throw new BackupError(`the server has sent WAL from ${formatLsn(at)} on instead of ${formatLsn(this.at)}`);
    for (let rest = bytes; rest.length > 0; ) {
      const offset = this.at % SEGMENT_BYTES;
      const part = rest.subarray(0, SEGMENT_BYTES - offset);
      this.#open ??= await this.#begin();
      const { file, hash } = this.#open;
      for (let done = 0; done < part.length; ) done += (await file.write(part, done, part.length - done, offset + done)).bytesWritten;
      hash.update(part);
      this.at += part.length;
      this.isDirty = true;
      rest = rest.subarray(part.length);
      if (this.at % SEGMENT_BYTES === 0) await this.#end();
    }
  }

  /** All that was written is on disk when this returns, in the folder that has been there from the beginning. */
  async flush(): Promise<void> {
    await this.#open?.file.datasync();
    const inode = await stat(this.#archive.wal).then(
      ({ ino }) => ino,
      () => undefined,
    );
    if (inode !== this.#inode) throw new BackupError(`the backup folder ${this.#archive.folder} is gone, or another one is in its place`);
    this.isDirty = false;
  }

  /** What has been written stays, flushed or not. */
  async close(): Promise<void> {
    await this.#open?.file.close();
    this.#open = undefined;
  }

  async #begin(): Promise<{ file: FileHandle; hash: Hash; name: string }> {
    const name = nameOf({ timeline: this.#timeline, number: this.at / SEGMENT_BYTES, isPartial: false });
    const path = join(this.#archive.wal, `${name}.partial`);
    // What a former receiver has written stays until the same is written again.
    await writeFile(path, '', { flag: 'a', mode: 0o600 });
    const file = await open(path, 'r+');
    await file.truncate(SEGMENT_BYTES);
    await syncFolder(this.#archive.wal);
    return { file, hash: createHash('sha256'), name };
  }

  async #end(): Promise<void> {
    if (this.#open === undefined) return;
    const { file, hash, name } = this.#open;
    const path = join(this.#archive.wal, name);
    await file.sync();
    await this.close();
    // As sha256sum --check reads it.
    await writeDurably(`${path}.sha256`, `${hash.digest('hex')}  ${name}\n`);
    await rename(`${path}.partial`, path);
    await syncFolder(this.#archive.wal);
  }
}
