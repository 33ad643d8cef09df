import type { BackendConnection } from '../connection.ts';
import { OrganizationPool, readersPool } from './organization-pool.ts';

export interface PoolFairnessLimits {
  /** Backend sessions of all organizations together. */
  readonly max: number;
  readonly maxPerTenant: number;
}

/** The numbers of sessions in each state, and of waiters, of all organizations together. */
export interface PoolSnapshot {
  readonly idle: number;
  readonly leased: number;
  readonly opening: number;
  /** Given up; their processes have not ended. */
  readonly leaving: number;
  readonly waiters: number;
  /** How many of those that are leaving do not end when they are terminated; by organization. */
  readonly stuck: ReadonlyMap<string, number>;
}

/** How many of an organization's sessions its readers leave to its own role: open transactions of a read key do not keep out those that write. */
const KEPT_FROM_READERS = 2;

/** How many sessions the readers of an organization may have. With few in all, nothing is kept. */
function readersMaxOf(maxPerTenant: number): number {
  return maxPerTenant - Math.min(KEPT_FROM_READERS, Math.floor(maxPerTenant / 4));
}

/** How many of the last sessions are reserved for organizations that have none. */
export function reservedOf(max: number): number {
  return Math.floor(max / 10);
}

/**
 * Divides a pool among organizations: the one with the fewest sessions in use is served first, and the
 * last tenth is reserved for organizations that have none, so that no organization can take the last backends.
 */
export class PoolFairness {
  /** The number of sessions, including those being opened. */
  size = 0;
  /** How many sessions have been closed so far. */
  #closings = 0;
  readonly #limits: PoolFairnessLimits;
  readonly #lost: (pool: OrganizationPool, backend: BackendConnection) => void;
  /** By tenant; those without sessions and waiters are left out. Only this class changes it. */
  readonly pools = new Map<string, OrganizationPool>();
  /** The pools that somebody waits at. */
  readonly waiting = new Set<OrganizationPool>();
  readonly #reserve: number;
  /** How many sessions of organizations other processes are due for. Only this class changes it. */
  readonly owed = new Map<string, number>();

  /** @param lost called when an organization has lost an idle session */
  constructor(limits: PoolFairnessLimits, lost: (pool: OrganizationPool, backend: BackendConnection) => void) {
    this.#limits = limits;
    this.#lost = lost;
    this.#reserve = reservedOf(limits.max);
  }

  snapshot(): PoolSnapshot {
    const total = { idle: 0, leased: 0, opening: 0, leaving: 0, waiters: 0 };
    const stuck = new Map<string, number>();
    for (const pool of this.pools.values()) {
      total.idle += pool.idle;
      total.leased += pool.leased.size;
      total.opening += pool.opening;
      total.leaving += pool.leaving.size;
      total.waiters += pool.waiters;
      const reported = [...pool.leaving.values()].filter(({ isReported }) => isReported).length;
      if (reported > 0) stuck.set(pool.organizationId, reported + (stuck.get(pool.organizationId) ?? 0));
    }
    return { ...total, stuck };
  }

  of(tenantId: string): OrganizationPool {
    let pool = this.pools.get(tenantId);
    if (pool === undefined) {
      pool = new OrganizationPool(tenantId, this.waiting, this.#lost);
      this.pools.set(tenantId, pool);
      this.#joinSibling(pool);
    }
    return pool;
  }

  forgetIfEmpty(pool: OrganizationPool): void {
    if (!pool.isEmpty || this.pools.get(pool.tenantId) !== pool) return;
    this.pools.delete(pool.tenantId);
    if (pool.sibling !== undefined) pool.sibling.sibling = undefined;
    pool.sibling = undefined;
  }

  #joinSibling(pool: OrganizationPool): void {
    const { tenantId, organizationId } = pool;
    const sibling = this.pools.get(tenantId === organizationId ? readersPool(organizationId) : organizationId);
    if (sibling === undefined) return;
    pool.sibling = sibling;
    sibling.sibling = pool;
  }

  closed({ organizationId }: OrganizationPool): void {
    this.size -= 1;
    this.#closings += 1;
    const left = (this.owed.get(organizationId) ?? 0) - 1;
    if (left > 0) this.owed.set(organizationId, left);
    else this.owed.delete(organizationId);
  }

  /** Another process is due for a session of this organization. */
  owe(organizationId: string): void {
    this.owed.set(organizationId, (this.owed.get(organizationId) ?? 0) + 1);
  }

  /** No other process is due for one any more. */
  settle(organizationId: string): void {
    this.owed.delete(organizationId);
  }

  /** Called when the server refused another session for this organization with too_many_connections. */
  refused(pool: OrganizationPool): void {
    pool.refusedAt = this.#closings;
  }

  /** The server has refused a session for this organization, and none has been closed since: one try at a time is enough. */
  #isRefused(pool: OrganizationPool): boolean {
    return pool.refusedAt === this.#closings;
  }

  /** Whether the limits allow another session for this organization now. */
  mayOpenFor(pool: OrganizationPool): boolean {
    const allowed = pool.busyOfAll === 0 ? this.#limits.max : this.#limits.max - this.#reserve;
    return pool.sizeOfAll < this.#limits.maxPerTenant && !this.#isFullOfReaders(pool) && this.size < allowed;
  }

  #isFullOfReaders(pool: OrganizationPool): boolean {
    return pool.isOfReaders && pool.size >= readersMaxOf(this.#limits.maxPerTenant);
  }

  /** Whether the server may be asked for another session: where it has refused one, one at a time. */
  mayTryFor(pool: OrganizationPool): boolean {
    return !this.#isRefused(pool) || pool.opening === 0;
  }

  /** Whether another session may be opened for this organization, if need be after closing another's idle one. */
  canGrow(pool: OrganizationPool): boolean {
    if (!this.mayTryFor(pool)) return false;
    return this.mayOpenFor(pool) || this.leastRecentlyUsedBeside(pool) !== undefined;
  }

  /**
   * Of the pools whose idle session may be closed for this one, that whose session has not been used for the longest time. If the
   * organization is at its limit, only its other role's may be.
   */
  leastRecentlyUsedBeside(own: OrganizationPool): OrganizationPool | undefined {
    if (this.#isFullOfReaders(own)) return undefined;
    if (own.sizeOfAll >= this.#limits.maxPerTenant) return own.sibling !== undefined && own.sibling.idle > 0 ? own.sibling : undefined;
    let found: OrganizationPool | undefined;
    for (const pool of this.pools.values())
      if (pool !== own && pool.idle > 0 && (found === undefined || pool.idleSince < found.idleSince)) found = pool;
    return found;
  }

  /** Of the pools of this organization, or of all, that whose idle session has not been used for the longest time. */
  leastRecentlyUsedOf(organizationId: string | undefined): OrganizationPool | undefined {
    let found: OrganizationPool | undefined;
    for (const pool of this.pools.values()) {
      const isMeant = pool.idle > 0 && (organizationId ?? pool.organizationId) === pool.organizationId;
      if (isMeant && (found === undefined || pool.idleSince < found.idleSince)) found = pool;
    }
    return found;
  }

  /** The organization that gets the next session, of those that wait and may have more. */
  nextToServe(): OrganizationPool | undefined {
    let best: OrganizationPool | undefined;
    for (const pool of this.waiting) {
      const isFull = this.#isFullOfReaders(pool) || (pool.sizeOfAll >= this.#limits.maxPerTenant && !pool.sibling?.idle);
      if (!pool.wantsMore || isFull || this.#isRefused(pool)) continue;
      const [busy, bestBusy] = [pool.busyOfAll, best?.busyOfAll ?? Number.POSITIVE_INFINITY];
      if (best === undefined || busy < bestBusy || (busy === bestBusy && pool.waitingSince < best.waitingSince)) best = pool;
    }
    return best;
  }

  /**
   * Whether the pool is at its limit and a waiting organization, role of the same one, or other process has fewer sessions in use.
   * It is not while nobody is {@link waiting} and nothing is {@link owed}.
   */
  isOwedToAnother(pool: OrganizationPool): boolean {
    if (this.#isOwedToSibling(pool) || this.owed.has(pool.organizationId)) return true;
    if (this.size < this.#limits.max - this.#reserve) return false;
    const next = this.nextToServe();
    return next !== undefined && next !== pool && next.busyOfAll < pool.busyOfAll;
  }

  #isOwedToSibling(pool: OrganizationPool): boolean {
    const { sibling } = pool;
    if (!sibling?.wantsMore || pool.sizeOfAll < this.#limits.maxPerTenant) return false;
    return pool.waiters === 0 || sibling.busy < pool.busy;
  }
}
