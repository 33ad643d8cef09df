import type { ControlPool } from '../database/control-pool.ts';
import { UsageCounters, type UsageCounts } from './counters.ts';
import { addUp } from './percentiles.ts';
import { addUsage, intervalsOf, readUsage, type StoredUsage, type UsagePeriod } from './stored-usage.ts';

const MINUTE_MS = 60_000;
/** Written by one statement. */
const ORGANIZATIONS_PER_WRITE = 500;

/**
 * What organizations do: counted in memory, and added to the control database after each full minute and at the end. A process that is
 * killed loses what it has not written.
 */
export class Usage {
  readonly counters = new UsageCounters();
  readonly #database: ControlPool;
  readonly #now: () => Date;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(database: ControlPool, now: () => Date) {
    this.#database = database;
    this.#now = now;
  }

  start(): void {
    this.#timer = setTimeout(
      () => void this.flush().then(() => this.#isStopped || this.start()),
      MINUTE_MS - (Date.now() % MINUTE_MS),
    ).unref();
  }

  /** Writes what is left. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.flush();
  }

  /** Never rejects. What cannot be written counts again. */
  flush(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#writeAll());
    return this.#writing;
  }

  /** The stored intervals of a period, with what this process has not written yet. */
  async read(organizationId: string, period: UsagePeriod): Promise<readonly StoredUsage[]> {
    await this.#writing;
    const now = this.#now();
    const stored = await this.#database.readFor(organizationId, (sql) => readUsage(sql, organizationId, period, now));
    const counts = this.counters.find(organizationId)?.counts;
    if (counts === undefined) return stored;
    const { fiveMinutes, day } = intervalsOf(now);
    const startsAt = period === '90d' ? day : fiveMinutes;
    const last = stored.at(-1);
    if (last?.startsAt.getTime() !== startsAt.getTime()) return [...stored, { startsAt, ...counts }];
    return [...stored.slice(0, -1), { startsAt, ...sum(last, counts) }];
  }

  async #writeAll(): Promise<void> {
    // At the end of a minute: what was counted in it belongs to where it began.
    const at = new Date(this.#now().getTime() - MINUTE_MS / 2);
    const taken = [...this.counters.takeAll()];
    for (let from = 0; from < taken.length; from += ORGANIZATIONS_PER_WRITE) {
      const part = new Map(taken.slice(from, from + ORGANIZATIONS_PER_WRITE));
      await this.#database
        .run((sql) => addUsage(sql, part, at))
        .catch(() => {
          for (const [id, counts] of part) this.counters.of(id).giveBack(counts);
        });
    }
  }
}

function sum(a: UsageCounts, b: UsageCounts): UsageCounts {
  return {
    statements: a.statements + b.statements,
    errors: a.errors + b.errors,
    rows: a.rows + b.rows,
    bytesIn: a.bytesIn + b.bytesIn,
    bytesOut: a.bytesOut + b.bytesOut,
    peakSessions: Math.max(a.peakSessions, b.peakSessions),
    latency: addUp([a.latency, b.latency]),
  };
}
