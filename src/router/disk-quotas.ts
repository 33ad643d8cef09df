import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type pg from 'pg';
import { ADVISORY_LOCKS } from '../catalog/advisory-locks.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { type DiskState, diskLimitOf, isOver } from '../catalog/limits.ts';
import type { Organization, Placement } from '../catalog/organization.ts';
import type { Config } from '../config.ts';
import { ServiceError } from '../errors.ts';
import type { Observe, Origin } from '../observation.ts';
import { type AdminLogin, withSession } from '../placement/admin-connection.ts';
import { allowWrites, dataBytes, hasRefusedWrites, refuseWrites } from '../placement/disk-quota.ts';
import { ownerOf } from '../placement/restricted-roles.ts';
import { counterFunctions } from '../placement/schema-statistics.ts';
import { codeOf } from '../protocol/backend.ts';
import type { Clusters } from './clusters.ts';
import { whileQuiet } from './moves.ts';
import type { ServedCluster } from './served-cluster.ts';

/** What is looked for at each look: who is at work, and what has come to its time. */
const LOOK_EVERY_MS = 1_000;
/** How often another process looks whether the one that measures is still there. */
const LEAD_EVERY_MS = 5_000;
/** How often limits are read that operators may have changed. */
const READ_EVERY_MS = 5_000;

/** How often the tables of those that share a database are looked through. */
const SCHEMAS_EVERY_MS = 5_000;

const INSUFFICIENT_PRIVILEGE = '42501';

/** How many organizations are made able or unable to write at the same time. */
const APPLYING_MAX = 4;

/** Faster than most disks take what an organization writes. */
const BYTES_PER_SECOND = 100_000_000;
/** When an organization that writes is measured again. */
const AGAIN_MS = { first: 2_000, last: 60_000 };
/** When it is tried again to let an organization write, or not: later after each time that it fails, for the others' sake. */
const RETRY_MS = { first: 10_000, last: 160_000 };
/** After how many attempts in vain the log says that an organization is cloned, moved or paused meanwhile. */
const BUSY_ATTEMPTS = 6;

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
  /** What PostgreSQL had counted of its changes when it was last looked at. */
  changes: string | undefined;
  /** When its state was changed here, on the clock of `performance.now()`. */
  changedAt: number;
  /** How large it was when this process has made it unable to write, or has found it so; undefined: it may be able to. */
  refusedAt: number | undefined;
  /** How often it could not be measured, or be made able or unable to write, since that was possible. */
  failures: number;
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
  /** When the schemas of a cluster were looked at, which is more than a look at databases. */
  readonly #schemasAt = new Map<string, number>();
  /** Organizations that are made able or unable to write, while the others are measured. */
  readonly #applying = new Map<string, Promise<void>>();
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
    const ended = this.#running.then(() => Promise.all(this.#applying.values()));
    await Promise.race([ended, delay(CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
  }

  /** How many organizations have at least 80 % of what they may have, and how many all of it; undefined: another process knows. */
  counts(): { readonly near: number; readonly over: number } | undefined {
    if (!this.#isLeading) return undefined;
    const states = [...this.#watched.values()].map(({ organization }) => organization.diskState);
    return { near: states.filter((state) => state !== 'within').length, over: states.filter(isOver).length };
  }

  /** Leads whenever there are limits and no other process does. The session that holds the lock is lost with the process. */
  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      // A server that does not answer is reported by others.
      await this.#leadIfNeeded().catch(() => {});
      this.#isLeading = false;
      await wait(LEAD_EVERY_MS, signal);
    }
  }

  async #leadIfNeeded(): Promise<void> {
    await this.#read();
    if (this.#isNeeded) await withSession(this.#controlLogin(), (session) => this.#leadIfFirst(session));
  }

  get #isNeeded(): boolean {
    return this.#watched.size > 0 || this.#options.config.POSTERN_DISK_PER_TENANT_BYTES > 0;
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
    // Another process may have changed their states.
    this.#watched.clear();
    await this.#read();
    this.#isLeading = true;
    const { signal } = this.#stop;
    while (!signal.aborted && this.#isNeeded) {
      await session.query('');
      await this.#look();
      await wait(LOOK_EVERY_MS, signal);
    }
  }

  /** What fails at one server is none of the others' concern. */
  async #look(): Promise<void> {
    const { observe, clusters } = this.#options;
    const warn = (cause: unknown) => {
      if (!this.#stop.signal.aborted) observe({ name: 'service.warning', message: 'organizations could not be measured', cause });
    };
    if (performance.now() - this.#readAt >= READ_EVERY_MS) await this.#read().catch(warn);
    await Promise.all(clusters.opened().map((cluster) => (cluster.isUp ? this.#lookAt(cluster).catch(warn) : undefined)));
  }

  /** Reads who has which limit. One that is new, or has another, is measured at once. */
  async #read(): Promise<void> {
    const { catalog, config } = this.#options;
    this.#readAt = performance.now();
    const readAt = this.#readAt;
    const limited = await catalog.diskQuotas.limited(config.POSTERN_DISK_PER_TENANT_BYTES);
    const gone = new Set(this.#watched.keys());
    for (const organization of limited) {
      gone.delete(organization.id);
      const limit = diskLimitOf(organization, config);
      const known = this.#watched.get(organization.id);
      if (known === undefined) {
        const unknown = { dueAt: 0, mayHaveWritten: true, changes: undefined, changedAt: 0, refusedAt: undefined, failures: 0 };
        this.#watched.set(organization.id, { organization, limit, ...unknown });
        continue;
      }
      // What was read is older than what has been done here.
      if (known.changedAt >= readAt || this.#applying.has(organization.id)) continue;
      const hasMoved = !isDeepStrictEqual(known.organization.placement, organization.placement);
      if (known.limit !== limit || hasMoved) Object.assign(known, { dueAt: 0, mayHaveWritten: true });
      if (hasMoved) known.refusedAt = undefined;
      Object.assign(known, { organization, limit });
    }
    for (const id of gone) if (!this.#applying.has(id)) this.#watched.delete(id);
  }

  async #lookAt(cluster: ServedCluster): Promise<void> {
    const here = () => [...this.#watched.values()].filter(({ organization }) => organization.placement.cluster === cluster.name);
    const atWork = await cluster.platform.run((session) => rolesAtWork(session));
    // One that has just been signed up.
    if (this.#options.config.POSTERN_DISK_PER_TENANT_BYTES > 0 && [...atWork].some((role) => !this.#watched.has(role)))
      await this.#readSoon();
    const watched = here();
    await this.#noteChanges(cluster, watched);
    for (const one of watched) if (atWork.has(one.organization.placement.role)) one.mayHaveWritten = true;
    const isDue = ({ organization: { id }, mayHaveWritten, dueAt }: Watched) =>
      mayHaveWritten && dueAt <= performance.now() && !this.#applying.has(id);
    const due = watched.filter(isDue);
    for (const one of due.sort((a, b) => a.dueAt - b.dueAt)) {
      if (this.#stop.signal.aborted) return;
      await this.#measure(cluster, one, atWork.has(one.organization.placement.role));
    }
  }

  async #readSoon(): Promise<void> {
    if (performance.now() - this.#readAt >= LOOK_EVERY_MS) await this.#read();
  }

  /** What PostgreSQL counts shows also those who have written between two looks. */
  async #noteChanges({ name, platform }: ServedCluster, watched: readonly Watched[]): Promise<void> {
    const places = (kind: Placement['kind']) =>
      watched.flatMap(({ organization: { placement } }) =>
        placement.kind === kind ? [kind === 'database' ? placement.database : placement.schema] : [],
      );
    const [databases, schemas] = [places('database'), places('schema')];
    const counted: Counted[] = [];
    let isOpen = true;
    const count = async (session: pg.PoolClient, text: string, names: readonly string[]) => {
      counted.push(...(await session.query<Counted>(text, [names])).rows);
    };
    if (databases.length > 0) await platform.run((session) => count(session, CHANGES_OF_DATABASES, databases));
    if (schemas.length > 0 && performance.now() - (this.#schemasAt.get(name) ?? Number.NEGATIVE_INFINITY) >= SCHEMAS_EVERY_MS) {
      const countSchemas = async (session: pg.PoolClient) => count(session, changesOfSchemas(await counterFunctions(session)), schemas);
      await platform.runInShared(countSchemas).catch((error: unknown) => {
        if (codeOf(error) !== INSUFFICIENT_PRIVILEGE) throw error;
        isOpen = false;
      });
      this.#schemasAt.set(name, performance.now());
    }
    const changes = new Map(counted.map((row) => [row.name, row.changes]));
    for (const one of watched) {
      const { kind, database, schema } = one.organization.placement;
      const found = changes.get(kind === 'database' ? database : schema);
      // A superuser has closed the counters before, and this version has not been started as one.
      if (kind === 'schema' && !isOpen) one.mayHaveWritten = true;
      if (found === undefined || found === one.changes) continue;
      one.changes = found;
      one.mayHaveWritten = true;
    }
  }

  async #measure(cluster: ServedCluster, watched: Watched, isAtWork: boolean): Promise<void> {
    const { organization, limit } = watched;
    try {
      const bytes = await dataBytes(cluster.platform, organization.placement);
      const againMs = bytes === undefined || limit === undefined ? AGAIN_MS.first : measureAgainMs(bytes, limit);
      watched.dueAt = performance.now() + againMs;
      if (bytes === undefined) return;
      watched.mayHaveWritten = isAtWork;
      const before = organization.diskState;
      const now = diskStateOf(bytes, limit, before);
      // What has grown all the same is looked at again.
      const { refusedAt } = watched;
      if (now === 'over' ? refusedAt !== undefined && bytes <= refusedAt : now === before) {
        watched.failures = 0;
        return;
      }
      this.#beginToApply(cluster, watched, now, bytes);
    } catch (cause) {
      this.#failed(watched, cause);
    }
  }

  /** It may have to wait for locks, for which the others are not. */
  #beginToApply(cluster: ServedCluster, watched: Watched, state: DiskState, bytes: number): void {
    const { id } = watched.organization;
    if (this.#applying.has(id)) return;
    if (this.#applying.size >= APPLYING_MAX) {
      Object.assign(watched, { dueAt: performance.now() + LOOK_EVERY_MS, mayHaveWritten: true });
      return;
    }
    const applying = this.#apply(cluster, watched, state, bytes)
      .then(() => {
        watched.failures = 0;
      })
      .catch((cause: unknown) => this.#failed(watched, cause))
      .finally(() => this.#applying.delete(id));
    this.#applying.set(id, applying);
  }

  #failed(watched: Watched, cause: unknown): void {
    // While it is cloned or moved, or an operator has paused it.
    const isBusy = cause instanceof ServiceError && cause.kind === 'organization_busy';
    const againMs = isBusy ? RETRY_MS.first : Math.min(RETRY_MS.last, RETRY_MS.first * 2 ** watched.failures);
    Object.assign(watched, { dueAt: performance.now() + againMs, mayHaveWritten: true, failures: watched.failures + 1 });
    if (this.#stop.signal.aborted || (isBusy && watched.failures !== BUSY_ATTEMPTS)) return;
    const message = `the disk quota of organization ${watched.organization.id} could not be applied`;
    this.#options.observe({ name: 'service.warning', message, cause });
  }

  async #apply(cluster: ServedCluster, watched: Watched, state: DiskState, bytes: number): Promise<void> {
    if (state === 'over') {
      await this.#refuse(cluster, watched, bytes);
      return;
    }
    const { diskState, placement } = watched.organization;
    // It may be able to write as soon as that has begun.
    watched.refusedAt = undefined;
    const end = () => cluster.provisioning((provisioner) => provisioner.terminateSessions(placement));
    if (isOver(diskState)) await allowWrites({ cluster: cluster.platform.cluster, placement }, end);
    await this.#change(watched, state, bytes);
  }

  /** The state is there before the protection, and after it, so that whoever finds it completes what has been begun. */
  async #refuse(cluster: ServedCluster, watched: Watched, bytes: number): Promise<void> {
    const { catalog } = this.#options;
    const { organization } = watched;
    const { placement } = organization;
    const { cluster: server } = cluster.platform;
    watched.refusedAt = undefined;
    if (await this.#isRefused(cluster, organization)) {
      watched.refusedAt = bytes;
      return;
    }
    // A statement that nothing stops must not keep the others from being refused. Its session ends with it.
    const quiet = { catalog, cluster, limitMs: PAUSE_MS, force: true, isDoneAnyway: true, withinMs: QUIET_WITHIN_MS };
    if (server.superuser !== undefined) {
      await this.#change(watched, 'over', bytes);
      const end = () => cluster.provisioning((provisioner) => provisioner.terminateSessions(placement));
      await whileQuiet(organization, quiet, () => refuseWrites({ cluster: server, placement }, end));
    } else {
      await cluster.provisioning((provisioner) => provisioner.admit(placement, 'read'));
      await whileQuiet(organization, quiet, () => this.#change(watched, 'read_only', bytes));
    }
    watched.refusedAt = bytes;
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
    watched.changedAt = performance.now();
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
  return new Set(rows.map(({ role }) => ownerOf(role)));
}

/** An organization's database or schema, and how many rows have been changed there, also by transactions that were rolled back. */
interface Counted {
  readonly name: string;
  readonly changes: string;
}

const CHANGES_OF_DATABASES = `
  SELECT d.datname AS name, (pg_catalog.pg_stat_get_db_tuples_inserted(d.oid) + pg_catalog.pg_stat_get_db_tuples_updated(d.oid)
    + pg_catalog.pg_stat_get_db_tuples_deleted(d.oid))::pg_catalog.text AS changes
  FROM pg_catalog.pg_database d WHERE d.datname = ANY ($1)`;

/** @param get as {@link counterFunctions} */
const changesOfSchemas = (get: string) => `
  SELECT n.nspname AS name, pg_catalog.concat(pg_catalog.count(*), ' ',
    pg_catalog.sum(${get}tuples_inserted(c.oid) + ${get}tuples_updated(c.oid))) AS changes
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = ANY ($1) AND c.relkind = ANY ('{r,m,i}') GROUP BY n.nspname`;

async function wait(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal, ref: false }).catch(() => {});
}
