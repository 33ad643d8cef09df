import { setTimeout as delay } from 'node:timers/promises';
import type { ClusterRow } from '../../catalog/clusters.ts';
import { readSecret } from '../../config.ts';
import type { Cluster } from '../../placement/cluster.ts';
import { textOf } from '../../protocol/backend.ts';
import { ServedCluster, type ServedClusterOptions } from './served-cluster.ts';

/** Sets up another server, or finds it set up. @throws ClusterError when it cannot be used */
export type PrepareCluster = (name: string, url: string) => Promise<Cluster>;

const AGAIN_MS = { first: 500, longest: 5_000 };

/** Tries to open a cluster until it succeeds, from the first time on that somebody wants it. */
export class ClusterOpening {
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
      const { name, urlSource, systemIdentifier } = this.row;
      const cluster = await this.#prepare(name, readSecret(urlSource ?? ''));
      if ((cluster.systemIdentifier ?? systemIdentifier) !== systemIdentifier)
        throw new Error('it is another server than the one that was added');
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
