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
  readonly database: { readonly bytes: number };
  readonly sessions: {
    readonly wire: number;
    readonly http: number;
    readonly limits: { readonly wire: number; readonly http: number; readonly backends: number };
  };
  readonly intervals: readonly UsageInterval[];
  readonly totals: UsageCounts;
}

export function readUsage(period: Period, signal: AbortSignal): Promise<Usage> {
  return call('GET', `api/usage?period=${period}`, { signal });
}
