import { performance } from 'node:perf_hooks';
import { RESTRICTED_SCOPES, type RestrictedScope } from '../catalog/key-rows.ts';
import type { ServiceError } from '../errors.ts';
import { areAmong, areSame, type CustomOptions, NO_OPTIONS } from '../syntax/session-traits.ts';
import { type BackendConnection, type BackendReceiver, NO_RECEIVER } from './connection.ts';
import type { SessionState } from './session-state.ts';

/** The name of the pool of an organization's keys with this scope. That of its own role has the organization's id. */
export function restrictedPool(organizationId: string, scope: RestrictedScope): string {
  return `${organizationId}:${scope}`;
}

/** The names of all pools that an organization may have. */
export function poolsOf(organizationId: string): readonly string[] {
  return [organizationId, ...RESTRICTED_SCOPES.map((scope) => restrictedPool(organizationId, scope))];
}

/** The scope of the keys that a pool is for; undefined: it is of the organization's own role. */
export function scopeOfPool(pool: string): RestrictedScope | undefined {
  return RESTRICTED_SCOPES.find((scope) => pool.endsWith(`:${scope}`));
}

/** The organization of a pool, by the pool's name. */
export function organizationOfPool(pool: string): string {
  return pool.split(':', 1)[0] ?? pool;
}

/** Opens a new backend session for one organization. */
export type OpenBackend = (signal: AbortSignal) => Promise<BackendConnection>;

/** A request for a backend. `settle` is called in the same turn in which one becomes available. */
export interface Waiter {
  readonly open: OpenBackend;
  /** It gets no backend where other customized options exist. Default: none. */
  readonly customOptions?: CustomOptions;
  settle(result: BackendConnection | ServiceError): void;
  /** Called when it has been taken out of the queue, because the organization is paused. Not called unless {@link Pool.suspend} is. */
  suspended?(): void;
}

interface Waiting {
  readonly waiter: Waiter;
  readonly since: number;
}

/** How many waiters are considered for a backend: those that have waited longest. */
const MAX_CONSIDERED = 16;
/** For this long the first waiter may be passed over by those whom a backend suits better. Then one is opened for it. */
const PASSED_OVER_MS = 100;

/** A session that has been given up, whose process has not ended yet. */
export interface Leaving {
  readonly since: number;
  /** It has been reported that the process does not end. */
  isReported: boolean;
}

/** An idle session. It notices when the connection is lost. */
class Idle implements BackendReceiver {
  readonly backend: BackendConnection;
  readonly since = performance.now();
  readonly #lost: (idle: Idle) => void;

  constructor(backend: BackendConnection, lost: (idle: Idle) => void) {
    this.backend = backend;
    this.#lost = lost;
  }

  /** Unrequested input, such as a ParameterStatus. It may be an incomplete message, or report changed defaults, so the session is dropped. */
  data(): void {
    this.closed();
    this.backend.destroy();
  }

  drain(): void {}

  closed(): void {
    this.#lost(this);
  }
}

/** The backends of one role of an organization, and those who wait for one. */
export class OrganizationPool {
  /** The organization's id, or that of another role of it: `<organization>:<role>`. */
  readonly tenantId: string;
  readonly organizationId: string;
  /** Whose limit the backends count in: the organization's, or that of the source of a clone. */
  readonly limitsId: string;
  /** The other pools whose backends count in the same limit: of the organization's other role, and of its clones or its source. */
  others: readonly OrganizationPool[] = [];
  readonly leased = new Set<BackendConnection>();
  readonly leaving = new Map<BackendConnection, Leaving>();
  /** Sessions that have been given up are being terminated at the moment. */
  isTerminating = false;
  /** Opens a session of the organization: the last waiter does. */
  opener: Pick<Waiter, 'open'> | undefined;
  opening = 0;
  /** How often the defaults for new sessions have changed. */
  changes = 0;
  /** How many sessions of the pool had been closed when the server last refused one with too_many_connections. */
  refusedAt: number | undefined;
  /** Most recently used last. */
  readonly #idle: Idle[] = [];
  readonly #waiters: Waiting[] = [];
  /** The pools that somebody waits at, of all organizations. */
  readonly #waiting: Set<OrganizationPool>;
  readonly #lost: (idle: Idle) => void;
  /** Set while a waiter could get only a reserved session. */
  holdTimer: NodeJS.Timeout | undefined;

  /**
   * @param limitsId default: the organization's id
   * @param waiting this pool is in it while somebody waits here
   * @param lost called for each idle session that is lost, after its removal
   */
  constructor(
    tenantId: string,
    limitsId: string | undefined,
    waiting: Set<OrganizationPool>,
    lost: (pool: OrganizationPool, backend: BackendConnection) => void,
  ) {
    this.tenantId = tenantId;
    this.#waiting = waiting;
    this.organizationId = organizationOfPool(tenantId);
    this.limitsId = limitsId ?? this.organizationId;
    this.#lost = (idle) => {
      const position = this.#idle.indexOf(idle);
      if (position < 0) return;
      this.#idle.splice(position, 1);
      cancelReservation(idle.backend.session);
      lost(this, idle.backend);
    };
  }

  get isOfReaders(): boolean {
    return this.tenantId !== this.organizationId;
  }

  get size(): number {
    return this.#idle.length + this.busy;
  }

  /** The number of sessions in use, being opened, or given up and not ended. */
  get busy(): number {
    return this.leased.size + this.opening + this.leaving.size;
  }

  get idle(): number {
    return this.#idle.length;
  }

  /** As {@link size}, of all that count in the same limit. */
  get sizeOfAll(): number {
    let sum = this.size;
    for (const other of this.others) sum += other.size;
    return sum;
  }

  /** As {@link busy}, of all that count in the same limit. */
  get busyOfAll(): number {
    let sum = this.busy;
    for (const other of this.others) sum += other.busy;
    return sum;
  }

  get backends(): readonly BackendConnection[] {
    return [...this.leased, ...this.leaving.keys(), ...this.#idle.map(({ backend }) => backend)];
  }

  /** When the least recently used idle session became idle. */
  get idleSince(): number {
    return this.#idle[0]?.since ?? Number.POSITIVE_INFINITY;
  }

  get waiters(): number {
    return this.#waiters.length;
  }

  /** When the first waiter began to wait. */
  get waitingSince(): number {
    return this.#waiters[0]?.since ?? Number.POSITIVE_INFINITY;
  }

  /** There are more waiters than sessions being opened. */
  get wantsMore(): boolean {
    return this.#waiters.length > this.opening;
  }

  /** The first waiter for whom no session is being opened. */
  get nextToOpenFor(): Waiter | undefined {
    return this.#waiters[this.opening]?.waiter;
  }

  get isEmpty(): boolean {
    return this.size === 0 && this.#waiters.length === 0;
  }

  add(waiter: Waiter): void {
    this.opener = waiter;
    this.#waiters.push({ waiter, since: performance.now() });
    this.#waiting.add(this);
  }

  /** @returns whether it was waiting */
  remove(waiter: Waiter): boolean {
    const position = this.#waiters.findIndex((waiting) => waiting.waiter === waiter);
    if (position < 0) return false;
    this.#waiters.splice(position, 1);
    this.#waiterLeft();
    return true;
  }

  /** Takes all waiters out of the queue. */
  takeWaiters(): readonly Waiter[] {
    this.#waiting.delete(this);
    return this.#waiters.splice(0).map(({ waiter }) => waiter);
  }

  /** Answers the first waiter. */
  settle(result: BackendConnection | ServiceError): void {
    this.#settleAt(0, result);
  }

  #settleAt(position: number, result: BackendConnection | ServiceError): void {
    const [waiting] = position === 0 ? [this.#waiters.shift()] : this.#waiters.splice(position, 1);
    this.#waiterLeft();
    waiting?.waiter.settle(result);
  }

  /** Gives a leased session to the first waiter that it suits, if that is one of the first. @returns whether there was one */
  settleSuited(backend: BackendConnection): boolean {
    const position = this.#waiterFor(backend.session.customOptions);
    if (position < 0) return false;
    backend.receiver = NO_RECEIVER;
    this.#settleAt(position, backend);
    return true;
  }

  /** Waiters with just these options come first, so that sessions with other options find others. */
  #waiterFor(options: CustomOptions): number {
    const [first] = this.#waiters;
    if (first === undefined) return -1;
    if (isExact(options, first.waiter)) return 0;
    const isDue = this.opening === 0 && performance.now() - first.since > PASSED_OVER_MS;
    const considered = this.#waiters.slice(0, isDue ? 1 : MAX_CONSIDERED);
    const exact = considered.findIndex(({ waiter }) => isExact(options, waiter));
    return exact >= 0 ? exact : considered.findIndex(({ waiter }) => areAmong(options, optionsOf(waiter)));
  }

  /** Leases an idle session to one of the first waiters, if one suits it. @returns whether there was one */
  serveIdle(): boolean {
    for (let position = 0; this.#idle.length > 0 && position < Math.min(this.#waiters.length, MAX_CONSIDERED); position += 1) {
      const waiter = this.#waiters[position]?.waiter;
      const backend = waiter && this.#lease(this.#findSuited(optionsOf(waiter)));
      if (backend === undefined) continue;
      this.#settleAt(position, backend);
      return true;
    }
    return false;
  }

  #waiterLeft(): void {
    if (this.#waiters.length === 0) this.#waiting.delete(this);
  }

  /**
   * Leases an idle session: the preferred one if it is idle, otherwise the most recently used of those that are not reserved.
   * @param preferred if it is reserved, then for the caller
   * @param options the customized options that may exist in it
   */
  lease(preferred?: BackendConnection, options = NO_OPTIONS): BackendConnection | undefined {
    const isSuited = preferred !== undefined && areAmong(preferred.session.customOptions, options);
    const own = isSuited ? this.#idle.findLastIndex(({ backend }) => backend === preferred) : -1;
    if (own >= 0 && isSuited) preferred.session.reservation = undefined;
    return this.#lease(own >= 0 ? own : this.#findSuited(options));
  }

  /** As {@link lease}, if the session suits nobody who waits. */
  leaseUnwanted(options: CustomOptions): BackendConnection | undefined {
    const index = this.#findSuited(options);
    const made = this.#idle[index]?.backend.session.customOptions;
    if (made === undefined || this.#waiters.some(({ waiter }) => areAmong(made, optionsOf(waiter)))) return undefined;
    return this.#lease(index);
  }

  /** The index of an unreserved session in which no other options exist than these, and as many of these as possible. */
  #findSuited(options: CustomOptions): number {
    let [found, most] = [-1, -1];
    for (let index = this.#idle.length - 1; index >= 0 && most < options.size; index -= 1) {
      const session = this.#idle[index]?.backend.session;
      if (session === undefined || session.reservation !== undefined || session.customOptions.size <= most) continue;
      if (areAmong(session.customOptions, options)) [found, most] = [index, session.customOptions.size];
    }
    return found;
  }

  /** Leases the least recently used idle session whose reservation does not hold at the moment. */
  leaseReserved(): BackendConnection | undefined {
    const now = performance.now();
    return this.#lease(this.#findOldest(({ reservation }) => reservation !== undefined && reservation.heldUntil <= now));
  }

  /** The earliest time at which a held session becomes available; infinite if none is held. */
  get heldUntil(): number {
    return Math.min(...this.#idle.map(({ backend }) => backend.session.reservation?.heldUntil ?? Number.POSITIVE_INFINITY));
  }

  #lease(index: number): BackendConnection | undefined {
    const [idle] = index < 0 ? [] : this.#idle.splice(index, 1);
    if (idle === undefined) return undefined;
    const { backend } = idle;
    cancelReservation(backend.session);
    backend.receiver = NO_RECEIVER;
    this.leased.add(backend);
    return backend;
  }

  addIdle(backend: BackendConnection): void {
    const idle = new Idle(backend, this.#lost);
    backend.receiver = idle;
    if (backend.isPaused) backend.resume();
    this.#idle.push(idle);
  }

  /** Closes the least recently used idle session, a reserved one only if all are. @returns the session, if there was one */
  closeOldestIdle(): BackendConnection | undefined {
    return this.#close(this.#findOldest(() => true));
  }

  /** Closes the least recently used idle session that is not reserved. @returns the session, if there was one */
  closeUnreserved(): BackendConnection | undefined {
    return this.#close(this.#idle.findIndex(({ backend }) => backend.session.reservation === undefined));
  }

  /** Closes a session that has been idle since before `time`, except a lasting reservation. @returns the session, if there was one */
  closeIdleSince(time: number): BackendConnection | undefined {
    return this.#close(this.#idle.findIndex(({ backend, since }) => since < time && backend.session.reservation?.isLasting !== true));
  }

  /** The index of the least recently used one: first of those not reserved, last of those with a lasting reservation. */
  #findOldest(mayBe: (session: SessionState) => boolean): number {
    const find = (isLasting: boolean | undefined) =>
      this.#idle.findIndex(({ backend: { session } }) => session.reservation?.isLasting === isLasting && mayBe(session));
    return [undefined, false, true].map(find).find((index) => index >= 0) ?? -1;
  }

  #close(index: number): BackendConnection | undefined {
    const [idle] = index < 0 ? [] : this.#idle.splice(index, 1);
    if (idle === undefined) return undefined;
    cancelReservation(idle.backend.session);
    idle.backend.receiver = NO_RECEIVER;
    idle.backend.end();
    return idle.backend;
  }
}

function optionsOf({ customOptions = NO_OPTIONS }: Waiter): CustomOptions {
  return customOptions;
}

function isExact(options: CustomOptions, waiter: Waiter): boolean {
  return areSame(options, optionsOf(waiter));
}

function cancelReservation(session: SessionState): void {
  session.reservation?.lost();
  session.reservation = undefined;
}

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
  /** The pools that count in a limit, by {@link OrganizationPool.limitsId}. */
  readonly #byLimit = new Map<string, readonly OrganizationPool[]>();
  /** How many sessions within a limit other processes are due for. Only this class changes it. */
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

  /** @param limitsId whose limit its backends count in; default: the organization's */
  of(tenantId: string, limitsId?: string): OrganizationPool {
    let pool = this.pools.get(tenantId);
    if (pool === undefined) {
      pool = new OrganizationPool(tenantId, limitsId, this.waiting, this.#lost);
      this.pools.set(tenantId, pool);
      this.#limited(pool.limitsId, [...(this.#byLimit.get(pool.limitsId) ?? []), pool]);
    }
    return pool;
  }

  forgetIfEmpty(pool: OrganizationPool): void {
    if (!pool.isEmpty || this.pools.get(pool.tenantId) !== pool) return;
    this.pools.delete(pool.tenantId);
    this.#limited(pool.limitsId, pool.others);
    pool.others = [];
  }

  /** These count in one limit. */
  #limited(limitsId: string, pools: readonly OrganizationPool[]): void {
    if (pools.length === 0) this.#byLimit.delete(limitsId);
    else this.#byLimit.set(limitsId, pools);
    for (const pool of pools) pool.others = pools.filter((other) => other !== pool);
  }

  closed({ limitsId }: OrganizationPool): void {
    this.size -= 1;
    this.#closings += 1;
    const left = (this.owed.get(limitsId) ?? 0) - 1;
    if (left > 0) this.owed.set(limitsId, left);
    else this.owed.delete(limitsId);
  }

  /** Another process is due for a session within this limit. */
  owe(limitsId: string): void {
    this.owed.set(limitsId, (this.owed.get(limitsId) ?? 0) + 1);
  }

  /** No other process is due for one any more. */
  settle(limitsId: string): void {
    this.owed.delete(limitsId);
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
    if (!pool.isOfReaders) return false;
    let readers = pool.size;
    for (const other of pool.others) if (other.isOfReaders) readers += other.size;
    return readers >= readersMaxOf(this.#limits.maxPerTenant);
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
   * Of the pools whose idle session may be closed for this one, that whose session has not been used for the longest time. At the
   * organization's limit, only one that counts in the same may be.
   */
  leastRecentlyUsedBeside(own: OrganizationPool): OrganizationPool | undefined {
    if (this.#isFullOfReaders(own)) return undefined;
    const isFull = own.sizeOfAll >= this.#limits.maxPerTenant;
    let found: OrganizationPool | undefined;
    for (const pool of isFull ? own.others : this.pools.values())
      if (pool !== own && pool.idle > 0 && (found === undefined || pool.idleSince < found.idleSince)) found = pool;
    return found;
  }

  /** Of the pools that count in this limit, or of all, that whose idle session has not been used for the longest time. */
  leastRecentlyUsedOf(limitsId: string | undefined): OrganizationPool | undefined {
    let found: OrganizationPool | undefined;
    for (const pool of this.pools.values()) {
      const isMeant = pool.idle > 0 && (limitsId ?? pool.limitsId) === pool.limitsId;
      if (isMeant && (found === undefined || pool.idleSince < found.idleSince)) found = pool;
    }
    return found;
  }

  /** The organization that gets the next session, of those that wait and may have more. */
  nextToServe(): OrganizationPool | undefined {
    let best: OrganizationPool | undefined;
    for (const pool of this.waiting) {
      const isAtLimit = pool.sizeOfAll >= this.#limits.maxPerTenant && pool.others.every(({ idle }) => idle === 0);
      const isFull = this.#isFullOfReaders(pool) || isAtLimit;
      if (!pool.wantsMore || isFull || this.#isRefused(pool)) continue;
      const [busy, bestBusy] = [pool.busyOfAll, best?.busyOfAll ?? Number.POSITIVE_INFINITY];
      if (best === undefined || busy < bestBusy || (busy === bestBusy && pool.waitingSince < best.waitingSince)) best = pool;
    }
    return best;
  }

  /**
   * Whether the pool is at its limit and a waiting organization, pool within the same limit, or other process has fewer sessions in use.
   * It is not while nobody is {@link waiting} and nothing is {@link owed}.
   */
  isOwedToAnother(pool: OrganizationPool): boolean {
    if (this.#isOwedWithinLimit(pool) || this.owed.has(pool.limitsId)) return true;
    if (this.size < this.#limits.max - this.#reserve) return false;
    const next = this.nextToServe();
    return next !== undefined && next !== pool && next.busyOfAll < pool.busyOfAll;
  }

  #isOwedWithinLimit(pool: OrganizationPool): boolean {
    if (pool.others.length === 0 || pool.sizeOfAll < this.#limits.maxPerTenant) return false;
    return pool.others.some((other) => other.wantsMore && (pool.waiters === 0 || other.busy < pool.busy));
  }
}

/** Counts the backend sessions of several processes together, by {@link OrganizationPool.limitsId}. */
export interface BackendPermits {
  /**
   * Waits until one more session may be opened.
   * @param isWanted whether somebody still waits for a session
   * @returns whether one may be opened; false when nobody waits any more
   */
  acquire(limitsId: string, isWanted: () => boolean): Promise<boolean>;
  /** A session has been closed, or was not opened after all. */
  release(limitsId: string): void;
}
