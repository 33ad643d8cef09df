import type pg from 'pg';
import type { BackendConnection } from '../backend/connection.ts';
import type { Placement } from '../catalog/organizations/organization.ts';
import type { ServedCluster } from '../router/clusters/served-cluster.ts';
import { MOVER_NAME } from '../router/moves/interrupted-moves.ts';

/** Two sessions of an organization's own role at one of its placements. */
export interface TenantSession {
  /** For statements; it may be in a transaction. */
  readonly client: pg.Client;
  /** For COPY. */
  readonly backend: BackendConnection;
  readonly processIds: readonly number[];
  end(): Promise<void>;
}

/** How an organization is copied. */
export interface CopyOptions {
  /** The application_name of the sessions, by which they are found. */
  readonly name: string;
  /** After how long the server ends a statement and an idle transaction of them; 0: never. */
  readonly timeoutMs: number;
  /** How large the definitions before the rows may be, and those after them. */
  readonly definitionsMaxBytes: number;
  /** Ends `pg_dump`. */
  readonly signal?: AbortSignal;
}

export const FOR_MOVE: CopyOptions = { name: MOVER_NAME, timeoutMs: 0, definitionsMaxBytes: 256 * 1024 * 1024 };

/** One of the two placements between which an organization's data is copied. */
export interface Side {
  readonly server: ServedCluster;
  readonly placement: Placement;
  readonly session: TenantSession;
}
