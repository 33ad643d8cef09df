import type { Catalog } from '../../catalog/catalog.ts';
import { NAME_RULES, type Organization, type Placement } from '../../catalog/organization.ts';
import type { Clone } from '../../catalog/sign-ups.ts';
import { ServiceError } from '../../errors.ts';
import type { Actor, Observe, Origin } from '../../observation.ts';
import type { SignedUp, SignUps } from '../accounts/sign-ups.ts';
import type { Clusters } from '../clusters/clusters.ts';
import type { ServedCluster } from '../clusters/served-cluster.ts';
import type { Changed, Operator } from '../operator.ts';
import { QUIET_WITHIN_MS, whileQuiet } from './quiesce.ts';

export const CLONE_AGE_MAX_MS = 7 * 86_400_000;
export const CLONE_AGE_MS = 86_400_000;

/** How long the clients of the organization wait at most. */
const COPY_TIMEOUT_MS = 30_000;

export interface CloneRequest {
  readonly source: Organization;
  /** Default: the source's, with `(clone)` behind it. */
  readonly name?: string | undefined;
  /** When it is dropped; default: in {@link CLONE_AGE_MS}, at most in {@link CLONE_AGE_MAX_MS}. */
  readonly expiresAt?: Date | undefined;
  /** Whether sessions that do not end are terminated (57P01). */
  readonly force?: boolean;
  /** The key that asks. */
  readonly actor?: Omit<Actor, 'organizationId'>;
}

export interface NewlyCloned extends Omit<SignedUp, 'quota'> {
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

export interface ClonesOptions {
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
   * `unsupported_statement`, `statement_timeout`, `insufficient_storage`
   */
  async create(request: CloneRequest, origin: Origin): Promise<NewlyCloned> {
    const { kind, cluster: name } = request.source.placement;
    const { clusters, disk } = this.#options;
    const cluster = await clusters.ready(name);
    if (cluster === clusters.default) await disk?.requireRoom();
    if (kind === 'schema') return this.#options.schemas.run(cluster, (copy) => this.#make(request, cluster, copy, origin));
    const copy: CopyData = (from, to, timeoutMs) => cluster.provisioning((provisioner) => provisioner.copy(from, to, timeoutMs));
    return this.#make(request, cluster, copy, origin);
  }

  async #make(
    { source, name = nameOf(source), expiresAt = inOneDay(), force = false, actor }: CloneRequest,
    cluster: ServedCluster,
    copy: CopyData,
    origin: Origin,
  ): Promise<NewlyCloned> {
    const { catalog, signUps } = this.#options;
    const { placement: from } = source;
    const quiet = { catalog, cluster, limitMs: QUIET_WITHIN_MS + COPY_TIMEOUT_MS, force };
    const made = await signUps.make({
      placementFor: (id) => cluster.provisioner.placementFor(id, from.kind),
      record: async (made) => {
        await catalog.signUps.recordClone({ ...made, sourceId: source.id, name, expiresAt, maxAgeMs: CLONE_AGE_MAX_MS });
      },
      provision: async (placement) => {
        await whileQuiet(source, quiet, () => copy(from, placement, COPY_TIMEOUT_MS));
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
