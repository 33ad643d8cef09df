import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { findBinaries } from '../../src/embedded/binaries.ts';
import { runAs, serverAccount } from '../../src/embedded/data-directory.ts';
import { waitForServer, withSession } from '../../src/placement/admin-connection.ts';
import { makeScratch, type Scratch } from './scratch.ts';

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

/** A primary, and a standby to which every commit is replicated before it is acknowledged. */
export interface ServerPair {
  readonly primary: ServerProcess;
  readonly standby: ServerProcess;
  /** Has the standby take over. */
  promote(): Promise<void>;
  remove(): Promise<void>;
}

export async function startServerProcess(): Promise<ServerProcess> {
  const made = await initialise('server');
  return launch(made, made.folder, [], () => made.scratch.remove());
}

export async function startServerPair(): Promise<ServerPair> {
  const made = await initialise('primary');
  const folder = join(made.scratch.path, 'standby');
  // Both begin at the same place in the WAL.
  await run('cp', ['-a', made.folder, folder]);
  await rename(join(folder, 'cluster', 'postgresql.auto.conf'), join(folder, 'cluster', 'standby.signal'));
  const primary = await launch(made, made.folder, ['synchronous_standby_names=*'], async () => {});
  const { user, password, port } = LOGIN;
  const from = `primary_conninfo=host=${made.folder} port=${port} user=${user} password=${password}`;
  const standby = await launch(made, folder, [from, 'wal_retrieve_retry_interval=100ms'], async () => {});
  return {
    primary,
    standby,
    promote: () =>
      withSession({ host: folder, ...LOGIN }, async (session) => {
        await session.query('SELECT pg_promote()');
      }),
    async remove() {
      await Promise.all([primary.remove(), standby.remove()]);
      await made.scratch.remove();
    },
  };
}

type Account = Awaited<ReturnType<typeof serverAccount>>;

interface Initialised {
  readonly scratch: Scratch;
  /** Has the cluster, and its socket. */
  readonly folder: string;
  readonly account: Account;
  readonly postgres: string;
}

async function initialise(name: string): Promise<Initialised> {
  const account = await serverAccount();
  const scratch = await makeScratch();
  const binaries = await findBinaries(account, '/var/lib/postern');
  const folder = join(scratch.path, name);
  const [cluster, passwordFile] = [join(folder, 'cluster'), join(folder, 'password')];
  await mkdir(folder);
  await writeFile(passwordFile, LOGIN.password);
  if (account !== undefined) await chown(folder, account.uid, account.gid);
  const access = [`--username=${LOGIN.user}`, `--pwfile=${passwordFile}`, '--auth=scram-sha-256'];
  await run(binaries.initdb, ['-D', cluster, ...access, '--encoding=UTF8', '--locale=C', '--no-sync'], runAs(account));
  return { scratch, folder, account, postgres: binaries.postgres };
}

async function launch(
  { account, postgres }: Initialised,
  folder: string,
  more: readonly string[],
  removed: () => Promise<void>,
): Promise<ServerProcess> {
  const cluster = join(folder, 'cluster');
  const all = ['fsync=off', 'listen_addresses=', `unix_socket_directories=${folder}`, ...more];
  const settings = all.flatMap((setting) => ['-c', setting]);
  const start = async () => {
    const child = spawn(postgres, ['-D', cluster, ...settings], { ...runAs(account), stdio: 'ignore' });
    const ended = once(child, 'exit');
    await waitForServer({ host: folder, ...LOGIN }, START_TIMEOUT_MS);
    return { child, ended };
  };
  let server = await start();

  const kill = async () => {
    if (server.child.exitCode !== null || server.child.signalCode !== null) return;
    await signalServer(server.child.pid ?? 0, 'SIGKILL');
    await server.ended;
  };
  return {
    url: `postgres://${LOGIN.user}:${LOGIN.password}@${encodeURIComponent(folder)}:${LOGIN.port}/${LOGIN.database}`,
    signal: (name) => signalServer(server.child.pid ?? 0, name),
    kill,
    async start() {
      await rm(join(cluster, 'postmaster.pid'), { force: true });
      server = await start();
    },
    async remove() {
      await kill();
      await removed();
    },
  };
}

/** Sends a signal to a postmaster, then to all its children. */
export async function signalServer(pid: number, name: NodeJS.Signals): Promise<void> {
  const before = await childrenOf(pid);
  // The postmaster first: it must not start others meanwhile.
  ignoreGone(() => process.kill(pid, name));
  for (const child of new Set([...before, ...(await childrenOf(pid))])) ignoreGone(() => process.kill(child, name));
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
