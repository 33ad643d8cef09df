/** The limit that an allocator divides. */
export interface AllocatedLimits {
  /** Of all organizations together. */
  readonly max: number;
  readonly maxPerTenant: number;
  /** How many of the last ones are kept for organizations that have none. */
  readonly reserved: number;
  /** Whether no organization may have more than are left for the others. */
  readonly leavesAsMany?: boolean;
}

/** What the allocator asks of workers, by their numbers. */
interface AllocatorEvents {
  /** The worker may have so many more of the organization; 0: the limit is reached, and others use what they have. */
  granted(worker: number, organizationId: string, count: number): void;
  /**
   * The worker gives up what is unused, of this organization or any, or calls {@link LimitAllocator.kept}.
   * @param mayEvict it closes a connection if nothing is unused
   */
  reclaim(worker: number, request: number, organizationId: string | undefined, mayEvict: boolean): void;
  /** The worker closes an idle session, or the next that is released, even if its own clients wait for it. */
  owe(worker: number, organizationId: string): void;
  /** Nobody waits any more: the worker need not close any. */
  settled(worker: number, organizationId: string): void;
}

export interface AllocatorOptions {
  /** Whether workers wait until others need less. Otherwise they are told when all others have kept what they have. */
  readonly isPatient: boolean;
  /** Whether workers may have some unused, which they are asked for; true by default. */
  readonly mayReclaim?: boolean;
}

/** A worker that waits until it may have more. */
interface Waiting {
  readonly request: number;
  readonly worker: number;
  readonly organizationId: string;
  /** How many it would like to have at once. */
  readonly count: number;
  /** Whether another worker may have to close a connection for it. */
  readonly mayEvict: boolean;
  /** The workers that have been asked to close an unused session. */
  asked: Set<number>;
  /** The worker that is closing a session for it, or has been asked to. */
  from: number | undefined;
  /** Whose session has to be closed for it; undefined: of any organization. */
  of: string | undefined;
  /** Of which organization a session that is used is due for it. */
  owedOf: string | undefined;
  /** It has waited for so long that another worker may have to give up a session that it uses. */
  isLong: boolean;
}

/** How often those that wait ask again: other workers' sessions may have become unused. */
const ASK_EVERY_MS = 50;
/** How long a worker may take to answer where nobody waits for longer than it takes to ask all: one that hangs has kept what it has. */
const ANSWER_MS = 1_000;
/** How many requests ask at once for sessions of an organization, or of any; the others wait until these have one. */
const ASKING_MAX = 16;

/**
 * Counts what workers have of a limit, so that it is that of the whole: backend sessions, which workers wait for, or clients, connections and
 * requests, which are let in or refused. Whichever worker needs one more gets it, if need be after another has given one up. Organizations
 * with the fewest are served first.
 */
export class LimitAllocator {
  readonly #events: AllocatorEvents;
  readonly #isPatient: boolean;
  readonly #mayReclaim: boolean;
  #limits: AllocatedLimits | undefined;
  /** How many each worker has of each organization. */
  readonly #held = new Allocations();
  /** The most of those organizations that may have another number than others. */
  readonly #own = new Map<string, number>();
  readonly #waiting: Waiting[] = [];
  #requests = 0;
  /** How many sessions of an organization are to be closed when they are released. */
  readonly #owed = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  /** The workers that owe sessions of an organization. */
  readonly #debtors = new Map<string, Set<number>>();

  constructor(events: AllocatorEvents, { isPatient, mayReclaim = true }: AllocatorOptions = { isPatient: true }) {
    this.#events = events;
    this.#isPatient = isPatient;
    this.#mayReclaim = mayReclaim;
  }

  /** Set by the first worker that knows how many sessions the server has for them. */
  limit(limits: AllocatedLimits): void {
    this.#limits = limits;
    this.#serve();
  }

  /**
   * @param count so many, or fewer, at once
   * @param max the most of this organization from now on, in all workers together; undefined: as many as others
   */
  acquire(worker: number, organizationId: string, count = 1, mayEvict = false, max = this.#limits?.maxPerTenant): void {
    if (max === undefined || max === this.#limits?.maxPerTenant) this.#own.delete(organizationId);
    else this.#own.set(organizationId, max);
    this.#requests += 1;
    this.#waiting.push({
      request: this.#requests,
      worker,
      organizationId,
      count,
      mayEvict,
      asked: new Set(),
      from: undefined,
      of: undefined,
      owedOf: undefined,
      isLong: false,
    });
    this.#serve();
  }

  /** One of the worker's requests is not needed any more. If all have been granted already, it releases what it does not need. */
  withdraw(worker: number, organizationId: string): void {
    const at = this.#waiting.findLastIndex((one) => one.worker === worker && one.organizationId === organizationId);
    if (at >= 0) this.#waiting.splice(at, 1);
    this.#settle();
  }

  release(worker: number, organizationId: string, count = 1): void {
    if (!this.#held.has(worker, organizationId)) return;
    this.#held.add(worker, organizationId, -count);
    const owed = (this.#owed.get(organizationId) ?? 0) - 1;
    if (owed > 0) this.#owed.set(organizationId, owed);
    else this.#owed.delete(organizationId);
    for (const waiting of this.#waiting) if (waiting.of === undefined || waiting.of === organizationId) waiting.from = undefined;
    this.#serve();
  }

  /** The worker has nothing to give up for this request. */
  kept(request: number): void {
    const waiting = this.#waiting.find((one) => one.request === request);
    if (waiting === undefined) return;
    waiting.from = undefined;
    this.#serve();
  }

  /** The worker has ended, and its sessions with it. */
  forget(worker: number): void {
    for (let at = this.#waiting.length - 1; at >= 0; at -= 1) if (this.#waiting[at]?.worker === worker) this.#waiting.splice(at, 1);
    this.#held.forget(worker);
    this.#owed.clear();
    for (const workers of this.#debtors.values()) workers.delete(worker);
    for (const waiting of this.#waiting) if (waiting.from === worker) waiting.from = undefined;
    this.#serve();
  }

  #serve(): void {
    if (this.#limits === undefined) return;
    for (let next = this.#next(this.#limits); next !== undefined; next = this.#next(this.#limits)) {
      this.#waiting.splice(this.#waiting.indexOf(next), 1);
      const count = Math.min(next.count, this.#roomFor(next.organizationId, this.#limits));
      this.#held.add(next.worker, next.organizationId, count);
      this.#events.granted(next.worker, next.organizationId, count);
    }
    this.#ask(this.#limits);
    this.#settle();
    if (this.#waiting.length > 0) this.#timer ??= setTimeout(() => this.#askAgain(), this.#isPatient ? ASK_EVERY_MS : ANSWER_MS).unref();
  }

  #askAgain(): void {
    this.#timer = undefined;
    for (const waiting of this.#waiting) {
      waiting.from = undefined;
      waiting.isLong = true;
    }
    this.#serve();
  }

  #settle(): void {
    for (const [of, workers] of this.#debtors) {
      if (this.#waiting.some(({ owedOf }) => owedOf === of)) continue;
      this.#debtors.delete(of);
      this.#owed.delete(of);
      for (const worker of workers) this.#events.settled(worker, of);
    }
  }

  /** The request that is served next, if the limits allow. */
  #next(limits: AllocatedLimits): Waiting | undefined {
    let best: Waiting | undefined;
    let fewest = Number.POSITIVE_INFINITY;
    for (const waiting of this.#waiting) {
      const size = this.#held.sizeOf(waiting.organizationId);
      if (size >= fewest || this.#roomFor(waiting.organizationId, limits) <= 0) continue;
      [best, fewest] = [waiting, size];
    }
    return best;
  }

  /** How many more the organization may have now. */
  #roomFor(organizationId: string, limits: AllocatedLimits): number {
    const { max, reserved, leavesAsMany = false } = limits;
    const size = this.#held.sizeOf(organizationId);
    const free = (size === 0 ? max : max - reserved) - this.#held.total;
    return Math.min(this.#maxOf(organizationId, limits) - size, leavesAsMany ? Math.floor((free - size) / 2) : free);
  }

  #maxOf(organizationId: string, { maxPerTenant }: AllocatedLimits): number {
    return this.#own.get(organizationId) ?? maxPerTenant;
  }

  /** Those that wait for a session of their own organization do not keep those from asking that need one of any; the fewest come first. */
  #ask(limits: AllocatedLimits): void {
    const asking = new Map<string | undefined, number>();
    const sizeOf = (waiting: Waiting) => this.#held.sizeOf(waiting.organizationId);
    if (this.#waiting.length > ASKING_MAX) this.#waiting.sort((one, other) => sizeOf(one) - sizeOf(other) || one.request - other.request);
    for (const waiting of [...this.#waiting]) {
      const of = sizeOf(waiting) >= this.#maxOf(waiting.organizationId, limits) ? waiting.organizationId : undefined;
      const before = asking.get(of) ?? 0;
      asking.set(of, before + 1);
      if (before < ASKING_MAX && waiting.from === undefined) this.#reclaimFor(waiting, of);
    }
  }

  /** Asks one worker after another to give up what is unused. When nothing is, something that is used is due, or the request is refused. */
  #reclaimFor(waiting: Waiting, of: string | undefined): void {
    waiting.of = of;
    const holders = this.#mayReclaim ? this.#held.holdersOf(of) : [];
    const own = holders.find(([worker]) => worker === waiting.worker)?.[1] ?? 0;
    // Who has some can wait: sessions that move to and fro cost more than they bring.
    if (this.#isPatient && of !== undefined && own > 0 && !waiting.isLong) return;
    // What it has itself of the same organization is not unused.
    const mayAsk = (worker: number) => !waiting.asked.has(worker) && (of === undefined || worker !== waiting.worker);
    const next = holders.find(([worker]) => mayAsk(worker))?.[0];
    if (next !== undefined) {
      waiting.asked.add(next);
      waiting.from = next;
      this.#events.reclaim(next, waiting.request, of, waiting.mayEvict);
      return;
    }
    if (!this.#isPatient) {
      this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
      this.#events.granted(waiting.worker, waiting.organizationId, 0);
      return;
    }
    waiting.asked = new Set();
    waiting.from = holders[0]?.[0] ?? waiting.worker;
    if (waiting.isLong) this.#oweTo(waiting);
  }

  /** A worker owes a session of the organization that has more than this one; if none has, of this one, where the worker has more. */
  #oweTo(waiting: Waiting): void {
    if (waiting.owedOf !== undefined && this.#owed.has(waiting.owedOf)) return;
    const size = this.#held.sizeOf(waiting.organizationId);
    const [largest, largestSize] = this.#held.largest();
    const isOther = waiting.of === undefined && largest !== undefined && hasMore(largestSize, size, this.#owed.get(largest));
    const of = isOther ? largest : waiting.organizationId;
    const holders = this.#held.holdersOf(of);
    const [most, count] = holders[0] ?? [waiting.worker, 0];
    const own = holders.find(([worker]) => worker === waiting.worker)?.[1] ?? 0;
    const owed = this.#owed.get(of) ?? 0;
    if (!isOther && !hasMore(count, own, owed)) return;
    waiting.owedOf = of;
    waiting.from = most;
    this.#owed.set(of, owed + 1);
    this.#debtors.set(of, (this.#debtors.get(of) ?? new Set()).add(most));
    this.#events.owe(most, of);
  }
}

/** Two that have as many, and use them, would close and open sessions all the time. */
function hasMore(count: number, own: number, owed = 0): boolean {
  return count - owed > own + owed + (own === 0 ? 0 : 1);
}

/** How much each worker has of what belongs to organizations, by the workers' numbers. */
class Allocations {
  total = 0;
  readonly #counts = new Map<string, Map<number, number>>();
  /** The sums of {@link #counts}. */
  readonly #sizes = new Map<string, number>();

  add(worker: number, organizationId: string, change: number): void {
    const workers = this.#counts.get(organizationId) ?? new Map<number, number>();
    const count = Math.max(0, (workers.get(worker) ?? 0) + change);
    const difference = count - (workers.get(worker) ?? 0);
    this.total += difference;
    this.#sizes.set(organizationId, this.sizeOf(organizationId) + difference);
    if (count > 0) workers.set(worker, count);
    else workers.delete(worker);
    if (workers.size > 0) {
      this.#counts.set(organizationId, workers);
      return;
    }
    this.#counts.delete(organizationId);
    this.#sizes.delete(organizationId);
  }

  /** The worker has ended. */
  forget(worker: number): void {
    for (const [organizationId, workers] of [...this.#counts]) this.add(worker, organizationId, -(workers.get(worker) ?? 0));
  }

  has(worker: number, organizationId: string): boolean {
    return this.#counts.get(organizationId)?.has(worker) === true;
  }

  sizeOf(organizationId: string): number {
    return this.#sizes.get(organizationId) ?? 0;
  }

  /** The organization that has the most. */
  largest(): readonly [organizationId: string | undefined, size: number] {
    let largest: readonly [string | undefined, number] = [undefined, 0];
    for (const entry of this.#sizes) if (entry[1] > largest[1]) largest = entry;
    return largest;
  }

  /** The workers that have something of this organization, or of any, with their numbers; the largest number first. */
  holdersOf(organizationId: string | undefined): (readonly [worker: number, count: number])[] {
    const sums = new Map<number, number>();
    const all = organizationId === undefined ? this.#counts.values() : [this.#counts.get(organizationId) ?? new Map<number, number>()];
    for (const workers of all) for (const [worker, count] of workers) sums.set(worker, (sums.get(worker) ?? 0) + count);
    return [...sums].sort(([, one], [, other]) => other - one);
  }
}
