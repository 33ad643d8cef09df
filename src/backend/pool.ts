import { ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import type { BackendConnection } from './connection.ts';
import { discardState } from './reset.ts';
import { Idle, Share, type Waiter } from './share.ts';

export interface PoolLimits {
  /** Backend sessions of all organizations together. */
  readonly max: number;
  readonly maxPerTenant: number;
  /** How long a request may wait for a backend. */
  readonly queueTimeoutMs: number;
  /** How long an unused backend is kept. */
  readonly idleMs: number;
}

export interface PoolSnapshot {
  readonly idle: number;
  readonly leased: number;
  readonly opening: number;
  readonly waiters: number;
}

/**
 * Backend sessions for both doors, each logged in as one organization's role and never lent to another. Within an
 * organization waiters are served first come, first served; between organizations the one with the fewest sessions in
 * use goes first, and the last tenth of the pool is kept for organizations that have none, so that a flood of one never
 * takes the last backend from another. Idle sessions are lent warmest first and closed after `idleMs`.
 */
export class Pool {
  readonly #limits: PoolLimits;
  readonly #observe: Observe;
  readonly #shares = new Map<string, Share>();
  readonly #reserve: number;
  readonly #reaper: NodeJS.Timeout;
  readonly #closing = new AbortController();
  /** Set for the one who has waited longest, while somebody waits. */
  #timer: NodeJS.Timeout | undefined;
  #size = 0;
  /** How many sessions have been closed so far. */
  #closings = 0;

  constructor(limits: PoolLimits, observe: Observe) {
    this.#limits = limits;
    this.#observe = observe;
    this.#reserve = Math.floor(limits.max / 10);
    this.#reaper = setInterval(() => this.#reap(), Math.max(50, Math.min(5_000, limits.idleMs / 4)));
    this.#reaper.unref();
  }

  snapshot(): PoolSnapshot {
    const total = { idle: 0, leased: 0, opening: 0, waiters: 0 };
    for (const share of this.#shares.values()) {
      total.idle += share.idle.length;
      total.leased += share.leased.size;
      total.opening += share.opening;
      total.waiters += share.waiters.length;
    }
    return total;
  }

  /**
   * Waits for a backend. `settle` is called in the turn in which there is one, perhaps before this returns, or with what
   * ended the wait: `pool_timeout` after `queueTimeoutMs`, `shutting_down`, `query_canceled`, or whatever `open` throws.
   */
  enqueue(tenantId: string, waiter: Waiter): void {
    if (this.#closing.signal.aborted) {
      waiter.settle(shuttingDown());
      return;
    }
    const share = this.#share(tenantId);
    share.waiters.push({ waiter, since: performance.now() });
    this.#serve(share);
    if (share.waiters.length > 0) this.#timeOutIn(this.#limits.queueTimeoutMs);
  }

  /** Ends a wait; a waiter that has been served is none any more. */
  withdraw(tenantId: string, waiter: Waiter): void {
    if (this.leave(tenantId, waiter)) waiter.settle(new ServiceError('query_canceled', 'canceling statement due to user request'));
  }

  /** Ends a wait without a word to the waiter. @returns whether it was waiting */
  leave(tenantId: string, waiter: Waiter): boolean {
    const share = this.#shares.get(tenantId);
    const position = share?.waiters.findIndex((waiting) => waiting.waiter === waiter) ?? -1;
    if (share === undefined || position < 0) return false;
    share.waiters.splice(position, 1);
    this.#forgetIfEmpty(share);
    return true;
  }

  /**
   * An idle backend at once, if there is one and nobody waits for it.
   * @param preferred taken before others if it is idle
   */
  tryAcquire(tenantId: string, preferred?: BackendConnection): BackendConnection | undefined {
    const share = this.#shares.get(tenantId);
    if (share === undefined || share.waiters.length > 0 || this.#closing.signal.aborted) return undefined;
    const idle = takeOut(share.idle, preferred);
    if (idle === undefined) return undefined;
    idle.backend.detach();
    share.leased.add(idle.backend);
    return idle.backend;
  }

  /**
   * Whether a backend may be kept for more than one request: nobody of the organization waits for one, nor is it owed to another.
   * @param mayGrow even if there could be one more
   */
  mayKeepBusy(tenantId: string, mayGrow: boolean): boolean {
    const share = this.#shares.get(tenantId);
    if (share === undefined || share.waiters.length > 0 || this.#closing.signal.aborted) return false;
    return (mayGrow || !this.#canGrow(share)) && !this.#isOwedToAnother(share);
  }

  /**
   * Takes a backend back. Its session must be idle, outside a transaction.
   * @param clean nothing in the session outlives what was run, so that no reset is needed: it is back when this returns
   */
  release(tenantId: string, backend: BackendConnection, clean: boolean): Promise<void> {
    const share = this.#share(tenantId);
    if (!share.leased.has(backend)) return DONE;
    if (!clean) return this.#reset(share, backend);
    this.#takeBack(share, backend);
    return DONE;
  }

  async #reset(share: Share, backend: BackendConnection): Promise<void> {
    if (await discardState(backend)) this.#takeBack(share, backend);
    else this.discard(share.tenantId, backend, 'not_cleaned');
  }

  #takeBack(share: Share, backend: BackendConnection): void {
    if (backend.closed || backend.session.retired || this.#closing.signal.aborted || this.#isOwedToAnother(share)) {
      this.#drop(share, backend, 'released');
      return;
    }
    if (share.waiters.length > 0) {
      // It stays lent, from one hand to the next.
      backend.detach();
      this.#settle(share, backend);
      return;
    }
    share.leased.delete(backend);
    this.#rest(share, backend);
  }

  /** Gives up a leased backend whose session is in an unknown state. */
  discard(tenantId: string, backend: BackendConnection, reason: string): void {
    backend.detach();
    backend.destroy();
    const share = this.#shares.get(tenantId);
    if (share?.leased.has(backend)) this.#drop(share, backend, reason);
  }

  /** Closes the idle sessions of an organization, e.g. because its role is about to be dropped. */
  closeIdle(tenantId: string): void {
    const share = this.#shares.get(tenantId);
    while (share !== undefined && share.idle.length > 0) this.#closeOldestIdle(share, 'evicted');
  }

  /** Closes the sessions that an organization has, the leased ones as they come back: new ones start with other defaults. */
  retire(tenantId: string): void {
    this.closeIdle(tenantId);
    const share = this.#shares.get(tenantId);
    if (share === undefined) return;
    share.changes += 1;
    for (const { session } of share.leased) session.retired = true;
  }

  /** Fails all waiters and closes all idle sessions; leased ones are closed as they come back. */
  close(): void {
    this.#closing.abort(shuttingDown());
    clearInterval(this.#reaper);
    clearTimeout(this.#timer);
    for (const share of this.#shares.values()) {
      while (share.waiters.length > 0) this.#settle(share, shuttingDown());
      this.closeIdle(share.tenantId);
    }
  }

  #share(tenantId: string): Share {
    let share = this.#shares.get(tenantId);
    if (share === undefined) {
      share = new Share(tenantId, (...lost) => this.#lost(...lost));
      this.#shares.set(tenantId, share);
    }
    return share;
  }

  /** Gives waiters of one organization what there is: idle sessions first, then new ones as far as the limits go. */
  #serve(share: Share): void {
    while (share.waiters.length > share.opening) {
      const idle = share.idle.pop();
      if (idle !== undefined) {
        idle.backend.detach();
        share.leased.add(idle.backend);
        this.#settle(share, idle.backend);
      } else if (!this.#makeRoom(share)) {
        return;
      } else {
        this.#open(share);
      }
    }
  }

  /** Whether one more session may be opened for this organization, perhaps after closing another's idle one. */
  #canGrow(share: Share): boolean {
    if (this.#isRefused(share) && share.opening > 0) return false;
    return share.size < this.#limits.maxPerTenant && (this.#size < this.#allowed(share) || this.#coldestIdle() !== undefined);
  }

  /** The server has been full for this organization, and no session of ours has been closed since: one try at a time is enough. */
  #isRefused(share: Share): boolean {
    return share.refusedAt === this.#closings;
  }

  /** As {@link #canGrow}; closes the other one. */
  #makeRoom(share: Share): boolean {
    if (!this.#canGrow(share)) return false;
    if (this.#size < this.#allowed(share)) return true;
    const coldest = this.#coldestIdle();
    if (coldest !== undefined) this.#closeOldestIdle(coldest, 'evicted');
    return this.#size < this.#allowed(share);
  }

  /** Sessions of all organizations together at which this one gets no more. */
  #allowed(share: Share): number {
    return share.busy === 0 ? this.#limits.max : this.#limits.max - this.#reserve;
  }

  #open(share: Share): void {
    const waiter = share.waiters[share.opening]?.waiter;
    if (waiter === undefined) return;
    share.opening += 1;
    this.#size += 1;
    const { changes } = share;
    const startedAt = performance.now();
    waiter.open(this.#closing.signal).then(
      (backend) => {
        share.opening -= 1;
        share.refusedAt = undefined;
        // It may have started before the change, or after it.
        backend.session.retired = share.changes !== changes;
        this.#observe({ name: 'backend.opened', durationMs: performance.now() - startedAt });
        this.#adopt(share, backend);
      },
      (error: unknown) => {
        share.opening -= 1;
        this.#size -= 1;
        const told = error instanceof ServiceError ? error : new ServiceError('internal', 'internal error', { cause: error });
        // Where the server is full, those who wait can be served by a session that comes back.
        if (told.kind === 'too_many_connections' && share.leased.size > 0) share.refusedAt = this.#closings;
        // The one who has waited longest gets the error: whoever it was opened for may have been served meanwhile.
        else this.#settle(share, told);
        this.#serveOthers();
        this.#forgetIfEmpty(share);
      },
    );
  }

  #adopt(share: Share, backend: BackendConnection): void {
    if (this.#closing.signal.aborted) {
      share.leased.add(backend);
      this.#drop(share, backend, 'shutdown');
    } else if (share.waiters.length > 0) {
      share.leased.add(backend);
      this.#settle(share, backend);
    } else if (backend.session.retired) {
      this.#drop(share, backend, 'retired');
    } else {
      this.#rest(share, backend);
      this.#serveOthers();
    }
  }

  /** Answers the first waiter. */
  #settle(share: Share, result: BackendConnection | ServiceError): void {
    share.waiters.shift()?.waiter.settle(result);
    this.#forgetIfEmpty(share);
  }

  #timeOut(): void {
    const oldest = performance.now() - this.#limits.queueTimeoutMs;
    let next = Number.POSITIVE_INFINITY;
    for (const share of [...this.#shares.values()]) {
      while (waitingSince(share) <= oldest) this.#settle(share, this.#timedOut());
      next = Math.min(next, waitingSince(share));
    }
    this.#timer = undefined;
    // A timer may come a little early.
    if (next !== Number.POSITIVE_INFINITY) this.#timeOutIn(Math.max(1, next - oldest));
  }

  #timeOutIn(delayMs: number): void {
    this.#timer ??= setTimeout(() => this.#timeOut(), delayMs).unref();
  }

  #rest(share: Share, backend: BackendConnection): void {
    const idle = new Idle(backend, share.lost);
    backend.attach(idle);
    backend.resume();
    share.idle.push(idle);
  }

  #lost(share: Share, idle: Idle): void {
    const position = share.idle.indexOf(idle);
    if (position < 0) return;
    share.idle.splice(position, 1);
    this.#gone(share, 'lost');
  }

  /** At the limit, whether another organization that waits has fewer sessions in use than this one keeps. */
  #isOwedToAnother(share: Share): boolean {
    if (this.#size < this.#limits.max - this.#reserve) return false;
    const next = this.#neediest();
    return next !== undefined && next !== share && next.busy < share.busy;
  }

  #neediest(): Share | undefined {
    let best: Share | undefined;
    for (const share of this.#shares.values()) {
      if (share.waiters.length <= share.opening || share.size >= this.#limits.maxPerTenant || this.#isRefused(share)) continue;
      if (best === undefined || share.busy < best.busy || (share.busy === best.busy && waitingSince(share) < waitingSince(best)))
        best = share;
    }
    return best;
  }

  #serveOthers(): void {
    const next = this.#neediest();
    if (next !== undefined) this.#serve(next);
  }

  #drop(share: Share, backend: BackendConnection, reason: string): void {
    share.leased.delete(backend);
    backend.detach();
    backend.end();
    this.#gone(share, reason);
  }

  #closeOldestIdle(share: Share, reason: string): void {
    const idle = share.idle.shift();
    if (idle === undefined) return;
    idle.backend.detach();
    idle.backend.end();
    this.#gone(share, reason);
  }

  #gone(share: Share, reason: string): void {
    this.#size -= 1;
    this.#closings += 1;
    this.#observe({ name: 'backend.closed', reason });
    this.#serveOthers();
    this.#forgetIfEmpty(share);
  }

  #coldestIdle(): Share | undefined {
    let coldest: Share | undefined;
    for (const share of this.#shares.values()) {
      const since = share.idle[0]?.since;
      if (since !== undefined && (coldest?.idle[0] === undefined || since < coldest.idle[0].since)) coldest = share;
    }
    return coldest;
  }

  #reap(): void {
    const oldest = performance.now() - this.#limits.idleMs;
    for (const share of this.#shares.values()) {
      while (share.idle[0] !== undefined && share.idle[0].since < oldest) this.#closeOldestIdle(share, 'idle');
    }
  }

  #forgetIfEmpty(share: Share): void {
    if (share.size === 0 && share.waiters.length === 0) this.#shares.delete(share.tenantId);
  }

  #timedOut(): ServiceError {
    return new ServiceError('pool_timeout', 'no backend became free in time', {
      detail: `Waited ${this.#limits.queueTimeoutMs} ms.`,
      hint: 'Keep transactions short, or run fewer at a time.',
      retryAfterS: 1,
    });
  }
}

const DONE = Promise.resolve();

/** The session of that backend if it is there, or the one that was used last. */
function takeOut(idle: Idle[], preferred: BackendConnection | undefined): Idle | undefined {
  for (let i = idle.length - 1; i >= 0; i -= 1)
    if (idle[i]?.backend === preferred) return i === idle.length - 1 ? idle.pop() : idle.splice(i, 1)[0];
  return idle.pop();
}

function waitingSince(share: Share): number {
  return share.waiters[0]?.since ?? Number.POSITIVE_INFINITY;
}

function shuttingDown(): ServiceError {
  return new ServiceError('shutting_down', 'terminating connection due to administrator command');
}
