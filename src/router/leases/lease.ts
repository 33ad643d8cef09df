import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../../backend/connection.ts';
import type { Pool } from '../../backend/pool.ts';
import type { Reservation } from '../../backend/session-state.ts';
import type { Observe } from '../../observation.ts';
import { type MemoryBudget, MemoryReservation } from '../../runtime/memory-budget.ts';
import type { Tenant } from '../tenant.ts';

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
    this.#observe({ name: 'lease.released', door: this.#door, heldMs: performance.now() - this.#grantedAt });
    return true;
  }
}
