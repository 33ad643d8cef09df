import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { reasonOf } from '../system-errors.ts';
import { EmbeddedError } from './embedded-error.ts';

const run = promisify(execFile);

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
