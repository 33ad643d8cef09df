import type { BackendConnection } from '../../backend/connection.ts';
import type { Placement } from '../../catalog/organization.ts';
import type { Observe } from '../../observation.ts';
import type { Platform } from './platform.ts';
import type { SessionLimits } from './session-settings.ts';

/** Makes places for organizations and opens sessions in them. */
export interface Provisioner {
  /** Where a new organization of this identifier goes. Creates nothing. */
  place(organizationId: string): Placement;
  /** Makes the place ready; may be repeated, and finishes what a crash left half done. */
  provision(placement: Placement): Promise<void>;
  /** Ends all sessions there and removes the place with everything in it, and its role; may be repeated. */
  deprovision(placement: Placement): Promise<void>;
  /**
   * Logs a session in as the organization's own role. A login that the tenant has broken (its password, its rights, its
   * `public` schema) is healed on the way.
   * @throws ServiceError `not_ready`, `too_many_connections`, or pg.DatabaseError
   */
  open(placement: Placement, signal?: AbortSignal): Promise<BackendConnection>;
}

export interface ProvisionerOptions {
  readonly platform: Platform;
  /** CONNECTION LIMIT of each role: a net below the pools' own limits, for all processes together. */
  readonly connectionLimit: number;
  readonly limits: SessionLimits;
  readonly observe: Observe;
}
