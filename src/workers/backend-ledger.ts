import type { PoolFairnessLimits } from '../backend/pool/pool-fairness.ts';
import { WorkerCounts } from './worker-counts.ts';

/** What the ledger asks of workers, by their numbers. */
export interface LedgerEvents {
  /** The worker may open one more session of the organization. */
  granted(worker: number, organizationId: string): void;
  /**
   * The worker closes an idle session, of this organization or any. If it has none, it calls {@link BackendLedger.kept}, and closes the
   * next that becomes idle.
   */
  reclaim(worker: number, request: number, organizationId: string | undefined): void;
  /** The worker closes the next session that is released, even if its own clients wait for it. */
  owe(worker: number, organizationId: string | undefined): void;
  /** Nobody waits any more: the worker need not close any. */
  settled(worker: number, organizationId: string | undefined): void;
}

/** A worker that waits until it may open a session. */
interface Waiting {
  readonly request: number;
  readonly worker: number;
  readonly organizationId: string;
  /** The workers that need not be asked to close an idle session: they have been, or it is the one that waits. */
  asked: Set<number>;
  /** The worker that is closing a session for it, or has been asked to. */
  from: number | undefined;
  /** Whose session has to be closed for it; undefined: of any organization. */
  of: string | undefined;
}

/** So many requests ask other workers for sessions at once; the others wait until these have one. */
const ASKING_MAX = 16;

/**
 * Counts the backend sessions of all workers, so that the limits are those of the whole: whichever worker needs a session gets it, if
 * need be after another has closed one. Requests of organizations with the fewest sessions are served first, and the last tenth is
 * reserved for organizations that have none, as within a worker.
 */
export class BackendLedger {
  readonly #events: LedgerEvents;
  #limits: PoolFairnessLimits | undefined;
  /** How many sessions each worker has of each organization. */
  readonly #held = new WorkerCounts();
  readonly #waiting: Waiting[] = [];
  #requests = 0;
  /** How many sessions of an organization, or of any, are to be closed when they are released. */
  readonly #owed = new Map<string | undefined, number>();
  /** The workers that have been asked for sessions of an organization, or of any. */
  readonly #asked = new Map<string | undefined, Set<number>>();

  constructor(events: LedgerEvents) {
    this.#events = events;
  }

  /** Set by the first worker that knows how many sessions the server has for them. */
  limit(limits: PoolFairnessLimits): void {
    this.#limits = limits;
    this.#serve();
  }

  acquire(worker: number, organizationId: string): void {
    this.#requests += 1;
    this.#waiting.push({ request: this.#requests, worker, organizationId, asked: new Set([worker]), from: undefined, of: undefined });
    this.#serve();
  }

  release(worker: number, organizationId: string): void {
    if (!this.#held.has(worker, organizationId)) return;
    this.#held.add(worker, organizationId, -1);
    for (const key of [organizationId, undefined]) this.#owed.set(key, Math.max(0, (this.#owed.get(key) ?? 0) - 1));
    for (const waiting of this.#waiting) if (waiting.of === undefined || waiting.of === organizationId) waiting.from = undefined;
    this.#serve();
  }

  /** The worker has no idle session to close for this request. */
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
    for (const workers of this.#asked.values()) workers.delete(worker);
    for (const waiting of this.#waiting) if (waiting.from === worker) waiting.from = undefined;
    this.#serve();
  }

  #serve(): void {
    if (this.#limits === undefined) return;
    for (let next = this.#next(this.#limits); next !== undefined; next = this.#next(this.#limits)) {
      this.#waiting.splice(this.#waiting.indexOf(next), 1);
      this.#held.add(next.worker, next.organizationId, 1);
      this.#events.granted(next.worker, next.organizationId);
    }
    for (const waiting of this.#waiting.slice(0, ASKING_MAX)) if (waiting.from === undefined) this.#reclaimFor(waiting, this.#limits);
    this.#settle();
  }

  #settle(): void {
    for (const [of, workers] of this.#asked) {
      if (this.#waiting.some((waiting) => waiting.from !== undefined && waiting.of === of)) continue;
      this.#asked.delete(of);
      this.#owed.delete(of);
      for (const worker of workers) this.#events.settled(worker, of);
    }
  }

  /** The request that is served next, if the limits allow. */
  #next(limits: PoolFairnessLimits): Waiting | undefined {
    let best: Waiting | undefined;
    let fewest = limits.maxPerTenant;
    for (const waiting of this.#waiting) {
      const size = this.#held.sizeOf(waiting.organizationId);
      const allowed = size === 0 ? limits.max : limits.max - Math.floor(limits.max / 10);
      if (size >= fewest || this.#held.total >= allowed) continue;
      [best, fewest] = [waiting, size];
    }
    return best;
  }

  /** Asks one worker after another to close an idle session. When none has one, the worker that has the most closes the next. */
  #reclaimFor(waiting: Waiting, { maxPerTenant }: PoolFairnessLimits): void {
    const of = this.#held.sizeOf(waiting.organizationId) >= maxPerTenant ? waiting.organizationId : undefined;
    waiting.of = of;
    const holders = this.#held.holdersOf(of);
    const next = holders.find(([worker]) => !waiting.asked.has(worker))?.[0];
    if (next !== undefined) {
      waiting.asked.add(next);
      waiting.from = next;
      this.#asked.set(of, (this.#asked.get(of) ?? new Set()).add(next));
      this.#events.reclaim(next, waiting.request, of);
      return;
    }
    waiting.asked = new Set([waiting.worker]);
    const [most, count] = holders[0] ?? [waiting.worker, 0];
    const own = holders.find(([worker]) => worker === waiting.worker)?.[1] ?? 0;
    const owed = this.#owed.get(of) ?? 0;
    // It waits for any session that is closed; the worker that has the most owes one, until both have as many.
    waiting.from = most;
    if (most === waiting.worker || count - owed <= own + owed) return;
    this.#owed.set(of, owed + 1);
    this.#events.owe(most, of);
  }
}
