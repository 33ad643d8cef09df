import { createHash, randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, readdir, readlink, realpath, rm, stat, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { hasCode, reasonOf } from '../system-errors.ts';
import { EmbeddedError } from './embedded-error.ts';
import { makeFolders, makeSharedFolder } from './files-and-folders.ts';
import { type FolderLock, lockFolder } from './folder-lock.ts';
import { type Account, canEnter } from './server-account.ts';

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
