import { ServiceError } from '../../errors.ts';
import type { BackendConnection } from '../connection.ts';
import { EndingBackends } from './ending-backends.ts';
import type { OrganizationPool, Waiter } from './organization-pool.ts';
import type { BackendPermits } from './permits-across-processes.ts';

/** Opens sessions when there is a slot for them: by the limit that several processes share, and by that of the server. */
export class BackendOpener {
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
    if (!(await this.#permits.acquire(own.organizationId, () => own.waiters > 0))) return undefined;
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
    this.#permits?.release(own.organizationId);
  }
}
