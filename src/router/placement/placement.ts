import type { BackendConnection } from '../../backend/connection.ts';
import type { Placement } from '../../catalog/organizations/organization.ts';
import type { Observe } from '../../observation.ts';
import type { Platform } from './platform.ts';
import type { SessionLimits } from './session-settings.ts';

/** A process of an organization's that does not end when it is told to. */
export interface RunningProcess {
  readonly processId: number;
  /** When what it runs began. */
  readonly since: Date;
}

/** Processes have not ended that keep an organization's place from going; the message says which. May be tried again. */
export class StillRunningError extends Error {
  override readonly name = 'StillRunningError';
}

export function describeProcesses(processes: readonly RunningProcess[]): string {
  return processes.map(({ processId, since }) => `process ${processId} since ${since.toISOString()}`).join(', ');
}

/** Makes places for organizations and opens sessions in them. */
export interface Provisioner {
  /** Where a new organization of this identifier goes. Creates nothing. */
  placementFor(organizationId: string): Placement;
  /** Makes the place ready; may be repeated, and finishes what a crash left half done. */
  provision(placement: Placement): Promise<void>;
  /**
   * Ends all sessions there and removes the place with everything in it, and its role; may be repeated.
   * @throws StillRunningError
   */
  deprovision(placement: Placement): Promise<void>;
  /**
   * Ends what runs there, where it does not end by itself soon.
   * @returns what goes on
   */
  endSessions(placement: Placement): Promise<readonly RunningProcess[]>;
  /**
   * Logs a session in as the organization's own role. A login that the tenant has broken (its password, its rights, its
   * `public` schema) is healed on the way.
   * @throws ServiceError `not_ready`, `too_many_connections`, or pg.DatabaseError
   */
  open(placement: Placement, signal?: AbortSignal): Promise<BackendConnection>;
}

export interface ProvisionerOptions {
  readonly platform: Platform;
  /** CONNECTION LIMIT of each role, times the processes of the service: a net below the pools' own limits. */
  readonly connectionLimit: number;
  readonly limits: SessionLimits;
  readonly observe: Observe;
}
