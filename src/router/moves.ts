import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Catalog } from '../catalog/catalog.ts';
import { isOver } from '../catalog/limits.ts';
import type { InterruptedMove } from '../catalog/moves.ts';
import { NAME_RULES, type Organization, type Placement } from '../catalog/organization.ts';
import type { Pause } from '../catalog/pauses.ts';
import type { Clone } from '../catalog/sign-ups.ts';
import { ServiceError } from '../errors.ts';
import type { Actor, Observe, Origin } from '../observation.ts';
import { allowWrites } from '../placement/disk-quota.ts';
import { removeReplication } from '../placement/replication-objects.ts';
import { describeProcesses } from '../placement/roles.ts';
import type { SignedUp, SignUps } from './accounts.ts';
import type { Clusters } from './clusters.ts';
import type { Changed, Operator } from './operator.ts';
import type { ServedCluster } from './served-cluster.ts';

/** The application_name of a mover's sessions with an organization's own role. */
export const MOVER_NAME = 'postern move';

/** How long a mover may be without its connection to the control database, which it opens again within a few seconds. */
const LOST_MS = 10_000;

/** The move of an organization that is to be undone. */
interface UndoneMove {
  readonly organizationId: string;
  /** Undefined: any that has not switched. */
  readonly token?: string;
  /** Where the caller has begun to make a copy, although its move may have been undone meanwhile. */
  readonly made?: Placement;
}

/**
 * Undoes a move: it cannot switch any more, the pause and the sessions of its mover end, and the copy is removed. May be repeated.
 * @returns false if there is no such move, or it has switched
 * @throws ServiceError `not_found`; ClusterDownError, StillRunningError: what is left is removed by the service
 */
export async function undoMove(catalog: Catalog, clusters: Clusters, { organizationId, token, made }: UndoneMove): Promise<boolean> {
  const aborted = await catalog.moves.abort(organizationId, token, made);
  if (aborted === undefined) return false;
  const { copy, kept } = aborted;
  const source = await clusters.ready(kept.cluster);
  await source.provisioning((provisioner) => provisioner.reopen(kept));
  await catalog.pauses.end(aborted);
  // They may hold locks on the organization's tables, and the mover may be on a machine that does not run any more.
  await source.provisioning((provisioner) => provisioner.terminateNamed(kept, MOVER_NAME));
  await clusters.removeCopy(copy, kept);
  await catalog.moves.forget(aborted);
  return true;
}

interface InterruptedMovesOptions {
  readonly catalog: Catalog;
  readonly clusters: Clusters;
  readonly observe: Observe;
}

/** Moves whose mover has ended before the switch. */
export class InterruptedMoves {
  readonly #options: InterruptedMovesOptions;
  /** When each of them was first found, by its token, in milliseconds of `performance.now()`. */
  #found: ReadonlyMap<string, number> = new Map();

  constructor(options: InterruptedMovesOptions) {
    this.#options = options;
  }

  /** Undoes those that have been found for a while. Several processes may do it at the same time; each move is undone by one of them. */
  async undo(): Promise<void> {
    const interrupted = await this.#options.catalog.moves.interrupted();
    const now = performance.now();
    this.#found = new Map(interrupted.map(({ token }) => [token, this.#found.get(token) ?? now]));
    for (const move of interrupted) if (now - (this.#found.get(move.token) ?? now) >= LOST_MS) await this.#undo(move);
  }

  async #undo({ organizationId, token, copy, kept, isOwn }: InterruptedMove): Promise<void> {
    const { catalog, clusters, observe } = this.#options;
    try {
      // It cannot switch any more; the rest has to wait until the servers answer, except for what makes one of them keep WAL.
      if (isOwn && ![copy, kept].every(({ cluster }) => clusters.up.has(cluster))) {
        const source = clusters.up.get(kept.cluster);
        if (source !== undefined && copy.cluster !== kept.cluster) await removeReplication(source.platform, kept);
        return;
      }
      if (!(await undoMove(catalog, clusters, { organizationId, token }))) return;
      observe({ name: 'service.warning', message: `an interrupted move of organization ${organizationId} has been undone` });
    } catch (cause) {
      observe({ name: 'service.failure', message: `an interrupted move of organization ${organizationId} could not be undone yet`, cause });
    }
  }
}

/** How long the processes of the service may take to notice a pause, and transactions to end. */
const QUIET_WITHIN_MS = 5_000;
const POLL_MS = 20;

export interface QuietOptions {
  readonly catalog: Pick<Catalog, 'pauses'>;
  /** Where the organization lives. */
  readonly cluster: ServedCluster;
  /** The pause ends by itself after this time. */
  readonly limitMs: number;
  /** Whether sessions that do not end are terminated. Otherwise the work is refused because of them. */
  readonly force: boolean;
  /** Whether the work is done, too, if some do not end when they are terminated. */
  readonly isDoneAnyway?: boolean;
  /** How long they may take to end; default: {@link QUIET_WITHIN_MS}. */
  readonly withinMs?: number;
  /** Names the pause; undefined: a random name. */
  readonly token?: string;
}

/**
 * Runs `work` while an organization has no sessions, because it is paused. Its clients wait meanwhile.
 * @throws ServiceError `organization_busy` if sessions do not end, and what `work` throws
 */
export async function whileQuiet<Result>(
  { id, placement }: Pick<Organization, 'id' | 'placement'>,
  { catalog, cluster, limitMs, force, isDoneAnyway, withinMs = QUIET_WITHIN_MS, token = randomBytes(16).toString('hex') }: QuietOptions,
  work: (pause: Pause) => Promise<Result>,
): Promise<Result> {
  const pause = { organizationId: id, token };
  await catalog.pauses.begin(pause, limitMs);
  try {
    const isQuiet = await waitForQuiet(cluster, placement, withinMs);
    if (!isQuiet && !force) throw await stillInUse(cluster, placement);
    if (!isQuiet) await terminate(cluster, placement, isDoneAnyway);
    return await work(pause);
  } finally {
    await catalog.pauses.end(pause);
  }
}

async function waitForQuiet(cluster: ServedCluster, placement: Organization['placement'], withinMs: number): Promise<boolean> {
  const deadline = performance.now() + withinMs;
  while ((await cluster.provisioning((provisioner) => provisioner.countSessions(placement))).all > 0) {
    if (performance.now() > deadline) return false;
    await delay(POLL_MS);
  }
  return true;
}

/** A session that is at work has a transaction open; an idle one belongs to a client that is pinned to it. */
async function stillInUse(cluster: ServedCluster, placement: Organization['placement']): Promise<ServiceError> {
  const { all, atWork } = await cluster.provisioning((provisioner) => provisioner.countSessions(placement));
  return new ServiceError('organization_busy', `sessions have not ended: ${atWork} in a transaction, ${all - atWork} pinned`, {
    hint: 'GET /api/sessions shows what they run and why they are pinned, and DELETE /api/sessions/{sessionId} ends one.',
    retryAfterS: 5,
  });
}

async function terminate(cluster: ServedCluster, placement: Organization['placement'], mayRemain = false): Promise<void> {
  const running = await cluster.provisioning((provisioner) => provisioner.terminateSessions(placement));
  if (running.length === 0 || mayRemain) return;
  throw new ServiceError('organization_busy', `sessions do not end when they are terminated: ${describeProcesses(running)}`);
}

/** @throws ServiceError `disk_quota_exceeded`, since a copy would have its protection too */
export function requireWithinQuota({ id, diskState }: Pick<Organization, 'id' | 'diskState'>): void {
  if (isOver(diskState))
    throw new ServiceError('disk_quota_exceeded', `organization "${id}" is over its disk quota and cannot be copied`, {
      hint: 'Make room first, or have the operator raise the limit.',
    });
}

const CLONE_AGE_MAX_MS = 7 * 86_400_000;
const CLONE_AGE_MS = 86_400_000;

/** How long the clients of the organization wait at most. */
const COPY_TIMEOUT_MS = 30_000;

interface CloneRequest {
  readonly source: Organization;
  /** Default: the source's, with `(clone)` behind it. */
  readonly name?: string | undefined;
  /** When it is dropped; default: in {@link CLONE_AGE_MS}, at most in {@link CLONE_AGE_MAX_MS}. */
  readonly expiresAt?: Date | undefined;
  /** Whether sessions that do not end are terminated (57P01). */
  readonly force?: boolean;
  /** Where its data of a former time is, to which nobody has sessions; default: where it lives. */
  readonly from?: Placement | undefined;
  /** The key that asks. */
  readonly actor?: Omit<Actor, 'organizationId'>;
}

interface NewlyCloned extends Omit<SignedUp, 'quota'> {
  readonly expiresAt: Date;
}

/**
 * Copies an organization's data to a new one of the same server. Nobody may have a session at the source. If it fails, `deprovision`
 * removes what there is.
 * @throws ServiceError `organization_busy`, `statement_timeout` when it takes longer than `timeoutMs`, `unsupported_statement`,
 * `invalid_request` if the organization's own definitions do not allow it
 */
export type CopyData = (source: Placement, copy: Placement, timeoutMs: number) => Promise<void>;

/** Copies organizations of the `schema` placement. */
export interface SchemaCopying {
  /**
   * Runs `work`, which may copy one.
   * @throws ServiceError `unsupported_statement` if the server's cannot be copied, `too_many_requests`; and what `work` throws
   */
  run<Result>(cluster: ServedCluster, work: (copy: CopyData) => Promise<Result>): Promise<Result>;
}

/** The disk of the default cluster, where the service runs that itself. */
export interface Room {
  /** @throws ServiceError `insufficient_storage` when it is too full for another copy */
  requireRoom(): Promise<void>;
}

interface ClonesOptions {
  readonly schemas: SchemaCopying;
  readonly catalog: Catalog;
  readonly clusters: Clusters;
  readonly signUps: SignUps;
  readonly operator: Operator;
  readonly observe: Observe;
  readonly disk?: Room | undefined;
}

/** Organizations that are copies of others for a limited time: for previews and tests. */
export class Clones {
  readonly #options: ClonesOptions;

  constructor(options: ClonesOptions) {
    this.#options = options;
  }

  /**
   * Makes an organization with a key of its own and a copy of another's data. The clients of that one wait while its data is copied.
   * @throws ServiceError `invalid_request`, `rate_limited`, `too_many_clones`, `too_many_requests`, `organization_busy`,
   * `unsupported_statement`, `statement_timeout`, `insufficient_storage`, `disk_quota_exceeded`
   */
  async create(request: CloneRequest, origin: Origin): Promise<NewlyCloned> {
    if (request.from === undefined) requireWithinQuota(request.source);
    const { kind, cluster: name } = request.from ?? request.source.placement;
    const { clusters, disk } = this.#options;
    const cluster = await clusters.ready(name);
    if (cluster === clusters.default || request.from !== undefined) await disk?.requireRoom();
    if (kind === 'schema') return this.#options.schemas.run(cluster, (copy) => this.#make(request, cluster, copy, origin));
    const copy: CopyData = (from, to, timeoutMs) => cluster.provisioning((provisioner) => provisioner.copy(from, to, timeoutMs));
    return this.#make(request, cluster, copy, origin);
  }

  async #make(
    { source, name = nameOf(source), expiresAt = inOneDay(), force = false, from: past, actor }: CloneRequest,
    cluster: ServedCluster,
    copy: CopyData,
    origin: Origin,
  ): Promise<NewlyCloned> {
    const { catalog, signUps } = this.#options;
    const from = past ?? source.placement;
    const quiet = { catalog, cluster, limitMs: QUIET_WITHIN_MS + COPY_TIMEOUT_MS, force };
    const made = await signUps.make({
      placementFor: (id) => cluster.provisioner.placementFor(id, from.kind),
      record: async (made) => {
        await catalog.signUps.recordClone({ ...made, sourceId: source.id, name, expiresAt, maxAgeMs: CLONE_AGE_MAX_MS });
      },
      provision: async (placement) => {
        if (past === undefined) {
          await whileQuiet(source, quiet, async () => {
            requireWithinQuota(await this.#options.operator.organization(source.id));
            await copy(from, placement, COPY_TIMEOUT_MS);
          });
        } else {
          await copy(from, placement, COPY_TIMEOUT_MS);
          // It may have been over its quota then.
          await allowWrites({ cluster: cluster.platform.cluster, placement });
        }
        if (from.kind === 'database') await cluster.provisioning((provisioner) => provisioner.adopt(from, placement));
      },
      activate: (id) => catalog.signUps.activateClone(id, source.id, origin, actor),
    });
    return { ...made, expiresAt };
  }

  /** Those that have not been dropped, the oldest first. */
  list(sourceId: string): Promise<Clone[]> {
    return this.#options.catalog.organizations.clones(sourceId);
  }

  /** Drops a clone before its time is over. @throws ServiceError `not_found` unless it is the organization's */
  async delete(sourceId: string, cloneId: string, origin: Origin): Promise<Changed> {
    const found = (await this.list(sourceId)).find(({ organization: { id } }) => id === cloneId);
    if (found === undefined) throw new ServiceError('not_found', `there is no clone "${cloneId}"`);
    return this.#options.operator.drop(cloneId, origin);
  }

  /** Drops the clones whose time is over, and those of organizations that are gone. Several processes may do it at the same time. */
  async dropExpired(origin: Origin): Promise<void> {
    const { catalog, operator, observe } = this.#options;
    for (const { organization } of await catalog.organizations.expiredClones()) {
      await operator.drop(organization.id, origin).catch((cause: unknown) => {
        observe({ name: 'service.failure', message: `clone ${organization.id} could not be dropped yet`, cause });
      });
    }
  }
}

const SUFFIX = ' (clone)';

function nameOf({ name }: Organization): string {
  const whole = `${name}${SUFFIX}`;
  return NAME_RULES.every(({ isKept }) => isKept(whole)) ? whole : name;
}

function inOneDay(): Date {
  return new Date(Date.now() + CLONE_AGE_MS);
}
