import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { serverAccount } from '../../src/embedded/data-directory.ts';
import { type Child, freePort, giveTo, launch, run, waitForPort } from './child.ts';
import { BENCH_ROLE, type BenchCluster } from './cluster.ts';

/** Of its processes, each with a client and a backend session: fewer would leave clients waiting until others have gone. */
export const PGPOOL_CHILDREN = 64;

export interface Pgpool {
  readonly command: string;
  /** `4.3.5` */
  readonly version: string;
}

/** @returns undefined where none is installed */
export async function findPgpool(): Promise<Pgpool | undefined> {
  for (const command of ['pgpool', '/usr/sbin/pgpool']) {
    const said = await run(command, ['--version']).catch((error: unknown) => String(error));
    const version = /pgpool-II version (\S+)/.exec(said)?.[1];
    if (version !== undefined) return { command, version };
  }
  return undefined;
}

export async function startPgpool(
  { command }: Pgpool,
  options: { readonly cluster: BenchCluster; readonly folder: string },
): Promise<{ child: Child; port: number }> {
  const account = await serverAccount();
  const folder = await mkdtemp(join(options.folder, 'pgpool-'));
  const [settings, access, passwords] = [join(folder, 'pgpool.conf'), join(folder, 'pool_hba.conf'), join(folder, 'pool_passwd')];
  const port = await freePort();
  await writeFile(settings, settingsText(options.cluster, folder, port));
  await writeFile(access, 'host all all 127.0.0.1/32 scram-sha-256\n');
  await writeFile(passwords, `${BENCH_ROLE}:TEXT${options.cluster.password}\n`);
  await giveTo(account, folder, settings, access, passwords);
  const child = launch({ command, args: ['-n', '-f', settings, '-a', access], log: join(folder, 'log'), account });
  try {
    await waitForPort(child, port);
    return { child, port };
  } catch (error) {
    await child.end('SIGINT');
    throw error;
  }
}

/** As it comes, without what is for several servers. @see https://www.pgpool.net/docs/latest/en/html/runtime-config.html */
function settingsText({ host, port: backendPort }: BenchCluster, folder: string, port: number): string {
  return `
listen_addresses = '127.0.0.1'
port = ${port}
socket_dir = '${folder}'
unix_socket_directories = '${folder}'
pcp_listen_addresses = ''
pcp_port = ${port + 1}
pcp_socket_dir = '${folder}'
pid_file_name = '${join(folder, 'pid')}'
logdir = '${folder}'
backend_clustering_mode = 'raw'
backend_hostname0 = '${host}'
backend_port0 = ${backendPort}
enable_pool_hba = on
pool_passwd = 'pool_passwd'
num_init_children = ${PGPOOL_CHILDREN}
max_pool = 1
load_balance_mode = off
health_check_period = 0
sr_check_period = 0
memory_cache_enabled = off
`;
}
