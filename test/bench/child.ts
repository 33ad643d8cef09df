import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { chown, readFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Account } from '../../src/embedded/data-directory.ts';

const START_TIMEOUT_MS = 30_000;
const END_TIMEOUT_MS = 15_000;
const POLL_MS = 20;
const LAST_WORDS_CHARACTERS = 2_000;

/** A server under measurement, or something that loads one: a process of its own. */
export interface Child {
  readonly pid: number;
  readonly ended: Promise<unknown>;
  /** What it has written, to both of its outputs. */
  output(): Promise<string>;
  end(signal?: NodeJS.Signals): Promise<void>;
}

export interface Launch {
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Where its output goes: a file, so that nobody has to read while something is measured. */
  readonly log: string;
  /** Whom it runs as, when we are root and it refuses to. */
  readonly account?: Account | undefined;
}

export function launch({ command, args, env = process.env, log, account }: Launch): Child {
  const output = openSync(log, 'a');
  // In a process group of its own: Ctrl-C is for the bench, which ends its children in order.
  const child = spawn(command, args, { cwd: '/', env, stdio: ['ignore', output, output], detached: true, ...account });
  closeSync(output);
  const ended = new Promise((resolve) => child.once('exit', resolve).once('error', resolve));
  let told = false;
  void ended.then(() => {
    if (!told) process.stderr.write(`bench: ${command} ended by itself (${child.signalCode ?? child.exitCode}): ${lastWords(log)}\n`);
  });
  return {
    pid: child.pid ?? 0,
    ended,
    output: () => readFile(log, 'utf8'),
    async end(signal = 'SIGTERM') {
      told = true;
      child.kill(signal);
      const timer = new AbortController();
      await Promise.race([ended, delay(END_TIMEOUT_MS, undefined, { signal: timer.signal }).then(() => child.kill('SIGKILL'))]);
      timer.abort();
      await ended;
    },
  };
}

function lastWords(log: string): string {
  return existsSync(log) ? readFileSync(log, 'utf8').slice(-LAST_WORDS_CHARACTERS) : '';
}

/** @throws Error with what the child wrote, when it ends first or takes too long */
export async function waitFor<Result>(child: Child, isReady: () => Promise<Result | undefined>): Promise<Result> {
  let over = false;
  void child.ended.then(() => {
    over = true;
  });
  for (const deadline = Date.now() + START_TIMEOUT_MS; !over && Date.now() < deadline; await delay(POLL_MS)) {
    const ready = await isReady();
    if (ready !== undefined) return ready;
  }
  throw new Error(`it ${over ? 'ended' : 'was too slow'} instead of starting:\n${await child.output()}`);
}

export function waitForPort(child: Child, port: number): Promise<true> {
  return waitFor(child, () => accepts(port));
}

async function accepts(port: number): Promise<true | undefined> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return undefined;
  } finally {
    socket.destroy();
  }
}

/** One that nobody listens on now; for programs that cannot choose one themselves and say which. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}

export interface Run {
  readonly env?: NodeJS.ProcessEnv;
  readonly signal?: AbortSignal;
}

/** Runs a program to its end. @returns what it wrote, to standard output first. @throws Error with what it wrote to the other one */
export async function run(command: string, args: readonly string[], { env = process.env, signal }: Run = {}): Promise<string> {
  const { stdout, stderr } = await promisify(execFile)(command, args, {
    env,
    maxBuffer: 64 * 1024 ** 2,
    ...(signal === undefined ? {} : { signal }),
  });
  return stdout + stderr;
}

/** Makes files the account's that a child runs as. */
export async function giveTo(account: Account | undefined, ...paths: readonly string[]): Promise<void> {
  if (account !== undefined) await Promise.all(paths.map((path) => chown(path, account.uid, account.gid)));
}
