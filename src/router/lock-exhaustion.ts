import { setTimeout as delay } from 'node:timers/promises';
import { runCommand } from '../backend/command.ts';
import type { BackendConnection } from '../backend/connection.ts';
import type { Pool } from '../backend/pool/pool.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { ServiceError } from '../errors.ts';
import type { Observation, Observe } from '../observation.ts';
import { codeOf } from './placement/admin.ts';

const OUT_OF_MEMORY = '53200';
/** For finding who holds too many locks, and for those sessions to let go of them. */
const TIMEOUT_MS = 5_000;
/** For those that obey a cancel request. */
const OBEY_TIMEOUT_MS = 1_000;
const POLL_MS = 25;
const RETRIES = 2;
const LOOK_EVERY_MS = 1_000;

/**
 * The server has one table of locks for all databases, and no way to give each role a part of it: who fills it (with advisory
 * locks, or thousands of tables in one transaction) keeps everybody from logging in, and organizations from being made.
 * @see https://www.postgresql.org/docs/current/runtime-config-locks.html#GUC-MAX-LOCKS-PER-TRANSACTION
 */
export class LockExhaustion {
  readonly #catalog: Catalog;
  readonly #pool: Pool;
  readonly #observe: Observe;
  #clearing: Promise<boolean> | undefined;
  #lookedAt = Number.NEGATIVE_INFINITY;
  /** How often room has been made. */
  #clearings = 0;

  constructor(catalog: Catalog, pool: Pool, observe: Observe) {
    this.#catalog = catalog;
    this.#pool = pool;
    this.#observe = observe;
  }

  /**
   * Runs something, and again where the server had no room for its locks and room could be made. By then somebody may have
   * taken it again.
   * @param work leaves nothing behind when it fails, or may be repeated
   */
  async withRoom<Result>(work: () => Promise<Result>): Promise<Result> {
    for (let left = RETRIES; ; left -= 1) {
      const clearings = this.#clearings;
      try {
        return await work();
      } catch (error) {
        if (left === 0 || !isOutOfMemory(error)) throw error;
        // Somebody else may have seen to it already.
        if (clearings === this.#clearings && !(await this.#clear())) throw error;
      }
    }
  }

  /** Hears whose statement has found no room: those who are in cannot write a row while there is none. */
  readonly observe: Observe = (observation) => {
    if (sqlstateOf(observation) === OUT_OF_MEMORY) this.makeRoom();
  };

  /** Makes room if it can. */
  makeRoom(): void {
    // Anybody can raise such an error.
    if (performance.now() - this.#lookedAt < LOOK_EVERY_MS) return;
    void this.#clear();
  }

  #clear(): Promise<boolean> {
    this.#lookedAt = performance.now();
    this.#clearing ??= this.#endCrowd()
      // The control database cannot be asked: whoever comes next tries again.
      .catch(() => false)
      .finally(() => {
        this.#clearing = undefined;
      });
    return this.#clearing;
  }

  /**
   * Ends the sessions that hold more locks than the server reckons with for each, of the organization that has most in them.
   * @returns whether there were any, and they have let go
   */
  async #endCrowd(): Promise<boolean> {
    const deadline = performance.now() + TIMEOUT_MS;
    const locksOf = await this.#locksOfCrowded(deadline);
    const held = largest(this.#pool.sessions(), locksOf);
    if (held === undefined) return false;
    const { organizationId, locks, backends } = held;
    this.#observe({
      name: 'service.warning',
      message: `sessions of ${organizationId} were ended: they held ${locks} locks, and the server had room for no more`,
    });
    await Promise.all(backends.map(endAtOnce));
    if (!(await this.#haveLetGo(backends, Math.min(deadline, performance.now() + OBEY_TIMEOUT_MS)))) {
      await this.#terminate(backends);
      if (!(await this.#haveLetGo(backends, deadline))) return false;
    }
    // Before anybody else comes, who may be the next to take it all: without it, there may be no ending them.
    await Promise.race([this.#catalog.locks.reserved.hold(), delay(deadline - performance.now(), undefined, { ref: false })]);
    this.#clearings += 1;
    return true;
  }

  async #haveLetGo(backends: readonly BackendConnection[], deadline: number): Promise<boolean> {
    for (; performance.now() < deadline; await delay(POLL_MS)) {
      const left = await this.#locksOfCrowded(deadline);
      if (!backends.some(({ processId }) => left.has(processId))) return true;
    }
    return false;
  }

  /** A statement may obey no cancel request. Who has it ended has to be let in first. */
  async #terminate(backends: readonly BackendConnection[]): Promise<void> {
    const processIds = backends.map(({ processId }) => processId).join();
    await this.#catalog.locks.reserved.releaseDuring(async () => {
      const session = await backends[0]?.sibling();
      const terminate = `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.unnest('{${processIds}}'::int[]) pid`;
      if (session !== undefined) await runCommand(session, terminate).finally(() => session.end());
    });
  }

  /** Who asks may need room itself, or a session, for which there is none until those that are at work come back. */
  async #locksOfCrowded(deadline: number): Promise<ReadonlyMap<number, number>> {
    const { locks } = this.#catalog;
    let ask = () => locks.ofHeavyHolders();
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        if (!isOutOfMemory(error) || performance.now() > deadline) throw error;
        await delay(POLL_MS);
        ask = () => locks.reserved.releaseDuring(() => locks.ofHeavyHolders());
      }
    }
  }
}

function sqlstateOf(observation: Observation): string | undefined {
  switch (observation.name) {
    case 'wire.query':
      return observation.sqlstate;
    case 'http.request':
      return observation.outcome.sqlstate;
    default:
      return undefined;
  }
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

/** A session that is at work notices that its client has gone only when it has something to say. */
async function endAtOnce(backend: BackendConnection): Promise<void> {
  await backend.cancel();
  backend.destroy();
}

function isOutOfMemory(error: unknown): boolean {
  return codeOf(error instanceof ServiceError ? error.cause : error) === OUT_OF_MEMORY;
}
