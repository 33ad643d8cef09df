import type { ClusterRegistry, CountedCluster } from '../../catalog/clusters.ts';
import type { Placement } from '../../catalog/organization.ts';
import { ServiceError } from '../../errors.ts';
import type { Clusters } from './clusters.ts';
import { ClusterDownError } from './served-cluster.ts';

/** Organizations are counted so often. Meanwhile this process's own are added. */
const COUNT_EVERY_MS = 1_000;

/** Finds clusters for new organizations: the open one with the most room. */
export class NewPlacements {
  readonly #clusters: Clusters;
  readonly #registry: ClusterRegistry;
  readonly #kind: Placement['kind'];
  #counted: Promise<CountedCluster[]> | undefined;
  #countedAt = 0;
  /** The clusters' changes when they were counted. */
  #countedChanges = 0;
  /** How many organizations have been added to each since they were counted. */
  readonly #added = new Map<string, number>();

  /** @param kind of every new organization */
  constructor(clusters: Clusters, registry: ClusterRegistry, kind: Placement['kind']) {
    this.#clusters = clusters;
    this.#registry = registry;
    this.#kind = kind;
  }

  /** For one new organization, which may go elsewhere if a cluster fails. */
  choose(): PlacementChoice {
    return new PlacementChoice(this);
  }

  /** @throws ServiceError `not_ready` when no cluster can take it */
  async placementFor(organizationId: string, unusable: Set<string>): Promise<Placement> {
    for (;;) {
      const name = await this.roomiest(unusable);
      if (name === undefined) throw new ServiceError('not_ready', 'there is no room for another organization', { retryAfterS: 1 });
      try {
        const { provisioner } = await this.#clusters.ready(name);
        this.#added.set(name, (this.#added.get(name) ?? 0) + 1);
        return provisioner.placementFor(organizationId);
      } catch (error) {
        if (!(error instanceof ClusterDownError)) throw error;
        unusable.add(name);
      }
    }
  }

  /** The cluster whose organizations are the fewest for its weight. @returns undefined if none takes any */
  async roomiest(unusable: ReadonlySet<string>): Promise<string | undefined> {
    // Nothing is to be counted where there is no choice.
    if (this.#clusters.isAlone) return unusable.has(this.#clusters.default.name) ? undefined : this.#clusters.default.name;
    const fillOf = ({ name, organizations, weight }: CountedCluster) => (organizations + (this.#added.get(name) ?? 0)) / weight;
    const open = (await this.#count()).filter(
      ({ name, placements, isDraining, cap, organizations }) =>
        !isDraining && !unusable.has(name) && placements.includes(this.#kind) && (cap === null || organizations < cap),
    );
    return open.sort((one, other) => fillOf(one) - fillOf(other))[0]?.name;
  }

  #count(): Promise<CountedCluster[]> {
    const isOld = performance.now() - this.#countedAt > COUNT_EVERY_MS || this.#countedChanges !== this.#clusters.changes;
    if (this.#counted === undefined || isOld) {
      this.#countedAt = performance.now();
      this.#countedChanges = this.#clusters.changes;
      this.#added.clear();
      this.#counted = this.#registry.counted();
      this.#counted.catch(() => {
        this.#counted = undefined;
      });
    }
    return this.#counted;
  }
}

/** Remembers the clusters that could not take the organization. */
export class PlacementChoice {
  readonly #placements: NewPlacements;
  readonly #unusable = new Set<string>();

  constructor(placements: NewPlacements) {
    this.#placements = placements;
  }

  /** @throws ServiceError `not_ready` when no cluster can take it */
  placementFor(organizationId: string): Promise<Placement> {
    return this.#placements.placementFor(organizationId, this.#unusable);
  }

  /** Whether the organization may be added to another cluster after this error. */
  async mayGoElsewhere({ cluster }: Placement, error: unknown): Promise<boolean> {
    if (!(error instanceof ServiceError) || error.kind !== 'not_ready') return false;
    this.#unusable.add(cluster);
    const other = await this.#placements.roomiest(this.#unusable).catch(() => undefined);
    return other !== undefined;
  }
}
