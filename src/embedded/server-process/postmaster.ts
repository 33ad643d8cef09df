import { type ChildProcess, spawn } from 'node:child_process';
import { constants, type FileHandle, open, readFile, rename, stat } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { reasonOf } from '../../system-errors.ts';
import { EmbeddedError, lastFatal } from '../embedded-error.ts';
import { type Account, runAs } from '../server-account.ts';
import { isReady, stalePidEnvironment } from './postmaster-pid.ts';
import { shutDown } from './shutdown.ts';

export const PORT = 5432;

const POLL_MS = 25;
const STARTUP_TIMEOUT_MS = 300_000;
const RESTART_DELAYS_MS = { first: 100, longest: 5_000 };
const LOG_MAX_BYTES = 16 * 1024 * 1024;
const LINGERING_POLL_MS = 250;
const LINGERING_TIMEOUT_MS = 30_000;

export interface PostmasterOptions {
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
  #restarted: Promise<void> = Promise.resolve();
  /** If this process exits without having stopped the server, it asks it to shut down. */
  readonly #onExit = () => this.#server?.child.kill('SIGINT');

  private constructor(options: PostmasterOptions) {
    this.#options = options;
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
