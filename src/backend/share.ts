import type { ServiceError } from '../errors.ts';
import type { BackendConnection, BackendReceiver } from './connection.ts';

/** Logs a new backend session in for one organization. */
export type OpenBackend = (signal: AbortSignal) => Promise<BackendConnection>;

/** Whoever wants a backend. It is told at once, in the same turn in which there is one. */
export interface Waiter {
  readonly open: OpenBackend;
  settle(result: BackendConnection | ServiceError): void;
}

export interface Waiting {
  readonly waiter: Waiter;
  readonly since: number;
}

/** A session that nobody uses; it hears when that is lost. */
export class Idle implements BackendReceiver {
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

/** What one organization has of the pool. */
export class Share {
  readonly tenantId: string;
  /** Most recently used last. */
  readonly idle: Idle[] = [];
  readonly waiters: Waiting[] = [];
  readonly leased = new Set<BackendConnection>();
  /** Hears of each idle session that is lost. */
  readonly lost: (idle: Idle) => void;
  opening = 0;
  /** How often what new sessions start with has changed. */
  changes = 0;
  /** How many sessions of the pool had been closed when the server last had no room for one more. */
  refusedAt: number | undefined;

  constructor(tenantId: string, lost: (share: Share, idle: Idle) => void) {
    this.tenantId = tenantId;
    this.lost = (idle) => lost(this, idle);
  }

  get size(): number {
    return this.idle.length + this.leased.size + this.opening;
  }

  /** Sessions in use or about to be. */
  get busy(): number {
    return this.leased.size + this.opening;
  }
}
