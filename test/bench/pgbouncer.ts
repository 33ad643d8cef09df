import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { serverAccount } from '../../src/embedded/data-directory.ts';
import { type Child, freePort, giveTo, launch, run, waitForPort } from './child.ts';
import { BENCH_ROLE, type BenchCluster } from './cluster.ts';

export interface PgBouncer {
  readonly command: string;
  /** `1.25.2` */
  readonly version: string;
  /** Since 1.21 it keeps track of prepared statements in transaction mode. */
  readonly prepares: boolean;
}

/** The one that PGBOUNCER names, or the one that is installed. @returns undefined where none is */
export async function findPgBouncer(): Promise<PgBouncer | undefined> {
  const candidates = process.env.PGBOUNCER ? [process.env.PGBOUNCER] : ['pgbouncer', '/usr/sbin/pgbouncer'];
  for (const command of candidates) {
    const said = await run(command, ['-V']).catch(() => '');
    const [, version, major, minor] = /PgBouncer ((\d+)\.(\d+)\S*)/.exec(said) ?? [];
    if (version !== undefined) return { command, version, prepares: Number(major) > 1 || Number(minor) >= 21 };
  }
  return undefined;
}

export interface PgBouncerOptions {
  readonly cluster: BenchCluster;
  readonly folder: string;
  readonly pool: number;
  /** 4096 unless a setting says otherwise. */
  readonly packetBufferBytes?: number;
}

/** With the settings that it comes with, but for those that make it the same kind of pooler as Postern. */
export async function startPgBouncer(pgbouncer: PgBouncer, options: PgBouncerOptions): Promise<{ child: Child; port: number }> {
  const account = await serverAccount();
  const folder = await mkdtemp(join(options.folder, 'pgbouncer-'));
  const [settings, users, port] = [join(folder, 'pgbouncer.ini'), join(folder, 'users'), await freePort()];
  await writeFile(users, `"${BENCH_ROLE}" "${options.cluster.verifier}"\n`);
  await writeFile(settings, settingsText(pgbouncer, options, users, port));
  await giveTo(account, folder, users, settings);
  const child = launch({ command: pgbouncer.command, args: [settings], log: join(folder, 'log'), account });
  try {
    await waitForPort(child, port);
    return { child, port };
  } catch (error) {
    await child.end('SIGKILL');
    throw error;
  }
}

/** @see https://www.pgbouncer.org/config.html */
function settingsText(pgbouncer: PgBouncer, { cluster, pool, packetBufferBytes }: PgBouncerOptions, users: string, port: number): string {
  return `
[databases]
* = host=${cluster.host} port=${cluster.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${users}
pool_mode = transaction
default_pool_size = ${pool}
max_client_conn = 5000
${pgbouncer.prepares ? 'max_prepared_statements = 200' : ''}
${packetBufferBytes === undefined ? '' : `pkt_buf = ${packetBufferBytes}`}
`;
}
