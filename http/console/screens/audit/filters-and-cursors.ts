import { signal } from '@preact/signals';
import type { AuditSearch } from './audit-calls.ts';

export type Period = 'any' | 'hour' | 'day' | 'week' | 'between';

/** What stands in the fields; empty: any. */
export interface Filters {
  readonly action: string;
  readonly outcome: '' | 'ok' | 'error';
  readonly period: Period;
  /** What `datetime-local` fields hold: the time of this browser. */
  readonly since: string;
  readonly until: string;
  readonly requestId: string;
}

export const NO_FILTERS: Filters = { action: '', outcome: '', period: 'any', since: '', until: '', requestId: '' };

export const filters = signal<Filters>(NO_FILTERS);
/** Where the pages before this one began, the newest first. */
export const cursors = signal<readonly string[]>([]);

/** Other filters begin with the newest entry. */
export function setFilters(change: Partial<Filters>): void {
  filters.value = { ...filters.value, ...change };
  cursors.value = [];
}

export const PERIODS: readonly (readonly [Period, string])[] = [
  ['any', 'at any time'],
  ['hour', 'in the last hour'],
  ['day', 'in the last 24 hours'],
  ['week', 'in the last 7 days'],
  ['between', 'between …'],
];

const HOURS: Readonly<Partial<Record<Period, number>>> = { hour: 1, day: 24, week: 168 };

export function searchOf({ action, outcome, period, since, until, requestId }: Filters, now = Date.now()): Omit<AuditSearch, 'limit'> {
  const hours = HOURS[period];
  const from = hours === undefined ? instantOf(period === 'between' ? since : '') : new Date(now - hours * 3_600_000).toISOString();
  const to = instantOf(period === 'between' ? until : '');
  return {
    ...(action === '' ? {} : { action }),
    ...(outcome === '' ? {} : { outcome }),
    ...(from === undefined ? {} : { since: from }),
    ...(to === undefined ? {} : { until: to }),
    ...(requestId.trim() === '' ? {} : { requestId: requestId.trim() }),
  };
}

function instantOf(local: string): string | undefined {
  const at = new Date(local);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}
