import { execFile } from 'node:child_process';
import { readFile, readlink, realpath } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';

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
export async function isReady(cluster: string, pid: number | undefined): Promise<boolean> {
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
export async function stalePidEnvironment(cluster: string): Promise<Record<string, string>> {
  const { pid } = await readPostmasterPid(cluster);
  if (pid === undefined || (await isServing(pid, cluster))) return {};
  return { PG_GRANDPARENT_PID: String(pid) };
}
