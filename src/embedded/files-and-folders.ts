import { chmod, mkdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { hasCode } from '../system-errors.ts';

/** Creates a folder that every user can enter, whatever the umask. An existing one is left as it is. */
export async function makeSharedFolder(path: string): Promise<void> {
  if (await makeFolders(path)) await chmod(path, 0o755);
}

/**
 * Creates a folder and its missing parents. Node's recursive `mkdir` is not used, because it loops for ever where a folder cannot be
 * created in an existing one, as in `/proc`.
 * @returns whether the folder was missing
 */
export async function makeFolders(path: string): Promise<boolean> {
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
