import type { BackendConnection } from '../backend/connection.ts';
import type { RestrictedScope } from '../catalog/key-rows.ts';
import type { Placement } from '../catalog/organization.ts';
import type { Observe } from '../observation.ts';
import type { Platform, SessionLimits } from './cluster.ts';
import type { RunningProcess, SessionCount } from './roles.ts';

/** Creates the databases or schemas of organizations and opens sessions in them. */
export interface PlacementProvisioner {
  /** The placement of a new organization with this id. Creates nothing. */
  placementFor(organizationId: string, kind?: Placement['kind']): Placement;
  /**
   * Creates the database or schema and the role. May be repeated, and completes what a crash has interrupted.
   * @param withReaders the role of the readers too, which may not read anything yet
   */
  provision(placement: Placement, restricted?: readonly RestrictedScope[]): Promise<void>;
  /**
   * Ends all sessions there and drops the database or schema with everything in it, and the role. May be repeated.
   * @throws StillRunningError
   */
  deprovision(placement: Placement): Promise<void>;
  /**
   * Drops a copy of an organization's data, and nothing of its roles and of the placement that it has. May be repeated, also if there is
   * no such copy.
   * @param kept the placement that the organization has
   * @throws StillRunningError
   */
  removeCopy(copy: Placement, kept: Placement): Promise<void>;
  /**
   * Refuses all new sessions there, also those of processes that do not know yet that the organization is moved away. The organization
   * cannot undo it. {@link removeCopy} may follow.
   */
  close(placement: Placement): Promise<void>;
  /** Undoes {@link close}. May be repeated, also if the placement is not closed. */
  reopen(placement: Placement): Promise<void>;
  /**
   * Creates the role of keys with this scope, and has the organization's own role grant it what it is for. May be repeated; what has been
   * granted before is not granted again.
   */
  admit(placement: Placement, scope: RestrictedScope): Promise<void>;
  /**
   * Opens a session with the placement's role: the organization's own, or a restricted one. If the tenant has broken the login (its password, its privileges, its
   * `public` schema), it is repaired.
   * @throws ServiceError `not_ready`, `too_many_connections`, or pg.DatabaseError
   */
  open(placement: Placement, signal?: AbortSignal): Promise<BackendConnection>;
}

/** Both kinds of placement, and the sessions of an organization's roles, which are the same for both. */
export interface Provisioner extends PlacementProvisioner {
  /**
   * Terminates sessions there that do not end by themselves soon.
   * @returns the processes that have not ended
   */
  endSessions(placement: Placement): Promise<readonly RunningProcess[]>;
  /**
   * Copies an organization's database to that of a new one, which gets a role of its own. May take long, and nobody may have a session at
   * the source. If it fails, {@link deprovision} removes what there is.
   * @throws ServiceError `organization_busy` if somebody has one, `statement_timeout` when it takes longer than `timeoutMs`
   */
  copy(source: Placement, copy: Placement, timeoutMs: number): Promise<void>;
  /** Gives a copied database's objects and privileges to its own roles, and the settings of the source's role. */
  adopt(source: Placement, copy: Placement): Promise<void>;
  /** How many sessions the organization's roles have. */
  countSessions(placement: Placement): Promise<SessionCount>;
  /** Terminates all sessions of the organization's roles. @returns the processes that have not ended */
  terminateSessions(placement: Placement): Promise<readonly RunningProcess[]>;
  /** Terminates the sessions of the organization's own role that have this application_name. */
  terminateNamed(placement: Placement, name: string): Promise<void>;
  /**
   * Closes the organization's roles for good and terminates their sessions: it lives on another server now. {@link deprovision} may follow.
   * @returns the processes that have not ended
   */
  closeRoles(placement: Placement): Promise<readonly RunningProcess[]>;
}

export interface ProvisionerOptions {
  readonly platform: Platform;
  /** CONNECTION LIMIT of each role, times the number of processes of the service: a safeguard in addition to the pools' limits. */
  readonly connectionLimit: number;
  readonly limits: SessionLimits;
  readonly observe: Observe;
}
