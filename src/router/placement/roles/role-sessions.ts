import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { Cluster } from '../cluster.ts';
import { readerOf } from './reader-role.ts';
import { roleExists } from './role-exists.ts';

const TERMINATION_TIMEOUT_MS = 5_000;
/** How long sessions may take to end that have been asked to by other means. */
const GRACE_MS = 3_000;
const POLL_MS = 50;

/** A process of an organization that does not end when it is terminated. */
export interface RunningProcess {
  readonly processId: number;
  /** When its running statement began. */
  readonly since: Date;
}

/** Sessions of an organization's roles: all, and those of them that run a statement or have a transaction open. */
export interface SessionCount {
  readonly all: number;
  readonly atWork: number;
}

/** An organization's database or schema cannot be dropped because of processes that have not ended; the message names them. May be tried again. */
export class StillRunningError extends Error {
  override readonly name = 'StillRunningError';
}

export function describeProcesses(processes: readonly RunningProcess[]): string {
  return processes.map(({ processId, since }) => `process ${processId} since ${since.toISOString()}`).join(', ');
}

/** Sessions of organizations' roles, as the platform role sees and ends them. */
export class RoleSessions {
  readonly #cluster: Cluster;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  /**
   * Terminates the sessions of a role that is being dropped.
   * @returns the processes that have not ended
   */
  async endSessions(session: pg.PoolClient, role: string): Promise<readonly RunningProcess[]> {
    await session.query(this.join(role));
    await session.query(TERMINATE, [role, false]);
    return until(TERMINATION_TIMEOUT_MS, () => processesOf(session, role, false));
  }

  /**
   * Terminates those sessions of a role that are still active after a while.
   * @returns the processes that have not ended
   */
  async endWork(session: pg.PoolClient, role: string): Promise<readonly RunningProcess[]> {
    const look = () => this.#asMember(session, role, () => processesOf(session, role, true));
    const running = await until(GRACE_MS, look);
    if (running.length === 0) return running;
    await this.#asMember(session, role, () => session.query(TERMINATE, [role, true]));
    return until(TERMINATION_TIMEOUT_MS, look);
  }

  /** As {@link endWork}, for the organization's own role and its readers'. */
  async endWorkOfAll(session: pg.PoolClient, role: string): Promise<readonly RunningProcess[]> {
    const running: RunningProcess[] = [];
    for (const one of [readerOf(role), role]) if (await roleExists(session, one)) running.push(...(await this.endWork(session, one)));
    return running;
  }

  /** How many sessions the organization's own role and its readers' have. */
  async count(session: pg.PoolClient, role: string): Promise<SessionCount> {
    const roles = [role, readerOf(role)];
    // Who has a session is visible to all.
    const { rows } = await session.query<{ all: number }>(
      'SELECT pg_catalog.count(*)::int AS all FROM pg_catalog.pg_stat_activity WHERE usename = ANY ($1)',
      [roles],
    );
    const all = rows[0]?.all ?? 0;
    if (all === 0) return { all, atWork: 0 };
    let atWork = 0;
    for (const one of roles) {
      if (await roleExists(session, one)) atWork += (await this.#asMember(session, one, () => processesOf(session, one, true))).length;
    }
    return { all, atWork };
  }

  /** Terminates all sessions of the organization's own role and its readers'. @returns the processes that have not ended */
  async terminateAll(session: pg.PoolClient, role: string): Promise<readonly RunningProcess[]> {
    const running: RunningProcess[] = [];
    for (const one of [readerOf(role), role]) {
      if (!(await roleExists(session, one))) continue;
      await this.#asMember(session, one, () => session.query(TERMINATE, [one, false]));
      running.push(...(await until(TERMINATION_TIMEOUT_MS, () => processesOf(session, one, false))));
    }
    return running;
  }

  /** Terminates the sessions of a role that have this application_name, and waits for their end. */
  async terminateNamed(session: pg.PoolClient, role: string, name: string): Promise<void> {
    if (!(await roleExists(session, role))) return;
    const terminate = `SELECT pg_catalog.pg_terminate_backend(pid, ${TERMINATION_TIMEOUT_MS}) FROM pg_catalog.pg_stat_activity
      WHERE usename = $1 AND application_name = $2`;
    await this.#asMember(session, role, () => session.query(terminate, [role, name]));
  }

  /** Membership ends with the transaction. */
  async #asMember<Result>(session: pg.PoolClient, role: string, work: () => Promise<Result>): Promise<Result> {
    await session.query(`BEGIN; ${this.join(role)}`);
    const result = await work();
    await session.query('ROLLBACK');
    return result;
  }

  /** The statement with which the platform role becomes a member. Only a member of a role may see and terminate its sessions. Before 16 membership always inherited privileges. */
  join(role: string): string {
    return `GRANT ${pg.escapeIdentifier(role)} TO CURRENT_USER${this.#cluster.serverVersion >= 160_000 ? ' WITH INHERIT TRUE' : ''}`;
  }
}

const AT_WORK = "usename = $1 AND (NOT $2 OR state <> 'idle')";
const TERMINATE = `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE ${AT_WORK}`;

async function processesOf(session: pg.PoolClient, role: string, atWork: boolean): Promise<readonly RunningProcess[]> {
  const { rows } = await session.query<RunningProcess>(
    `SELECT pid AS "processId", coalesce(query_start, backend_start) AS since FROM pg_catalog.pg_stat_activity
     WHERE ${AT_WORK} ORDER BY since`,
    [role, atWork],
  );
  return rows;
}

/** Polls until there are none, or the time is over. */
async function until(timeoutMs: number, look: () => Promise<readonly RunningProcess[]>): Promise<readonly RunningProcess[]> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const running = await look();
    if (running.length === 0 || performance.now() > deadline) return running;
    await delay(POLL_MS);
  }
}
