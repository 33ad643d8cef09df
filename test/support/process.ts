import { type ChildProcessWithoutNullStreams, type SpawnOptionsWithoutStdio, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chown } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isServing, readPostmasterPid, stopOrphan } from '../../src/embedded/postmaster.ts';
import { type Doors, doorsAt } from './doors.ts';
import { makeScratch } from './scratch.ts';

/** The bench is compiled, into dist. */
const ROOT = fileURLToPath(new URL(import.meta.url.includes('/dist/test/') ? '../../../' : '../../', import.meta.url));
const MAIN = join(ROOT, 'dist/src/main.js');
const START_TIMEOUT_MS = 280_000;

/** What Node runs for `postern admin`. */
export const ADMIN: readonly string[] = [join(ROOT, 'dist/src/command.js'), 'admin'];

/** How a process ended, and all it said. */
export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Postern as its users run it: a process of its own, open for business. */
export interface PosternProcess extends Doors {
  readonly pid: number;
  readonly opsUrl: string;
  readonly ended: Promise<Ended>;
  /** All that it has written to standard output so far. */
  output(): string;
  /** What it has logged so far, an object a line. */
  log(): Record<string, unknown>[];
  signal(signal: NodeJS.Signals): void;
  /** Sends a signal and waits for the end. */
  end(signal: NodeJS.Signals): Promise<Ended>;
}

/** Postern on its way up. */
export interface StartingProcess {
  readonly ended: Promise<Ended>;
  signal(signal: NodeJS.Signals): void;
  /** @throws Error with what it said when it ended, or took too long, instead of starting */
  started(): Promise<PosternProcess>;
}

export interface PostgresProcess {
  readonly pid: number;
  /** Whether this very process still serves: a dead one may go on as a zombie until init takes note. */
  isRunning(): Promise<boolean>;
}

/** A data directory, and the processes that run on it: one after the other, or those that should not. */
export interface Installation {
  readonly dataDir: string;
  /** @param variables besides ports and data directory; with DATABASE_URL the data directory is not used */
  start(variables?: Readonly<Record<string, string>>): Promise<PosternProcess>;
  /** As {@link start}, where the process may have only so many files open. */
  startWithin(openFiles: number, variables: Readonly<Record<string, string>>): Promise<PosternProcess>;
  /** By `npm start`, without the build that comes before it. */
  startByNpm(): Promise<PosternProcess>;
  /** For one that is not left to start in peace. */
  launch(variables?: Readonly<Record<string, string>>): StartingProcess;
  /** For one that is to end by itself. */
  run(variables?: Readonly<Record<string, string>>): Promise<Ended>;
  /** The operator's command line. */
  admin(words: readonly string[], variables?: Readonly<Record<string, string>>): Promise<Ended>;
  /** The same at a terminal, where somebody writes a line. All that is shown there is in stdout. */
  adminAtTerminal(words: readonly string[], line: string, variables?: Readonly<Record<string, string>>): Promise<Ended>;
  /** The PostgreSQL server that runs in the data directory now. */
  postgres(): Promise<PostgresProcess>;
  /** Kills what still runs, an orphaned PostgreSQL too, and removes the directory. */
  remove(): Promise<void>;
}

/** How it is started, and as whom: unless told otherwise, what is compiled from the sources, as the user of the tests. */
export interface InstallationOptions {
  readonly command?: readonly string[];
  readonly account?: { readonly uid: number; readonly gid: number } | undefined;
}

export async function makeInstallation({ command: usual, account }: InstallationOptions = {}): Promise<Installation> {
  if (usual === undefined && !existsSync(MAIN)) throw new Error(`${MAIN} is not there: npm run build`);
  const scratch = await makeScratch();
  if (account !== undefined) await chown(scratch.path, account.uid, account.gid);
  const dataDir = join(scratch.path, 'data');
  const cluster = join(dataDir, 'postgres');
  const children: Child[] = [];
  const launch = (variables: Readonly<Record<string, string>> = {}, command = usual ?? [process.execPath, MAIN]): Child => {
    const env = {
      PATH: process.env.PATH ?? '',
      POSTERN_DATA_DIR: dataDir,
      POSTERN_HTTP_PORT: '0',
      POSTERN_PG_PORT: '0',
      POSTERN_OPS_PORT: '0',
      POSTERN_SIGNUPS_PER_HOUR: '1000',
      ...variables,
    };
    const child = new Child(command, { cwd: usual === undefined ? ROOT : scratch.path, env, ...account });
    children.push(child);
    return child;
  };
  return {
    dataDir,
    start: (variables) => launch(variables).started(),
    startWithin: (openFiles, variables) =>
      launch(variables, ['bash', '-c', `ulimit -n ${openFiles}; exec "$0" "$1"`, process.execPath, MAIN]).started(),
    startByNpm: () => launch({ npm_config_update_notifier: 'false' }, ['npm', 'start', '--ignore-scripts']).started(),
    launch: (variables) => launch(variables),
    run: (variables) => launch(variables).ended,
    admin: (words, variables) => launch(variables, [process.execPath, ...ADMIN, ...words]).ended,
    adminAtTerminal(words, line, variables) {
      const command = ['script', '-qec', [process.execPath, ...ADMIN, ...words].join(' '), '/dev/null'];
      return launch(variables, command).writeWhenAsked(line);
    },
    async postgres() {
      const { pid } = await readPostmasterPid(cluster);
      if (pid === undefined) throw new Error(`no PostgreSQL runs in ${cluster}`);
      return { pid, isRunning: () => isServing(pid, cluster) };
    },
    async remove() {
      await Promise.all(children.map((child) => child.end('SIGKILL')));
      await stopOrphan(cluster);
      await scratch.remove();
    },
  };
}

class Child implements StartingProcess {
  readonly ended: Promise<Ended>;
  readonly #process: ChildProcessWithoutNullStreams;
  readonly #said = { stdout: '', stderr: '' };

  constructor([program = '', ...words]: readonly string[], options: SpawnOptionsWithoutStdio) {
    this.#process = spawn(program, words, options);
    for (const stream of ['stdout', 'stderr'] as const) {
      this.#process[stream].setEncoding('utf8').on('data', (text: string) => {
        this.#said[stream] += text;
      });
    }
    this.ended = new Promise((resolve) => {
      this.#process.once('close', (code, signal) => resolve({ code, signal, ...this.#said }));
    });
  }

  async started(): Promise<PosternProcess> {
    const { httpPort, wirePort, opsPort } = await this.#ports();
    return {
      ...doorsAt(httpPort, wirePort),
      pid: this.#process.pid ?? 0,
      opsUrl: `http://127.0.0.1:${opsPort}`,
      ended: this.ended,
      output: () => this.#said.stdout,
      log: () => this.#said.stdout.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line)] : [])),
      signal: (signal) => this.signal(signal),
      end: (signal) => this.end(signal),
    };
  }

  writeWhenAsked(line: string): Promise<Ended> {
    const asked = () => {
      if (!this.#said.stdout.includes('go on: ')) return;
      this.#process.stdout.off('data', asked);
      this.#process.stdin.write(`${line}\n`);
    };
    this.#process.stdout.on('data', asked);
    return this.ended;
  }

  end(signal: NodeJS.Signals): Promise<Ended> {
    this.signal(signal);
    return this.ended;
  }

  signal(signal: NodeJS.Signals): void {
    if (this.#process.exitCode === null && this.#process.signalCode === null) this.#process.kill(signal);
  }

  /** From the line that the log says when both doors are open. */
  #ports(): Promise<{ httpPort: number; wirePort: number; opsPort: number }> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => fail('too slow'), START_TIMEOUT_MS);
      const fail = (how: string) => {
        clearTimeout(timer);
        reject(new Error(`Postern did not start: ${how}\n${this.#said.stdout}${this.#said.stderr}`));
      };
      void this.ended.then(({ code, signal }) => fail(`it ended with ${signal ?? code}`));
      this.#process.stdout.on('data', () => {
        const line = /^\{.*"event":"service\.started".*\}$/m.exec(this.#said.stdout)?.[0];
        if (line === undefined) return;
        clearTimeout(timer);
        resolve(JSON.parse(line));
      });
    });
  }
}
