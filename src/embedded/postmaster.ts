import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { ftruncateSync, readSync, writeSync } from 'node:fs';
import { constants, type FileHandle, open, readFile, readlink, realpath, rename, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { reasonOf } from '../system-errors.ts';
import { type Binaries, SUPERUSER } from './binaries.ts';
import { type Account, EmbeddedError, lastFatal, runAs } from './data-directory.ts';

export const PORT = 5432;

const POLL_MS = 25;
const STARTUP_TIMEOUT_MS = 300_000;
const RESTART_DELAYS_MS = { first: 100, longest: 5_000 };
const LOG_MAX_BYTES = 16 * 1024 * 1024;
const LOG_CHECK_MS = 60_000;
const COPIED_BYTES = 1024 * 1024;
const LINGERING_POLL_MS = 250;
const LINGERING_TIMEOUT_MS = 30_000;

interface PostmasterOptions {
  readonly postgres: string;
  readonly account: Account | undefined;
  readonly cluster: string;
  /** `-c name=value` pairs. */
  readonly settings: readonly string[];
  readonly log: string;
  /** Called when the server has ended unexpectedly; it is being restarted. */
  readonly exited: (how: string) => void;
}

interface Server {
  readonly child: ChildProcess;
  /** Resolves when it has ended, with its exit code or signal. */
  readonly gone: Promise<string>;
}

/** A PostgreSQL server process, which is restarted when it ends unexpectedly. */
export class Postmaster {
  readonly #options: PostmasterOptions;
  #server: Server | undefined;
  readonly #stopping = new AbortController();
  readonly #rotation: NodeJS.Timeout;
  #restarted: Promise<void> = Promise.resolve();
  /** If this process exits without having stopped the server, it asks it to shut down. */
  readonly #onExit = () => this.#server?.child.kill('SIGINT');

  private constructor(options: PostmasterOptions) {
    this.#options = options;
    // Where the disk is full, it is tried again.
    this.#rotation = setInterval(() => void rotateLog(options.log, LOG_MAX_BYTES).catch(() => {}), LOG_CHECK_MS).unref();
  }

  /** @throws EmbeddedError with the server's error message */
  static async start(options: PostmasterOptions): Promise<Postmaster> {
    const postmaster = new Postmaster(options);
    process.on('exit', postmaster.#onExit);
    try {
      await whileSessionsLinger(() => postmaster.#launch());
      return postmaster;
    } catch (error) {
      await postmaster.stop();
      throw error;
    }
  }

  get pid(): number | undefined {
    return this.#server?.child.pid;
  }

  /** Fast shutdown: open transactions are rolled back, sessions end with 57P01. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    clearInterval(this.#rotation);
    await this.#restarted;
    if (this.#server !== undefined) await end(this.#server);
    process.off('exit', this.#onExit);
  }

  /** Starts the server and waits until it accepts logins. */
  async #launch(): Promise<void> {
    const { cluster, log } = this.#options;
    const file = await openLog(log);
    try {
      const { size } = await file.stat();
      const server = await this.#spawn(file.fd);
      this.#server = server;
      try {
        await this.#waitUntilReady(server);
      } catch (error) {
        await end(server);
        this.#server = undefined;
        const reported = lastFatal((await readFile(log)).subarray(size).toString());
        throw new EmbeddedError(`PostgreSQL does not start on ${cluster}: ${reported ?? reasonOf(error)} (see ${log})`);
      }
      void server.gone.then((how) => this.#lost(server, how));
    } finally {
      await file.close();
    }
  }

  async #spawn(log: number): Promise<Server> {
    const { postgres, account, cluster, settings } = this.#options;
    const child = spawn(postgres, ['-D', cluster, ...settings], {
      ...runAs(account, await stalePidEnvironment(cluster)),
      // In a session of its own, so that Ctrl-C in a terminal reaches Postern only, which then shuts the server down.
      detached: true,
      stdio: ['ignore', log, log],
    });
    const gone = new Promise<string>((resolve) => {
      child.once('exit', (code, signal) => resolve(signal === null ? `exit code ${code}` : `signal ${signal}`));
      child.once('error', (error) => resolve(reasonOf(error)));
    });
    return { child, gone };
  }

  async #waitUntilReady({ child, gone }: Server): Promise<void> {
    const exit = new AbortController();
    void gone.then((how) => exit.abort(new Error(how)));
    const giveUp = AbortSignal.any([exit.signal, this.#stopping.signal, AbortSignal.timeout(STARTUP_TIMEOUT_MS)]);
    while (!(await isReady(this.#options.cluster, child.pid))) {
      giveUp.throwIfAborted();
      await delay(POLL_MS);
    }
  }

  #lost(server: Server, how: string): void {
    if (this.#server !== server || this.#stopping.signal.aborted) return;
    this.#server = undefined;
    this.#options.exited(how);
    this.#restarted = this.#restart();
  }

  async #restart(): Promise<void> {
    for (let wait = RESTART_DELAYS_MS.first; !this.#stopping.signal.aborted; wait = Math.min(2 * wait, RESTART_DELAYS_MS.longest)) {
      try {
        await delay(wait, undefined, { signal: this.#stopping.signal });
        return await this.#launch();
      } catch (error) {
        if (!this.#stopping.signal.aborted) this.#options.exited(reasonOf(error));
      }
    }
  }
}

/** Starts a server, and tries again while sessions of a killed server still use its shared memory. */
export async function whileSessionsLinger<Result>(start: () => Promise<Result>): Promise<Result> {
  const deadline = Date.now() + LINGERING_TIMEOUT_MS;
  for (;;) {
    try {
      return await start();
    } catch (error) {
      if (!/shared memory block .{0,100}in use/.test(String(error)) || Date.now() > deadline) throw error;
      await delay(LINGERING_POLL_MS);
    }
  }
}

function end({ child, gone }: Server): Promise<void> {
  return shutDown((signal) => child.kill(signal), gone);
}

async function openLog(path: string): Promise<FileHandle> {
  const size = await stat(path).then(
    (found) => found.size,
    () => 0,
  );
  if (size > LOG_MAX_BYTES) await rename(path, `${path}.1`);
  return open(path, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);
}

/**
 * Moves what is in a log to `….1` while its writer goes on: a process that appends to it, whose file this must stay.
 * A line that is written in the instant between the last copy and the end may be lost.
 * @param maxBytes a smaller one stays as it is
 * @returns whether it was larger
 * @throws errors of the operating system: then nothing is lost
 */
export async function rotateLog(path: string, maxBytes: number): Promise<boolean> {
  const log = await open(path, constants.O_RDWR | constants.O_NOFOLLOW);
  try {
    if ((await log.stat()).size <= maxBytes) return false;
    const unfinished = `${path}.1.unfinished`;
    await rm(unfinished, { force: true });
    const copy = await open(unfinished, 'wx', 0o600);
    try {
      const chunk = Buffer.allocUnsafe(COPIED_BYTES);
      for (let at = 0, isWhole = false; !isWhole; ) {
        const { bytesRead } = await log.read(chunk, 0, chunk.length, at);
        at += bytesRead;
        await copy.writeFile(chunk.subarray(0, bytesRead));
        if (bytesRead === chunk.length) continue;
        // What is left is little, and nothing comes between this and the end.
        const rest = readSync(log.fd, chunk, 0, chunk.length, at);
        if (rest > 0) writeSync(copy.fd, chunk, 0, rest);
        isWhole = rest < chunk.length;
        at += rest;
        if (isWhole) ftruncateSync(log.fd);
      }
    } finally {
      await copy.close();
    }
    await rename(unfinished, `${path}.1`);
    return true;
  } finally {
    await log.close();
  }
}

const run = promisify(execFile);

/** The content of postmaster.pid, which a killed server leaves behind. */
interface PostmasterFile {
  readonly pid: number | undefined;
  /** The folder of its Unix socket. */
  readonly socketFolder: string | undefined;
  /** `starting`, `ready`, … */
  readonly status: string | undefined;
}

/** @see https://github.com/postgres/postgres/blob/master/src/include/utils/pidfile.h for the lines of postmaster.pid */
export async function readPostmasterPid(cluster: string): Promise<PostmasterFile> {
  const text = await readFile(join(cluster, 'postmaster.pid'), 'utf8').catch(() => '');
  const lines = text.split('\n');
  const pid = Number.parseInt(lines[0] ?? '', 10);
  return { pid: pid > 1 ? pid : undefined, socketFolder: lines[4]?.trim() || undefined, status: lines[7]?.trim() };
}

/** Whether this server accepts logins. */
async function isReady(cluster: string, pid: number | undefined): Promise<boolean> {
  const file = await readPostmasterPid(cluster);
  return file.pid === pid && file.status === 'ready';
}

/** Whether this process is a server on this cluster. The process id may have been reused. */
export async function isServing(pid: number, cluster: string): Promise<boolean> {
  try {
    if (process.platform !== 'linux') {
      const { stdout } = await run('ps', ['-ww', '-o', 'command=', '-p', String(pid)]);
      return stdout.includes('postgres') && stdout.includes(`-D ${cluster}`);
    }
    // A server's working directory is its data directory. If the binary was replaced, its name is `postgres (deleted)`.
    const [folder, program, real] = await Promise.all([readlink(`/proc/${pid}/cwd`), readlink(`/proc/${pid}/exe`), realpath(cluster)]);
    return folder === real && basename(program).startsWith('postgres');
  } catch {
    return false;
  }
}

/**
 * Environment variables for a server that is about to start on a cluster without one. If postmaster.pid names an existing
 * process (a zombie, or another program with the same process id), Postgres would refuse to start; PG_GRANDPARENT_PID names a
 * process id to ignore. The file must stay, because Postgres finds in it the shared memory that old sessions may still use.
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/init/miscinit.c CreateLockFile
 */
async function stalePidEnvironment(cluster: string): Promise<Record<string, string>> {
  const { pid } = await readPostmasterPid(cluster);
  if (pid === undefined || (await isServing(pid, cluster))) return {};
  return { PG_GRANDPARENT_PID: String(pid) };
}

const FAST_TIMEOUT_MS = 10_000;
const IMMEDIATE_TIMEOUT_MS = 5_000;

/**
 * Requests a fast shutdown (sessions are ended, then a checkpoint), and if that takes too long an immediate shutdown (the server
 * recovers at the next start).
 * @see https://www.postgresql.org/docs/current/server-shutdown.html
 * @throws EmbeddedError when it does not end
 */
async function shutDown(send: (signal: 'SIGINT' | 'SIGQUIT') => void, gone: Promise<unknown>): Promise<void> {
  send('SIGINT');
  if (await within(gone, FAST_TIMEOUT_MS)) return;
  send('SIGQUIT');
  if (await within(gone, IMMEDIATE_TIMEOUT_MS)) return;
  throw new EmbeddedError('PostgreSQL does not shut down');
}

/**
 * Ends a server that a killed Postern left running on this cluster.
 * @throws EmbeddedError when it does not end
 */
export async function stopOrphan(cluster: string): Promise<void> {
  const { pid } = await readPostmasterPid(cluster);
  if (pid === undefined || !(await isServing(pid, cluster))) return;
  await shutDown(
    (signal) => {
      try {
        process.kill(pid, signal);
      } catch {
        // The process has just ended.
      }
    },
    untilGone(pid, cluster),
  );
}

async function untilGone(pid: number, cluster: string): Promise<void> {
  while (await isServing(pid, cluster)) await delay(POLL_MS);
}

async function within(event: Promise<unknown>, timeoutMs: number): Promise<boolean> {
  const timer = new AbortController();
  try {
    return await Promise.race([event.then(() => true), delay(timeoutMs, false, { signal: timer.signal })]);
  } finally {
    timer.abort();
  }
}

/**
 * Sets the superuser's password in single-user mode, while the server is down. So a login without it is never
 * possible, and a changed secret works without the old one. This also recovers the cluster after a crash.
 * @see https://www.postgresql.org/docs/current/app-postgres.html#APP-POSTGRES-SINGLE-USER
 * @param verifier a SCRAM verifier
 */
export async function setSuperuserPassword(
  cluster: string,
  binaries: Binaries,
  account: Account | undefined,
  settings: readonly string[],
  verifier: string,
): Promise<void> {
  const args = ['--single', '-D', cluster, ...settings, '-c', 'exit_on_error=on', 'postgres'];
  const child = spawn(binaries.postgres, args, {
    ...runAs(account, await stalePidEnvironment(cluster)),
    stdio: ['pipe', 'ignore', 'pipe'],
  });
  child.stdin.on('error', () => {});
  child.stdin.end(`ALTER ROLE ${SUPERUSER} PASSWORD '${verifier}'\n`);
  const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, 'close')]);
  if (code !== 0) throw new EmbeddedError(`PostgreSQL does not start on ${cluster}: ${lastFatal(stderr) ?? `exit code ${code}`}`);
}
