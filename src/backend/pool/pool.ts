import { performance } from 'node:perf_hooks';
import { ServiceError } from '../../errors.ts';
import type { Observe } from '../../observation.ts';
import { InputScheduler } from '../../runtime/input-scheduler.ts';
import { BusyPoll } from '../busy-poll.ts';
import type { BackendConnection } from '../connection.ts';
import { discardState } from '../reset.ts';
import type { Reservation } from '../session-state.ts';
import type { OrganizationPool, Waiter } from './organization-pool.ts';
import { PoolFairness, type PoolFairnessLimits, type PoolSnapshot } from './pool-fairness.ts';
import { Terminations } from './termination.ts';

export interface PoolLimits extends PoolFairnessLimits {
  /** How long a request may wait for a backend. */
  readonly queueTimeoutMs: number;
  /** How long an unused backend is kept. */
  readonly idleMs: number;
  /** As of {@link BusyPoll}. 0 or absent: the event loop is not kept awake. */
  readonly busyPollMs?: number;
}

/**
 * Backend sessions for both doors, each logged in as one organization's role and never lent to another. Within an
 * organization waiters are served first come, first served; between organizations it is up to {@link PoolFairness}. Idle
 * sessions are lent warmest first and closed after `idleMs`.
 */
export class Pool {
  /** Deals out turns to what backends send, and to what clients send that wait for them. */
  readonly inputs = new InputScheduler();
  readonly #limits: PoolLimits;
  readonly #observe: Observe;
  readonly #fairness: PoolFairness;
  readonly #busyPoll: BusyPoll | undefined;
  readonly #reaper: NodeJS.Timeout;
  readonly #closing = new AbortController();
  readonly #terminations: Terminations;
  /** Set for the one who has waited longest, while somebody waits. */
  #timer: NodeJS.Timeout | undefined;

  constructor(limits: PoolLimits, observe: Observe) {
    this.#limits = limits;
    this.#observe = observe;
    this.#busyPoll = limits.busyPollMs ? new BusyPoll(limits.busyPollMs) : undefined;
    this.#fairness = new PoolFairness(limits, (own, backend) => this.#leave(own, backend, 'lost'));
    this.#terminations = new Terminations(observe, this.#closing.signal);
    this.#reaper = setInterval(() => this.#reap(), Math.max(50, Math.min(5_000, limits.idleMs / 4)));
    this.#reaper.unref();
  }

  snapshot(): PoolSnapshot {
    return this.#fairness.snapshot();
  }

  /** All that there are, each with the organization that has it. */
  sessions(): (readonly [tenantId: string, backend: BackendConnection])[] {
    return [...this.#fairness.all()].flatMap(({ tenantId, backends }) => backends.map((backend) => [tenantId, backend] as const));
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
    const own = this.#fairness.of(tenantId);
    own.add(waiter);
    this.#serve(own);
    if (own.waiters > 0) this.#timeOutIn(this.#limits.queueTimeoutMs);
  }

  /** Ends a wait; a waiter that has been served is none any more. */
  withdraw(tenantId: string, waiter: Waiter): void {
    if (this.leave(tenantId, waiter)) waiter.settle(new ServiceError('query_canceled', 'canceling statement due to user request'));
  }

  /** Ends a wait without a word to the waiter. @returns whether it was waiting */
  leave(tenantId: string, waiter: Waiter): boolean {
    const own = this.#fairness.find(tenantId);
    if (own?.remove(waiter) !== true) return false;
    this.#fairness.forgetIfEmpty(own);
    return true;
  }

  /**
   * An idle backend at once, if there is one and nobody waits for it.
   * @param preferred taken before others if it is idle; one that is reserved is the caller's, whoever waits
   */
  tryAcquire(tenantId: string, preferred?: BackendConnection): BackendConnection | undefined {
    const own = this.#fairness.find(tenantId);
    if (own === undefined || this.#closing.signal.aborted) return undefined;
    return own.waiters > 0 && preferred?.session.reservation === undefined ? undefined : own.lease(preferred);
  }

  /**
   * Whether a backend may be kept for more than one request: nobody of the organization waits for one, nor is it owed to another.
   * @param mayGrow even if there could be one more
   */
  mayKeepBusy(tenantId: string, mayGrow: boolean): boolean {
    const own = this.#fairness.find(tenantId);
    if (own === undefined || own.waiters > 0 || this.#closing.signal.aborted) return false;
    return (mayGrow || !this.#fairness.canGrow(own)) && !this.#fairness.isOwedToAnother(own);
  }

  /**
   * Takes a backend back. Its session must be idle, outside a transaction.
   * @param clean nothing but settings outlives what was run, so that no reset is needed: unless they hurry the next one, it is
   * back when this returns
   * @param reservation others are not to get it if they can have another
   */
  release(tenantId: string, backend: BackendConnection, clean: boolean, reservation?: Reservation): Promise<void> {
    const own = this.#fairness.of(tenantId);
    if (!own.leased.has(backend)) return DONE;
    if (reservation !== undefined) this.#reserve(own, backend, reservation);
    else if (!clean || backend.session.isHurried) return this.#reset(own, backend);
    else this.#takeBack(own, backend);
    return DONE;
  }

  /** Those who wait may get it all the same. */
  #reserve(own: OrganizationPool, backend: BackendConnection, reservation: Reservation): void {
    if (this.#isUnwanted(own, backend)) {
      reservation.lost();
      this.#drop(own, backend, 'released');
      return;
    }
    backend.session.pinnedFor = undefined;
    backend.session.reservation = reservation;
    own.leased.delete(backend);
    own.rest(backend);
    this.#serve(own);
  }

  async #reset(own: OrganizationPool, backend: BackendConnection): Promise<void> {
    if (await discardState(backend)) this.#takeBack(own, backend);
    else this.discard(own.tenantId, backend, 'not_cleaned');
  }

  #isUnwanted(own: OrganizationPool, backend: BackendConnection): boolean {
    return backend.closed || backend.session.retired || this.#closing.signal.aborted || this.#fairness.isOwedToAnother(own);
  }

  #takeBack(own: OrganizationPool, backend: BackendConnection): void {
    backend.session.pinnedFor = undefined;
    if (this.#isUnwanted(own, backend)) {
      this.#drop(own, backend, 'released');
      return;
    }
    if (own.waiters > 0) {
      // It stays lent, from one hand to the next.
      backend.detach();
      this.#settle(own, backend);
      return;
    }
    own.leased.delete(backend);
    own.rest(backend);
  }

  /**
   * Gives up a leased backend whose session is in an unknown state.
   * @param disobeyed it goes on with what it was told to cancel
   */
  discard(tenantId: string, backend: BackendConnection, reason: string, disobeyed = false): void {
    backend.detach();
    backend.destroy();
    const own = this.#fairness.find(tenantId);
    if (own?.leased.delete(backend)) this.#leave(own, backend, reason, disobeyed);
  }

  /** Closes the idle sessions of an organization, e.g. because its role is about to be dropped. */
  closeIdle(tenantId: string): void {
    const own = this.#fairness.find(tenantId);
    while (own !== undefined && own.idle > 0) this.#closeOldestIdle(own, 'evicted');
  }

  /** Closes the sessions that an organization has, the leased ones as they come back: new ones start with other defaults. */
  retire(tenantId: string): void {
    this.closeIdle(tenantId);
    const own = this.#fairness.find(tenantId);
    if (own === undefined) return;
    own.changes += 1;
    for (const { session } of own.leased) session.retired = true;
  }

  /** Fails all waiters and closes all idle sessions; leased ones are closed as they come back. */
  close(): void {
    this.#closing.abort(shuttingDown());
    clearInterval(this.#reaper);
    clearTimeout(this.#timer);
    for (const own of this.#fairness.all()) {
      while (own.waiters > 0) this.#settle(own, shuttingDown());
      this.closeIdle(own.tenantId);
    }
  }

  /** Gives waiters of one organization what there is: idle sessions first, then new ones as far as the limits go. */
  #serve(own: OrganizationPool): void {
    while (own.wantsMore) {
      const backend = own.lease();
      if (backend !== undefined) this.#settle(own, backend);
      else if (this.#makeRoom(own)) this.#open(own);
      else if (!this.#serveReserved(own)) return;
    }
  }

  /** @returns whether there was a reserved session that can be given to whoever waits */
  #serveReserved(own: OrganizationPool): boolean {
    const backend = own.leaseReserved();
    if (backend !== undefined) void this.release(own.tenantId, backend, true);
    else if (own.idle > 0) this.#serveWhenFree(own);
    return backend !== undefined;
  }

  /** What has come from a client meanwhile goes first: it may be what the session was held for. */
  #serveWhenFree(own: OrganizationPool): void {
    own.holdTimer ??= setTimeout(
      () => {
        own.holdTimer = undefined;
        setImmediate(() => this.#serve(own));
      },
      own.heldUntil - performance.now() + 1,
    ).unref();
  }

  /** @returns whether one more session may be opened for this organization, now that another's idle one has been closed if need be */
  #makeRoom(own: OrganizationPool): boolean {
    if (!this.#fairness.canGrow(own)) return false;
    if (this.#fairness.hasRoomFor(own)) return true;
    const coldest = this.#fairness.coldestBeside(own);
    if (coldest !== undefined) this.#closeOldestIdle(coldest, 'evicted');
    return this.#fairness.hasRoomFor(own);
  }

  #open(own: OrganizationPool): void {
    const waiter = own.nextToOpenFor;
    if (waiter === undefined) return;
    own.opening += 1;
    this.#fairness.size += 1;
    const { changes } = own;
    const startedAt = performance.now();
    waiter.open(this.#closing.signal).then(
      (backend) => {
        own.opening -= 1;
        own.refusedAt = undefined;
        // It may have started before the change, or after it.
        backend.session.retired = own.changes !== changes;
        backend.busyPoll = this.#busyPoll;
        backend.schedule(this.inputs.join(own.tenantId));
        this.#observe({ name: 'backend.opened', durationMs: performance.now() - startedAt });
        this.#adopt(own, backend);
      },
      (error: unknown) => {
        own.opening -= 1;
        this.#fairness.size -= 1;
        const told = error instanceof ServiceError ? error : new ServiceError('internal', 'internal error', { cause: error });
        // Where the server is full, those who wait can be served by a session that comes back.
        const mayComeBack = () => this.#serveReserved(own) || own.leased.size + own.leaving.size > 0;
        if (told.kind === 'too_many_connections' && mayComeBack()) this.#fairness.refused(own);
        // The one who has waited longest gets the error: whoever it was opened for may have been served meanwhile.
        else this.#settle(own, told);
        this.#serveOthers();
        this.#fairness.forgetIfEmpty(own);
      },
    );
  }

  #adopt(own: OrganizationPool, backend: BackendConnection): void {
    if (this.#closing.signal.aborted) {
      own.leased.add(backend);
      this.#drop(own, backend, 'shutdown');
    } else if (own.waiters > 0) {
      own.leased.add(backend);
      this.#settle(own, backend);
    } else if (backend.session.retired) {
      this.#drop(own, backend, 'retired');
    } else {
      own.rest(backend);
      this.#serveOthers();
    }
  }

  /** Answers the first waiter. */
  #settle(own: OrganizationPool, result: BackendConnection | ServiceError): void {
    own.settle(result);
    this.#fairness.forgetIfEmpty(own);
  }

  #timeOut(): void {
    const oldest = performance.now() - this.#limits.queueTimeoutMs;
    let next = Number.POSITIVE_INFINITY;
    for (const own of [...this.#fairness.all()]) {
      while (own.waitingSince <= oldest) this.#settle(own, this.#timedOut(own));
      next = Math.min(next, own.waitingSince);
    }
    this.#timer = undefined;
    // A timer may come a little early.
    if (next !== Number.POSITIVE_INFINITY) this.#timeOutIn(Math.max(1, next - oldest));
  }

  #timeOutIn(delayMs: number): void {
    this.#timer ??= setTimeout(() => this.#timeOut(), delayMs).unref();
  }

  #serveOthers(): void {
    const next = this.#fairness.nextToServe();
    if (next !== undefined) this.#serve(next);
  }

  /** One that is given up counts until its process has ended. */
  #leave(own: OrganizationPool, backend: BackendConnection, reason: string, disobeyed = false): void {
    if (backend.isGone) this.#gone(own, reason);
    else this.#terminations.add(own, backend, disobeyed, () => this.#gone(own, reason));
  }

  #drop(own: OrganizationPool, backend: BackendConnection, reason: string): void {
    own.leased.delete(backend);
    backend.detach();
    backend.end();
    this.#gone(own, reason);
  }

  #closeOldestIdle(own: OrganizationPool, reason: string): void {
    if (own.closeOldestIdle()) this.#gone(own, reason);
  }

  #gone(own: OrganizationPool, reason: string): void {
    this.#fairness.closed();
    this.#observe({ name: 'backend.closed', reason });
    this.#serveOthers();
    this.#fairness.forgetIfEmpty(own);
  }

  #reap(): void {
    const oldest = performance.now() - this.#limits.idleMs;
    for (const own of this.#fairness.all()) {
      while (own.closeIdleSince(oldest)) this.#gone(own, 'idle');
    }
  }

  #timedOut(own: OrganizationPool): ServiceError {
    const pinned = pinsOf(own);
    const given = own.leaving.size === 0 ? '' : ` Sessions that were given up and have not ended: ${own.leaving.size}.`;
    return new ServiceError('pool_timeout', 'no backend became free in time', {
      detail: `Waited ${this.#limits.queueTimeoutMs} ms.${given}${pinned === undefined ? '' : ` ${pinned}`}`,
      hint: `Keep transactions short, or run fewer at a time.${pinned === undefined ? '' : ' A pinned session keeps its backend until what it holds is gone.'}`,
      retryAfterS: 1,
    });
  }
}

/** How many backends are pinned to sessions, and why; undefined where none is. */
function pinsOf({ leased, size }: OrganizationPool): string | undefined {
  const counts = new Map<string, number>();
  const pinned = [...leased].flatMap(({ session: { pinnedFor } }) => (pinnedFor === undefined || pinnedFor.size === 0 ? [] : [pinnedFor]));
  for (const reason of pinned.flatMap((reasons) => [...reasons])) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  const reasons = [...counts].sort(([, some], [, others]) => others - some).map(([reason, count]) => `${reason} ${count}`);
  return pinned.length === 0 ? undefined : `${pinned.length} of ${size} backends are pinned to sessions: ${reasons.join(', ')}.`;
}

const DONE = Promise.resolve();

function shuttingDown(): ServiceError {
  return new ServiceError('shutting_down', 'terminating connection due to administrator command');
}
