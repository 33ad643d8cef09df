import type { ServiceError } from '../../errors.ts';
import type { OrganizationPool } from './organization-pool.ts';

/** How often a full server is asked for a session. Each try costs it a process for a moment. */
const TRY_EVERY_MS = 200;

/**
 * Opens sessions for waiting clients after the server has refused one because it has no connection slots free. Other programs may hold the
 * slots, and do not tell when they release one. So one pool after another tries again, until a session is opened or no client waits.
 */
export class ServerFullRetries {
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
export function isServerFull({ kind, cause }: ServiceError): boolean {
  const isOfRole = cause instanceof Error && 'routine' in cause && cause.routine === 'InitializeSessionUserId';
  return kind === 'too_many_connections' && !isOfRole;
}
