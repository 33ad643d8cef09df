import type { ServiceError } from '../errors.ts';
import type { BackendConnection, BackendReceiver } from './connection.ts';

/** Logs a new backend session in for one organization. */
export type OpenBackend = (signal: AbortSignal) => Promise<BackendConnection>;

/** Whoever wants a backend. It is told at once, in the same turn in which there is one. */
export interface Waiter {
  readonly open: OpenBackend;
  settle(result: BackendConnection | ServiceError): void;
}

interface Waiting {
  readonly waiter: Waiter;
  readonly since: number;
}

/** A session that nobody uses; it hears when that is lost. */
class Idle implements BackendReceiver {
  readonly backend: BackendConnection;
  readonly since = performance.now();
  readonly #lost: (idle: Idle) => void;

  constructor(backend: BackendConnection, lost: (idle: Idle) => void) {
    this.backend = backend;
    this.#lost = lost;
  }

  /** Nobody has asked. It may be cut anywhere, even in the middle of a message, and tell that new sessions start with something else. */
  data(): void {
    this.closed();
    this.backend.destroy();
  }

  drain(): void {}

  closed(): void {
    this.#lost(this);
  }
}

/** What one organization has of the pool, and who waits for more. */
export class Share {
  readonly tenantId: string;
  readonly leased = new Set<BackendConnection>();
  opening = 0;
  /** How often what new sessions start with has changed. */
  changes = 0;
  /** How many sessions of the pool had been closed when the server last had no room for one more. */
  refusedAt: number | undefined;
  /** Most recently used last. */
  readonly #idle: Idle[] = [];
  readonly #waiters: Waiting[] = [];
  readonly #lost: (idle: Idle) => void;

  /** @param lost hears of each idle session that is lost, which is not of the share any more then */
  constructor(tenantId: string, lost: (share: Share) => void) {
    this.tenantId = tenantId;
    this.#lost = (idle) => {
      const position = this.#idle.indexOf(idle);
      if (position < 0) return;
      this.#idle.splice(position, 1);
      lost(this);
    };
  }

  get size(): number {
    return this.#idle.length + this.busy;
  }

  /** Sessions in use or about to be. */
  get busy(): number {
    return this.leased.size + this.opening;
  }

  get idle(): number {
    return this.#idle.length;
  }

  get backends(): readonly BackendConnection[] {
    return [...this.leased, ...this.#idle.map(({ backend }) => backend)];
  }

  /** Since when the session rests that was used least recently. */
  get idleSince(): number {
    return this.#idle[0]?.since ?? Number.POSITIVE_INFINITY;
  }

  get waiters(): number {
    return this.#waiters.length;
  }

  /** Since when the one has waited who has waited longest. */
  get waitingSince(): number {
    return this.#waiters[0]?.since ?? Number.POSITIVE_INFINITY;
  }

  /** Somebody waits for whom no session is being opened. */
  get wantsMore(): boolean {
    return this.#waiters.length > this.opening;
  }

  /** The first one for whom no session is being opened. */
  get nextToOpenFor(): Waiter | undefined {
    return this.#waiters[this.opening]?.waiter;
  }

  get isEmpty(): boolean {
    return this.size === 0 && this.#waiters.length === 0;
  }

  add(waiter: Waiter): void {
    this.#waiters.push({ waiter, since: performance.now() });
  }

  /** @returns whether it was waiting */
  remove(waiter: Waiter): boolean {
    const position = this.#waiters.findIndex((waiting) => waiting.waiter === waiter);
    if (position >= 0) this.#waiters.splice(position, 1);
    return position >= 0;
  }

  /** Answers the first waiter. */
  settle(result: BackendConnection | ServiceError): void {
    this.#waiters.shift()?.waiter.settle(result);
  }

  /** Leases an idle session: that of a certain backend if it is there, or the one that was used last. */
  lease(preferred?: BackendConnection): BackendConnection | undefined {
    const backend = this.#take(preferred)?.backend;
    if (backend === undefined) return undefined;
    backend.detach();
    this.leased.add(backend);
    return backend;
  }

  #take(preferred: BackendConnection | undefined): Idle | undefined {
    const idle = this.#idle;
    for (let i = idle.length - 1; i >= 0 && preferred !== undefined; i -= 1)
      if (idle[i]?.backend === preferred) return i === idle.length - 1 ? idle.pop() : idle.splice(i, 1)[0];
    return idle.pop();
  }

  rest(backend: BackendConnection): void {
    const idle = new Idle(backend, this.#lost);
    backend.attach(idle);
    backend.resume();
    this.#idle.push(idle);
  }

  /** Closes the idle session that was used least recently. @returns whether there was one */
  closeOldestIdle(): boolean {
    const backend = this.#idle.shift()?.backend;
    backend?.detach();
    backend?.end();
    return backend !== undefined;
  }
}
