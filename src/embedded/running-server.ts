import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { rolePassword } from '../auth/derived-secrets.ts';
import { EmbeddedError } from './embedded-error.ts';
import { SUPERUSER } from './initdb.ts';
import { knownSecret } from './secret-file.ts';
import { PORT } from './server-process/postmaster.ts';
import { isServing, readPostmasterPid } from './server-process/postmaster-pid.ts';

/** How to reach the PostgreSQL that another process has started. */
export interface RunningServer {
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
