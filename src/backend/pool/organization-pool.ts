import type { ServiceError } from '../../errors.ts';
import type { BackendConnection, BackendReceiver } from '../connection.ts';
import type { SessionState } from '../session-state.ts';

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

/** A session that has been given up, and whose process has not ended. */
export interface Leaving {
  readonly since: number;
  /** Its process does not end, and the log says so. */
  told: boolean;
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
export class OrganizationPool {
  readonly tenantId: string;
  readonly leased = new Set<BackendConnection>();
  readonly leaving = new Map<BackendConnection, Leaving>();
  /** Those that are leaving are just being told to. */
  isTerminating = false;
  /** As the organization's sessions were last opened. */
  open: OpenBackend | undefined;
  opening = 0;
  /** How often what new sessions start with has changed. */
  changes = 0;
  /** How many sessions of the pool had been closed when the server last had no room for one more. */
  refusedAt: number | undefined;
  /** Most recently used last. */
  readonly #idle: Idle[] = [];
  readonly #waiters: Waiting[] = [];
  readonly #lost: (idle: Idle) => void;
  /** Set while somebody waits for a reserved session. */
  holdTimer: NodeJS.Timeout | undefined;

  /** @param lost hears of each idle session that is lost, which is not idle any more then */
  constructor(tenantId: string, lost: (share: OrganizationPool, backend: BackendConnection) => void) {
    this.tenantId = tenantId;
    this.#lost = (idle) => {
      const position = this.#idle.indexOf(idle);
      if (position < 0) return;
      this.#idle.splice(position, 1);
      cancelReservation(idle.backend.session);
      lost(this, idle.backend);
    };
  }

  get size(): number {
    return this.#idle.length + this.busy;
  }

  /** Sessions in use, about to be, or given up and still there. */
  get busy(): number {
    return this.leased.size + this.opening + this.leaving.size;
  }

  get idle(): number {
    return this.#idle.length;
  }

  get backends(): readonly BackendConnection[] {
    return [...this.leased, ...this.leaving.keys(), ...this.#idle.map(({ backend }) => backend)];
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
    this.open = waiter.open;
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

  /**
   * Leases an idle session: that of a certain backend if it is there, or, of those that are not reserved, the one that was used last.
   * @param preferred reserved for nobody but the caller
   */
  lease(preferred?: BackendConnection): BackendConnection | undefined {
    const own = preferred === undefined ? -1 : this.#idle.findLastIndex(({ backend }) => backend === preferred);
    if (own >= 0 && preferred !== undefined) preferred.session.reservation = undefined;
    return this.#lease(own >= 0 ? own : this.#idle.findLastIndex(({ backend }) => backend.session.reservation === undefined));
  }

  /** Leases the idle session that was reserved first, of those that are not held at the moment. */
  leaseReserved(): BackendConnection | undefined {
    const now = performance.now();
    return this.#lease(this.#findOldest(({ reservation }) => (reservation?.heldUntil ?? 0) <= now));
  }

  /** When the first of the sessions can be had that are held. */
  get heldUntil(): number {
    return Math.min(...this.#idle.map(({ backend }) => backend.session.reservation?.heldUntil ?? 0));
  }

  #lease(index: number): BackendConnection | undefined {
    const [idle] = index < 0 ? [] : this.#idle.splice(index, 1);
    if (idle === undefined) return undefined;
    const { backend } = idle;
    cancelReservation(backend.session);
    backend.detach();
    this.leased.add(backend);
    return backend;
  }

  rest(backend: BackendConnection): void {
    const idle = new Idle(backend, this.#lost);
    backend.attach(idle);
    backend.resume();
    this.#idle.push(idle);
  }

  /** Closes the idle session that was used least recently, one that is reserved only where all are. @returns whether there was one */
  closeOldestIdle(): boolean {
    return this.#close(this.#findOldest(() => true));
  }

  /** Closes a session that has been idle since before then, unless it is reserved for good. @returns whether there was one */
  closeIdleSince(time: number): boolean {
    return this.#close(this.#idle.findIndex(({ backend, since }) => since < time && backend.session.reservation?.isLasting !== true));
  }

  /** The place of the one that was used least recently: those that are not reserved come first, those that are reserved for good last. */
  #findOldest(mayBe: (session: SessionState) => boolean): number {
    const find = (isLasting: boolean | undefined) =>
      this.#idle.findIndex(({ backend: { session } }) => session.reservation?.isLasting === isLasting && mayBe(session));
    return [undefined, false, true].map(find).find((index) => index >= 0) ?? -1;
  }

  #close(index: number): boolean {
    const [idle] = index < 0 ? [] : this.#idle.splice(index, 1);
    if (idle === undefined) return false;
    cancelReservation(idle.backend.session);
    idle.backend.detach();
    idle.backend.end();
    return true;
  }
}

function cancelReservation(session: SessionState): void {
  session.reservation?.lost();
  session.reservation = undefined;
}
