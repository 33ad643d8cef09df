import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { CLUSTERS } from '../catalog/clusters.ts';
import { replaceFile, startOf } from '../embedded/data-directory.ts';
import { type EmbeddedCluster, startEmbedded } from '../embedded/embedded.ts';
import type { Observe } from '../observation.ts';
import { type AdminLogin, withSession } from '../placement/admin-connection.ts';
import { textOf } from '../protocol/backend.ts';
import { hasCode } from '../system-errors.ts';
import { type Archive, hasSign, whileSigned } from './archive.ts';
import { restore } from './restore.ts';

/** Servers of former times are below it, beside the files of the server of now. */
export function pastFolder(cluster: string): string {
  return join(dirname(cluster), 'past');
}

/** The name of the server of a time, and of its cluster. Several organizations may be cloned there. */
export function pastName(time: Date): string {
  return `past-${time.toISOString().replace(/[-:.]/g, '').toLowerCase()}`;
}

const NAME = /^past-[\dtz]+$/;
const RESTORING = /^past-[\dtz]+\.restoring-(\d+)$/;

/** Where the service tells how to reach the server, once it runs: a postgres:// URL. */
export function pastUrlFile(folder: string, name: string): string {
  return join(folder, name, 'url');
}

interface PastRequest {
  /** {@link pastFolder} */
  readonly folder: string;
  readonly archive: Archive;
  readonly time: Date;
  /** How large the server of now is. */
  readonly dataBytes: number;
  /** The folder of the programs of a PostgreSQL in place of npm's (`POSTERN_POSTGRES_BIN`). */
  readonly programs: string | undefined;
}

/**
 * Restores the server of a time, for the running service to start it, unless it is there.
 * @param use while this lasts, the server stays; afterwards while it has organizations
 * @throws BackupError, and what `use` throws
 */
export async function withPast<Result>(
  { folder, archive, time, dataBytes, programs }: PastRequest,
  use: (isAtEnd: boolean) => Promise<Result>,
): Promise<Result> {
  const name = pastName(time);
  await mkdir(folder, { mode: 0o711 }).catch((error: unknown) => {
    if (!hasCode(error, 'EEXIST')) throw error;
  });
  return whileSigned(join(folder, `${name}.in-use-${process.pid}`), async () => {
    if ((await readdir(folder)).includes(name)) return use(false);
    const unfinished = join(folder, `${name}.restoring-${process.pid}`);
    const { isAtEnd } = await restore({ archive, at: time, to: unfinished, dataBytes, programs });
    // The service starts it with the secret of now.
    await rm(join(unfinished, 'secret'), { force: true });
    await rename(unfinished, join(folder, name)).catch(async (error: unknown) => {
      // Another command has restored it meanwhile.
      if (!hasCode(error, 'EEXIST', 'ENOTEMPTY')) throw error;
      await rm(unfinished, { recursive: true, force: true });
    });
    return use(isAtEnd);
  });
}

interface PastServersOptions {
  /** {@link pastFolder} */
  readonly folder: string;
  /** The superuser of the server of now. */
  readonly login: AdminLogin;
  readonly secret: string;
  readonly controlDatabase: string;
  /** The folder of the programs of a PostgreSQL in place of npm's (`POSTERN_POSTGRES_BIN`). */
  readonly programs: string | undefined;
  readonly observe: Observe;
}

const LOOK_EVERY_MS = 1_000;
const TRY_AGAIN_MS = 10_000;
const REMOVE_EVERY_MS = 5_000;

/** Runs the servers of former times for as long as organizations live there: in one process, however many workers there are. */
export class PastServers {
  readonly #options: PastServersOptions;
  readonly #running = new Map<string, EmbeddedCluster>();
  /** When to look next whether one is needed, or to try again to start it. */
  readonly #due = new Map<string, number>();
  readonly #stopping = new AbortController();
  readonly #ended: Promise<void>;

  constructor(options: PastServersOptions) {
    this.#options = options;
    this.#ended = this.#run();
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#ended;
    for (const cluster of this.#running.values()) await cluster.stop();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const names = await readdir(this.#options.folder).catch(() => []);
      for (const name of names) {
        if (signal.aborted) return;
        await this.#look(name).catch((error: unknown) => this.#warn(name, error));
      }
      await delay(LOOK_EVERY_MS, undefined, { signal }).catch(() => {});
    }
  }

  async #look(name: string): Promise<void> {
    const path = join(this.#options.folder, name);
    const restorer = Number(RESTORING.exec(name)?.[1]);
    if (restorer > 0 && (await startOf(restorer)) === undefined) await rm(path, { recursive: true, force: true });
    if (!NAME.test(name) || performance.now() < (this.#due.get(name) ?? 0)) return;
    this.#due.set(name, performance.now() + (this.#running.has(name) ? REMOVE_EVERY_MS : TRY_AGAIN_MS));
    if (!this.#running.has(name)) await this.#start(name);
    else if (!(await this.#isNeeded(name))) await this.#remove(name);
  }

  async #start(name: string): Promise<void> {
    const { folder, secret, programs } = this.#options;
    const cluster = await startEmbedded({ dataDir: join(folder, name), secret, programs });
    this.#running.set(name, cluster);
    const { host, port, superuser } = cluster;
    const url = `postgres://${superuser.user}:${superuser.password}@${encodeURIComponent(host)}:${port}/postgres`;
    await replaceFile(pastUrlFile(folder, name), `${url}\n`, 0o600);
  }

  /** Somebody is about to clone an organization there, or there is one. */
  async #isNeeded(name: string): Promise<boolean> {
    const { folder, login, controlDatabase } = this.#options;
    const users = (await readdir(folder)).filter((one) => one.startsWith(`${name}.in-use-`));
    for (const user of users) if (await hasSign(join(folder, user))) return true;
    return withSession({ ...login, database: controlDatabase }, async (session) => {
      const home = "EXISTS (SELECT FROM postern.organizations WHERE placement ->> 'cluster' = $1 AND status <> 'dropped')";
      const { rows } = await session.query<{ isHome: boolean }>(`SELECT ${home} AS "isHome"`, [name]);
      if (rows[0]?.isHome) return true;
      await session.query('DELETE FROM postern.clusters WHERE name = $1', [name]);
      for (const payload of CLUSTERS.encode([undefined])) {
        await session.query('SELECT pg_catalog.pg_notify($1, $2)', [CLUSTERS.channel, payload]);
      }
      return false;
    });
  }

  async #remove(name: string): Promise<void> {
    await this.#running.get(name)?.stop();
    this.#running.delete(name);
    this.#due.delete(name);
    await rm(join(this.#options.folder, name), { recursive: true, force: true });
  }

  #warn(name: string, error: unknown): void {
    if (this.#stopping.signal.aborted) return;
    this.#options.observe({ name: 'service.warning', message: `the server ${name} of a former time: ${textOf(error)}` });
  }
}
