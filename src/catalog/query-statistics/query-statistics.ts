import { ADVISORY_LOCKS } from '../database/advisory-locks.ts';
import type { ControlPool } from '../database/control-pool.ts';
import type { Organization } from '../organizations/organization.ts';
import { addUp, percentile } from '../usage/percentiles.ts';
import { type CountersMemory, OTHERS_ID, RoleStatements, type StatementCounts } from './statement-counters.ts';
import {
  addStatistics,
  type QueryOrder,
  type RoleCounts,
  readStatistics,
  type StatementsOf,
  type StoredStatistic,
  statisticsBegan,
} from './stored-statistics.ts';

export const QUERIES_MAX = 100;

export interface QueryStatistic extends Omit<StoredStatistic, 'latencies'> {
  readonly meanMs: number;
  readonly p99Ms: number;
}

export interface QueryStatisticsReply {
  readonly statsSince: Date | null;
  readonly queries: readonly QueryStatistic[];
  /** What is not told apart, together; null: there is none. */
  readonly others: QueryStatistic | null;
}

/** When a statement has just run, it is soon to be seen by all processes; and a process that is killed loses only so much. */
const FLUSH_EVERY_MS = 15_000;
/** Written by one statement. */
const ROWS_PER_WRITE = 500;
const COUNTERS_MAX_BYTES = 64 * 1_048_576;

/**
 * Which statements organizations run, and how long these take: counted in memory, and added to the control database every few seconds and
 * at the end.
 */
export class QueryStatistics {
  readonly #database: ControlPool;
  readonly #now: () => Date;
  readonly #memory: CountersMemory;
  /** There is one organization object for each role. */
  readonly #byOrganization = new WeakMap<Organization, RoleStatements>();
  /** Those that have counted something lately. */
  readonly #active = new Set<RoleStatements>();
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(database: ControlPool, now: () => Date, maxBytes = COUNTERS_MAX_BYTES) {
    this.#database = database;
    this.#now = now;
    this.#memory = { bytes: 0, maxBytes };
  }

  /**
   * @param organization as its role sees it
   * @param asWritten a statement that reached the server, as the organization wrote it
   */
  of(organization: Organization, isReader: boolean, asWritten: (sql: string) => string): RoleStatements {
    let statements = this.#byOrganization.get(organization);
    if (statements === undefined) {
      const role = { organizationId: organization.id, isReader };
      statements = new RoleStatements(role, asWritten, this.#memory, (active) => this.#active.add(active));
      this.#byOrganization.set(organization, statements);
    }
    return statements;
  }

  start(): void {
    this.#timer = setInterval(() => void this.flush(), FLUSH_EVERY_MS).unref();
  }

  /** Writes what is left. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.flush();
  }

  /** Never rejects. What cannot be written counts again. @param organizationId only this one's */
  flush(organizationId?: string): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write(organizationId));
    return this.#writing;
  }

  async read(of: StatementsOf, order: QueryOrder, limit: number): Promise<QueryStatisticsReply> {
    await this.flush(of.organizationId);
    const [stored, statsSince] = await this.#database.snapshot(async (sql) => [
      await readStatistics(sql, of, order, limit),
      await statisticsBegan(sql, of),
    ]);
    const others = stored.find(({ queryId }) => queryId === OTHERS_ID);
    return {
      statsSince,
      queries: stored.filter((each) => each !== others).map(shown),
      others: others === undefined ? null : shown(others),
    };
  }

  async #write(organizationId: string | undefined): Promise<void> {
    let part: Taken[] = [];
    let rows = 0;
    for (const statements of [...this.#active]) {
      if (organizationId !== undefined && statements.organizationId !== organizationId) continue;
      const counts = statements.takeAll();
      if (statements.isIdle) this.#active.delete(statements);
      if (counts.length === 0) continue;
      part.push({ statements, counts });
      rows += counts.length;
      if (rows < ROWS_PER_WRITE) continue;
      await this.#writePart(part);
      part = [];
      rows = 0;
    }
    if (part.length > 0) await this.#writePart(part);
  }

  async #writePart(part: readonly Taken[]): Promise<void> {
    const offset = this.#now().getTime() - performance.now();
    try {
      await this.#database.transaction(async (sql) => {
        // Two processes that change the same rows in another order would block each other.
        await sql`select pg_catalog.pg_advisory_xact_lock(${ADVISORY_LOCKS.queryStatistics}, 0)`;
        for (const roles of eachRoleOnce(part)) await addStatistics(sql, roles, (at) => new Date(offset + at));
      });
    } catch {
      for (const { statements, counts } of part) statements.giveBack(counts);
    }
  }
}

interface Taken {
  readonly statements: RoleStatements;
  readonly counts: readonly StatementCounts[];
}

/** A role has two objects for a while when its organization has been read anew. One statement must not write a row twice. */
function eachRoleOnce(part: readonly Taken[]): readonly (readonly RoleCounts[])[] {
  const writes: Map<string, RoleCounts>[] = [];
  for (const { statements, counts } of part) {
    const { organizationId, isReader } = statements;
    const role = `${organizationId} ${isReader}`;
    const write = writes.find((roles) => !roles.has(role)) ?? new Map<string, RoleCounts>();
    if (write.size === 0) writes.push(write);
    write.set(role, { organizationId, isReader, counts });
  }
  return writes.map((roles) => [...roles.values()]);
}

function shown({ latencies, ...statistic }: StoredStatistic): QueryStatistic {
  const { calls, totalMs, maxMs } = statistic;
  // The middle of a bucket may be more than the longest run.
  const p99Ms = Math.min(percentile(addUp(latencies), 0.99), maxMs);
  return { ...statistic, meanMs: totalMs / Math.max(1, calls), p99Ms };
}
