import { ServiceError } from '../errors.ts';
import type { ControlPool, Sql } from './control-pool.ts';
import type { Placement } from './organization.ts';
import { announce, type TopicFormat, type Topics } from './topics.ts';

/** All processes are told that the clusters have changed. */
export const CLUSTERS: TopicFormat<undefined> = { channel: 'postern_clusters', encode: () => [''], decode: () => [undefined] };

/** The PostgreSQL servers that organizations live on, as the operator has said. */
export class ClusterRegistry {
  readonly #database: ControlPool;
  #listener: () => void = () => {};

  constructor(topics: Topics, database: ControlPool) {
    this.#database = database;
    topics.topic({ ...CLUSTERS, receive: () => this.notified() });
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

  /** They may have changed. */
  notified(): void {
    this.#listener();
  }

  async #change(work: (sql: Sql) => Promise<void>): Promise<void> {
    await this.#database.transaction(async (sql) => {
      await work(sql);
      await announce(sql, CLUSTERS, undefined);
    });
  }
}

/** The cluster that the service is started with. The control database is there. */
export const DEFAULT_CLUSTER = 'default';

/** What an operator says about a PostgreSQL server. */
export interface ClusterSettings {
  /** The kinds of placement that new organizations may have there. */
  readonly placements: readonly Placement['kind'][];
  /** A cluster with twice the weight gets twice as many organizations. */
  readonly weight: number;
  /** The most organizations that new ones are added to; null: any number. */
  readonly cap: number | null;
}

interface NewCluster extends ClusterSettings {
  readonly name: string;
  /** `env:NAME` or `file:/path`: where each process finds the URL. */
  readonly urlSource: string;
  readonly systemIdentifier: string | undefined;
}

export interface ClusterRow extends ClusterSettings {
  readonly name: string;
  /** Null: the one that the service is started with. */
  readonly urlSource: string | null;
  /** Null: that of the one that the service is started with, or it does not say. */
  readonly systemIdentifier: string | null;
  /** It gets no new organizations. */
  readonly isDraining: boolean;
}

/** A cluster with the number of organizations that live there. */
export interface CountedCluster extends ClusterRow {
  readonly organizations: number;
}

/** The cluster takes no more organizations. */
class ClusterFullError extends ServiceError {
  constructor(name: string) {
    super('not_ready', 'there is no room for another organization', { retryAfterS: 1, cause: new Error(`cluster ${name} is full`) });
  }
}

function listClusters(sql: Sql): Promise<ClusterRow[]> {
  return sql<ClusterRow[]>`
    select name, url_source as "urlSource", system_identifier as "systemIdentifier", placements, weight, cap, is_draining as "isDraining"
    from postern.clusters order by name <> ${DEFAULT_CLUSTER}, name`;
}

async function countOrganizations(sql: Sql): Promise<CountedCluster[]> {
  const clusters = await listClusters(sql);
  const counts = await sql<{ name: string; count: number }[]>`
    select placement ->> 'cluster' as name, count(*)::int as count from postern.organizations where status <> 'dropped' group by 1`;
  const countOf = new Map(counts.map(({ name, count }) => [name, count]));
  return clusters.map((cluster) => ({ ...cluster, organizations: countOf.get(cluster.name) ?? 0 }));
}

/** @throws ServiceError `invalid_request` when there is one with this name, or for this server */
async function insertCluster(sql: Sql, cluster: NewCluster): Promise<void> {
  const { name, urlSource, systemIdentifier, placements, weight, cap } = cluster;
  const [added] = await sql`
    insert into postern.clusters (name, url_source, system_identifier, placements, weight, cap)
    values (${name}, ${urlSource}, ${systemIdentifier ?? null}, ${JSON.stringify(placements)}::text::jsonb, ${weight}, ${cap})
    on conflict do nothing returning name`;
  if (added !== undefined) return;
  throw new ServiceError('invalid_request', `there is a cluster "${name}" already, or one for the same server`);
}

/** @throws ServiceError `not_found` */
async function setDraining(sql: Sql, name: string, isDraining: boolean): Promise<void> {
  const [changed] = await sql`update postern.clusters set is_draining = ${isDraining} where name = ${name} returning name`;
  if (changed === undefined) throw noCluster(name);
}

/** @throws ServiceError `not_found`; `invalid_request` while organizations live there */
async function deleteCluster(sql: Sql, name: string): Promise<void> {
  if (name === DEFAULT_CLUSTER) throw new ServiceError('invalid_request', 'the service is started with the cluster "default": it stays');
  // Sign-ups that are being recorded have locked it.
  const [found] = await sql`select name from postern.clusters where name = ${name} for update`;
  if (found === undefined) throw noCluster(name);
  const count = await countIn(sql, name);
  if (count > 0) throw new ServiceError('invalid_request', `cluster "${name}" has ${count} organization${count === 1 ? '' : 's'}`);
  const moves = await sql<{ id: string }[]>`select organization_id as id from postern.moves where other_placement ->> 'cluster' = ${name}`;
  const [first] = moves;
  if (first !== undefined) throw new ServiceError('invalid_request', `a move of ${first.id} from or to cluster "${name}" is not finished`);
  await sql`delete from postern.clusters where name = ${name}`;
}

/**
 * Locks the cluster that an organization is about to be added to, until the transaction ends, so that neither its cap is exceeded nor
 * the cluster removed meanwhile.
 * @throws ClusterFullError
 */
export async function claimRoom(sql: Sql, { cluster: name, kind }: Placement): Promise<void> {
  const [cluster] = await sql<{ cap: number | null }[]>`
    select cap from postern.clusters where name = ${name} and not is_draining and placements ? ${kind} for no key update`;
  if (cluster === undefined) throw new ClusterFullError(name);
  if (cluster.cap !== null && (await countIn(sql, name)) >= cluster.cap) throw new ClusterFullError(name);
}

/**
 * Locks the cluster that an organization is about to be moved to, as {@link claimRoom}. An operator may exceed its cap, and drain it.
 * @throws ServiceError `not_found`, `invalid_request` if it does not take the kind of placement
 */
export async function claimPlace(sql: Sql, { cluster: name, kind }: Placement): Promise<void> {
  const [cluster] = await sql<{ fits: boolean }[]>`
    select placements ? ${kind} as fits from postern.clusters where name = ${name} for no key update`;
  if (cluster === undefined) throw noCluster(name);
  if (!cluster.fits) throw new ServiceError('invalid_request', `cluster "${name}" takes no placement of the kind "${kind}"`);
}

async function countIn(sql: Sql, name: string): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from postern.organizations where placement ->> 'cluster' = ${name} and status <> 'dropped'`;
  return row?.count ?? 0;
}

function noCluster(name: string): ServiceError {
  return new ServiceError('not_found', `there is no cluster "${name}"`);
}
