import type { ClusterRegistry, ClusterSettings, CountedCluster } from '../catalog/clusters.ts';
import { readSecret } from '../config.ts';
import { ServiceError } from '../errors.ts';
import { type AdminLogin, parseUrl, withSession } from '../placement/admin-connection.ts';
import type { Cluster } from '../placement/cluster.ts';
import { type ClusterOptions, prepareCluster } from '../placement/cluster-setup.ts';
import { table } from './terminal-output.ts';

/** A cluster that somebody wants to add. */
export interface AddedCluster extends ClusterSettings {
  readonly name: string;
  readonly urlSource: string;
}

const HEADINGS = ['NAME', 'STATE', 'ORGANIZATIONS', 'CAP', 'WEIGHT', 'PLACEMENTS', 'URL'];
const ANSWER_TIMEOUT_MS = 2_000;

/** What operators do to the PostgreSQL servers that organizations live on. Every process of the service finds each change at once. */
export class ClusterAdministration {
  readonly #registry: ClusterRegistry;
  readonly #first: Cluster;
  readonly #shared: Omit<ClusterOptions, 'admin' | 'name' | 'waitMs'>;

  /** @param first the one that the service is started with @param shared what is the same for all clusters */
  constructor(registry: ClusterRegistry, first: Cluster, shared: Omit<ClusterOptions, 'admin' | 'name' | 'waitMs'>) {
    this.#registry = registry;
    this.#first = first;
    this.#shared = shared;
  }

  /**
   * Sets the server up, and has new organizations added to it.
   * @throws ConfigError, ClusterError, ServiceError `invalid_request`
   */
  async add(added: AddedCluster): Promise<void> {
    const url = readSecret(added.urlSource);
    const known = await this.#registry.list();
    if (known.some(({ name }) => name === added.name)) {
      throw new ServiceError('invalid_request', `there is a cluster "${added.name}" already`);
    }
    const { systemIdentifier } = await prepareCluster({ ...this.#shared, name: added.name, admin: url, waitMs: 0 });
    if (systemIdentifier !== undefined && systemIdentifier === this.#first.systemIdentifier) {
      throw new ServiceError('invalid_request', 'this is the server that the service is started with: the cluster "default"');
    }
    await this.#registry.add({ ...added, systemIdentifier });
  }

  /** A table of all clusters. */
  async list(): Promise<string> {
    const clusters = await this.#registry.counted();
    const states = await Promise.all(clusters.map((cluster) => this.#stateOf(cluster)));
    const rows = clusters.map(({ name, organizations, cap, weight, placements, urlSource }, at) =>
      [name, states[at], organizations, cap ?? '-', weight, placements.join(','), urlSource ?? '-'].map(String),
    );
    return table(HEADINGS, rows);
  }

  /** New organizations go elsewhere, or go there again. @throws ServiceError `not_found` */
  setDraining(name: string, isDraining: boolean): Promise<void> {
    return this.#registry.setDraining(name, isDraining);
  }

  /** Nothing on the server is changed. @throws ServiceError `not_found`, `invalid_request` */
  remove(name: string): Promise<void> {
    return this.#registry.remove(name);
  }

  async #stateOf({ urlSource, isDraining, cap, organizations }: CountedCluster): Promise<string> {
    if (urlSource !== null && !(await answers(urlSource))) return 'down';
    if (isDraining) return 'draining';
    return cap !== null && organizations >= cap ? 'full' : 'open';
  }
}

async function answers(urlSource: string): Promise<boolean> {
  try {
    const login: AdminLogin = parseUrl(readSecret(urlSource));
    await withSession(login, async () => {}, ANSWER_TIMEOUT_MS);
    return true;
  } catch {
    return false;
  }
}
