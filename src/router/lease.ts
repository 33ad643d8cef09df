import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../backend/connection.ts';
import type { Pool } from '../backend/pool/pool.ts';
import type { Reservation } from '../backend/session-state.ts';
import type { Observe } from '../observation.ts';
import { type MemoryBudget, MemoryReservation } from '../runtime/memory-budget.ts';
import type { Tenant } from './tenant.ts';

export type Door = 'http' | 'wire';

/**
 * A backend session on loan, logged in as the organization's own role, outside a transaction and with default settings.
 * Whoever takes a lease gives it back in the same function: `release` when the session is idle again (its last message was
 * ReadyForQuery 'I'), `destroy` when its state is not known. The first of the two counts, later calls do nothing.
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
  }

  /** A new part of the room for results. */
  share(): MemoryReservation {
    return new MemoryReservation(this.#results, this.tenant.organization.id);
  }

  /** As {@link Pool.release}. */
  release(clean = false, reservation?: Reservation): Promise<void> {
    return this.#return() ? this.#pool.release(this.tenant.organization.id, this.backend, clean, reservation) : Promise.resolve();
  }

  /**
   * Ends the session; Postgres rolls back what was open. It keeps its place among the organization's until its process has
   * ended: one that obeys no cancel request goes on for nobody.
   */
  destroy(): void {
    if (this.#return()) this.#pool.discard(this.tenant.organization.id, this.backend, 'destroyed');
  }

  /** As {@link destroy}, where the session has not obeyed a cancel request: its process is ended at once. */
  terminate(): void {
    if (this.#return()) this.#pool.discard(this.tenant.organization.id, this.backend, 'destroyed', true);
  }

  /** Ends a session that may be at work, and for nobody any more. Resolves when a cancel request has been taken. */
  async abandon(): Promise<void> {
    await this.cancel();
    this.destroy();
  }

  /** What new sessions of the organization start with has changed: those that there are, this one too, are lent no more. */
  retireSessions(): void {
    this.#pool.retire(this.tenant.organization.id);
  }

  /** Asks Postgres to cancel what the session is running now; resolves when the request has been taken. */
  async cancel(): Promise<void> {
    if (!this.#returned) await this.backend.cancel();
  }

  #return(): boolean {
    if (this.#returned) return false;
    this.#returned = true;
    this.#observe({ name: 'lease.released', door: this.#door, heldMs: performance.now() - this.#grantedAt });
    return true;
  }
}
