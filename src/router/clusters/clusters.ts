import { setTimeout as delay } from 'node:timers/promises';
import type { PoolSnapshot } from '../../backend/organization-pool.ts';
import { type ClusterRow, DEFAULT_CLUSTER } from '../../catalog/clusters.ts';
import type { Placement } from '../../catalog/organization.ts';
import type { Cluster } from '../../placement/cluster.ts';
import { removeReplication } from '../../placement/replication-objects.ts';
import type { RunningProcess } from '../../placement/roles.ts';
import { InputScheduler } from '../../runtime/input-scheduler.ts';
import { ClusterOpening, type PrepareCluster } from './cluster-opening.ts';
import { ClusterDownError, ServedCluster, type ServedClusterOptions } from './served-cluster.ts';

/** How a cluster is seen now. */
export interface ClusterSnapshot {
  readonly name: string;
  readonly isAnswering: boolean;
  /** Undefined until it has answered. */
  readonly pool: PoolSnapshot | undefined;
}

export interface ClustersOptions extends Omit<ServedClusterOptions, 'inputs' | 'changed'> {
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

  /** Creates the role of the organization's readers. May be repeated. @throws ClusterDownError */
  async admitReaders(placement: Placement): Promise<void> {
    const cluster = await this.ready(placement.cluster);
    await cluster.provisioning((provisioner) => provisioner.admitReaders(placement));
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
