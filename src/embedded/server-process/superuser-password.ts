import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { Binaries } from '../binaries.ts';
import { EmbeddedError, lastFatal } from '../embedded-error.ts';
import { SUPERUSER } from '../initdb.ts';
import { type Account, runAs } from '../server-account.ts';
import { stalePidEnvironment } from './postmaster-pid.ts';

/**
 * Sets the superuser's password in single-user mode, while the server is down. So a login without it is never
 * possible, and a changed secret works without the old one. This also recovers the cluster after a crash.
 * @see https://www.postgresql.org/docs/current/app-postgres.html#APP-POSTGRES-SINGLE-USER
 * @param verifier a SCRAM verifier
 */
export async function setSuperuserPassword(
  cluster: string,
  binaries: Binaries,
  account: Account | undefined,
  settings: readonly string[],
  verifier: string,
): Promise<void> {
  const args = ['--single', '-D', cluster, ...settings, '-c', 'exit_on_error=on', 'postgres'];
  const child = spawn(binaries.postgres, args, {
    ...runAs(account, await stalePidEnvironment(cluster)),
    stdio: ['pipe', 'ignore', 'pipe'],
  });
  child.stdin.on('error', () => {});
  child.stdin.end(`ALTER ROLE ${SUPERUSER} PASSWORD '${verifier}'\n`);
  const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, 'close')]);
  if (code !== 0) throw new EmbeddedError(`PostgreSQL does not start on ${cluster}: ${lastFatal(stderr) ?? `exit code ${code}`}`);
}
