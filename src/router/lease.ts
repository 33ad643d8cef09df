import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../backend/connection.ts';
import type { Pool } from '../backend/pool.ts';
import type { Reservation } from '../backend/session-state.ts';
import type { ApiKey } from '../catalog/key-rows.ts';
import type { Organization } from '../catalog/organization.ts';
import type { RoleStatements } from '../catalog/statement-counters.ts';
import type { OrganizationTotals } from '../catalog/usage.ts';
import { ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import { type MemoryBudget, MemoryReservation } from '../runtime/memory-budget.ts';

export type Door = 'http' | 'wire';

/**
 * The right to use one backend session, which is logged in as the organization's own role and outside a transaction.
 * The function that takes a lease returns it: with `release` when the session is idle again (its last message was
 * ReadyForQuery 'I'), or with `destroy` when its state is not known. The first call counts; later calls do nothing.
 */
export class Lease {
  readonly backend: BackendConnection;
  readonly tenant: Tenant;
  readonly #pool: Pool;
  readonly #results: MemoryBudget;
  readonly #observe: Observe;
  readonly #door: Door;
  readonly #grantedAt = performance.now();
  #returned = false;

  constructor(backend: BackendConnection, tenant: Tenant, door: Door, pool: Pool, results: MemoryBudget, observe: Observe) {
    this.backend = backend;
    this.tenant = tenant;
    this.#door = door;
    this.#pool = pool;
    this.#results = results;
    this.#observe = observe;
    backend.usedAt = this.#grantedAt;
  }

  /** A new reservation in the memory budget for results. */
  reservation(): MemoryReservation {
    return new MemoryReservation(this.#results, this.tenant.limitsId);
  }

  /** As {@link Pool.release}. */
  release(clean = false, reservation?: Reservation): Promise<void> {
    return this.#return() ? this.#pool.release(this.tenant.pool, this.backend, clean, reservation) : Promise.resolve();
  }

  /**
   * Ends the session; Postgres rolls back its transaction. It counts as a session of the organization until its process has
   * ended.
   */
  destroy(): void {
    if (this.#return()) this.#pool.discard(this.tenant.pool, this.backend, 'destroyed');
  }

  /** As {@link destroy}, for a session that a cancel request has not stopped: its process is terminated at once. */
  terminate(): void {
    if (this.#return()) this.#pool.discard(this.tenant.pool, this.backend, 'destroyed', true);
  }

  /** Ends a session that may be running a statement whose client is gone. Resolves when the server has received a cancel request. */
  async abandon(): Promise<void> {
    await this.cancel();
    this.destroy();
  }

  /** Called when the defaults for new sessions of the organization have changed. Existing sessions, this one too, are not leased again. */
  retireSessions(): void {
    this.#pool.retire(this.tenant.pool);
  }

  /** Asks Postgres to cancel the running statement. Resolves when the server has received the request. */
  async cancel(): Promise<void> {
    if (!this.#returned) await this.backend.cancel();
  }

  #return(): boolean {
    if (this.#returned) return false;
    this.#returned = true;
    const heldMs = performance.now() - this.#grantedAt;
    this.tenant.totals?.released(heldMs);
    this.#observe({ name: 'lease.released', door: this.#door, heldMs });
    return true;
  }
}

/** An authenticated organization, its key, and a signal that ends all sessions opened with that key. */
export interface Tenant {
  /**
   * The role in its placement is that of the key's sessions. There is one object for each role, so that what is kept for an
   * organization, such as prepared statements, is not shared between roles.
   */
  readonly organization: Organization;
  /** The name of its pool of backends: they are never lent to another role. */
  readonly pool: string;
  /**
   * Whose limits it counts in, at both doors: a clone's are those of its source, so that nobody gets more by cloning. A clone cannot be
   * cloned.
   */
  readonly limitsId: string;
  readonly key: Omit<ApiKey, 'verifier'>;
  /** Whether the key may be used from an address; undefined: from everywhere. */
  readonly mayComeFrom?: ((address: string) => boolean) | undefined;
  /** The prefix of its channel names in the shared database. It is secret, so that no other organization can send notifications on them. */
  readonly channels: string;
  /** The function that is called there in place of pg_notify; undefined: pg_notify itself. */
  readonly pgNotify?: string | undefined;
  /** Whether what it sees of the server's sessions are Postern's views: see `Cluster.isHardened`. */
  readonly isHardened?: boolean;
  /** Whether its server lets transactions be prepared. */
  readonly hasPreparedTransactions?: boolean;
  /** Counts the statements that its role runs; undefined: they are not counted. */
  readonly statements?: RoleStatements;
  /** What operators are shown of it; undefined: nothing is counted. */
  readonly totals?: OrganizationTotals;
  /** Aborts with a ServiceError (57P01, or 28000 when suspended) when the key ends or the organization is suspended. */
  readonly revoked: AbortSignal;
}

/** @throws ServiceError `unknown_database` unless this is the database that clients of the organization connect to */
export function requireDatabase({ organization: { id } }: Tenant, database: string): void {
  if (database === id) return;
  throw new ServiceError('unknown_database', `database "${database}" does not exist`, { hint: `The database of this key is "${id}".` });
}

/**
 * Signals that the client of a call has disconnected, or that the call is to end for another reason. Every call has one and few are ever
 * triggered, so it costs much less than an AbortSignal. It has one listener at a time: first the wait for a backend, then the statement
 * that runs on it.
 */
export class DisconnectSignal {
  /** Called when the call is to end. Whoever sets it must remove it again. */
  listener: (() => void) | undefined;
  /** Since when the call has been waiting for a backend, and when it got one; undefined if it is not waiting, or has not been. */
  waitsSince: number | undefined;
  waitedUntil: number | undefined;
  /** The backend that it has at the moment, if any. Whoever sets it removes it again. */
  backend: BackendConnection | undefined;
  #reason: ServiceError | undefined;

  /** Why the call is to end; undefined: it is not. */
  get reason(): ServiceError | undefined {
    return this.#reason;
  }

  get hasHappened(): boolean {
    return this.#reason !== undefined;
  }

  happen(reason = new ServiceError('query_canceled', 'the caller has gone away')): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.listener?.();
  }
}
