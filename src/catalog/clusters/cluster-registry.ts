import type { Sql } from '../database/control-connection.ts';
import type { ControlPool } from '../database/control-pool.ts';
import {
  type ClusterRow,
  type CountedCluster,
  countOrganizations,
  deleteCluster,
  insertCluster,
  listClusters,
  type NewCluster,
  setDraining,
} from './cluster-rows.ts';

/** The channel on which all processes are told that the clusters have changed. */
export const CLUSTERS_CHANNEL = 'postern_clusters';

/** The PostgreSQL servers that organizations live on, as the operator has said. */
export class ClusterRegistry {
  readonly #database: ControlPool;
  #listener: () => void = () => {};

  constructor(database: ControlPool) {
    this.#database = database;
  }

  /** The default one first. */
  list(): Promise<ClusterRow[]> {
    return this.#database.run(listClusters);
  }

  /** As {@link list}, with the number of organizations that have not been dropped. */
  counted(): Promise<CountedCluster[]> {
    return this.#database.run(countOrganizations);
  }

  /** @throws ServiceError `invalid_request` when there is one with this name, or for this server */
  add(cluster: NewCluster): Promise<void> {
    return this.#change((sql) => insertCluster(sql, cluster));
  }

  /** @throws ServiceError `not_found` */
  setDraining(name: string, isDraining: boolean): Promise<void> {
    return this.#change((sql) => setDraining(sql, name, isDraining));
  }

  /** @throws ServiceError `not_found`; `invalid_request` while organizations live there */
  remove(name: string): Promise<void> {
    return this.#change((sql) => deleteCluster(sql, name));
  }

  /** @param listener called after each change by any process, and when changes may have been missed */
  listen(listener: () => void): void {
    this.#listener = listener;
  }

  notified(): void {
    this.#listener();
  }

  async #change(work: (sql: Sql) => Promise<void>): Promise<void> {
    await this.#database.transaction(async (sql) => {
      await work(sql);
      await sql`select pg_notify(${CLUSTERS_CHANNEL}, '')`;
    });
  }
}
