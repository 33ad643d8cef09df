import type { BackendPermits, PoolFairnessLimits } from '../backend/organization-pool.ts';
import type { BackingPostgres } from '../embedded/embedded.ts';
import type { ServiceLimits } from '../service-limits.ts';

/** What a worker shares with the others that serve the same ports. */
export interface SharedParts {
  /** How many workers there are. */
  readonly workers: number;
  /** Started by somebody else, who stops it too. */
  readonly postgres: BackingPostgres;
  /** Counts the backend sessions of all workers on a cluster. */
  permits(cluster: string, limits: PoolFairnessLimits): BackendPermits;
  /** Of all workers together. */
  readonly limits: ServiceLimits;
  /** The metrics of all workers, in Prometheus' text format. */
  metrics(): Promise<string>;
}
