import { realpath } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { Archive } from '../backups/archive.ts';
import {
  archiveOf,
  type BackedUpServer,
  backedUpServer,
  createBackup,
  type DescribedArchive,
  describeArchive,
  pruneBackups,
  systemIdentifierOf,
  trialFolder,
  verifyBackup,
} from '../backups/backups.ts';
import { BackupError } from '../backups/base-backup.ts';
import { restore } from '../backups/restore.ts';
import type { Config } from '../config.ts';
import { findPostgres } from '../embedded/embedded.ts';
import { table } from './operations.ts';

/** What operators do with the backups of the embedded server. @throws BackupError, EmbeddedError */
export interface BackupCommands {
  create(): Promise<string>;
  list(isJson: boolean): Promise<string>;
  verify(time: Date | undefined): Promise<string>;
  prune(): Promise<string>;
  restore(to: string, at: Date | undefined): Promise<string>;
}

/**
 * @param system the server's system identifier, where the folder has backups of several and the data directory is lost
 * @throws BackupError unless there is a backup folder
 */
export function backupCommands(config: Config, system?: string): BackupCommands {
  const { POSTERN_BACKUP_DIR: dir, POSTERN_DATA_DIR: dataDir, POSTERN_POSTGRES_BIN: programs } = config;
  if (dir === undefined) throw new BackupError('POSTERN_BACKUP_DIR is not set: there are no backups');
  const running = () => runningServer(config);
  return {
    async create() {
      const postgres = await findPostgres(config);
      const server = backedUpServer(postgres, config);
      if (server === undefined) throw new BackupError('only the embedded server is backed up by Postern');
      const { time, bytes } = await createBackup(server, await archiveOf(server, dir));
      return `the base backup of ${time} is whole: ${megabytes(bytes)} MB`;
    },
    async list(isJson) {
      const archives = system === undefined ? await Archive.all(dir) : [new Archive(dir, system)];
      const servers = await Promise.all(archives.map(describeArchive));
      if (isJson) return JSON.stringify(servers, undefined, 2);
      return servers.length === 0 ? 'there are no backups' : servers.map(tableOf).join('\n\n');
    },
    async verify(time) {
      const archive = await find(dir, dataDir, system);
      const base = time && (await archive.bases()).find((one) => Date.parse(one.time) === time.getTime());
      if (time !== undefined && base === undefined) throw new BackupError(`there is no base backup of ${time.toISOString()}`);
      const server = await running();
      const folder = trialFolder((await homeOf(dataDir)) ?? tmpdir());
      const { POSTERN_CONTROL_DATABASE: controlDatabase } = config;
      const found = await verifyBackup({ archive, base, folder, controlDatabase, running: server, programs });
      const { organizations, tables, lastCommit } = found;
      const last = lastCommit === undefined ? '' : `; the last commit is of ${lastCommit}`;
      return `the base backup of ${found.base.time} is good: ${organizations} organizations, ${tables} tables of the control database${last}`;
    },
    async prune() {
      const removed = await pruneBackups(await find(dir, dataDir, system), config);
      if (removed === undefined) throw new BackupError('nothing was removed: a backup is being restored');
      return `base backups removed: ${removed}`;
    },
    async restore(to, at) {
      if ((await running()) !== undefined) throw new BackupError(`stop the Postern that runs on the data directory ${dataDir} first`);
      const target = resolve(to);
      const { base, lastCommit, isAtEnd } = await restore({ archive: await find(dir, dataDir, system), at, to: target, programs });
      const last = lastCommit === undefined ? '' : `; the last commit is of ${lastCommit}`;
      const note = isAtEnd ? `\nthe archive ends before ${at?.toISOString()}: all that it has was restored` : '';
      const secret = base.hasSecret ? '' : '\nits secret is not in the backup: start it with the same POSTERN_SECRET as before';
      return `${target} is restored from the base backup of ${base.time}${last}${note}${secret}\nstart it with POSTERN_DATA_DIR=${target}`;
    },
  };
}

/** Where there is room for another copy of the server's files; undefined: there are none. */
async function homeOf(dataDir: string): Promise<string | undefined> {
  return realpath(join(dataDir, 'postgres')).then(dirname, () => undefined);
}

async function runningServer(config: Config): Promise<BackedUpServer | undefined> {
  const postgres = await findPostgres(config).catch(() => undefined);
  return postgres && backedUpServer(postgres, config);
}

/** The backups of the server in the data directory, or of the only one there is. @throws BackupError */
async function find(dir: string, dataDir: string, system: string | undefined): Promise<Archive> {
  const archives = await Archive.all(dir);
  const own = system ?? (await realpath(join(dataDir, 'postgres')).then(systemIdentifierOf, () => undefined));
  const found =
    own === undefined && archives.length === 1 ? archives[0] : archives.find(({ systemIdentifier }) => systemIdentifier === own);
  if (found !== undefined) return found;
  const known = archives.map(({ systemIdentifier }) => systemIdentifier).join(', ');
  if (archives.length === 0 || own !== undefined)
    throw new BackupError(`there are no backups of this server in ${dir}${known && `, but of ${known}: name one by --system`}`);
  throw new BackupError(`${dir} has backups of several servers: name one of ${known} by --system`);
}

const HEADINGS = ['BACKUP', 'WHOLE', 'MB', 'WAL MB', 'VERIFIED'];

function tableOf({ system, restorableFrom, backups }: DescribedArchive): string {
  const rows = backups.map(({ time, ended, bytes, walBytes, verified, isUsable }) => [
    time,
    ended,
    String(megabytes(bytes)),
    isUsable ? String(megabytes(walBytes)) : 'missing',
    verified ?? '-',
  ]);
  const from = restorableFrom === undefined ? 'nothing can be restored' : `any time since ${restorableFrom} can be restored`;
  return `server ${system}: ${from}\n${table(HEADINGS, rows)}`;
}

function megabytes(bytes: number): number {
  return Math.ceil(bytes / 1e6);
}
