import { execFile } from 'node:child_process';
import { readFile, readlink, realpath } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** What a running server writes into its data directory, and a killed one leaves there. */
interface PostmasterFile {
  readonly pid: number | undefined;
  /** Of its Unix socket. */
  readonly socketFolder: string | undefined;
  /** `starting`, `ready`, … */
  readonly status: string | undefined;
}

/** @see https://github.com/postgres/postgres/blob/master/src/include/utils/pidfile.h for the lines of postmaster.pid */
export async function readPostmasterFile(cluster: string): Promise<PostmasterFile> {
  const text = await readFile(join(cluster, 'postmaster.pid'), 'utf8').catch(() => '');
  const lines = text.split('\n');
  const pid = Number.parseInt(lines[0] ?? '', 10);
  return { pid: pid > 1 ? pid : undefined, socketFolder: lines[4]?.trim() || undefined, status: lines[7]?.trim() };
}

/** Whether this server of ours takes logins. */
export async function isReady(cluster: string, pid: number | undefined): Promise<boolean> {
  const file = await readPostmasterFile(cluster);
  return file.pid === pid && file.status === 'ready';
}

/** Whether this process, whose number may have been given to another since, is a server on this very cluster. */
export async function isServing(pid: number, cluster: string): Promise<boolean> {
  try {
    if (process.platform !== 'linux') {
      const { stdout } = await run('ps', ['-ww', '-o', 'command=', '-p', String(pid)]);
      return stdout.includes('postgres') && stdout.includes(`-D ${cluster}`);
    }
    // A server works in its data directory. The binary may have been replaced under it: `postgres (deleted)`.
    const [folder, program, real] = await Promise.all([readlink(`/proc/${pid}/cwd`), readlink(`/proc/${pid}/exe`), realpath(cluster)]);
    return folder === real && basename(program).startsWith('postgres');
  } catch {
    return false;
  }
}

/**
 * What to put into the environment of a server that is about to start on a cluster that nobody serves. If the file names a
 * process all the same (a zombie, or another program that has been given the number) Postgres would refuse; it knows a
 * variable for numbers that do not count. The file itself must stay: it leads to the shared memory that sessions may hold.
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/init/miscinit.c CreateLockFile
 */
export async function staleOwner(cluster: string): Promise<Record<string, string>> {
  const { pid } = await readPostmasterFile(cluster);
  if (pid === undefined || (await isServing(pid, cluster))) return {};
  return { PG_GRANDPARENT_PID: String(pid) };
}
