import { call } from '../../api/client.ts';

export type Period = '24h' | '90d';

export interface UsageCounts {
  readonly statements: number;
  /** Requests that failed. */
  readonly errors: number;
  readonly rows: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
}

/** Five minutes, or a day (UTC), in which something happened. */
export interface UsageInterval extends UsageCounts {
  readonly startsAt: string;
  readonly latencyMs: { readonly p50: number; readonly p95: number; readonly p99: number } | null;
  readonly peakSessions: number;
}

/** `GET /api/usage` */
export interface Usage {
  readonly period: Period;
  /** `maxBytes` is null: any size. */
  readonly database: { readonly bytes: number; readonly maxBytes: number | null };
  readonly sessions: {
    readonly wire: number;
    readonly http: number;
    readonly limits: {
      readonly wire: number;
      readonly http: number;
      readonly backends: number;
      /** Null: no limit, as in the next. */
      readonly requestsPerSecond: number | null;
      readonly statementMs: number | null;
    };
  };
  readonly intervals: readonly UsageInterval[];
  readonly totals: UsageCounts;
}

export function readUsage(period: Period, signal: AbortSignal): Promise<Usage> {
  return call('GET', `api/usage?period=${period}`, { signal });
}

/** How long an interval is, and how many a period has. */
const STEPS = { '24h': { ms: 300_000, count: 288 }, '90d': { ms: 86_400_000, count: 90 } } as const;

/** All intervals of the period. */
interface Timeline {
  readonly period: Period;
  /** When each begins, in seconds since 1970. */
  readonly starts: readonly number[];
  /** Undefined: nothing happened in it. */
  readonly intervals: readonly (UsageInterval | undefined)[];
}

export function timelineOf({ period, intervals }: Usage, now = Date.now()): Timeline {
  const { ms, count } = STEPS[period];
  const byStart = new Map(intervals.map((interval) => [Date.parse(interval.startsAt), interval]));
  // The server's clock may be ahead.
  const last = Math.max(Math.floor(now / ms) * ms, ...byStart.keys());
  const starts = Array.from({ length: count }, (_, at) => last - (count - 1 - at) * ms);
  return { period, starts: starts.map((start) => start / 1_000), intervals: starts.map((start) => byStart.get(start)) };
}

/** `09:30 to 09:35`, in the time of this browser; a day as `2025-01-31`, in UTC. */
export function formatInterval(startS: number, period: Period): string {
  if (period === '90d') return new Date(startS * 1_000).toISOString().slice(0, 10);
  return `${clockOf(startS)} to ${clockOf(startS + STEPS[period].ms / 1_000)}`;
}

function clockOf(seconds: number): string {
  const date = new Date(seconds * 1_000);
  return [date.getHours(), date.getMinutes()].map((part) => String(part).padStart(2, '0')).join(':');
}

/** Where values stand. */
export interface Scale {
  /** The values that have a line. */
  readonly ticks: readonly number[];
  /** 0: at the bottom; 1: at the top. */
  partOf(value: number): number;
}

/** The most lines that a scale has, without the one at the bottom. */
const STEPS_MAX = 4;

/** From 0 to a round value, by a round step. */
export function linearScale(max: number): Scale {
  const least = Math.max(max, 1) / STEPS_MAX;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 2.5, 5].find((one) => one * power >= least && Number.isInteger(one * power)) ?? 10);
  const count = Math.max(1, Math.ceil(max / step));
  return { ticks: range(count + 1, (at) => at * step), partOf: (value) => value / (count * step) };
}

/** Between powers of ten. @param values greater than 0 */
export function logarithmicScale(values: readonly number[]): Scale {
  const powers = values.length === 0 ? [0] : values.map(Math.log10);
  const from = Math.floor(Math.min(...powers));
  const to = Math.max(from + 1, Math.ceil(Math.max(...powers)));
  const step = Math.ceil((to - from) / STEPS_MAX);
  return {
    ticks: range(Math.floor((to - from) / step) + 1, (at) => 10 ** (from + at * step)),
    partOf: (value) => (Math.log10(value) - from) / (to - from),
  };
}

interface TimeTick {
  /** Which interval begins there. */
  readonly at: number;
  readonly label: string;
}

const LABEL_MIN_PX = 48;
const HOURS = [3, 6, 12];
const DAYS = [15, 30, 45];

/** Round hours of this browser's time; days back from today, in UTC. */
export function timeTicks(starts: readonly number[], period: Period, widthPx: number): readonly TimeTick[] {
  const fits = (labels: number) => labels * LABEL_MIN_PX <= widthPx;
  if (period === '90d') {
    const every = DAYS.find((days) => fits(starts.length / days)) ?? starts.length;
    return starts.flatMap((start, at) => ((starts.length - 1 - at) % every === 0 ? [{ at, label: DAY.format(start * 1_000) }] : []));
  }
  const every = HOURS.find((hours) => fits(24 / hours)) ?? 24;
  return starts.flatMap((start, at) => {
    const date = new Date(start * 1_000);
    const isRound = date.getMinutes() === 0 && date.getHours() % every === 0;
    return isRound ? [{ at, label: `${String(date.getHours()).padStart(2, '0')}:00` }] : [];
  });
}

const DAY = new Intl.DateTimeFormat('en-US', { month: 'short', day: 'numeric', timeZone: 'UTC' });

function range<T>(length: number, of: (at: number) => T): readonly T[] {
  return Array.from({ length }, (_, at) => of(at));
}
