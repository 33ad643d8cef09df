import { setTimeout as delay } from 'node:timers/promises';
import type { PoolSnapshot } from '../backend/organization-pool.ts';
import { type ClusterRegistry, type ClusterRow, type CountedCluster, DEFAULT_CLUSTER } from '../catalog/clusters.ts';
import type { RestrictedScope } from '../catalog/key-rows.ts';
import type { Placement } from '../catalog/organization.ts';
import { readSecret } from '../config.ts';
import { ServiceError } from '../errors.ts';
import type { Cluster } from '../placement/cluster.ts';
import { removeReplication } from '../placement/replication-objects.ts';
import type { RunningProcess } from '../placement/roles.ts';
import { textOf } from '../protocol/backend.ts';
import { InputScheduler } from '../runtime/input-scheduler.ts';
import { ClusterDownError, ServedCluster, type ServedClusterOptions, type ServerFigures } from './served-cluster.ts';

/** How a cluster is seen now. */
interface ClusterSnapshot {
  readonly name: string;
  readonly isAnswering: boolean;
  /** Undefined until it has answered. */
  readonly pool: PoolSnapshot | undefined;
  /** Undefined while it does not answer. */
  readonly figures: (() => Promise<ServerFigures>) | undefined;
}

interface ClustersOptions extends Omit<ServedClusterOptions, 'inputs' | 'changed'> {
  /** The one that the service is started with. */
  readonly first: Cluster;
  readonly prepare: PrepareCluster;
}

/** How long the start waits for clusters. One that takes longer is used as soon as it answers. */
const START_TIMEOUT_MS = 3_000;
const READ_AGAIN_MS = 1_000;

/**
 * The PostgreSQL servers that organizations live on: those in the control database's table. A server that is added is found at once, and
 * one that does not answer as soon as it does.
 */
export class Clusters {
  readonly default: ServedCluster;
  /** Divides the event loop's time among organizations, for all pools together. */
  readonly inputs = new InputScheduler();
  /** Those that answer, by name. A plain map, because it is read before each lease. */
  readonly up = new Map<string, ServedCluster>();
  readonly #options: ServedClusterOptions;
  readonly #prepare: ClustersOptions['prepare'];
  readonly #others = new Map<string, ClusterOpening>();
  readonly #stop = new AbortController();
  /** How often the table has changed, or may have. */
  changes = 0;
  #reading: Promise<void> | undefined;
  #isStale = false;
  #isStarted = false;

  /** Call {@link start} for the other clusters, or {@link refresh}: then each is opened when it is wanted. */
  constructor({ first, prepare, ...options }: ClustersOptions) {
    this.#options = { ...options, inputs: this.inputs, changed: (cluster) => this.#changed(cluster) };
    this.#prepare = prepare;
    this.default = new ServedCluster(first, this.#options);
    this.up.set(DEFAULT_CLUSTER, this.default);
    options.opened?.(this.default);
  }

  /** Begins to open the other clusters, and waits a moment for those that answer. */
  async start(): Promise<void> {
    this.#options.catalog.clusters.listen(() => void this.refresh());
    this.#options.catalog.slots.listen((name) => this.#giveUpUnused(name));
    this.#isStarted = true;
    await this.refresh();
    const opened = Promise.all([...this.#others.values()].map((opening) => opening.begin()));
    await Promise.race([opened, delay(START_TIMEOUT_MS, undefined, { ref: false })]);
  }

  /** Those that have answered since the start; `isUp` tells whether they do now. */
  opened(): ServedCluster[] {
    return [this.default, ...[...this.#others.values()].flatMap(({ cluster }) => cluster ?? [])];
  }

  /** Another process needs a connection slot of the server. */
  #giveUpUnused(name: string): void {
    this.opened()
      .find((cluster) => cluster.name === name)
      ?.pool.giveUpUnused(undefined);
  }

  /** All in the table. */
  snapshot(): ClusterSnapshot[] {
    const others = [...this.#others].map(([name, { cluster }]) => ({ name, cluster }));
    return [{ name: DEFAULT_CLUSTER, cluster: this.default }, ...others].map(({ name, cluster }) => ({
      name,
      isAnswering: cluster?.isAnswering ?? false,
      pool: cluster?.pool.snapshot(),
      figures: cluster?.isAnswering ? () => cluster.figures() : undefined,
    }));
  }

  /** Whether there is only the default one. */
  get isAlone(): boolean {
    return this.#others.size === 0;
  }

  /** @throws ClusterDownError */
  of(placement: Placement): ServedCluster {
    return this.#named(placement.cluster);
  }

  #named(name: string): ServedCluster {
    const cluster = this.up.get(name);
    if (cluster === undefined) throw new ClusterDownError(undefined);
    return cluster;
  }

  /** As {@link of}; waits for the first answer of a cluster that is being opened. @throws ClusterDownError */
  async ready(name: string): Promise<ServedCluster> {
    if (name === DEFAULT_CLUSTER) return this.default;
    if (!this.#others.has(name)) await this.#reading;
    await this.#others.get(name)?.begin();
    return this.#named(name);
  }

  /** Creates the database or schema and the role. May be repeated. @throws ClusterDownError */
  async provision(placement: Placement): Promise<void> {
    const cluster = await this.ready(placement.cluster);
    await cluster.provisioning((provisioner) => provisioner.provision(placement));
  }

  /** Drops the database or schema and the role. May be repeated. @throws ClusterDownError, StillRunningError */
  async deprovision(placement: Placement): Promise<void> {
    const cluster = await this.ready(placement.cluster);
    await cluster.provisioning((provisioner) => provisioner.deprovision(placement));
  }

  /**
   * Drops a copy of an organization's data. Its roles stay on the server that it is on.
   * @param kept the placement that the organization has
   * @throws ClusterDownError, StillRunningError
   */
  async removeCopy(copy: Placement, kept: Placement): Promise<void> {
    const isOnSameServer = copy.cluster === kept.cluster;
    // A slot keeps its server from removing WAL, so this is not left for later when the other server does not answer.
    if (!isOnSameServer) await removeReplication((await this.ready(kept.cluster)).platform, kept);
    const cluster = await this.ready(copy.cluster);
    if (!isOnSameServer) await removeReplication(cluster.platform, copy);
    await cluster.provisioning((provisioner) => (isOnSameServer ? provisioner.removeCopy(copy, kept) : provisioner.deprovision(copy)));
  }

  /** Terminates sessions that do not end by themselves. @returns the processes that have not ended @throws ClusterDownError */
  async endSessions(placement: Placement): Promise<readonly RunningProcess[]> {
    const cluster = await this.ready(placement.cluster);
    return cluster.provisioning((provisioner) => provisioner.endSessions(placement));
  }

  /** Creates the organization's role for keys with this scope. May be repeated. @throws ClusterDownError */
  async admit(placement: Placement, scope: RestrictedScope): Promise<void> {
    const cluster = await this.ready(placement.cluster);
    await cluster.provisioning((provisioner) => provisioner.admit(placement, scope));
  }

  /** Reads the table again. */
  refresh(): Promise<void> {
    this.changes += 1;
    this.#isStale = true;
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  /**
   * Reads the table again, and the URLs of the clusters: passwords and files for TLS may be others. The default one's cannot change while
   * the process runs.
   */
  async reload(): Promise<void> {
    await this.refresh();
    await Promise.all([...this.#others.values()].map((opening) => opening.renew()));
  }

  async close(): Promise<void> {
    this.#stop.abort();
    this.#options.catalog.clusters.listen(() => {});
    await this.#reading;
    await Promise.all([this.default.close(), ...[...this.#others.values()].map((opening) => opening.close())]);
  }

  async #read(): Promise<void> {
    const { signal } = this.#stop;
    while (this.#isStale && !signal.aborted) {
      this.#isStale = false;
      try {
        const rows = await this.#options.catalog.clusters.list();
        this.#follow(new Map(rows.filter(({ name }) => name !== DEFAULT_CLUSTER).map((row) => [row.name, row])));
      } catch {
        // The control database does not answer.
        this.#isStale = true;
        await delay(READ_AGAIN_MS, undefined, { signal, ref: false }).catch(() => {});
      }
    }
  }

  #changed(cluster: ServedCluster): void {
    if (cluster.isUp) this.up.set(cluster.name, cluster);
    else this.up.delete(cluster.name);
  }

  #follow(wanted: ReadonlyMap<string, ClusterRow>): void {
    for (const [name, opening] of this.#others) {
      const row = wanted.get(name);
      if (row?.urlSource === opening.row.urlSource && row.systemIdentifier === opening.row.systemIdentifier) continue;
      this.#others.delete(name);
      this.up.delete(name);
      void opening.close();
    }
    for (const [name, row] of wanted) {
      const opening = this.#others.get(name) ?? new ClusterOpening(row, this.#prepare, this.#options);
      this.#others.set(name, opening);
      if (this.#isStarted) void opening.begin();
    }
  }
}

/** Sets up another server, or finds it set up. @throws ClusterError when it cannot be used */
type PrepareCluster = (name: string, url: string) => Promise<Cluster>;

const AGAIN_MS = { first: 500, longest: 5_000 };

/** Tries to open a cluster until it succeeds, from the first time on that somebody wants it. */
class ClusterOpening {
  readonly row: ClusterRow;
  readonly #prepare: PrepareCluster;
  readonly #options: ServedClusterOptions;
  readonly #stop = new AbortController();
  #attempted: Promise<void> | undefined;
  #cluster: ServedCluster | undefined;
  /** Why it could not be opened. */
  #problem: string | undefined;

  constructor(row: ClusterRow, prepare: PrepareCluster, options: ServedClusterOptions) {
    this.row = row;
    this.#prepare = prepare;
    this.#options = options;
  }

  /** Begins to open it. @returns when the first try has ended */
  begin(): Promise<void> {
    this.#attempted ??= this.#try().finally(() => void this.#tryAgain());
    return this.#attempted;
  }

  /** Undefined until it has been opened. */
  get cluster(): ServedCluster | undefined {
    return this.#cluster;
  }

  /** Has a cluster that is open log in as its URL says now. If it cannot, it goes on as before. */
  async renew(): Promise<void> {
    if (this.#cluster === undefined) return;
    try {
      const found = await this.#find();
      if (this.#stop.signal.aborted || this.#cluster.renewLogin(found)) return;
      this.#warn('has other hosts in its URL now: they are used when the service is started again');
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#warn(`has a URL that cannot be used, and goes on with the former one: ${textOf(error)}`);
    }
  }

  /** @throws ConfigError, ClusterError, Error when it is another server */
  async #find(): Promise<Cluster> {
    const { name, urlSource, systemIdentifier } = this.row;
    const cluster = await this.#prepare(name, readSecret(urlSource ?? ''));
    // It is not known of a server of a former time, which has that of the one it was restored from.
    if (systemIdentifier !== null && (cluster.systemIdentifier ?? systemIdentifier) !== systemIdentifier)
      throw new Error('it is another server than the one that was added');
    return cluster;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#cluster?.close();
  }

  async #tryAgain(): Promise<void> {
    const { signal } = this.#stop;
    for (let pauseMs = AGAIN_MS.first; this.#cluster === undefined; pauseMs = Math.min(AGAIN_MS.longest, 2 * pauseMs)) {
      await delay(pauseMs, undefined, { signal, ref: false }).catch(() => {});
      if (signal.aborted) return;
      await this.#try();
    }
  }

  async #try(): Promise<void> {
    try {
      const cluster = await this.#find();
      if (this.#stop.signal.aborted) return;
      this.#cluster = new ServedCluster(cluster, this.#options);
      this.#options.changed(this.#cluster);
      this.#options.opened?.(this.#cluster);
      if (this.#problem !== undefined) this.#warn('answers');
    } catch (error) {
      const problem = textOf(error);
      if (problem !== this.#problem && !this.#stop.signal.aborted) this.#warn(`cannot be used yet: ${problem}`);
      this.#problem = problem;
    }
  }

  #warn(what: string): void {
    this.#options.observe({ name: 'service.warning', message: `cluster ${this.row.name} ${what}` });
  }
}

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
class PlacementChoice {
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
