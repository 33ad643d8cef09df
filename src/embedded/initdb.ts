import { execFile } from 'node:child_process';
import { chown, mkdtemp, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { reasonOf } from '../system-errors.ts';
import type { Binaries } from './binaries.ts';
import type { DataDirectory } from './data-directory.ts';
import { EmbeddedError } from './embedded-error.ts';
import { type Account, runAs } from './server-account.ts';

const run = promisify(execFile);

export const SUPERUSER = 'postgres';

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
    // The built-in provider sorts by code point, in the same way on every machine.
    const locale = ['--encoding=UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C'];
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
