import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import { ADVISORY_LOCKS } from '../catalog/advisory-locks.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { type DiskState, diskLimitOf, isOver } from '../catalog/limits.ts';
import type { Organization } from '../catalog/organization.ts';
import type { Config } from '../config.ts';
import type { Observe, Origin } from '../observation.ts';
import { type AdminLogin, withSession } from '../placement/admin-connection.ts';
import { allowWrites, dataBytes, hasRefusedWrites, refuseWrites } from '../placement/disk-quota.ts';
import { isReaderRole, ownerOf } from '../placement/reader-role.ts';
import type { Clusters } from './clusters.ts';
import { whileQuiet } from './moves.ts';
import type { ServedCluster } from './served-cluster.ts';

/** What is looked for at each look: who is at work, and what has come to its time. */
const LOOK_EVERY_MS = 1_000;
/** How often another process looks whether the one that measures is still there. */
const LEAD_EVERY_MS = 5_000;
/** How often limits are read that operators may have changed. */
const READ_EVERY_MS = 5_000;

/** Faster than most disks take what an organization writes. */
const BYTES_PER_SECOND = 100_000_000;
/** When an organization that writes is measured again. */
const AGAIN_MS = { first: 2_000, last: 60_000 };
/** When it is tried again to let an organization write, or not. */
const RETRY_MS = 10_000;

/** Shares of the limit. What has been near or over it has to be below less than that, so that it does not change all the time. */
const NEAR = { from: 0.8, below: 0.75 };
const OVER = { from: 1, below: 0.95 };

/** How long statements may go on, and how long clients wait at most. */
const QUIET_WITHIN_MS = 500;
const PAUSE_MS = 60_000;
const CLOSE_TIMEOUT_MS = 5_000;

/** How an organization's size compares to its limit, if it was this before. @param limit in bytes; undefined: none */
export function diskStateOf(bytes: number, limit: number | undefined, before: DiskState): Exclude<DiskState, 'read_only'> {
  if (limit === undefined) return 'within';
  const share = bytes / limit;
  if (share >= (isOver(before) ? OVER.below : OVER.from)) return 'over';
  return share >= (before === 'within' ? NEAR.from : NEAR.below) ? 'near' : 'within';
}

/** In how many milliseconds an organization that writes may be over its limit. */
export function measureAgainMs(bytes: number, limit: number): number {
  const roomMs = (1_000 * (limit - bytes)) / BYTES_PER_SECOND;
  return Math.min(AGAIN_MS.last, Math.max(AGAIN_MS.first, roomMs));
}

/** What is known of an organization that has a limit, or had one. */
interface Watched {
  organization: Organization;
  limit: number | undefined;
  /** When it is measured again if it writes, on the clock of `performance.now()`. */
  dueAt: number;
  /** Whether it may have written since it was measured. */
  mayHaveWritten: boolean;
  /** What its database had counted when it was last looked at. */
  changes: string | undefined;
  /** Whether this process has made it unable to write, or has found it so. */
  isRefused: boolean;
}

interface DiskQuotasOptions {
  readonly catalog: Catalog;
  readonly clusters: Clusters;
  readonly config: Config;
  readonly observe: Observe;
}

const ORIGIN: Origin = { surface: 'admin', sourceIp: '127.0.0.1' };

/**
 * Keeps organizations from having more data than they may have. One of the processes that share a control database measures those that write,
 * one after another on each server.
 */
export class DiskQuotas {
  readonly #options: DiskQuotasOptions;
  readonly #stop = new AbortController();
  readonly #watched = new Map<string, Watched>();
  #readAt = Number.NEGATIVE_INFINITY;
  #running: Promise<void> = Promise.resolve();
  #isLeading = false;

  constructor(options: DiskQuotasOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running = this.#run();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    // What is not completed the next process completes.
    await Promise.race([this.#running, delay(CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
  }

  /** How many organizations have at least 80 % of what they may have, and how many all of it; undefined: another process knows. */
  counts(): { readonly near: number; readonly over: number } | undefined {
    if (!this.#isLeading) return undefined;
    const states = [...this.#watched.values()].map(({ organization }) => organization.diskState);
    return { near: states.filter((state) => state !== 'within').length, over: states.filter(isOver).length };
  }

  /** Leads whenever no other process does. The session that holds the lock is lost with the process. */
  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await withSession(this.#controlLogin(), (session) => this.#leadIfFirst(session)).catch(() => {
        // The server does not answer, which others report.
      });
      this.#isLeading = false;
      await wait(LEAD_EVERY_MS, signal);
    }
  }

  #controlLogin(): AdminLogin {
    const { host, port, hosts, ssl, platform, controlDatabase: database } = this.#options.clusters.default.platform.cluster;
    return { host, port, hosts, ssl, ...platform, database };
  }

  async #leadIfFirst(session: pg.Client): Promise<void> {
    const { rows } = await session.query<{ is_first: boolean }>('SELECT pg_catalog.pg_try_advisory_lock($1, 0) AS is_first', [
      ADVISORY_LOCKS.diskQuotas,
    ]);
    if (rows[0]?.is_first !== true) return;
    this.#watched.clear();
    this.#readAt = Number.NEGATIVE_INFINITY;
    this.#isLeading = true;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await session.query('');
      await this.#look();
      await wait(LOOK_EVERY_MS, signal);
    }
  }

  async #look(): Promise<void> {
    const { observe, clusters } = this.#options;
    try {
      if (performance.now() - this.#readAt >= READ_EVERY_MS) await this.#read();
      await Promise.all(clusters.opened().map((cluster) => (cluster.isUp ? this.#lookAt(cluster) : undefined)));
    } catch (cause) {
      if (!this.#stop.signal.aborted) observe({ name: 'service.warning', message: 'organizations could not be measured', cause });
    }
  }

  /** Reads who has which limit. One that is new, or has another, is measured at once. */
  async #read(): Promise<void> {
    const { catalog, config } = this.#options;
    const limited = await catalog.diskQuotas.limited(config.POSTERN_DISK_PER_TENANT_BYTES);
    this.#readAt = performance.now();
    const gone = new Set(this.#watched.keys());
    for (const organization of limited) {
      gone.delete(organization.id);
      const limit = diskLimitOf(organization, config);
      const known = this.#watched.get(organization.id);
      if (known === undefined) {
        const watched = { organization, limit, dueAt: 0, mayHaveWritten: true, changes: undefined, isRefused: false };
        this.#watched.set(organization.id, watched);
        continue;
      }
      if (known.limit !== limit || known.organization.placement.cluster !== organization.placement.cluster)
        Object.assign(known, { dueAt: 0, mayHaveWritten: true });
      Object.assign(known, { organization, limit });
    }
    for (const id of gone) this.#watched.delete(id);
  }

  async #lookAt(cluster: ServedCluster): Promise<void> {
    const here = () => [...this.#watched.values()].filter(({ organization }) => organization.placement.cluster === cluster.name);
    const atWork = await cluster.platform.run((session) => rolesAtWork(session));
    // One that has just been signed up.
    if ([...atWork].some((role) => !this.#watched.has(role)) && this.#mayHaveLimits()) await this.#readSoon();
    const watched = here();
    await this.#noteChanges(cluster, watched);
    for (const one of watched) if (atWork.has(one.organization.placement.role)) one.mayHaveWritten = true;
    const due = watched.filter((one) => one.mayHaveWritten && one.dueAt <= performance.now());
    for (const one of due.sort((a, b) => a.dueAt - b.dueAt)) {
      if (this.#stop.signal.aborted) return;
      await this.#measure(cluster, one, atWork.has(one.organization.placement.role));
    }
  }

  #mayHaveLimits(): boolean {
    return this.#options.config.POSTERN_DISK_PER_TENANT_BYTES > 0;
  }

  async #readSoon(): Promise<void> {
    if (performance.now() - this.#readAt >= LOOK_EVERY_MS) await this.#read();
  }

  /** In a database of its own an organization's writes are counted, also those between two looks. */
  async #noteChanges({ platform }: ServedCluster, watched: readonly Watched[]): Promise<void> {
    const byDatabase = new Map(
      watched.flatMap((one) => (one.organization.placement.kind === 'database' ? [[one.organization.placement.database, one]] : [])),
    );
    if (byDatabase.size === 0) return;
    const { rows } = await platform.run((session) =>
      session.query<{ database: string; changes: string }>(CHANGES, [[...byDatabase.keys()]]),
    );
    for (const { database, changes } of rows) {
      const one = byDatabase.get(database);
      if (one === undefined || one.changes === changes) continue;
      one.changes = changes;
      one.mayHaveWritten = true;
    }
  }

  async #measure(cluster: ServedCluster, watched: Watched, isAtWork: boolean): Promise<void> {
    const { observe } = this.#options;
    const { id } = watched.organization;
    try {
      const bytes = await dataBytes(cluster.platform, watched.organization.placement);
      const { limit } = watched;
      watched.dueAt = performance.now() + (bytes === undefined || limit === undefined ? AGAIN_MS.first : measureAgainMs(bytes, limit));
      if (bytes === undefined) return;
      await this.#apply(cluster, watched, bytes);
      watched.mayHaveWritten = isAtWork;
    } catch (cause) {
      watched.dueAt = performance.now() + RETRY_MS;
      watched.mayHaveWritten = true;
      if (!this.#stop.signal.aborted)
        observe({ name: 'service.warning', message: `the disk quota of organization ${id} could not be applied`, cause });
    }
  }

  async #apply(cluster: ServedCluster, watched: Watched, bytes: number): Promise<void> {
    const { organization, limit } = watched;
    const before = organization.diskState;
    const now = diskStateOf(bytes, limit, before);
    if (now === 'over') {
      if (!isOver(before) || !watched.isRefused) await this.#refuse(cluster, watched, bytes);
      return;
    }
    if (isOver(before)) await allowWrites({ cluster: cluster.platform.cluster, placement: organization.placement });
    watched.isRefused = false;
    if (now !== before) await this.#change(watched, now, bytes);
  }

  /** The state is there before the protection, and after it, so that whoever finds it completes what has been begun. */
  async #refuse(cluster: ServedCluster, watched: Watched, bytes: number): Promise<void> {
    const { catalog } = this.#options;
    const { organization } = watched;
    const { placement } = organization;
    const { cluster: server } = cluster.platform;
    watched.isRefused = await this.#isRefused(cluster, organization);
    if (watched.isRefused) return;
    const quiet = { catalog, cluster, limitMs: PAUSE_MS, force: true, withinMs: QUIET_WITHIN_MS };
    if (server.superuser !== undefined) {
      await this.#change(watched, 'over', bytes);
      const end = () => cluster.provisioning((provisioner) => provisioner.terminateSessions(placement));
      await whileQuiet(organization, quiet, () => refuseWrites({ cluster: server, placement }, end));
    } else {
      await cluster.provisioning((provisioner) => provisioner.admitReaders(placement));
      await whileQuiet(organization, quiet, () => this.#change(watched, 'read_only', bytes));
    }
    watched.isRefused = true;
  }

  /** Another process may have done it before. */
  async #isRefused({ platform: { cluster } }: ServedCluster, { placement, diskState }: Organization): Promise<boolean> {
    if (cluster.superuser === undefined) return diskState === 'read_only';
    return diskState === 'over' && hasRefusedWrites({ cluster, placement });
  }

  async #change(watched: Watched, state: DiskState, bytes: number): Promise<void> {
    const { catalog, observe } = this.#options;
    const { organization, limit } = watched;
    const isChanged = await catalog.diskQuotas.setState(organization.id, state, ORIGIN);
    watched.organization = { ...organization, diskState: state };
    if (isChanged)
      observe({ name: 'organization.disk', organizationId: organization.id, state, bytes, limit, message: messageOf(watched, bytes) });
  }
}

function messageOf({ organization: { id, diskState }, limit }: Watched, bytes: number): string {
  const size = limit === undefined ? `${bytes} bytes of data and no limit` : `${bytes} of ${limit} bytes of data`;
  return `organization ${id} has ${size}${isOver(diskState) ? ', and may only read and delete' : ''}`;
}

/** Who has sessions is visible to all. */
async function rolesAtWork(session: pg.PoolClient): Promise<ReadonlySet<string>> {
  const { rows } = await session.query<{ role: string }>(
    "SELECT DISTINCT usename AS role FROM pg_catalog.pg_stat_activity WHERE usename ~ '^org_'",
  );
  return new Set(rows.map(({ role }) => (isReaderRole(role) ? ownerOf(role) : role)));
}

/** Rows that were changed, also by transactions that were rolled back. */
const CHANGES = `
  SELECT d.datname AS database, (pg_catalog.pg_stat_get_db_tuples_inserted(d.oid) + pg_catalog.pg_stat_get_db_tuples_updated(d.oid)
    + pg_catalog.pg_stat_get_db_tuples_deleted(d.oid))::pg_catalog.text AS changes
  FROM pg_catalog.pg_database d WHERE d.datname = ANY ($1)`;

async function wait(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal, ref: false }).catch(() => {});
}
