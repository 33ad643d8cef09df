import type { Observe } from '../observation.ts';
import { PostgresError } from '../protocol/backend.ts';
import type { BackendConnection } from './connection.ts';
import type { Leaving, OrganizationPool } from './organization-pool.ts';
import { runCommand } from './own-request.ts';

/** How long a session may take to end after a cancel request or the end of its connection. */
const END_TIMEOUT_MS = 1_000;
/** How long its process may take to end after pg_terminate_backend before this is reported. It is tried again as often. */
const STUCK_AFTER_MS = 5_000;

/**
 * Terminates the processes of sessions that have been given up. A process may not end: PostgreSQL checks for interrupts between the
 * steps of a statement, and some functions take hours for one step. Until the process ends it counts as a session of its organization.
 * It has ended when the server has closed the connection, or reports that it has no such process: a connection may be
 * lost silently, together with its server.
 */
export class Terminations {
  readonly #observe: Observe;
  readonly #closing: AbortSignal;

  constructor(observe: Observe, closing: AbortSignal) {
    this.#observe = observe;
    this.#closing = closing;
  }

  /**
   * @param cancelFailed it has already had time to end after a cancel request
   * @param gone called when its process has ended
   */
  add(pool: OrganizationPool, backend: BackendConnection, cancelFailed: boolean, gone: () => void): void {
    const leaving: Leaving = { since: performance.now(), isReported: false };
    pool.leaving.set(backend, leaving);
    void backend.gone.then(() => {
      pool.leaving.delete(backend);
      if (leaving.isReported) this.#observe({ name: 'backend.unstuck', organizationId: pool.organizationId, processId: backend.processId });
      gone();
    });
    if (cancelFailed) void this.#terminate(pool);
    else this.#terminateLater(pool, END_TIMEOUT_MS);
  }

  #terminateLater(pool: OrganizationPool, delayMs: number): void {
    setTimeout(() => void this.#terminate(pool), delayMs).unref();
  }

  /** Runs once at a time for each organization, because it opens another session with the organization's role. */
  async #terminate(pool: OrganizationPool): Promise<void> {
    if (pool.isTerminating || pool.leaving.size === 0 || this.#closing.aborted) return;
    pool.isTerminating = true;
    try {
      await this.#signal(pool);
    } catch (cause) {
      this.#reportFailure(pool, cause);
    } finally {
      pool.isTerminating = false;
    }
    this.#reportStuck(pool);
    if (pool.leaving.size > 0) this.#terminateLater(pool, STUCK_AFTER_MS);
  }

  async #signal(pool: OrganizationPool): Promise<void> {
    const session = await pool.opener?.open(this.#closing);
    if (session === undefined) return;
    try {
      for (const backend of [...pool.leaving.keys()]) if (!(await terminate(session, backend.processId))) backend.forget();
    } finally {
      session.end();
    }
  }

  #reportFailure({ organizationId, leaving }: OrganizationPool, cause: unknown): void {
    if (this.#closing.aborted || [...leaving.values()].some(({ isReported }) => isReported)) return;
    const message = `sessions of ${organizationId} that were given up could not be terminated yet`;
    this.#observe({ name: 'service.warning', message, cause });
  }

  #reportStuck({ organizationId, leaving }: OrganizationPool): void {
    const oldest = performance.now() - STUCK_AFTER_MS;
    for (const [backend, state] of leaving) {
      if (state.isReported || state.since > oldest) continue;
      state.isReported = true;
      const message = `process ${backend.processId} of ${organizationId} does not end when it is terminated: it counts as a session until it has ended`;
      this.#observe({ name: 'backend.stuck', organizationId, processId: backend.processId, message });
    }
  }
}

/** The process id may have been reused for another organization's session. */
const INSUFFICIENT_PRIVILEGE = '42501';

/** @returns whether the organization has such a process */
async function terminate(session: BackendConnection, processId: number): Promise<boolean> {
  try {
    return (await runCommand(session, `SELECT WHERE pg_catalog.pg_terminate_backend(${processId})`)) === 'SELECT 1';
  } catch (error) {
    if (error instanceof PostgresError && error.fields.code === INSUFFICIENT_PRIVILEGE) return false;
    throw error;
  }
}
