import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import { InputScheduler } from '../runtime/input-scheduler.ts';
import type { CustomOptions } from '../syntax/session-traits.ts';
import { type BackendConnection, BusyPoll, NO_RECEIVER } from './connection.ts';
import {
  type BackendPermits,
  type OrganizationPool,
  PoolFairness,
  type PoolFairnessLimits,
  type PoolSnapshot,
  type Waiter,
} from './organization-pool.ts';
import { discardState } from './own-request.ts';
import type { Reservation } from './session-state.ts';
import { Terminations } from './termination.ts';

/** A session that has been idle for this long is not expected to be used soon. */
const UNUSED_MS = 100;

export interface PoolLimits extends PoolFairnessLimits {
  /** How long a request may wait for a backend. This and the next may change. */
  readonly queueTimeoutMs: number;
  /** How long an unused backend is kept. */
  readonly idleMs: number;
  /** See {@link BusyPoll}. 0 or undefined: the event loop does not poll. */
  readonly busyPollMs?: number;
  /** Undefined: the limits are this process's alone. */
  readonly permits?: BackendPermits | undefined;
  /** Called when the server has no connection slots free, and none can be made free here. */
  readonly serverIsFull?: () => void;
  /** If several pools share the event loop. Default: one of its own. */
  readonly inputs?: InputScheduler;
}

/**
 * Backend sessions for both doors, each logged in as one organization's role and never leased to another, nor to another role. Within an
 * organization waiters are served in order; between organizations {@link PoolFairness} decides. The most recently used idle
 * session is leased first. Idle sessions are closed after `idleMs`.
 */
export class Pool {
  /** Schedules the handling of input from backends and clients. */
  readonly inputs: InputScheduler;
  readonly #limits: PoolLimits;
  readonly #observe: Observe;
  readonly #fairness: PoolFairness;
  readonly #busyPoll: BusyPoll | undefined;
  readonly #reaper: NodeJS.Timeout;
  readonly #closing = new AbortController();
  readonly #terminations: Terminations;
  readonly #opener: BackendOpener;
  readonly #serverFullRetries = new ServerFullRetries((own) => this.#serve(own));
  readonly #queueTimeout: QueueTimeout;

  constructor(limits: PoolLimits, observe: Observe) {
    this.#limits = limits;
    this.inputs = limits.inputs ?? new InputScheduler();
    this.#observe = observe;
    this.#busyPoll = limits.busyPollMs ? new BusyPoll(limits.busyPollMs) : undefined;
    this.#fairness = new PoolFairness(limits, (own, backend) => this.#leave(own, backend, 'lost'));
    this.#terminations = new Terminations(observe, this.#closing.signal);
    this.#opener = new BackendOpener(limits.permits, this.#closing.signal);
    this.#queueTimeout = new QueueTimeout(limits, {
      all: () => this.#fairness.pools.values(),
      fail: (own, error) => this.#settle(own, error),
    });
    this.#reaper = setInterval(() => this.#reap(), Math.max(50, Math.min(5_000, limits.idleMs / 4)));
    this.#reaper.unref();
  }

  snapshot(): PoolSnapshot {
    return this.#fairness.snapshot();
  }

  /** The pools of organizations that have sessions or waiters. */
  organizations(): Iterable<Readonly<OrganizationPool>> {
    return this.#fairness.pools.values();
  }

  /** The process ids of the backends that are leased within the limit of this pool. */
  leasedWithin(tenantId: string): ReadonlySet<number> {
    const own = this.#fairness.pools.get(tenantId);
    const pools = own === undefined ? [] : [own, ...own.others];
    return new Set(pools.flatMap(({ leased }) => [...leased].map(({ processId }) => processId)));
  }

  /** All sessions, each with its organization. */
  sessions(): (readonly [organizationId: string, backend: BackendConnection])[] {
    return [...this.#fairness.pools.values()].flatMap(({ organizationId, backends }) =>
      backends.map((backend) => [organizationId, backend] as const),
    );
  }

  /**
   * Waits for a backend. `settle` is called in the turn in which one becomes available, perhaps before this returns, or with the
   * error that ended the wait: `pool_timeout` after `queueTimeoutMs`, `shutting_down`, or what `open` throws.
   * @param limitsId whose limit the backend counts in; default: the organization's
   */
  enqueue(tenantId: string, waiter: Waiter, limitsId?: string): void {
    if (this.#closing.signal.aborted) {
      waiter.settle(shuttingDown());
      return;
    }
    const own = this.#fairness.of(tenantId, limitsId);
    own.add(waiter);
    this.#serve(own);
    if (own.waiters > 0) this.#queueTimeout.start();
  }

  /** Ends a wait without calling the waiter. @returns whether it was waiting */
  leave(tenantId: string, waiter: Waiter): boolean {
    const own = this.#fairness.pools.get(tenantId);
    if (own?.remove(waiter) !== true) return false;
    this.#fairness.forgetIfEmpty(own);
    return true;
  }

  /**
   * Returns an idle backend if there is one that no waiter is due for.
   * @param preferred leased before others if it is idle; if it is reserved, then for the caller, even if others wait
   * @param options the customized options that may exist in its session; default: none
   */
  tryAcquire(tenantId: string, preferred?: BackendConnection, options?: CustomOptions): BackendConnection | undefined {
    const own = this.#fairness.pools.get(tenantId);
    if (own === undefined || this.#closing.signal.aborted) return undefined;
    if (own.waiters === 0 || preferred?.session.reservation !== undefined) return own.lease(preferred, options);
    return options === undefined || options.size === 0 ? undefined : own.leaseUnwanted(options);
  }

  /**
   * Whether a backend may be kept for more than one request: the organization has no waiters, and no other organization is due for it.
   * @param mayGrow whether it may be kept even if the organization could open another session
   */
  mayKeepBusy(tenantId: string, mayGrow: boolean): boolean {
    const own = this.#fairness.pools.get(tenantId);
    if (own === undefined || own.waiters > 0 || this.#closing.signal.aborted) return false;
    return (mayGrow || !this.#fairness.canGrow(own)) && !this.#fairness.isOwedToAnother(own);
  }

  /**
   * Takes a backend back. Its session must be idle, outside a transaction.
   * @param clean only settings are left in the session, so that no reset is needed. Then it is back in the pool when this returns,
   * unless these settings have a short timeout
   * @param reservation for whom the backend is reserved
   */
  release(tenantId: string, backend: BackendConnection, clean: boolean, reservation?: Reservation): Promise<void> {
    const own = this.#fairness.pools.get(tenantId);
    if (!own?.leased.has(backend)) return DONE;
    if (reservation !== undefined) this.#reserve(own, backend, reservation);
    else if (!clean || backend.session.hasShortTimeout) return this.#reset(own, backend);
    else this.#takeBack(own, backend);
    return DONE;
  }

  /** Waiters may still get it, if there is no other. */
  #reserve(own: OrganizationPool, backend: BackendConnection, reservation: Reservation): void {
    if (this.#isUnwanted(own, backend)) {
      reservation.lost();
      this.#drop(own, backend, 'released');
      return;
    }
    backend.session.pinnedFor = undefined;
    backend.session.reservation = reservation;
    own.leased.delete(backend);
    own.addIdle(backend);
    this.#serve(own);
  }

  async #reset(own: OrganizationPool, backend: BackendConnection): Promise<void> {
    if (await discardState(backend)) this.#takeBack(own, backend);
    else this.discard(own.tenantId, backend, 'not_cleaned');
  }

  #isUnwanted(own: OrganizationPool, backend: BackendConnection): boolean {
    const { waiting, owed } = this.#fairness;
    const mayBeOwed = waiting.size > 0 || owed.size > 0;
    return backend.closed || backend.session.retired || this.#closing.signal.aborted || (mayBeOwed && this.#fairness.isOwedToAnother(own));
  }

  #takeBack(own: OrganizationPool, backend: BackendConnection): void {
    backend.session.pinnedFor = undefined;
    if (this.#isUnwanted(own, backend)) {
      this.#drop(own, backend, 'released');
      return;
    }
    if (own.waiters > 0) {
      // It stays leased, now to a waiter.
      if (own.settleSuited(backend)) {
        this.#fairness.forgetIfEmpty(own);
        return;
      }
      if (own.wantsMore && this.#fairness.mayTryFor(own)) {
        this.#drop(own, backend, 'unsuited');
        this.#serve(own);
        return;
      }
    }
    own.leased.delete(backend);
    own.addIdle(backend);
  }

  /**
   * Gives up a leased backend whose session is in an unknown state.
   * @param cancelFailed its statement has not ended in time after a cancel request
   */
  discard(tenantId: string, backend: BackendConnection, reason: string, cancelFailed = false): void {
    backend.receiver = NO_RECEIVER;
    backend.destroy();
    const own = this.#fairness.pools.get(tenantId);
    if (own?.leased.delete(backend)) this.#leave(own, backend, reason, cancelFailed);
  }

  /** Closes the idle sessions of an organization, e.g. because its role is about to be dropped. */
  closeIdle(tenantId: string): void {
    const own = this.#fairness.pools.get(tenantId);
    while (own !== undefined && own.idle > 0) this.#closeOldestIdle(own, 'evicted');
  }

  /**
   * Closes an idle session because another process needs one, or another organization of this process.
   * @param limitsId one that counts in this limit, and has not been used for {@link UNUSED_MS}; undefined: any
   * @returns whether there was one
   */
  giveUpUnused(limitsId: string | undefined): boolean {
    const own = this.#fairness.leastRecentlyUsedOf(limitsId);
    if (own === undefined || (limitsId !== undefined && own.idleSince > performance.now() - UNUSED_MS)) return false;
    this.#closeOldestIdle(own, 'evicted');
    return true;
  }

  /** Closes an idle session, or else the next that is released, even if somebody waits for it: another process is due for one. */
  giveUpNext(limitsId: string): void {
    const own = this.#fairness.leastRecentlyUsedOf(limitsId);
    this.#fairness.owe(limitsId);
    if (own !== undefined) this.#closeOldestIdle(own, 'evicted');
  }

  /** No other process is due for a session any more. */
  settle(limitsId: string): void {
    this.#fairness.settle(limitsId);
  }

  /** Closes the sessions of an organization, the leased ones when they are released, because the defaults for new sessions have changed. */
  retire(tenantId: string): void {
    this.closeIdle(tenantId);
    const own = this.#fairness.pools.get(tenantId);
    if (own === undefined) return;
    own.changes += 1;
    for (const { session } of own.leased) session.retired = true;
  }

  /** As {@link retire}, and its waiters leave the queue: the organization is paused. */
  suspend(tenantId: string): void {
    const waiters = this.#fairness.pools.get(tenantId)?.takeWaiters() ?? [];
    this.retire(tenantId);
    for (const waiter of waiters) waiter.suspended?.();
    const own = this.#fairness.pools.get(tenantId);
    if (own !== undefined) this.#fairness.forgetIfEmpty(own);
  }

  /** Fails all waiters, because the server does not answer. */
  failWaiters(error: ServiceError): void {
    for (const own of [...this.#fairness.pools.values()]) while (own.waiters > 0) this.#settle(own, error);
  }

  /** Fails all waiters and closes all idle sessions. Leased ones are closed when they are released. */
  close(): void {
    this.#closing.abort(shuttingDown());
    clearInterval(this.#reaper);
    this.#queueTimeout.close();
    this.#serverFullRetries.close();
    for (const own of this.#fairness.pools.values()) {
      while (own.waiters > 0) this.#settle(own, shuttingDown());
      this.closeIdle(own.tenantId);
    }
  }

  /** Serves waiters of one organization: with idle sessions first, then with new ones within the limits. */
  #serve(own: OrganizationPool): void {
    while (own.wantsMore) {
      if (own.serveIdle()) this.#fairness.forgetIfEmpty(own);
      else if (this.#mayOpen(own) || this.#replaceUnsuited(own)) this.#open(own);
      else if (!this.#serveReserved(own)) return;
    }
  }

  /**
   * Closes an idle session, none of which suits those who wait, because of the customized options that exist there.
   * @returns whether another may be opened in its place
   */
  #replaceUnsuited(own: OrganizationPool): boolean {
    if (!this.#fairness.mayTryFor(own)) return false;
    const closed = own.closeUnreserved();
    if (closed === undefined) return false;
    this.#ended(own, closed, 'unsuited');
    return own.wantsMore && this.#mayOpen(own);
  }

  /** @returns whether a waiter was served with a reserved session */
  #serveReserved(own: OrganizationPool): boolean {
    const backend = own.leaseReserved();
    if (backend !== undefined) void this.release(own.tenantId, backend, true);
    else if (own.heldUntil < Number.POSITIVE_INFINITY) this.#serveWhenFree(own);
    return backend !== undefined;
  }

  /** Serves waiters when a hold ends, after the input of that turn: it may be of the client that the session is held for. */
  #serveWhenFree(own: OrganizationPool): void {
    own.holdTimer ??= setTimeout(
      () => {
        own.holdTimer = undefined;
        setImmediate(() => this.#serve(own));
      },
      own.heldUntil - performance.now() + 1,
    ).unref();
  }

  /** @returns whether another session may be opened for this organization; closes another organization's idle one if need be */
  #mayOpen(own: OrganizationPool): boolean {
    if (!this.#fairness.canGrow(own)) return false;
    if (this.#fairness.mayOpenFor(own)) return true;
    const other = this.#fairness.leastRecentlyUsedBeside(own);
    if (other !== undefined) this.#closeOldestIdle(other, 'evicted');
    return this.#fairness.mayOpenFor(own);
  }

  #open(own: OrganizationPool): void {
    const waiter = own.nextToOpenFor;
    if (waiter === undefined) return;
    own.opening += 1;
    this.#fairness.size += 1;
    const { changes } = own;
    const startedAt = performance.now();
    this.#opener.open(own, waiter).then(
      (backend) => {
        own.opening -= 1;
        if (backend === undefined) {
          this.#fairness.size -= 1;
          this.#serveOthers();
          this.#fairness.forgetIfEmpty(own);
          return;
        }
        // It may have started before or after the change of defaults.
        backend.session.retired = own.changes !== changes;
        backend.busyPoll = this.#busyPoll;
        backend.schedule(this.inputs.join(own.limitsId));
        this.#observe({ name: 'backend.opened', durationMs: performance.now() - startedAt });
        this.#adopt(own, backend);
        this.#serverFullRetries.opened();
      },
      (error: unknown) => {
        own.opening -= 1;
        this.#fairness.size -= 1;
        const failure = error instanceof ServiceError ? error : new ServiceError('internal', 'internal error', { cause: error });
        // If the server has no free connection slots, waiters can be served when it has one, or by a session that is released.
        if (failure.kind === 'too_many_connections' && own.waiters > 0) this.#refused(own, failure);
        // The first waiter gets the error: the one that the session was opened for may have been served meanwhile.
        else this.#settle(own, failure);
        this.#serveOthers();
        this.#fairness.forgetIfEmpty(own);
      },
    );
  }

  /** Waiters wait on. An idle session of another organization makes room for one of them, if there is one. */
  #refused(own: OrganizationPool, failure: ServiceError): void {
    this.#serveReserved(own);
    this.#fairness.refused(own);
    this.#serverFullRetries.refused(own);
    if (own.waiters === 0 || !isServerFull(failure)) return;
    const other = this.#fairness.leastRecentlyUsedBeside(own);
    const unsuited = other === undefined ? own.closeUnreserved() : undefined;
    if (other !== undefined) this.#closeOldestIdle(other, 'evicted');
    else if (unsuited !== undefined) this.#ended(own, unsuited, 'unsuited');
    else this.#limits.serverIsFull?.();
  }

  #adopt(own: OrganizationPool, backend: BackendConnection): void {
    if (this.#closing.signal.aborted) {
      own.leased.add(backend);
      this.#drop(own, backend, 'shutdown');
    } else if (backend.session.retired) {
      // Those who wait get another one.
      this.#drop(own, backend, 'retired');
      this.#serve(own);
    } else if (own.waiters > 0) {
      own.leased.add(backend);
      this.#settle(own, backend);
    } else {
      own.addIdle(backend);
      this.#serveOthers();
    }
  }

  /** Answers the first waiter. */
  #settle(own: OrganizationPool, result: BackendConnection | ServiceError): void {
    own.settle(result);
    this.#fairness.forgetIfEmpty(own);
  }

  #serveOthers(): void {
    const next = this.#fairness.nextToServe();
    if (next !== undefined) this.#serve(next);
  }

  /** A session that is given up counts until its process has ended. */
  #leave(own: OrganizationPool, backend: BackendConnection, reason: string, cancelFailed = false): void {
    if (backend.isGone) this.#gone(own, reason);
    else this.#terminations.add(own, backend, cancelFailed, () => this.#gone(own, reason));
  }

  #drop(own: OrganizationPool, backend: BackendConnection, reason: string): void {
    own.leased.delete(backend);
    backend.receiver = NO_RECEIVER;
    backend.end();
    this.#ended(own, backend, reason);
  }

  #closeOldestIdle(own: OrganizationPool, reason: string): void {
    const closed = own.closeOldestIdle();
    if (closed !== undefined) this.#ended(own, closed, reason);
  }

  #ended(own: OrganizationPool, backend: BackendConnection, reason: string): void {
    this.#opener.ending(backend);
    this.#gone(own, reason);
  }

  #gone(own: OrganizationPool, reason: string): void {
    this.#fairness.closed(own);
    this.#opener.freed(own);
    this.#observe({ name: 'backend.closed', reason });
    this.#serveOthers();
    this.#fairness.forgetIfEmpty(own);
  }

  #reap(): void {
    const oldest = performance.now() - this.#limits.idleMs;
    for (const own of this.#fairness.pools.values()) {
      for (let closed = own.closeIdleSince(oldest); closed !== undefined; closed = own.closeIdleSince(oldest)) {
        this.#ended(own, closed, 'idle');
      }
    }
  }
}

const DONE = Promise.resolve();

function shuttingDown(): ServiceError {
  return new ServiceError('shutting_down', 'terminating connection due to administrator command');
}

/** Opens sessions when there is a slot for them: by the limit that several processes share, and by that of the server. */
class BackendOpener {
  readonly #permits: BackendPermits | undefined;
  readonly #closing: AbortSignal;
  readonly #ending = new EndingBackends();

  /** @param permits undefined: the limits are this process's alone */
  constructor(permits: BackendPermits | undefined, closing: AbortSignal) {
    this.#permits = permits;
    this.#closing = closing;
  }

  /**
   * @returns undefined if nobody waits for a session any more when it may be opened
   * @throws what the waiter's `open` throws
   */
  async open(own: OrganizationPool, waiter: Waiter): Promise<BackendConnection | undefined> {
    if (this.#permits === undefined) return this.#openWhenFree(own, waiter);
    if (!(await this.#permits.acquire(own.limitsId, () => own.waiters > 0))) return undefined;
    try {
      return await this.#openWhenFree(own, waiter);
    } catch (error) {
      this.freed(own);
      throw error;
    }
  }

  /** If the server has no free connection slots, it may have some when sessions have ended that were closed just now. */
  async #openWhenFree(own: OrganizationPool, waiter: Waiter): Promise<BackendConnection> {
    for (;;) {
      try {
        return await waiter.open(this.#closing);
      } catch (error) {
        const isFull = error instanceof ServiceError && error.kind === 'too_many_connections';
        const ended = isFull && own.waiters > 0 ? this.#ending.next() : undefined;
        if (ended === undefined) throw error;
        await ended;
      }
    }
  }

  /** The session has been closed; its process may still be ending. */
  ending(backend: BackendConnection): void {
    this.#ending.add(backend);
  }

  /** The organization has one session less. */
  freed(own: OrganizationPool): void {
    this.#permits?.release(own.limitsId);
  }
}

/** A backend that has been idle ends in milliseconds, unless the server does not answer. */
const LONGEST_MS = 1_000;

/** Backends that have been told to end. Until their processes have, the server counts them, and may refuse others. */
class EndingBackends {
  readonly #backends = new Set<BackendConnection>();

  add(backend: BackendConnection): void {
    if (backend.isGone) return;
    this.#backends.add(backend);
    void backend.gone.then(() => this.#backends.delete(backend));
  }

  /** @returns what resolves when one has ended, or hangs; undefined if there is none */
  next(): Promise<unknown> | undefined {
    if (this.#backends.size === 0) return undefined;
    return Promise.race([...[...this.#backends].map(({ gone }) => gone), delay(LONGEST_MS, undefined, { ref: false })]);
  }
}

/** How often a full server is asked for a session. Each try costs it a process for a moment. */
const TRY_EVERY_MS = 200;

/**
 * Opens sessions for waiting clients after the server has refused one because it has no connection slots free. Other programs may hold the
 * slots, and do not tell when they release one. So one pool after another tries again, until a session is opened or no client waits.
 */
class ServerFullRetries {
  /** In the order in which they try. */
  readonly #pools = new Set<OrganizationPool>();
  readonly #tryAgain: (pool: OrganizationPool) => void;
  #timer: NodeJS.Timeout | undefined;

  /** @param tryAgain opens one session for this pool, and reports by {@link refused} or {@link opened} */
  constructor(tryAgain: (pool: OrganizationPool) => void) {
    this.#tryAgain = tryAgain;
  }

  refused(pool: OrganizationPool): void {
    this.#pools.add(pool);
    this.#timer ??= setTimeout(() => this.#next(), TRY_EVERY_MS).unref();
  }

  /** The server had a slot, and may have more. */
  opened(): void {
    if (this.#pools.size > 0) this.#next();
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#pools.clear();
  }

  #next(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const pool of this.#pools) {
      this.#pools.delete(pool);
      if (pool.waiters === 0) {
        pool.refusedAt = undefined;
        continue;
      }
      // It is the last in the line now, if it is refused again.
      this.refused(pool);
      this.#tryAgain(pool);
      return;
    }
  }
}

/**
 * Whether the server has no connection slots free. If only this role has reached its CONNECTION LIMIT, sessions of others do not matter.
 * @see https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/utils/init/miscinit.c
 */
function isServerFull({ kind, cause }: ServiceError): boolean {
  const isOfRole = cause instanceof Error && 'routine' in cause && cause.routine === 'InitializeSessionUserId';
  return kind === 'too_many_connections' && !isOfRole;
}

/** The pools whose waiters may wait too long. */
interface TimedQueues {
  all(): Iterable<OrganizationPool>;
  /** Fails the first waiter. */
  fail(own: OrganizationPool, error: ServiceError): void;
}

/** Ends waits for a backend that last too long. One timer, for who has waited longest, is set while anybody waits. */
class QueueTimeout {
  readonly #limits: Pick<PoolLimits, 'queueTimeoutMs'>;
  readonly #queues: TimedQueues;
  #timer: NodeJS.Timeout | undefined;
  /** What the timer was set by. */
  #timeoutMs = 0;

  /** @param limits of which the timeout may change */
  constructor(limits: Pick<PoolLimits, 'queueTimeoutMs'>, queues: TimedQueues) {
    this.#limits = limits;
    this.#queues = queues;
  }

  /** Called when somebody has begun to wait. */
  start(): void {
    if (this.#timer !== undefined && this.#timeoutMs === this.#limits.queueTimeoutMs) return;
    if (this.#timer === undefined) this.#set(this.#limits.queueTimeoutMs);
    else this.#passed();
  }

  #set(ms: number): void {
    // A client that began to wait meanwhile may have set the timer, for a later time. A timer may fire slightly early.
    clearTimeout(this.#timer);
    this.#timeoutMs = this.#limits.queueTimeoutMs;
    this.#timer = setTimeout(() => this.#passed(), Math.max(1, ms)).unref();
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #passed(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const { queueTimeoutMs } = this.#limits;
    const oldest = performance.now() - queueTimeoutMs;
    let next = Number.POSITIVE_INFINITY;
    for (const own of [...this.#queues.all()]) {
      while (own.waitingSince <= oldest) this.#queues.fail(own, timedOut(own, queueTimeoutMs));
      next = Math.min(next, own.waitingSince);
    }
    if (next !== Number.POSITIVE_INFINITY) this.#set(next - oldest);
  }
}

/** The error of a client that has waited too long for a backend. It says what keeps the organization's backends busy. */
function timedOut(own: OrganizationPool, waitedMs: number): ServiceError {
  const pinned = pinsOf(own);
  const refused = own.refusedAt === undefined ? '' : ' The server has no connection slots free.';
  const leaving = own.leaving.size === 0 ? '' : ` Sessions that were given up and have not ended: ${own.leaving.size}.`;
  return new ServiceError('pool_timeout', 'no backend became free in time', {
    detail: `Waited ${waitedMs} ms.${refused}${leaving}${pinned === undefined ? '' : ` ${pinned}`}`,
    hint: `Keep transactions short, or run fewer at a time.${pinned === undefined ? '' : ' A pinned session keeps its backend until what it holds is gone.'}`,
    retryAfterS: 1,
  });
}

/** How many backends are pinned to sessions, and why; undefined if none is. */
function pinsOf({ leased, size }: OrganizationPool): string | undefined {
  const counts = new Map<string, number>();
  const pinned = [...leased].flatMap(({ session: { pinnedFor } }) => (pinnedFor === undefined || pinnedFor.size === 0 ? [] : [pinnedFor]));
  for (const reason of pinned.flatMap((reasons) => [...reasons])) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  const reasons = [...counts].sort(([, some], [, others]) => others - some).map(([reason, count]) => `${reason} ${count}`);
  return pinned.length === 0 ? undefined : `${pinned.length} of ${size} backends are pinned to sessions: ${reasons.join(', ')}.`;
}
