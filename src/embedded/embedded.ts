import { randomBytes } from 'node:crypto';
import { readdir, readFile, realpath, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { rolePassword, roleVerifier } from '../auth/derived-secrets.ts';
import type { Config } from '../config.ts';
import type { Observe } from '../observation.ts';
import type { AdminLogin } from '../placement/admin-connection.ts';
import { hasCode, reasonOf } from '../system-errors.ts';
import { type Binaries, findBinaries, initialise, requireProgramsFolder, SUPERUSER } from './binaries.ts';
import {
  type Account,
  canEnter,
  type DataDirectory,
  EmbeddedError,
  makeSharedFolder,
  makeSocketFolder,
  openDataDirectory,
  ownerOf,
  replaceFile,
  serverAccount,
} from './data-directory.ts';
import { DiskSpace, DiskWatch } from './disk-space.ts';
import { isServing, PORT, Postmaster, readPostmasterPid, setSuperuserPassword, stopOrphan, whileSessionsLinger } from './postmaster.ts';

export interface EmbeddedOptions {
  /** Created when it does not exist. Holds the secret, the server's log, and the cluster or a link to it. */
  readonly dataDir: string;
  /** Used instead of the generated one (`POSTERN_SECRET`). */
  readonly secret?: string;
  /** The folder with the programs of a PostgreSQL in place of npm's (`POSTERN_POSTGRES_BIN`). */
  readonly programs?: string | undefined;
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

/** The settings of a server since some major version. */
const SETTINGS_SINCE: readonly (readonly [major: number, settings: Readonly<Record<string, string>>])[] = [
  // Of the connections, for the service itself and for operators.
  [16, { reserved_connections: '16' }],
];

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
  const { observe = () => {}, programs } = options;
  const binaries = await findBinaries(account, sharedFolder, programs);
  const secret = options.secret ?? (await ensureSecret(directory));
  if (owner !== undefined) await checkExisting(directory, binaries, account, programs);
  else await initialise(directory, binaries, account, options.settings?.fsync !== 'off');

  await stopOrphan(cluster);
  const host = await makeSocketFolder(directory, account);
  const extensions = await offerExtensions(directory, binaries, observe);
  const settings = await settingsFor(directory, host, { ...settingsOf(binaries), ...extensions.settings, ...options.settings });
  const verifier = await roleVerifier(secret, SUPERUSER);
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
      for (const folder of [host, extensions.folder]) await rm(folder, { recursive: true, force: true });
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

/** @param programs the folder of the binaries, if it has been given */
async function checkExisting(
  directory: DataDirectory,
  binaries: Binaries,
  account: Account | undefined,
  programs: string | undefined,
): Promise<void> {
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
  const other =
    programs === undefined ? `this Postern brings ${binaries.major}` : `POSTERN_POSTGRES_BIN (${programs}) is ${binaries.major}`;
  throw new EmbeddedError(
    `data directory ${directory.path} is of PostgreSQL ${major}, and ${other}: set POSTERN_POSTGRES_BIN to a folder with the programs of ` +
      `${major}, or start in a new data directory and load a dump that was made with ${major}`,
  );
}

function settingsOf({ major }: Binaries): Readonly<Record<string, string>> {
  return Object.assign({}, SETTINGS, ...SETTINGS_SINCE.map(([since, settings]) => (major >= since ? settings : {})));
}

/** Settings as arguments, which take precedence over the cluster's own files. */
async function settingsFor(directory: DataDirectory, socketFolder: string, settings: Readonly<Record<string, string>>): Promise<string[]> {
  // Written beside the cluster and not in it: root must not write into a folder that another account owns.
  const rules = join(directory.home, 'pg_hba.conf');
  await replaceFile(rules, HOST_BASED_AUTHENTICATION, 0o644);
  const paths = {
    hba_file: rules,
    unix_socket_directories: `"${socketFolder.replaceAll('"', '""')}"`,
  };
  return Object.entries({ ...settings, ...paths }).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

/** Languages whose interpreters do not check for interrupts: neither cancel nor terminate stops their functions. */
const UNINTERRUPTIBLE = /pl(perl|tcl|python)/;
/** The control file of such a language, and not of an extension for one. */
const LANGUAGE = /^(pl(?:perl|tcl|python).*)\.control$/;

interface OfferedExtensions {
  /** Removed when the server has been stopped. */
  readonly folder: string;
  readonly settings: Readonly<Record<string, string>>;
}

/**
 * Makes a folder of links to the extensions that organizations may create. Every role may create trusted extensions, and only
 * an extension's control file tells whether it is trusted. A server that takes no such folder offers all that are installed.
 * @see https://www.postgresql.org/docs/18/runtime-config-client.html#GUC-EXTENSION-CONTROL-PATH
 */
async function offerExtensions({ home }: DataDirectory, { major, share }: Binaries, observe: Observe): Promise<OfferedExtensions> {
  const installed = join(share, 'extension');
  const names = await readdir(installed);
  const folder = join(home, 'share');
  await rm(folder, { recursive: true, force: true });
  // A colon separates folders in the setting, so with one in the path no extension would be found.
  if (major < 18 || folder.includes(':')) {
    const languages = names.flatMap((name) => LANGUAGE.exec(name)?.[1] ?? []).toSorted();
    if (languages.length > 0) observe({ name: 'service.warning', message: offersLanguages(languages, installed, major) });
    return { folder, settings: {} };
  }
  await makeSharedFolder(folder);
  await makeSharedFolder(join(folder, 'extension'));
  for (const name of names) if (!UNINTERRUPTIBLE.test(name)) await symlink(join(installed, name), join(folder, 'extension', name));
  return { folder, settings: { extension_control_path: folder } };
}

function offersLanguages(languages: readonly string[], installed: string, major: number): string {
  const why =
    major < 18 ? `PostgreSQL ${major} cannot hide them, as 18 can` : 'with a colon in its path the data directory cannot hide them';
  return (
    `nothing stops a function in ${languages.join(', ')}, and organizations may create the trusted ones of these languages: ${why}; ` +
    `remove them from ${installed}`
  );
}

const SECRET_MIN_CHARACTERS = 16;

/** @returns the secret; it is generated and stored (mode 0600) when there is none */
async function ensureSecret({ path }: DataDirectory): Promise<string> {
  const known = await knownSecret(path);
  const secret = known ?? randomBytes(32).toString('base64url');
  if (known === undefined) await replaceFile(secretFile(path), `${secret}\n`, 0o600);
  return secret;
}

/**
 * @returns undefined when none has been stored yet
 * @throws EmbeddedError
 */
async function knownSecret(path: string): Promise<string | undefined> {
  const file = secretFile(path);
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw new EmbeddedError(`${file} cannot be read: ${reasonOf(error)}`);
  });
  const secret = text?.trim();
  if (secret !== undefined && secret.length < SECRET_MIN_CHARACTERS) {
    throw new EmbeddedError(`${file} holds less than ${SECRET_MIN_CHARACTERS} characters`);
  }
  return secret;
}

function secretFile(path: string): string {
  return join(path, 'secret');
}

/** How to reach the PostgreSQL that another process has started. */
interface RunningServer {
  readonly host: string;
  readonly port: number;
  readonly superuser: { readonly user: string; readonly password: string };
  readonly secret: string;
  /** Its own folder (PGDATA). */
  readonly folder: string;
}

/**
 * Finds the server that a running Postern has started in this data directory.
 * @param given used instead of the secret stored there
 * @throws EmbeddedError when there is none, or it belongs to another user
 */
export async function findRunningServer(dataDir: string, given?: string): Promise<RunningServer> {
  const path = await realpath(dataDir).catch(() => dataDir);
  const cluster = await realpath(join(path, 'postgres')).catch(() => '');
  const { pid, socketFolder } = await readPostmasterPid(cluster);
  if (pid === undefined || socketFolder === undefined || !(await isServing(pid, cluster))) {
    throw new EmbeddedError(`no Postern that this user can see runs on the data directory ${dataDir}: start it first`);
  }
  const secret = given ?? (await knownSecret(path));
  if (secret === undefined) throw new EmbeddedError(`the data directory ${dataDir} holds no secret: set POSTERN_SECRET`);
  return {
    host: socketFolder,
    port: PORT,
    superuser: { user: SUPERUSER, password: rolePassword(secret, SUPERUSER) },
    secret,
    folder: cluster,
  };
}

/** A PostgreSQL server, and the secret from which the passwords of its roles are derived. */
export interface BackingPostgres {
  readonly admin: string | AdminLogin;
  readonly secret: string;
  /** The folder of the embedded server's files; undefined: it is another server, whose disk is its operator's. */
  readonly folder?: string;
}

/** The texts of utility statements may hold passwords and secret names of channels; those of others have no constants. */
const WITH_MODULE = { shared_preload_libraries: 'pg_stat_statements', 'pg_stat_statements.track_utility': 'off' };

const NOT_EMBEDDED =
  'POSTERN_QUERY_STATISTICS is on, but is about the embedded server only, and the one in DATABASE_URL should not preload ' +
  'pg_stat_statements: a statement of any key can end the server process in it';

/** How much WAL is kept for a receiver that does not take it. */
function settingsForBackups({ POSTERN_BACKUP_DIR: dir, POSTERN_BACKUP_WAL_MAX_BYTES: bytes }: Config): Readonly<Record<string, string>> {
  return dir === undefined ? {} : { max_slot_wal_keep_size: `${Math.ceil(bytes / 1_048_576)}MB` };
}

/** The PostgreSQL behind the doors: the one in DATABASE_URL, or the embedded one. */
export async function openPostgres(config: Config, observe: Observe, opened: (() => Promise<void>)[]): Promise<BackingPostgres> {
  const { DATABASE_URL: admin, POSTERN_SECRET: secret, POSTERN_POSTGRES_BIN: programs } = config;
  if (admin !== undefined && secret !== undefined) {
    if (programs !== undefined) await requireProgramsFolder(programs);
    if (config.POSTERN_QUERY_STATISTICS === 'on') observe({ name: 'service.warning', message: NOT_EMBEDDED });
    return { admin, secret };
  }
  const embedded = await startEmbedded({
    dataDir: config.POSTERN_DATA_DIR,
    observe,
    programs,
    ...(secret === undefined ? {} : { secret }),
    settings: { ...(config.POSTERN_QUERY_STATISTICS === 'on' ? WITH_MODULE : {}), ...settingsForBackups(config) },
  });
  opened.push(() => embedded.stop());
  const { host, port, superuser, folder } = embedded;
  return { admin: { host, port, ...superuser }, secret: embedded.secret, folder };
}

/**
 * The same server, for an operator beside the running service, which has started the embedded one.
 * @throws EmbeddedError when none runs
 */
export async function findPostgres(config: Config): Promise<BackingPostgres> {
  const { DATABASE_URL: admin, POSTERN_SECRET: secret } = config;
  if (admin !== undefined && secret !== undefined) return { admin, secret };
  const { host, port, superuser, secret: known, folder } = await findRunningServer(config.POSTERN_DATA_DIR, secret);
  return { admin: { host, port, ...superuser }, secret: known, folder };
}
