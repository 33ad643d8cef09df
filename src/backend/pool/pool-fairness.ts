import type { BackendConnection } from '../connection.ts';
import { OrganizationPool } from './organization-pool.ts';

export interface PoolFairnessLimits {
  /** Backend sessions of all organizations together. */
  readonly max: number;
  readonly maxPerTenant: number;
}

/** How many there are of each, of all organizations together. */
export interface PoolSnapshot {
  readonly idle: number;
  readonly leased: number;
  readonly opening: number;
  /** Given up, and their processes have not ended. */
  readonly leaving: number;
  readonly waiters: number;
  /** Of those that are leaving, how many do not end when they are told to; by organization. */
  readonly stuck: ReadonlyMap<string, number>;
}

/**
 * What the organizations have of a pool, and who may have more: the one with the fewest sessions in use goes first, and the
 * last tenth is kept for those that have none, so that a flood of one never takes the last backend from another.
 */
export class PoolFairness {
  /** Sessions that there are or are being opened. */
  size = 0;
  /** How many sessions have been closed so far. */
  #closings = 0;
  readonly #limits: PoolFairnessLimits;
  readonly #lost: (pool: OrganizationPool, backend: BackendConnection) => void;
  readonly #pools = new Map<string, OrganizationPool>();
  readonly #reserve: number;

  /** @param lost hears when one has lost an idle session */
  constructor(limits: PoolFairnessLimits, lost: (pool: OrganizationPool, backend: BackendConnection) => void) {
    this.#limits = limits;
    this.#lost = lost;
    this.#reserve = Math.floor(limits.max / 10);
  }

  snapshot(): PoolSnapshot {
    const total = { idle: 0, leased: 0, opening: 0, leaving: 0, waiters: 0 };
    const stuck = new Map<string, number>();
    for (const pool of this.#pools.values()) {
      total.idle += pool.idle;
      total.leased += pool.leased.size;
      total.opening += pool.opening;
      total.leaving += pool.leaving.size;
      total.waiters += pool.waiters;
      const told = [...pool.leaving.values()].filter((leaving) => leaving.told).length;
      if (told > 0) stuck.set(pool.tenantId, told);
    }
    return { ...total, stuck };
  }

  all(): Iterable<OrganizationPool> {
    return this.#pools.values();
  }

  /** @returns undefined for who has nothing and waits for nothing */
  find(tenantId: string): OrganizationPool | undefined {
    return this.#pools.get(tenantId);
  }

  of(tenantId: string): OrganizationPool {
    let pool = this.#pools.get(tenantId);
    if (pool === undefined) {
      pool = new OrganizationPool(tenantId, this.#lost);
      this.#pools.set(tenantId, pool);
    }
    return pool;
  }

  forgetIfEmpty(pool: OrganizationPool): void {
    if (pool.isEmpty) this.#pools.delete(pool.tenantId);
  }

  closed(): void {
    this.size -= 1;
    this.#closings += 1;
  }

  /** The server was full when one more session was to be opened for this organization. */
  refused(pool: OrganizationPool): void {
    pool.refusedAt = this.#closings;
  }

  /** The server has been full for this organization, and no session of ours has been closed since: one try at a time is enough. */
  #isRefused(pool: OrganizationPool): boolean {
    return pool.refusedAt === this.#closings;
  }

  /** Whether one more session may be opened for this organization as things are. */
  hasRoomFor(pool: OrganizationPool): boolean {
    const allowed = pool.busy === 0 ? this.#limits.max : this.#limits.max - this.#reserve;
    return pool.size < this.#limits.maxPerTenant && this.size < allowed;
  }

  /** Whether one more session may be opened for this organization, perhaps after closing another's idle one. */
  canGrow(pool: OrganizationPool): boolean {
    if (this.#isRefused(pool) && pool.opening > 0) return false;
    return this.hasRoomFor(pool) || (pool.size < this.#limits.maxPerTenant && this.coldestBeside(pool) !== undefined);
  }

  /** Which of the others has the idle session that has not been used for the longest time. */
  coldestBeside(own: OrganizationPool): OrganizationPool | undefined {
    let coldest: OrganizationPool | undefined;
    for (const pool of this.#pools.values())
      if (pool !== own && pool.idle > 0 && (coldest === undefined || pool.idleSince < coldest.idleSince)) coldest = pool;
    return coldest;
  }

  /** Who is to have the next session, of those that wait and may have more. */
  nextToServe(): OrganizationPool | undefined {
    let best: OrganizationPool | undefined;
    for (const pool of this.#pools.values()) {
      if (!pool.wantsMore || pool.size >= this.#limits.maxPerTenant || this.#isRefused(pool)) continue;
      if (best === undefined || pool.busy < best.busy || (pool.busy === best.busy && pool.waitingSince < best.waitingSince)) best = pool;
    }
    return best;
  }

  /** At the limit, whether another organization that waits has fewer sessions in use than this one keeps. */
  isOwedToAnother(pool: OrganizationPool): boolean {
    if (this.size < this.#limits.max - this.#reserve) return false;
    const next = this.nextToServe();
    return next !== undefined && next !== pool && next.busy < pool.busy;
  }
}
