import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { rolePassword, roleVerifier } from './auth/derived-secrets.ts';
import { type Binaries, findBinaries } from './embedded/binaries.ts';
import { type DataDirectory, makeSocketFolder, openDataDirectory, ownerOf } from './embedded/data-directory.ts';
import { DiskSpace, DiskWatch } from './embedded/disk-space.ts';
import { EmbeddedError } from './embedded/embedded-error.ts';
import { linkExtensions } from './embedded/extensions.ts';
import { replaceFile } from './embedded/files-and-folders.ts';
import { initialise, SUPERUSER } from './embedded/initdb.ts';
import { ensureSecret } from './embedded/secret-file.ts';
import { type Account, canEnter, serverAccount } from './embedded/server-account.ts';
import { PORT, Postmaster, whileSessionsLinger } from './embedded/server-process/postmaster.ts';
import { stopOrphan } from './embedded/server-process/shutdown.ts';
import { setSuperuserPassword } from './embedded/server-process/superuser-password.ts';
import type { Observe } from './observation.ts';
import { hasCode, reasonOf } from './system-errors.ts';

export interface EmbeddedOptions {
  /** Created when it does not exist. Holds the secret, the server's log, and the cluster or a link to it. */
  readonly dataDir: string;
  /** Used instead of the generated one (`POSTERN_SECRET`). */
  readonly secret?: string;
  readonly observe?: Observe;
  /** Further server settings, e.g. `{ fsync: 'off' }` for tests. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Called when the server has ended unexpectedly. It is being restarted at the same address. */
  readonly exited?: (how: string) => void;
  /** As root: holds files that the server's account cannot reach in the data directory. */
  readonly sharedFolder?: string;
}

/** A running embedded PostgreSQL, on a Unix socket that no other user of the machine can reach. */
export interface EmbeddedCluster {
  /** The folder of the Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly superuser: { readonly user: string; readonly password: string };
  /** The master secret: given, or generated and kept in the data directory. */
  readonly secret: string;
  /** The server's own folder (PGDATA). */
  readonly folder: string;
  /** The server's present process id; undefined while it is being restarted. */
  readonly pid: number | undefined;
  /** Shuts the server down and releases the data directory. */
  stop(): Promise<void>;
}

/** Settings for a few hundred sessions on the same machine as Postern. The server does not log what organizations do. */
const SETTINGS: Readonly<Record<string, string>> = {
  listen_addresses: '',
  port: String(PORT),
  unix_socket_permissions: '0700',
  password_encryption: 'scram-sha-256',
  max_connections: '216',
  // Of these connections, for the service itself and for operators.
  reserved_connections: '16',
  shared_buffers: '128MB',
  // A prepared transaction would hold its locks until an operator ends it.
  max_prepared_transactions: '0',
  timezone: 'UTC',
  log_timezone: 'UTC',
  log_destination: 'stderr',
  logging_collector: 'off',
  log_line_prefix: '%m [%p] ',
  // Statements, their parameters and the values in error details are the organizations' data.
  log_statement: 'none',
  log_min_error_statement: 'panic',
  log_min_duration_statement: '-1',
  log_parameter_max_length: '0',
  log_parameter_max_length_on_error: '0',
  log_error_verbosity: 'terse',
  log_min_messages: 'log',
  log_checkpoints: 'off',
  // Recovery after a crash syncs all files, 300 for each organization's database. With fsync for each, 350 databases took 7 s,
  // which would be far too long with ten thousand.
  ...(process.platform === 'linux' ? { recovery_init_sync_method: 'syncfs' } : {}),
};

/** @see https://www.postgresql.org/docs/current/auth-pg-hba-conf.html */
const HOST_BASED_AUTHENTICATION = 'local all all scram-sha-256\n';

/**
 * Starts PostgreSQL in the data directory. The first start creates a cluster there.
 * @throws EmbeddedError
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedCluster> {
  const sharedFolder = options.sharedFolder ?? '/var/lib/postern';
  const account = await serverAccount();
  const directory = await openDataDirectory(options.dataDir, account, sharedFolder);
  try {
    return await startIn(directory, account, sharedFolder, options);
  } catch (error) {
    await directory.release();
    if (error instanceof EmbeddedError) throw error;
    throw new EmbeddedError(`data directory ${directory.path} cannot be used: ${reasonOf(error)}`);
  }
}

async function startIn(
  directory: DataDirectory,
  preferred: Account | undefined,
  sharedFolder: string,
  options: EmbeddedOptions,
): Promise<EmbeddedCluster> {
  const { cluster, log } = directory;
  const owner = await ownerOf(cluster);
  const account = accountFor(directory, owner, preferred);
  const binaries = await findBinaries(account, sharedFolder);
  const secret = options.secret ?? (await ensureSecret(directory));
  if (owner !== undefined) await checkExisting(directory, binaries, account);
  else await initialise(directory, binaries, account, options.settings?.fsync !== 'off');

  await stopOrphan(cluster);
  const host = await makeSocketFolder(directory, account);
  const extensions = await linkExtensions(directory, binaries);
  const settings = await settingsFor(directory, { host, extensions }, options.settings ?? {});
  const verifier = await roleVerifier(secret, SUPERUSER);
  const { observe = () => {} } = options;
  const disk = new DiskWatch({ disk: new DiskSpace(cluster), folder: directory.home, observe });
  // Recovery writes WAL too.
  await disk.makeRoom();
  await whileSessionsLinger(() => setSuperuserPassword(cluster, binaries, account, settings, verifier));
  const exited = (how: string) => {
    observe({ name: 'service.warning', message: `the embedded PostgreSQL ended (${how}) and is being restarted` });
    void disk.makeRoom();
    options.exited?.(how);
  };
  const postmaster = await Postmaster.start({ postgres: binaries.postgres, account, cluster, settings, log, exited });
  disk.start();
  return {
    host,
    port: PORT,
    superuser: { user: SUPERUSER, password: rolePassword(secret, SUPERUSER) },
    secret,
    folder: cluster,
    get pid() {
      return postmaster.pid;
    },
    async stop() {
      await disk.stop();
      await postmaster.stop();
      for (const folder of [host, extensions]) await rm(folder, { recursive: true, force: true });
      await directory.release();
    },
  };
}

/** As root, Postern runs an existing cluster as its owner. Other users can only run their own clusters. */
function accountFor(directory: DataDirectory, owner: Account | undefined, preferred: Account | undefined): Account | undefined {
  if (owner === undefined) return preferred;
  if (preferred !== undefined) return owner.uid === 0 ? preferred : owner;
  if (owner.uid === process.getuid?.()) return undefined;
  throw new EmbeddedError(`${directory.cluster} belongs to another user (uid ${owner.uid}): start Postern as that user, or as root`);
}

async function checkExisting(directory: DataDirectory, binaries: Binaries, account: Account | undefined): Promise<void> {
  if (!(await canEnter(directory.home, account))) {
    throw new EmbeddedError(
      `data directory ${directory.path} cannot be used: the owner of postgres in it (uid ${account?.uid}) cannot enter ${directory.home}: copy it to where they can`,
    );
  }
  const version = await readFile(join(directory.cluster, 'PG_VERSION'), 'utf8').catch((error: unknown) => {
    throw hasCode(error, 'ENOENT') ? new EmbeddedError(`${directory.cluster} is not a PostgreSQL cluster`) : error;
  });
  const major = Number.parseInt(version, 10);
  if (major === binaries.major) return;
  const advice = major > binaries.major ? 'use the Postern that made it, or a newer one' : 'dump it with the Postern that made it';
  throw new EmbeddedError(`data directory ${directory.path} is of PostgreSQL ${major}, and this Postern runs ${binaries.major}: ${advice}`);
}

/** Settings as arguments, which take precedence over the cluster's own files. */
async function settingsFor(
  directory: DataDirectory,
  folders: { readonly host: string; readonly extensions: string },
  more: Readonly<Record<string, string>>,
): Promise<string[]> {
  // Written beside the cluster and not in it: root must not write into a folder that another account owns.
  const rules = join(directory.home, 'pg_hba.conf');
  await replaceFile(rules, HOST_BASED_AUTHENTICATION, 0o644);
  const paths = {
    hba_file: rules,
    unix_socket_directories: `"${folders.host.replaceAll('"', '""')}"`,
  };
  return Object.entries({ ...SETTINGS, extension_control_path: folders.extensions, ...more, ...paths }).flatMap(([name, value]) => [
    '-c',
    `${name}=${value}`,
  ]);
}
