import { BoundedMap } from '../runtime/bounded-map.ts';
import type { ControlPool, Sql } from './control-pool.ts';

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
    this.counters.beginPeriod();
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

/*
 * Latencies are counted in buckets, whose counts of several processes and times can be added up: four for each doubling, from 32 µs to
 * two minutes. A percentile of them is right to about 12 %.
 */
const BUCKETS_PER_DOUBLING = 4;
const FIRST_DOUBLING = 5;
const DOUBLINGS = 22;
export const BUCKETS = 1 + DOUBLINGS * BUCKETS_PER_DOUBLING;

export function bucketOf(durationMs: number): number {
  const microseconds = Math.min(durationMs, 134_000) * 1_000;
  if (!(microseconds >= 1 << FIRST_DOUBLING)) return 0;
  const doubling = 31 - Math.clz32(microseconds);
  const part = (microseconds >>> (doubling - 2)) & 3;
  return 1 + (doubling - FIRST_DOUBLING) * BUCKETS_PER_DOUBLING + part;
}

/** What an organization has done since some time. */
interface UsageCounts {
  readonly statements: number;
  readonly errors: number;
  readonly rows: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly peakSessions: number;
  /** Of requests, by bucket; empty ones at the end are left out. */
  readonly latency: readonly number[];
}

/** What operators are shown of an organization: counts and times of one process since its start. Times are in milliseconds. */
export const TOTALS = [
  'leases',
  'transactions',
  'requests',
  'bytesIn',
  'bytesOut',
  'heldMs',
  'requestMs',
  'waitMs',
  // At the wire door: Parse and Bind messages of clients, and Parse messages that the server has answered.
  'parses',
  'serverParses',
  'binds',
] as const;

type Totals = Record<(typeof TOTALS)[number], number>;

const NO_TOTALS: Readonly<Totals> = {
  leases: 0,
  transactions: 0,
  requests: 0,
  bytesIn: 0,
  bytesOut: 0,
  heldMs: 0,
  requestMs: 0,
  waitMs: 0,
  parses: 0,
  serverParses: 0,
  binds: 0,
};

/** What an organization has done since the process started. It is kept while its {@link OrganizationUsage} comes and goes. */
export class OrganizationTotals {
  /** Without what its usage has not handed over yet. */
  readonly counted: Totals = { ...NO_TOTALS };
  /** As they were when the last full minute began: averages are of the time since then. */
  before: Readonly<Totals> = NO_TOTALS;
  latest: Readonly<Totals> = NO_TOTALS;

  /** A backend has been leased after such a wait. */
  leased(waitMs: number): void {
    this.counted.leases += 1;
    this.counted.waitMs += waitMs;
  }

  /** A lease has ended. */
  released(heldMs: number): void {
    this.counted.heldMs += heldMs;
  }
}

/** Counts what one organization does in this process. It is counted for each request, so nothing is allocated for that. */
export class OrganizationUsage {
  readonly totals: OrganizationTotals;
  statements = 0;
  errors = 0;
  rows = 0;
  bytesIn = 0;
  bytesOut = 0;
  /** Wire sessions now. */
  sessions = 0;
  peakSessions = 0;
  readonly #latency = new Uint32Array(BUCKETS);
  /** As it was written last. */
  #toldPeak = 0;

  constructor(totals = new OrganizationTotals()) {
    this.totals = totals;
  }

  /** A request has been answered that took so long. @param isAtRest it has left no transaction open */
  answered(durationMs: number, hasFailed: boolean, isAtRest = true): void {
    if (hasFailed) this.errors += 1;
    const { counted } = this.totals;
    counted.requests += 1;
    counted.requestMs += durationMs;
    if (isAtRest) counted.transactions += 1;
    const bucket = bucketOf(durationMs);
    this.#latency[bucket] = (this.#latency[bucket] ?? 0) + 1;
  }

  sessionOpened(): void {
    this.sessions += 1;
    this.peakSessions = Math.max(this.peakSessions, this.sessions);
  }

  sessionClosed(): void {
    this.sessions -= 1;
  }

  /** @returns undefined if nothing has happened since they were taken last */
  get counts(): UsageCounts | undefined {
    const { statements, errors, rows, bytesIn, bytesOut, peakSessions } = this;
    if (statements + errors + bytesIn + bytesOut === 0 && peakSessions <= this.#toldPeak) return undefined;
    const used = this.#latency.findLastIndex((count) => count > 0) + 1;
    const latency = Array.from(this.#latency.subarray(0, used));
    return { statements, errors, rows, bytesIn, bytesOut, peakSessions, latency };
  }

  /** Begins anew. @returns {@link counts} */
  take(): UsageCounts | undefined {
    const { counts } = this;
    this.totals.counted.bytesIn += this.bytesIn;
    this.totals.counted.bytesOut += this.bytesOut;
    this.statements = this.errors = this.rows = this.bytesIn = this.bytesOut = 0;
    this.peakSessions = this.#toldPeak = this.sessions;
    this.#latency.fill(0);
    return counts;
  }

  /** Counts again what was taken and could not be written. */
  giveBack(counts: UsageCounts): void {
    this.statements += counts.statements;
    this.errors += counts.errors;
    this.rows += counts.rows;
    this.bytesIn += counts.bytesIn;
    this.bytesOut += counts.bytesOut;
    this.totals.counted.bytesIn -= counts.bytesIn;
    this.totals.counted.bytesOut -= counts.bytesOut;
    this.peakSessions = Math.max(this.peakSessions, counts.peakSessions);
    for (const [bucket, count] of counts.latency.entries()) this.#latency[bucket] = (this.#latency[bucket] ?? 0) + count;
  }
}

/** The totals of so many organizations are kept; of more, those that have done nothing for the longest time begin anew. */
const TOTALS_MAX = 100_000;

/** The organizations that have done something lately, or have wire sessions. */
export class UsageCounters {
  readonly #byOrganization = new Map<string, OrganizationUsage>();
  readonly #totals = new BoundedMap<string, OrganizationTotals>({ maxEntries: TOTALS_MAX });
  /** When the period began that averages are of, and the one after it. */
  #periods = { before: performance.now(), latest: performance.now() };

  of(organizationId: string): OrganizationUsage {
    let usage = this.#byOrganization.get(organizationId);
    if (usage === undefined) {
      usage = new OrganizationUsage(this.totalsOf(organizationId));
      this.#byOrganization.set(organizationId, usage);
    }
    return usage;
  }

  totalsOf(organizationId: string): OrganizationTotals {
    let totals = this.#totals.get(organizationId);
    if (totals === undefined) {
      totals = new OrganizationTotals();
      this.#totals.set(organizationId, totals);
    }
    return totals;
  }

  /** How long the period is that averages are of; in milliseconds, between one minute and two once the process has run for that long. */
  get periodMs(): number {
    return performance.now() - this.#periods.before;
  }

  /** What each organization does in a second, as of the present period. */
  *rates(): Iterable<{
    readonly organizationId: string;
    readonly requests: number;
    readonly bytes: number;
    readonly leasedSeconds: number;
  }> {
    const seconds = Math.max(1, this.periodMs) / 1_000;
    for (const [organizationId, now, before] of this.totals()) {
      const bytes = now.bytesIn + now.bytesOut - before.bytesIn - before.bytesOut;
      const leasedSeconds = (now.heldMs - before.heldMs) / 1_000 / seconds;
      yield { organizationId, requests: (now.requests - before.requests) / seconds, bytes: bytes / seconds, leasedSeconds };
    }
  }

  /** Totals of all organizations now, and when the period began. */
  *totals(): Iterable<readonly [organizationId: string, now: Readonly<Totals>, before: Readonly<Totals>]> {
    for (const [id, totals] of this.#totals.entries()) yield [id, this.#now(id, totals), totals.before];
  }

  beginPeriod(): void {
    this.#periods = { before: this.#periods.latest, latest: performance.now() };
    for (const [id, totals] of this.#totals.entries()) {
      totals.before = totals.latest;
      totals.latest = this.#now(id, totals);
    }
  }

  #now(id: string, { counted }: OrganizationTotals): Totals {
    const { bytesIn = 0, bytesOut = 0 } = this.#byOrganization.get(id) ?? {};
    return { ...counted, bytesIn: counted.bytesIn + bytesIn, bytesOut: counted.bytesOut + bytesOut };
  }

  /** Without making one. */
  find(organizationId: string): OrganizationUsage | undefined {
    return this.#byOrganization.get(organizationId);
  }

  /** Takes all counts. Organizations that have done nothing since the last time, and have no session, are forgotten. */
  takeAll(): Map<string, UsageCounts> {
    const taken = new Map<string, UsageCounts>();
    for (const [id, usage] of this.#byOrganization) {
      const counts = usage.take();
      if (counts !== undefined) taken.set(id, counts);
      else if (usage.sessions === 0) this.#byOrganization.delete(id);
    }
    return taken;
  }
}

export const USAGE_PERIODS = ['24h', '90d'] as const;
type UsagePeriod = (typeof USAGE_PERIODS)[number];

export interface StoredUsage extends UsageCounts {
  readonly startsAt: Date;
}

/** What is counted in a minute belongs to the five minutes and the day (UTC) in which the minute began. */
function intervalsOf(at: Date): { readonly fiveMinutes: Date; readonly day: Date } {
  const floorTo = (ms: number) => new Date(Math.floor(at.getTime() / ms) * ms);
  return { fiveMinutes: floorTo(FIVE_MINUTES_MS), day: floorTo(DAY_MS) };
}

const FIVE_MINUTES_MS = 300_000;
const DAY_MS = 86_400_000;
const KEPT_MS = { fiveMinutes: 25 * 3_600_000, day: 91 * DAY_MS };
const SHOWN_MS: Readonly<Record<UsagePeriod, number>> = { '24h': DAY_MS, '90d': 90 * DAY_MS };

/**
 * Adds counts to those that are stored. Rows are locked in the order of their ids, so that processes cannot deadlock. An organization that
 * has been dropped meanwhile gets none.
 */
export async function addUsage(sql: Sql, usage: ReadonlyMap<string, UsageCounts>, at: Date): Promise<void> {
  const counts = JSON.stringify([...usage].map(([id, of]) => ({ id, ...of })));
  const { fiveMinutes, day } = intervalsOf(at);
  await sql`
    insert into postern.usage as stored
      (organization_id, is_day, starts_at, statements, errors, rows, bytes_in, bytes_out, peak_sessions, latency)
    select o.id, i.is_day, i.starts_at, c.statements, c.errors, c.rows, c."bytesIn", c."bytesOut", c."peakSessions", c.latency
    from jsonb_to_recordset(${counts}::text::jsonb) as c (id text, statements bigint, errors bigint, rows bigint, "bytesIn" bigint,
      "bytesOut" bigint, "peakSessions" integer, latency bigint[])
    join postern.organizations o on o.id = c.id and o.status <> 'dropped'
    cross join (values (false, ${fiveMinutes}::timestamptz), (true, ${day}::timestamptz)) as i (is_day, starts_at)
    order by o.id, i.is_day
    on conflict (organization_id, is_day, starts_at) do update set
      statements = stored.statements + excluded.statements,
      errors = stored.errors + excluded.errors,
      rows = stored.rows + excluded.rows,
      bytes_in = stored.bytes_in + excluded.bytes_in,
      bytes_out = stored.bytes_out + excluded.bytes_out,
      peak_sessions = greatest(stored.peak_sessions, excluded.peak_sessions),
      latency = array(
        select coalesce(a, 0) + coalesce(b, 0) from unnest(stored.latency, excluded.latency) with ordinality as both_(a, b, place) order by place)`;
}

/** The intervals of a period in which something happened, the oldest first. */
export async function readUsage(sql: Sql, organizationId: string, period: UsagePeriod, now: Date): Promise<readonly StoredUsage[]> {
  const since = new Date(now.getTime() - SHOWN_MS[period]);
  return sql<StoredUsage[]>`
    select starts_at as "startsAt", statements::float8, errors::float8, rows::float8, bytes_in::float8 as "bytesIn",
      bytes_out::float8 as "bytesOut", peak_sessions as "peakSessions", to_json(latency) as latency
    from postern.usage
    where organization_id = ${organizationId} and is_day = ${period === '90d'} and starts_at > ${since}
    order by starts_at`;
}

export async function deleteOldUsage(sql: Sql, now: Date): Promise<void> {
  const before = (ms: number) => new Date(now.getTime() - ms);
  await sql`
    delete from postern.usage
    where (not is_day and starts_at < ${before(KEPT_MS.fiveMinutes)}) or (is_day and starts_at < ${before(KEPT_MS.day)})`;
}

/** For an organization that is dropped. */
export async function deleteUsage(sql: Sql, organizationId: string): Promise<void> {
  await sql`delete from postern.usage where organization_id = ${organizationId}`;
}

/** In milliseconds: the middle of the bucket in which the given part of all durations ends. */
export function percentile(counts: readonly number[], part: number): number {
  const rank = part * counts.reduce((sum, count) => sum + count, 0);
  let seen = 0;
  const at = counts.findIndex((count) => {
    seen += count;
    return count > 0 && seen >= rank;
  });
  return Math.round(middleOf(Math.max(at, 0))) / 1_000;
}

/** In microseconds. */
function middleOf(bucket: number): number {
  if (bucket === 0) return 2 ** (FIRST_DOUBLING - 1);
  const doubling = FIRST_DOUBLING + Math.floor((bucket - 1) / BUCKETS_PER_DOUBLING);
  const part = (bucket - 1) % BUCKETS_PER_DOUBLING;
  return 2 ** doubling * (1 + (part + 0.5) / BUCKETS_PER_DOUBLING);
}

/** One histogram of several. */
export function addUp(histograms: readonly (readonly number[])[]): number[] {
  const length = Math.max(0, ...histograms.map((counts) => counts.length));
  return Array.from({ length }, (_, bucket) => histograms.reduce((total, counts) => total + (counts[bucket] ?? 0), 0));
}
