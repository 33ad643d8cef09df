/*
 * Latencies are counted in buckets, whose counts of several processes and times can be added up: four for each doubling, from 32 µs to
 * two minutes. A percentile of them is right to about 12 %.
 */
export const BUCKETS_PER_DOUBLING = 4;
export const FIRST_DOUBLING = 5;
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
export interface UsageCounts {
  readonly statements: number;
  readonly errors: number;
  readonly rows: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly peakSessions: number;
  /** Of requests, by bucket; empty ones at the end are left out. */
  readonly latency: readonly number[];
}

/** Counts what one organization does in this process. It is counted for each request, so nothing is allocated for that. */
export class OrganizationUsage {
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

  /** A request has been answered that took so long. */
  answered(durationMs: number, hasFailed: boolean): void {
    if (hasFailed) this.errors += 1;
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
    this.peakSessions = Math.max(this.peakSessions, counts.peakSessions);
    for (const [bucket, count] of counts.latency.entries()) this.#latency[bucket] = (this.#latency[bucket] ?? 0) + count;
  }
}

/** The organizations that have done something lately, or have wire sessions. */
export class UsageCounters {
  readonly #byOrganization = new Map<string, OrganizationUsage>();

  of(organizationId: string): OrganizationUsage {
    let usage = this.#byOrganization.get(organizationId);
    if (usage === undefined) {
      usage = new OrganizationUsage();
      this.#byOrganization.set(organizationId, usage);
    }
    return usage;
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
