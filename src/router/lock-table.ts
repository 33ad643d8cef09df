import { setTimeout as delay } from 'node:timers/promises';
import type { BackendConnection } from '../backend/connection.ts';
import type { Pool } from '../backend/pool.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { ServiceError } from '../errors.ts';
import type { Observe } from '../observation.ts';
import { codeOf } from './placement/admin.ts';

const OUT_OF_MEMORY = '53200';
/** How long the sessions of one who held too many locks may take to let go of them. */
const LET_GO_TIMEOUT_MS = 2_000;
const POLL_MS = 25;

/**
 * The server has one table of locks for all databases, and no way to give each role a part of it: who fills it (with advisory
 * locks, or thousands of tables in one transaction) keeps everybody from logging in, and organizations from being made.
 * @see https://www.postgresql.org/docs/current/runtime-config-locks.html#GUC-MAX-LOCKS-PER-TRANSACTION
 */
export class LockTable {
  readonly #catalog: Catalog;
  readonly #pool: Pool;
  readonly #observe: Observe;
  #clearing: Promise<boolean> | undefined;

  constructor(catalog: Catalog, pool: Pool, observe: Observe) {
    this.#catalog = catalog;
    this.#pool = pool;
    this.#observe = observe;
  }

  /**
   * Runs something, and once more where the server had no room for its locks and room could be made.
   * @param work leaves nothing behind when it fails, or may be repeated
   */
  async withRoom<Result>(work: () => Promise<Result>): Promise<Result> {
    try {
      return await work();
    } catch (error) {
      if (!isOutOfMemory(error) || !(await this.#clear())) throw error;
      return work();
    }
  }

  #clear(): Promise<boolean> {
    this.#clearing ??= this.#endCrowd().finally(() => {
      this.#clearing = undefined;
    });
    return this.#clearing;
  }

  /**
   * Ends the sessions that hold more locks than the server reckons with for each, of the organization that has most in them.
   * @returns whether there were any, and they have let go
   */
  async #endCrowd(): Promise<boolean> {
    const crowd = largest(this.#pool.sessions(), await this.#catalog.locksOfCrowded());
    if (crowd === undefined) return false;
    const { organizationId, locks, backends } = crowd;
    this.#observe({
      name: 'service.warning',
      message: `sessions of ${organizationId} were ended: they held ${locks} locks, and the server had room for no more`,
    });
    await Promise.all(backends.map(endAtOnce));
    const processIds = backends.map(({ processId }) => processId);
    for (const deadline = performance.now() + LET_GO_TIMEOUT_MS; performance.now() < deadline; await delay(POLL_MS)) {
      const left = await this.#catalog.locksOfCrowded();
      if (!processIds.some((processId) => left.has(processId))) return true;
    }
    return false;
  }
}

interface Crowd {
  readonly organizationId: string;
  readonly locks: number;
  readonly backends: readonly BackendConnection[];
}

function largest(
  sessions: Iterable<readonly [organizationId: string, backend: BackendConnection]>,
  locksOf: ReadonlyMap<number, number>,
): Crowd | undefined {
  const crowds = new Map<string, Crowd>();
  for (const [organizationId, backend] of sessions) {
    const locks = locksOf.get(backend.processId);
    if (locks === undefined) continue;
    const crowd = crowds.get(organizationId);
    crowds.set(organizationId, {
      organizationId,
      locks: locks + (crowd?.locks ?? 0),
      backends: [...(crowd?.backends ?? []), backend],
    });
  }
  return [...crowds.values()].sort((a, b) => b.locks - a.locks)[0];
}

/** A session that is at work notices that its client has gone only when it has something to say. */
async function endAtOnce(backend: BackendConnection): Promise<void> {
  await backend.cancel();
  backend.destroy();
}

function isOutOfMemory(error: unknown): boolean {
  return codeOf(error instanceof ServiceError ? error.cause : error) === OUT_OF_MEMORY;
}
