import type pg from 'pg';
import type { BackendConnection } from '../../backend/connection.ts';
import type { Placement } from '../../catalog/organizations/organization.ts';
import type { ServedCluster } from '../../router/clusters/served-cluster.ts';

/** Two sessions of an organization's own role at one of its placements. */
export interface TenantSession {
  /** For statements; it may be in a transaction. */
  readonly client: pg.Client;
  /** For COPY. */
  readonly backend: BackendConnection;
  readonly processIds: readonly number[];
  end(): Promise<void>;
}

/** One of the two placements of an organization that is moved. */
export interface Side {
  readonly server: ServedCluster;
  readonly placement: Placement;
  readonly session: TenantSession;
}
