import type { Observe } from '../../observation.ts';
import { PostgresError } from '../../protocol/backend.ts';
import { runCommand } from '../command.ts';
import type { BackendConnection } from '../connection.ts';
import type { Leaving, OrganizationPool } from './organization-pool.ts';

/** For a session that has been told to end, by a cancel request or by the end of its connection. */
const OBEY_TIMEOUT_MS = 1_000;
/** For its process to end after that, before somebody is told. Also how often it is looked for. */
const STUCK_AFTER_MS = 5_000;

/**
 * Ends the processes of sessions that have been given up. One may go on: Postgres looks for signals between the steps of a
 * statement, and some functions take hours for one step. Until the process is gone it stays a session of its organization.
 * It is known to be gone when the server has closed the connection, or says that it has no such process: a connection may be
 * lost without a word, together with its server.
 */
export class Terminations {
  readonly #observe: Observe;
  readonly #closing: AbortSignal;

  constructor(observe: Observe, closing: AbortSignal) {
    this.#observe = observe;
    this.#closing = closing;
  }

  /**
   * @param disobeyed it has been given its time to end
   * @param gone called when its process has ended
   */
  add(share: OrganizationPool, backend: BackendConnection, disobeyed: boolean, gone: () => void): void {
    const leaving: Leaving = { since: performance.now(), told: false };
    share.leaving.set(backend, leaving);
    void backend.gone.then(() => {
      share.leaving.delete(backend);
      if (leaving.told) this.#observe({ name: 'backend.unstuck', organizationId: share.tenantId, processId: backend.processId });
      gone();
    });
    if (disobeyed) void this.#terminate(share);
    else this.#lookIn(share, OBEY_TIMEOUT_MS);
  }

  #lookIn(share: OrganizationPool, delayMs: number): void {
    setTimeout(() => void this.#terminate(share), delayMs).unref();
  }

  /** One at a time for each organization: it takes one session more than the organization has, as the organization itself. */
  async #terminate(share: OrganizationPool): Promise<void> {
    if (share.isTerminating || share.leaving.size === 0 || this.#closing.aborted) return;
    share.isTerminating = true;
    try {
      await this.#signal(share);
    } catch (cause) {
      this.#failed(share, cause);
    } finally {
      share.isTerminating = false;
    }
    this.#tell(share);
    if (share.leaving.size > 0) this.#lookIn(share, STUCK_AFTER_MS);
  }

  async #signal(share: OrganizationPool): Promise<void> {
    const session = await share.open?.(this.#closing);
    if (session === undefined) return;
    try {
      for (const backend of [...share.leaving.keys()]) if (!(await terminate(session, backend.processId))) backend.forget();
    } finally {
      session.end();
    }
  }

  #failed({ tenantId, leaving }: OrganizationPool, cause: unknown): void {
    if (this.#closing.aborted || [...leaving.values()].some(({ told }) => told)) return;
    const message = `sessions of ${tenantId} that were given up could not be told to end yet`;
    this.#observe({ name: 'service.warning', message, cause });
  }

  #tell({ tenantId, leaving }: OrganizationPool): void {
    const oldest = performance.now() - STUCK_AFTER_MS;
    for (const [backend, state] of leaving) {
      if (state.told || state.since > oldest) continue;
      state.told = true;
      const message = `process ${backend.processId} of ${tenantId} does not end when it is told to: it counts among its sessions until it has`;
      this.#observe({ name: 'backend.stuck', organizationId: tenantId, processId: backend.processId, message });
    }
  }
}

/** Another organization's process may have come to bear the number. */
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
