import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { runAs, serverAccount } from '../../src/embedded/data-directory.ts';
import { waitForServer } from '../../src/placement/admin-connection.ts';
import type { TestCluster } from './cluster.setup.ts';
import { makeScratch } from './scratch.ts';

const run = promisify(execFile);

/** Where Debian puts the oldest version that Postern supports. */
export const PROGRAMS_OF_15 = '/usr/lib/postgresql/15/bin';
export const hasPostgres15 = existsSync(join(PROGRAMS_OF_15, 'postgres'));

/** A PostgreSQL 15 that asks everybody for a password. @param more further settings */
export async function startPostgres15(more: Readonly<Record<string, string>> = {}): Promise<TestCluster & { stop(): Promise<void> }> {
  const account = await serverAccount();
  const scratch = await makeScratch();
  const folder = join(scratch.path, '15');
  await mkdir(folder);
  const login = { host: folder, port: 5432, user: 'postgres', password: 'superuser', database: 'postgres' };
  const [cluster, passwordFile] = [join(folder, 'cluster'), join(folder, 'password')];
  await writeFile(passwordFile, login.password);
  if (account !== undefined) await chown(folder, account.uid, account.gid);
  const access = [`--username=${login.user}`, `--pwfile=${passwordFile}`, '--auth=scram-sha-256'];
  await run(join(PROGRAMS_OF_15, 'initdb'), ['-D', cluster, ...access, '--encoding=UTF8', '--locale=C.UTF-8', '--no-sync'], runAs(account));
  const all = { fsync: 'off', listen_addresses: '', unix_socket_directories: folder, ...more };
  const settings = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const server = spawn(join(PROGRAMS_OF_15, 'postgres'), ['-D', cluster, ...settings], { ...runAs(account), stdio: 'ignore' });
  const ended = once(server, 'exit');
  await waitForServer(login, 120_000);
  return {
    ...login,
    async stop() {
      server.kill('SIGINT');
      await ended;
      await scratch.remove();
    },
  };
}
