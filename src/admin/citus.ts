import type { Catalog } from '../catalog/catalog.ts';
import type { Organization } from '../catalog/organization.ts';
import { readSecret } from '../config.ts';
import { ServiceError } from '../errors.ts';
import type { Origin } from '../observation.ts';
import { type AdminLogin, parseUrl, withSession } from '../placement/admin-connection.ts';
import { type Address, hasCitus } from '../placement/citus.ts';
import { disableWorker, moveSchema, setUpCitus } from '../placement/citus-setup.ts';
import type { Cluster } from '../placement/cluster.ts';
import { type ClusterOptions, findCluster } from '../placement/cluster-setup.ts';

export interface CitusOptions {
  readonly catalog: Pick<Catalog, 'clusters' | 'moves'>;
  /** The cluster that the service is started with. */
  readonly first: Cluster;
  /** How a superuser logs in there; undefined: it is embedded. */
  readonly url: string | undefined;
  /** What is the same for all clusters. */
  readonly shared: Omit<ClusterOptions, 'admin' | 'name' | 'waitMs'>;
}

interface Coordinator {
  readonly admin: AdminLogin;
  readonly cluster: Cluster;
}

/** What operators do to coordinators of Citus and their workers. Each call takes a cluster's name; undefined: the default one. */
export class CitusAdministration {
  readonly #options: CitusOptions;

  constructor(options: CitusOptions) {
    this.#options = options;
  }

  /**
   * @returns a line for each node
   * @throws ConfigError, ClusterError, ServiceError `invalid_request`, `not_found`
   */
  async setUp(workers: readonly Address[], cluster?: string): Promise<string> {
    const { allowXpath = false } = this.#options.shared;
    return setUpCitus({ ...(await this.#coordinator(cluster)), workers, allowXpath });
  }

  /**
   * @returns how many organizations are refused until the worker is set up again
   * @throws ConfigError, ClusterError, ServiceError `invalid_request`, `not_found`
   */
  async disable(worker: Address, name?: string): Promise<number> {
    const { admin, cluster } = await this.#coordinator(name);
    return withSession({ ...admin, database: cluster.sharedDatabase }, (session) => disableWorker(session, worker));
  }

  /**
   * Moves an organization's tables to another worker of its cluster, and records it.
   * @returns what has been done
   * @throws ConfigError, ClusterError, ServiceError `invalid_request`, `not_found`
   */
  async move({ id, placement }: Organization, target: Address, origin: Origin): Promise<string> {
    const coordinator = await this.#coordinator(placement.cluster);
    const { sharedDatabase } = coordinator.cluster;
    const isDistributed = await withSession({ ...coordinator.admin, database: sharedDatabase }, hasCitus);
    if (placement.kind !== 'schema' || !isDistributed) throw new ServiceError('invalid_request', 'the organization is not on Citus');
    const { tables, isOnline } = await moveSchema({ ...coordinator, placement, target });
    await this.#options.catalog.moves.movedByCitus(id, origin);
    const clients = isOnline ? 'its clients went on writing' : 'its clients waited with their writes';
    return `${id} has its tables on ${target.host}:${target.port}: ${tables}; ${clients}`;
  }

  async #coordinator(name: string | undefined): Promise<Coordinator> {
    const { first, url, shared, catalog } = this.#options;
    if (name === undefined || name === first.name) {
      if (url === undefined) throw new ServiceError('invalid_request', 'Citus needs a server of yours, in DATABASE_URL');
      return { admin: parseUrl(url), cluster: first };
    }
    const source = (await catalog.clusters.list()).find((cluster) => cluster.name === name)?.urlSource;
    if (typeof source !== 'string') throw new ServiceError('not_found', `there is no cluster "${name}"`);
    const admin = readSecret(source);
    return { admin: parseUrl(admin), cluster: await findCluster({ ...shared, name, admin, waitMs: 0 }) };
  }
}
