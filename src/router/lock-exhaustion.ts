import { setTimeout as delay } from 'node:timers/promises';
import type { BackendConnection } from '../backend/connection.ts';
import { runCommand } from '../backend/own-request.ts';
import type { Pool } from '../backend/pool.ts';
import type { PgLocks } from '../catalog/control-pool.ts';
import { ServiceError } from '../errors.ts';
import type { ObservationHandlers, Observe } from '../observation.ts';
import { codeOf } from '../protocol/backend.ts';

const OUT_OF_MEMORY = '53200';
/** For finding the sessions with too many locks and for their end. */
const TIMEOUT_MS = 5_000;
/** How long a session may take to end after a cancel request. */
const CANCEL_TIMEOUT_MS = 1_000;
const POLL_MS = 25;
const RETRIES = 2;
const LOOK_EVERY_MS = 1_000;

/**
 * Frees the server's lock table when it is full. The server has one table for all databases and no limit for a role: an organization
 * that fills it (with advisory locks, or thousands of tables in one transaction) keeps all others from logging in and signing up.
 * @see https://www.postgresql.org/docs/current/runtime-config-locks.html#GUC-MAX-LOCKS-PER-TRANSACTION
 */
export class LockExhaustion {
  readonly #locks: PgLocks;
  readonly #pool: Pool;
  readonly #observe: Observe;
  #clearing: Promise<boolean> | undefined;
  #lookedAt = Number.NEGATIVE_INFINITY;
  /** How often locks have been freed. */
  #clearings = 0;

  constructor(locks: PgLocks, pool: Pool, observe: Observe) {
    this.#locks = locks;
    this.#pool = pool;
    this.#observe = observe;
  }

  /**
   * Runs `work`, and again if it failed because the lock table was full and locks could be freed. The table may be full again
   * by then.
   * @param work has no effect when it fails, or may be repeated
   */
  async retryWhenFull<Result>(work: () => Promise<Result>): Promise<Result> {
    for (let left = RETRIES; ; left -= 1) {
      const clearings = this.#clearings;
      try {
        return await work();
      } catch (error) {
        if (left === 0 || !isOutOfMemory(error)) throw error;
        // Another caller may have freed locks meanwhile.
        if (clearings === this.#clearings && !(await this.#clear())) throw error;
      }
    }
  }

  /** Starts freeing locks, at most once a second. */
  freeLocks(): void {
    // Any client can RAISE this SQLSTATE.
    if (performance.now() - this.#lookedAt < LOOK_EVERY_MS) return;
    void this.#clear();
  }

  #clear(): Promise<boolean> {
    this.#lookedAt = performance.now();
    this.#clearing ??= this.#endLargestHolder()
      // The server cannot be reached. The next caller tries again.
      .catch(() => false)
      .finally(() => {
        this.#clearing = undefined;
      });
    return this.#clearing;
  }

  /**
   * Finds the sessions with more locks than max_locks_per_transaction, and ends those of the organization that holds the most.
   * @returns whether there were such sessions and their locks have been released
   */
  async #endLargestHolder(): Promise<boolean> {
    const deadline = performance.now() + TIMEOUT_MS;
    const locksOf = await this.#locksOfHeavyHolders(deadline);
    const held = largest(this.#pool.sessions(), locksOf);
    if (held === undefined) return false;
    const { organizationId, locks, backends } = held;
    this.#observe({
      name: 'service.warning',
      message: `sessions of ${organizationId} were ended: they held ${locks} locks, and the server's lock table was full`,
    });
    await Promise.all(backends.map(endAtOnce));
    if (!(await this.#haveReleased(backends, Math.min(deadline, performance.now() + CANCEL_TIMEOUT_MS)))) {
      await this.#terminate(backends);
      if (!(await this.#haveReleased(backends, deadline))) return false;
    }
    // The reserved locks are taken before other callers continue, who might fill the table again: they are needed to end sessions.
    await Promise.race([this.#locks.reserved.hold(), delay(deadline - performance.now(), undefined, { ref: false })]);
    this.#clearings += 1;
    return true;
  }

  async #haveReleased(backends: readonly BackendConnection[], deadline: number): Promise<boolean> {
    for (; performance.now() < deadline; await delay(POLL_MS)) {
      const left = await this.#locksOfHeavyHolders(deadline);
      if (!backends.some(({ processId }) => left.has(processId))) return true;
    }
    return false;
  }

  /** A cancel request may not stop a statement. Terminating it needs another login, and that needs locks. */
  async #terminate(backends: readonly BackendConnection[]): Promise<void> {
    const processIds = backends.map(({ processId }) => processId).join();
    await this.#locks.reserved.releaseDuring(async () => {
      const session = await backends[0]?.sibling();
      const terminate = `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.unnest('{${processIds}}'::int[]) pid`;
      if (session !== undefined) await runCommand(session, terminate).finally(() => session.end());
    });
  }

  /** The query itself needs locks, and perhaps a new session. If these are not available, the reserved locks are released for it. */
  async #locksOfHeavyHolders(deadline: number): Promise<ReadonlyMap<number, number>> {
    const locks = this.#locks;
    let query = () => locks.ofHeavyHolders();
    for (;;) {
      try {
        return await query();
      } catch (error) {
        if (!isOutOfMemory(error) || performance.now() > deadline) throw error;
        await delay(POLL_MS);
        query = () => locks.reserved.releaseDuring(() => locks.ofHeavyHolders());
      }
    }
  }
}

/** Frees locks when a statement of an existing session has failed with out_of_memory: it could not even write a row. */
export function lockObserver(all: () => readonly LockExhaustion[]): ObservationHandlers {
  const ended = (sqlstate: string | undefined) => {
    if (sqlstate === OUT_OF_MEMORY) for (const locks of all()) locks.freeLocks();
  };
  return { 'wire.query.failed': ({ sqlstate }) => ended(sqlstate), 'http.request': ({ outcome }) => ended(outcome.sqlstate) };
}

type Session = readonly [organizationId: string, backend: BackendConnection];

interface OrganizationLocks {
  readonly organizationId: string;
  readonly locks: number;
  readonly backends: readonly BackendConnection[];
}

function largest(sessions: readonly Session[], locksOf: ReadonlyMap<number, number>): OrganizationLocks | undefined {
  const heldBy = new Map<string, OrganizationLocks>();
  const byProcess = new Map(sessions.map((session) => [session[1].processId, session]));
  for (const [organizationId, backend] of byProcess.values()) {
    const locks = locksOf.get(backend.processId);
    if (locks === undefined) continue;
    const held = heldBy.get(organizationId);
    heldBy.set(organizationId, {
      organizationId,
      locks: locks + (held?.locks ?? 0),
      backends: [...(held?.backends ?? []), backend],
    });
  }
  return [...heldBy.values()].sort((a, b) => b.locks - a.locks)[0];
}

/** A running statement is canceled first, because a backend notices a closed connection only when it sends something. */
async function endAtOnce(backend: BackendConnection): Promise<void> {
  await backend.cancel();
  backend.destroy();
}

function isOutOfMemory(error: unknown): boolean {
  return codeOf(error instanceof ServiceError ? error.cause : error) === OUT_OF_MEMORY;
}
