import type pg from 'pg';
import type { Catalog } from '../catalog/catalog.ts';
import { newMoveToken } from '../catalog/moves.ts';
import type { Organization, Placement } from '../catalog/organization.ts';
import type { Pause } from '../catalog/pauses.ts';
import { ServiceError } from '../errors.ts';
import type { Origin } from '../observation.ts';
import { withSession } from '../placement/admin-connection.ts';
import { hasCitus } from '../placement/citus.ts';
import { removeReplication } from '../placement/replication-objects.ts';
import { restrictedScopesOf, rolesOf } from '../placement/restricted-roles.ts';
import { StillRunningError } from '../placement/roles.ts';
import { textOf } from '../protocol/backend.ts';
import type { Clusters } from '../router/clusters.ts';
import { type QuietOptions, type Room, requireWithinQuota, undoMove, whileQuiet } from '../router/moves.ts';
import { ClusterDownError, type ServedCluster, type ServedPlacement } from '../router/served-cluster.ts';
import { checkLargeObjects } from './contents.ts';
import { copyOrganization } from './copy.ts';
import { findPgDump, type OpenPlacement, openTenantSession } from './definitions.ts';
import { ReplicatedCopy } from './replication.ts';

export interface MoveOptions {
  /** Undefined: on the same server. */
  readonly cluster?: string | undefined;
  /** Undefined: of the same kind. */
  readonly kind?: Placement['kind'] | undefined;
  /** Sessions that keep their backend are ended; otherwise the organization is not moved because of them. */
  readonly force: boolean;
  /** The longest time in which its clients may have to wait. What is not done by then is undone. */
  readonly pauseMs: number;
  /** Copies before the pause however small the organization is, or does not move it if that is not possible. */
  readonly replicate: boolean;
}

interface Moved {
  readonly organization: Organization;
  readonly tables: number;
  readonly rows: number;
  /** How long clients waited. */
  readonly pausedMs: number;
  /** How long they waited once before, when rows were copied before the pause. */
  readonly firstPauseMs: number | undefined;
  /** Why all rows of a large organization were copied in the pause. */
  readonly obstacle: string | undefined;
  /** A process that does not know of the move might still write to the former copy. */
  readonly isOpen: boolean;
}

/** Moves organizations to another placement, on the same server or on another one. */
export class Mover {
  readonly #catalog: Catalog;
  readonly #clusters: Clusters;
  readonly #warn: Warn;
  readonly #disk: Room | undefined;

  constructor(catalog: Catalog, clusters: Clusters, warn: Warn, disk?: Room) {
    this.#catalog = catalog;
    this.#clusters = clusters;
    this.#warn = warn;
    this.#disk = disk;
  }

  /**
   * Copies the organization's data, and has it be served from the copy: small ones while their clients wait, large ones on the way to
   * another server before that as far as possible. The former copy is kept. If anything fails, the organization stays where it is, and the
   * copy is removed.
   * @throws ServiceError `not_found`, `invalid_request`, `organization_busy`, `unsupported_statement`, `insufficient_storage`, `disk_quota_exceeded`
   */
  async move(id: string, options: MoveOptions, origin: Origin): Promise<Moved> {
    const { placement: from, diskState } = await this.#organization(id);
    requireWithinQuota({ id, diskState });
    const [source, target] = [await this.#clusters.ready(from.cluster), await this.#cluster(options.cluster ?? from.cluster)];
    // Also on the way to another server: the source keeps its WAL until the copy has caught up.
    if ([source, target].includes(this.#clusters.default)) await this.#disk?.requireRoom();
    for (const { platform } of [source, target]) {
      if (await platform.runInShared(hasCitus))
        throw new ServiceError(
          'unsupported_statement',
          'on a coordinator of Citus organizations are moved only to another worker, with --to-node',
        );
    }
    const { program, needed, found } = await findPgDump(source.platform.cluster);
    if (program === undefined) throw new ServiceError('invalid_request', `moving needs ${needed}, and ${found}`);
    const to = target.provisioner.placementFor(id, options.kind ?? from.kind);
    const token = newMoveToken();
    const organization = await this.#catalog.moves.begin(id, token, to);
    try {
      // What an earlier move has left there is removed: the organization is not there.
      await this.#clusters.removeCopy(to, from);
      const restricted = await source.platform.run((session) => restrictedScopesOf(session, from.role));
      await target.provisioner.provision(to, restricted);
      if (from.kind === 'schema') await checkLargeObjects(source.platform, from);
      const sides = [
        { server: source, placement: from },
        { server: target, placement: to },
      ] as const;
      const quiet = { catalog: this.#catalog, cluster: source, limitMs: options.pauseMs, force: options.force, token };
      const { copy, obstacle } = await openReplicatedCopy(...sides, options.replicate, this.#warn);
      try {
        const firstPauseMs = copy && (await replicate(copy, organization, quiet));
        const beganAt = performance.now();
        const copyAll = (own: OpenPlacement, other: OpenPlacement) =>
          copy?.complete(own, other, options.pauseMs) ?? copyOrganization(own, other);
        const done = await whileQuiet(organization, quiet, (pause) => this.#copyAndSwitch(...sides, copyAll, pause, origin));
        const pausedMs = performance.now() - beganAt;
        const isOpen = source !== target && !(await closeRoles(source, from));
        // What cannot be removed now is removed with the former copy.
        if (copy !== undefined) await removeReplication(source.platform, from).catch(() => {});
        return { ...done, pausedMs, firstPauseMs, obstacle, isOpen };
      } finally {
        await copy?.close();
      }
    } catch (error) {
      // What cannot be removed now is removed by the service.
      await undoMove(this.#catalog, this.#clusters, { organizationId: id, token, made: to }).catch(() => {});
      throw error;
    }
  }

  /**
   * Undoes a move that has not switched, also one that still runs.
   * @throws ServiceError `not_found`, `invalid_request` if there is no move that has not switched; `not_ready`, `organization_busy` if
   * something of it is left
   */
  async abort(id: string): Promise<void> {
    const undo = () => undoMove(this.#catalog, this.#clusters, { organizationId: id });
    const rest = 'the move cannot be completed any more; a running service removes what is left, and so does --abort again';
    if (!(await this.#remove(id, undo, rest))) throw new ServiceError('invalid_request', `there is no move of "${id}" to abort`);
  }

  /**
   * Removes the former copy of an organization that has been moved.
   * @throws ServiceError `not_found`, `invalid_request` if there is none; `not_ready`, `organization_busy` if it is not removed
   */
  async finish(id: string, origin: Origin): Promise<void> {
    const { placement } = await this.#organization(id);
    const move = await this.#catalog.moves.find(id);
    if (!move?.hasSwitched) throw new ServiceError('invalid_request', `there is no move of "${id}" to finish`);
    await this.#remove(id, () => this.#clusters.removeCopy(move.other, placement), 'give --finish again');
    await this.#catalog.moves.finish(id, origin);
  }

  /** @param rest what becomes of what cannot be removed now */
  async #remove<Result>(id: string, work: () => Promise<Result>, rest: string): Promise<Result> {
    try {
      return await work();
    } catch (cause) {
      if (cause instanceof StillRunningError)
        throw new ServiceError('organization_busy', `still running: ${cause.message}; ${rest}`, { cause });
      if (!(cause instanceof ClusterDownError)) throw cause;
      const [{ placement }, move] = [await this.#organization(id), await this.#catalog.moves.find(id)];
      const down = [placement, ...(move ? [move.other] : [])].map(({ cluster }) => cluster).filter((name) => !this.#clusters.up.has(name));
      throw new ServiceError('not_ready', `the cluster ${[...new Set(down)].join(', ')} does not answer; ${rest}`, { cause });
    }
  }

  async #organization(id: string): Promise<Organization> {
    const organization = await this.#catalog.organizations.find(id);
    if (organization === undefined) throw new ServiceError('not_found', `there is no organization "${id}"`);
    return organization;
  }

  /** @throws ServiceError `not_found`, `not_ready` */
  async #cluster(name: string): Promise<ServedCluster> {
    const known = await this.#catalog.clusters.list();
    if (known.every((cluster) => cluster.name !== name)) throw new ServiceError('not_found', `there is no cluster "${name}"`);
    return this.#clusters.ready(name);
  }

  async #copyAndSwitch(
    from: ServedPlacement,
    to: ServedPlacement,
    copyAll: (source: OpenPlacement, target: OpenPlacement) => Promise<{ readonly tables: number; readonly rows: number }>,
    pause: Pause,
    origin: Origin,
  ): Promise<Pick<Moved, 'organization' | 'tables' | 'rows'>> {
    await checkNothingPrepared(from);
    const sides: OpenPlacement[] = [];
    try {
      for (const side of [from, to]) sides.push({ ...side, session: await openTenantSession(side.server, side.placement) });
      const [source, target] = sides;
      if (source === undefined || target === undefined) throw new Error('there are two placements');
      const copied = await copyAll(source, target);
      const close = async () => {
        await from.server.provisioning((provisioner) => provisioner.close(from.placement));
        await checkAlone(source, sides);
      };
      return { ...copied, organization: await this.#catalog.moves.switch(pause, origin, close) };
    } finally {
      for (const { session } of sides) await session.end();
    }
  }
}

/**
 * Has the copy follow, and compares it as it is in a short pause.
 * @returns how long clients waited, in milliseconds
 */
async function replicate(copy: ReplicatedCopy, organization: Organization, quiet: QuietOptions): Promise<number> {
  await copy.follow();
  const beganAt = performance.now();
  await whileQuiet(organization, quiet, () => copy.takeSnapshots(quiet.limitMs));
  const pausedMs = performance.now() - beganAt;
  await copy.compareSnapshots();
  return pausedMs;
}

/** Nobody logs in to a server that the organization has left, not even where its copy has been opened again. @returns false when that could not be done */
async function closeRoles(server: ServedCluster, placement: Placement): Promise<boolean> {
  try {
    return (await server.provisioning((provisioner) => provisioner.closeRoles(placement))).length === 0;
  } catch {
    return false;
  }
}

/** A prepared transaction has no session, is in no copy, and may still be committed. */
async function checkNothingPrepared({ server, placement: { role } }: ServedPlacement): Promise<void> {
  const query = 'SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE owner = $1 ORDER BY prepared';
  const { rows } = await server.platform.run((session) => session.query<{ gid: string }>(query, [role]));
  const [first] = rows;
  if (first === undefined) return;
  throw new ServiceError(
    'organization_busy',
    `${rows.length} of its transactions are prepared, the first one as ${JSON.stringify(first.gid)}`,
    {
      hint: 'COMMIT PREPARED or ROLLBACK PREPARED ends them.',
    },
  );
}

/** A process that has not been notified of the pause might have opened a session. */
async function checkAlone({ server, placement: { role } }: OpenPlacement, sides: readonly OpenPlacement[]): Promise<void> {
  const known = sides.flatMap(({ session }) => session.processIds);
  const { rows } = await server.platform.run((session) =>
    session.query('SELECT FROM pg_catalog.pg_stat_activity WHERE usename = ANY ($1) AND pid <> ALL ($2)', [rolesOf(role), known]),
  );
  if (rows.length > 0) throw new ServiceError('organization_busy', 'a session was opened while the data was copied');
}

/** A smaller database is copied in the pause, which is over as soon as the short pauses of a replicated copy are. */
const LARGE_BYTES = 64 * 1024 * 1024;

interface OpenedCopy {
  readonly copy?: ReplicatedCopy;
  /** Why there is none, although the organization is large. */
  readonly obstacle?: string;
}

/** Tells the operator something before the work goes on. */
type Warn = (message: string) => void;

/**
 * Begins a copy that follows the changes, if the organization is large and the servers allow it.
 * @param isWanted not only for a large one
 * @throws ServiceError `invalid_request` if it is wanted and not possible
 */
async function openReplicatedCopy(from: ServedPlacement, to: ServedPlacement, isWanted: boolean, warn: Warn): Promise<OpenedCopy> {
  if (!isWanted && (await sizeOf(from)) < LARGE_BYTES) return {};
  const obstacle = whyNotBetween(from, to) ?? (await whyNotReplicated(from.server, to.server));
  const warning = obstacle === undefined ? await warningOf(from.server) : undefined;
  if (warning !== undefined) warn(warning);
  const opened = obstacle === undefined ? await tryToOpen(from, to) : { obstacle };
  if (isWanted && opened.obstacle !== undefined) throw new ServiceError('invalid_request', `it cannot be replicated: ${opened.obstacle}`);
  return opened;
}

async function tryToOpen(from: ServedPlacement, to: ServedPlacement): Promise<OpenedCopy> {
  try {
    return { copy: await ReplicatedCopy.open(from, to) };
  } catch (error) {
    for (const { server, placement } of [to, from]) await removeReplication(server.platform, placement);
    return { obstacle: textOf(error) };
  }
}

function whyNotBetween({ placement: from }: ServedPlacement, { placement: to }: ServedPlacement): string | undefined {
  if (from.kind !== 'database' || to.kind !== 'database') return 'only from a database of its own to another one';
  return from.cluster === to.cluster ? 'only to another server' : undefined;
}

async function sizeOf({ server, placement }: ServedPlacement): Promise<number> {
  // In the shared database this would be the size of all schemas.
  if (placement.kind !== 'database') return 0;
  const session = await openTenantSession(server, placement);
  try {
    const { rows } = await session.client.query<{ size: string }>(
      'SELECT pg_catalog.pg_database_size(pg_catalog.current_database())::text AS size',
    );
    return Number(rows[0]?.size);
  } finally {
    await session.end();
  }
}

/** From 16 on a subscription applies changes with the roles of the tables' owners. */
const OLDEST_SUBSCRIBER = 160_000;

/** For the changes, and for two tables that are copied at the same time. */
const WORKERS = 3;

/** A setting of the source that an operator should know of before its slot is made; undefined: there is none. */
async function warningOf({ platform: { cluster } }: ServedCluster): Promise<string | undefined> {
  if (cluster.superuser === undefined) return undefined;
  return withSession({ ...cluster.superuser, database: 'postgres' }, async (session) => {
    const { rows } = await session.query<{ limit: string }>("SELECT pg_catalog.current_setting('max_slot_wal_keep_size') AS limit");
    return rows[0]?.limit === '-1'
      ? `${cluster.name} keeps all WAL until the move has ended, and if this command is killed, until a service undoes it: max_slot_wal_keep_size is -1`
      : undefined;
  });
}

interface Publisher {
  readonly wal_level: string;
  readonly slots: number;
  readonly senders: number;
}

/** Why one server cannot replicate to the other one; undefined: as far as their settings tell, it can. */
async function whyNotReplicated(source: ServedCluster, target: ServedCluster): Promise<string | undefined> {
  const [{ cluster: from }, { cluster: to }] = [source.platform, target.platform];
  if (from.superuser === undefined) return `the role in the URL of ${from.name} is no superuser`;
  if (to.superuser === undefined) return `the role in the URL of ${to.name} is no superuser`;
  if (to.serverVersion < OLDEST_SUBSCRIBER) return `${to.name} has a PostgreSQL before 16, which would apply changes as a superuser`;
  const obstacle = await withSession({ ...from.superuser, database: 'postgres' }, (session) => publisher(session, from.name));
  return obstacle ?? withSession({ ...to.superuser, database: 'postgres' }, (session) => subscriber(session, to.name));
}

async function publisher(session: pg.Client, name: string): Promise<string | undefined> {
  const { rows } = await session.query<Publisher>(`
    SELECT pg_catalog.current_setting('wal_level') AS wal_level,
      pg_catalog.current_setting('max_replication_slots')::int
        - (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots)::int AS slots,
      pg_catalog.current_setting('max_wal_senders')::int
        - (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'walsender')::int AS senders`);
  const [found] = rows;
  if (found?.wal_level !== 'logical') return `wal_level is not logical at ${name}`;
  if (found.slots < WORKERS) return `${name} needs ${WORKERS} free replication slots (max_replication_slots)`;
  return found.senders < WORKERS ? `${name} needs ${WORKERS} free WAL senders (max_wal_senders)` : undefined;
}

async function subscriber(session: pg.Client, name: string): Promise<string | undefined> {
  const { rows } = await session.query<{ free: number }>(`
    SELECT pg_catalog.current_setting('max_logical_replication_workers')::int
      - (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type ~ '^logical replication .*worker')::int AS free`);
  return (rows[0]?.free ?? 0) < WORKERS ? `${name} needs ${WORKERS} free workers (max_logical_replication_workers)` : undefined;
}
