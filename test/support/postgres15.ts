import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { chown, mkdir, readFile, writeFile } from 'node:fs/promises';
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

interface Postgres15 extends TestCluster {
  /** Its own folder (PGDATA). */
  readonly folder: string;
  /** Ends it, to be started again. */
  halt(): Promise<void>;
  /** @param folder another one to run on from now on */
  start(folder?: string): Promise<void>;
  /** Ends it, and removes its files. */
  stop(): Promise<void>;
}

/** A PostgreSQL 15 that asks everybody for a password. @param more further settings */
export async function startPostgres15(more: Readonly<Record<string, string>> = {}): Promise<Postgres15> {
  const account = await serverAccount();
  const scratch = await makeScratch();
  const folder = join(scratch.path, '15');
  await mkdir(folder);
  const login = { host: folder, port: 5432, user: 'postgres', password: 'superuser', database: 'postgres' };
  const [cluster, passwordFile] = [join(folder, 'cluster'), join(folder, 'password')];
  await writeFile(passwordFile, login.password);
  if (account !== undefined) await chown(folder, account.uid, account.gid);
  const log = join(scratch.path, 'server.log');
  const access = [`--username=${login.user}`, `--pwfile=${passwordFile}`, '--auth=scram-sha-256'];
  await run(join(PROGRAMS_OF_15, 'initdb'), ['-D', cluster, ...access, '--encoding=UTF8', '--locale=C.UTF-8', '--no-sync'], runAs(account));
  const all = { fsync: 'off', listen_addresses: '', unix_socket_directories: folder, ...more };
  const settings = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const launch = (data: string) => {
    const file = openSync(log, 'a');
    const child = spawn(join(PROGRAMS_OF_15, 'postgres'), ['-D', data, ...settings], { ...runAs(account), stdio: ['ignore', file, file] });
    closeSync(file);
    return { child, ended: once(child, 'exit') };
  };
  const untilServed = () =>
    waitForServer(login, 120_000).catch(async (cause: unknown) => {
      const lines = (await readFile(log, 'utf8')).split('\n').slice(-20);
      throw new Error(`PostgreSQL cannot be used:\n${lines.join('\n')}`, { cause });
    });
  let server = launch(cluster);
  await untilServed();
  const halt = async () => {
    server.child.kill('SIGINT');
    await server.ended;
  };
  return {
    ...login,
    folder: cluster,
    halt,
    async start(data = cluster) {
      server = launch(data);
      await untilServed();
    },
    async stop() {
      await halt();
      await scratch.remove();
    },
  };
}
