import type { Period, Usage, UsageInterval } from './usage-calls.ts';

/** How long an interval is, and how many a period has. */
const STEPS = { '24h': { ms: 300_000, count: 288 }, '90d': { ms: 86_400_000, count: 90 } } as const;

/** All intervals of the period. */
export interface Timeline {
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
