import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { findBinaries } from '../../src/embedded/binaries.ts';
import { runAs, serverAccount } from '../../src/embedded/data-directory.ts';
import { waitForServer } from '../../src/placement/admin-connection.ts';
import { makeScratch } from './scratch.ts';

const run = promisify(execFile);
const LOGIN = { port: 5432, user: 'postgres', password: 'superuser', database: 'postgres' };
const START_TIMEOUT_MS = 120_000;

/** A PostgreSQL whose processes a test may kill and stop. Nothing starts it again but the test. */
export interface ServerProcess {
  readonly url: string;
  /** Sends a signal to the postmaster, then to all its children. */
  signal(name: 'SIGSTOP' | 'SIGCONT'): Promise<void>;
  /** kill -9 of all its processes. */
  kill(): Promise<void>;
  start(): Promise<void>;
  remove(): Promise<void>;
}

export async function startServerProcess(): Promise<ServerProcess> {
  const account = await serverAccount();
  const scratch = await makeScratch();
  const binaries = await findBinaries(account, '/var/lib/postern');
  const folder = join(scratch.path, 'server');
  const [cluster, passwordFile] = [join(folder, 'cluster'), join(folder, 'password')];
  await mkdir(folder);
  await writeFile(passwordFile, LOGIN.password);
  if (account !== undefined) await chown(folder, account.uid, account.gid);
  const access = [`--username=${LOGIN.user}`, `--pwfile=${passwordFile}`, '--auth=scram-sha-256'];
  await run(binaries.initdb, ['-D', cluster, ...access, '--encoding=UTF8', '--locale=C', '--no-sync'], runAs(account));
  const settings = ['fsync=off', 'listen_addresses=', `unix_socket_directories=${folder}`].flatMap((setting) => ['-c', setting]);
  const launch = async () => {
    const child = spawn(binaries.postgres, ['-D', cluster, ...settings], { ...runAs(account), stdio: 'ignore' });
    const ended = once(child, 'exit');
    await waitForServer({ host: folder, ...LOGIN }, START_TIMEOUT_MS);
    return { child, ended };
  };
  let server = await launch();

  const signalAll = async (name: NodeJS.Signals) => {
    const { pid = 0 } = server.child;
    // The postmaster first: it must not start others meanwhile.
    process.kill(pid, name);
    for (const child of await childrenOf(pid)) ignoreGone(() => process.kill(child, name));
  };
  const kill = async () => {
    if (server.child.exitCode !== null || server.child.signalCode !== null) return;
    const children = await childrenOf(server.child.pid ?? 0);
    await signalAll('SIGKILL');
    for (const child of children) ignoreGone(() => process.kill(child, 'SIGKILL'));
    await server.ended;
  };
  return {
    url: `postgres://${LOGIN.user}:${LOGIN.password}@${encodeURIComponent(folder)}:${LOGIN.port}/${LOGIN.database}`,
    signal: signalAll,
    kill,
    async start() {
      await rm(join(cluster, 'postmaster.pid'), { force: true });
      server = await launch();
    },
    async remove() {
      await kill();
      await scratch.remove();
    },
  };
}

async function childrenOf(pid: number): Promise<number[]> {
  const text = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '');
  return text.split(' ').filter(Boolean).map(Number);
}

function ignoreGone(send: () => void): void {
  try {
    send();
  } catch {
    // It has ended meanwhile.
  }
}
