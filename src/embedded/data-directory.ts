import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, readdir, readFile, readlink, realpath, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import * as z from 'zod';
import { hasCode, reasonOf } from '../system-errors.ts';

/** The path of a Unix socket may have 104 bytes on macOS and 108 on Linux, including a NUL. */
const SOCKET_PATH_MAX_BYTES = 103;

/** The data directory, locked by this process. */
export interface DataDirectory {
  readonly path: string;
  /** The folder that contains the cluster: the data directory itself, or another one if the server's account cannot enter it. */
  readonly home: string;
  /** The server's own folder (PGDATA). It may not exist yet; if it exists, it is complete. */
  readonly cluster: string;
  readonly log: string;
  release(): Promise<void>;
}

/**
 * Opens or creates a data directory. As root, the directory may be where the server's account has no access (for example in root's
 * home). Permissions are not changed then: `postgres` in it becomes a link to a folder under `sharedFolder`.
 * @throws EmbeddedError when it is in use or cannot be written
 */
export async function openDataDirectory(path: string, account: Account | undefined, sharedFolder: string): Promise<DataDirectory> {
  const locks: FolderLock[] = [];
  const release = async () => {
    for (const lock of locks.reverse()) await lock.release();
  };
  try {
    const made = await makeFolders(path);
    // Other users of the machine get no access, except that the server's account must reach its own folder.
    if (made) await chmod(path, account === undefined ? 0o700 : 0o711);
    // It is in the folder of an application as a rule, and holds a secret.
    if (made) await writeFile(join(path, '.gitignore'), '*\n');
    const real = await realpath(path);
    locks.push(await lockFolder(real));
    const home = await findHome(real, account, sharedFolder);
    // A copy of a data directory links to the same home as the original.
    if (home !== real) locks.push(await lockFolder(home));
    await removeLeftovers(home);
    return { path: real, home, cluster: join(home, 'postgres'), log: join(real, 'postgres.log'), release };
  } catch (error) {
    await release();
    if (error instanceof EmbeddedError) throw error;
    throw new EmbeddedError(`data directory ${path} cannot be used: ${reasonOf(error)}`);
  }
}

/** Creates an empty folder for the server's socket, which no other user can enter and whose path is short enough. */
export async function makeSocketFolder(directory: DataDirectory, account: Account | undefined): Promise<string> {
  const near = join(directory.home, 'run');
  const far = join(tmpdir(), `postern-${createHash('sha256').update(directory.home).digest('hex').slice(0, 12)}`);
  const folder = fits(near) ? near : far;
  if (!fits(folder)) throw new EmbeddedError(`the path of ${folder} is too long for a Unix socket: set TMPDIR to a shorter one`);
  // Files of a killed server would keep the next one from creating its socket. If the folder cannot be removed, or another user
  // creates it in between, this fails: the folder belongs to that user and must not be used.
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { mode: 0o700 });
  if (account !== undefined) await chown(folder, account.uid, account.gid);
  return folder;
}

/** The owner of an existing cluster. As root, Postern runs the server as this account. */
export async function ownerOf(cluster: string): Promise<Account | undefined> {
  try {
    const { uid, gid } = await stat(cluster);
    return { uid, gid };
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw new EmbeddedError(`${cluster} cannot be used: ${reasonOf(error)}`);
  }
}

async function findHome(path: string, account: Account | undefined, sharedFolder: string): Promise<string> {
  const cluster = join(path, 'postgres');
  const target = await readlink(cluster).catch(() => undefined);
  if (target !== undefined) {
    const home = await realpath(dirname(target)).catch(() => undefined);
    if (home === undefined) throw new EmbeddedError(`${cluster} points to ${target}, which is gone`);
    return home;
  }
  if (account === undefined || (await ownerOf(cluster)) !== undefined || (await canEnter(path, account))) return path;
  const home = join(sharedFolder, randomBytes(6).toString('hex'));
  await makeSharedFolder(sharedFolder);
  await mkdir(home);
  await chmod(home, 0o711);
  await symlink(join(home, 'postgres'), cluster);
  return home;
}

/** Removes unfinished clusters of an initdb that was interrupted. */
async function removeLeftovers(home: string): Promise<void> {
  for (const name of await readdir(home)) {
    if (name.startsWith('postgres.init-')) await rm(join(home, name), { recursive: true, force: true });
  }
}

function fits(folder: string): boolean {
  return Buffer.byteLength(join(folder, '.s.PGSQL.5432')) <= SOCKET_PATH_MAX_BYTES;
}

const holderSchema = z.object({ pid: z.int().positive(), startedAt: z.string() });
type Holder = z.output<typeof holderSchema>;

interface FolderLock {
  release(): Promise<void>;
}

/**
 * Locks a folder for this process. The lock is a numbered file that names its holder. A file whose holder has ended is
 * not replaced, because two processes could do that at the same time; the next number is created, which only one can do.
 * @throws EmbeddedError when a running process holds the lock
 */
async function lockFolder(folder: string): Promise<FolderLock> {
  const startedAt = await startOf(process.pid);
  const me: Holder = { pid: process.pid, startedAt: startedAt ?? '' };
  for (;;) {
    const number = 1 + Math.max(0, ...(await lockNumbers(folder)));
    await refuseIfHeld(folder, number);
    const mine = lockFile(folder, number);
    if (!(await create(mine, JSON.stringify(me)))) continue;
    try {
      // Looks again after creating its own file: of two processes that start together, at least one finds the other's.
      await refuseIfHeld(folder, number);
    } catch (error) {
      await rm(mine, { force: true });
      throw error;
    }
    for (const older of await lockNumbers(folder)) if (older < number) await rm(lockFile(folder, older), { force: true });
    return { release: () => rm(mine, { force: true }) };
  }
}

async function refuseIfHeld(folder: string, except: number): Promise<void> {
  for (const number of await lockNumbers(folder)) {
    if (number === except) continue;
    const holder = await readHolder(lockFile(folder, number));
    if (holder === undefined || (await startOf(holder.pid)) !== holder.startedAt) continue;
    const advice = 'stop it, or set POSTERN_DATA_DIR to another folder';
    throw new EmbeddedError(`data directory ${folder} is in use by another Postern (process ${holder.pid}): ${advice}`);
  }
}

/** @returns false when the file exists already */
async function create(file: string, content: string): Promise<boolean> {
  try {
    await writeFile(file, content, { flag: 'wx' });
    return true;
  } catch (error) {
    if (hasCode(error, 'EEXIST')) return false;
    throw error;
  }
}

/** An empty or malformed file was left by a crash, or is being written by a process that has not looked for others yet. */
async function readHolder(file: string): Promise<Holder | undefined> {
  try {
    return holderSchema.safeParse(JSON.parse(await readFile(file, 'utf8'))).data;
  } catch {
    return undefined;
  }
}

async function lockNumbers(folder: string): Promise<number[]> {
  const names = await readdir(folder);
  return names.flatMap((name) => /^postern\.lock\.(\d+)$/.exec(name)?.[1] ?? []).map(Number);
}

function lockFile(folder: string, number: number): string {
  return join(folder, `postern.lock.${number}`);
}

const run = promisify(execFile);

/**
 * When a process was started. Together with the process id it identifies one process; the id alone may be reused.
 * @returns undefined when there is no such process
 */
export async function startOf(pid: number): Promise<string | undefined> {
  return process.platform === 'linux' ? startOnLinux(pid) : startElsewhere(pid);
}

/** @see https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html field 22, in clock ticks since boot */
async function startOnLinux(pid: number): Promise<string | undefined> {
  try {
    const [boot, stat] = await Promise.all([readFile('/proc/sys/kernel/random/boot_id', 'utf8'), readFile(`/proc/${pid}/stat`, 'utf8')]);
    // The second field is the command's name in parentheses, which may itself hold spaces and parentheses.
    const [state, ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return state === 'Z' ? undefined : `${boot.trim()}/${fields[18]}`;
  } catch {
    return undefined;
  }
}

async function startElsewhere(pid: number): Promise<string | undefined> {
  try {
    const { stdout } = await run('ps', ['-o', 'lstart=', '-p', String(pid)], { env: { ...process.env, LC_ALL: 'C', TZ: 'UTC' } });
    return stdout.trim() || undefined;
  } catch {
    return undefined;
  }
}

const NAME = 'postern';
/** Debian, Red Hat and most others have the first command, BusyBox the second. */
const CREATE_COMMANDS: readonly (readonly [command: string, ...args: string[]])[] = [
  ['useradd', '--system', '--user-group', '--no-create-home', '--home-dir', '/var/lib/postern', '--shell', '/usr/sbin/nologin', NAME],
  ['adduser', '-S', '-D', '-H', '-h', '/var/lib/postern', '-s', '/sbin/nologin', NAME],
];

/** The account that the server runs as, in the form of node:child_process. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** Options for child processes: they run in `/`, because the account may have no access to the current folder, and without Postern's environment. */
export function runAs(account: Account | undefined, variables: Readonly<Record<string, string>> = {}) {
  return { cwd: '/', env: { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC', ...variables }, ...account };
}

/**
 * PostgreSQL refuses to run as root. If Postern runs as root, the server runs as the user `postern`, who is created when missing.
 * @returns undefined when Postern is not root; then the server runs as the same user
 * @throws EmbeddedError
 */
export async function serverAccount(): Promise<Account | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const known = await lookUp();
  if (known !== undefined) return known;
  let reason = '';
  for (const [command, ...args] of CREATE_COMMANDS) {
    try {
      await run(command, args);
    } catch (error) {
      reason ||= reasonOf(error);
    }
    // Looked up even after a failure, because another process may have created the user meanwhile.
    const created = await lookUp();
    if (created !== undefined) return created;
  }
  throw new EmbeddedError(
    `PostgreSQL does not run as root, and the user ${NAME} could not be created (${reason}): create it, or start Postern as another user`,
  );
}

/** Whether the server's account can enter this folder, which needs permission on every folder above it. */
export async function canEnter(folder: string, account: Account | undefined): Promise<boolean> {
  try {
    await run('/bin/sh', ['-c', 'cd "$1"', 'sh', folder], runAs(account));
    return true;
  } catch {
    return false;
  }
}

async function lookUp(): Promise<Account | undefined> {
  try {
    const [uid, gid] = await Promise.all([run('id', ['-u', NAME]), run('id', ['-g', NAME])]);
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  } catch {
    return undefined;
  }
}

/** The embedded PostgreSQL cannot be used; the message is one line for the person who started Postern. */
export class EmbeddedError extends Error {
  override readonly name = 'EmbeddedError';
}

/** The text of the last FATAL or PANIC line of a server's log. */
export function lastFatal(log: string): string | undefined {
  return [...log.matchAll(/(?:FATAL|PANIC): +(.+)/g)].at(-1)?.[1];
}

/** Creates a folder that every user can enter, whatever the umask. An existing one is left as it is. */
export async function makeSharedFolder(path: string): Promise<void> {
  if (await makeFolders(path)) await chmod(path, 0o755);
}

/**
 * Creates a folder and its missing parents. Node's recursive `mkdir` is not used, because it loops for ever where a folder cannot be
 * created in an existing one, as in `/proc`.
 * @returns whether the folder was missing
 */
async function makeFolders(path: string): Promise<boolean> {
  try {
    return await makeFolder(path);
  } catch (error) {
    const above = dirname(path);
    if (!hasCode(error, 'ENOENT') || above === path) throw error;
    await makeFolders(above);
    return await makeFolder(path);
  }
}

async function makeFolder(path: string): Promise<boolean> {
  try {
    await mkdir(path);
    return true;
  } catch (error) {
    // On a read-only file system, or without permission, the error is another one than EEXIST.
    if ((await stat(path).catch(() => undefined))?.isDirectory()) return false;
    throw error;
  }
}

/** Replaces a file atomically. As root in another user's directory it follows no link that the user may have made. */
export async function replaceFile(path: string, content: string, mode: number): Promise<void> {
  const draft = `${path}.new`;
  await rm(draft, { force: true });
  await writeFile(draft, content, { flag: 'wx', mode });
  await chmod(draft, mode);
  await rename(draft, path);
}
