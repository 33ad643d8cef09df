import { describe, expect, it } from 'vitest';
import {
  formatInterval,
  linearScale,
  logarithmicScale,
  timelineOf,
  timeTicks,
  type Usage,
  type UsageInterval,
} from '../../../http/console/screens/usage/usage.ts';

describe('linearScale', () => {
  it.each([
    [0, [0, 1]],
    [1, [0, 1]],
    [3, [0, 1, 2, 3]],
    [9, [0, 5, 10]],
    [40, [0, 10, 20, 30, 40]],
    [870, [0, 250, 500, 750, 1_000]],
    [2_070_374, [0, 1_000_000, 2_000_000, 3_000_000]],
  ])('of at most %d has the lines %j', (max, ticks) => {
    const scale = linearScale(max);
    expect(scale.ticks).toEqual(ticks);
    expect(scale.partOf(ticks.at(-1) ?? 0)).toBe(1);
  });
});

describe('logarithmicScale', () => {
  it('lies between powers of ten around the values', () => {
    const scale = logarithmicScale([1.5, 40]);
    expect(scale.ticks).toEqual([1, 10, 100]);
    expect([1, 10, 100].map(scale.partOf)).toEqual([0, 0.5, 1]);
  });

  it('leaves lines out where there are many, and has two where there is no value', () => {
    expect(logarithmicScale([0.02, 90_000]).ticks).toEqual([0.01, 1, 100, 10_000]);
    expect(logarithmicScale([]).ticks).toEqual([1, 10]);
    expect(logarithmicScale([10, 10]).ticks).toEqual([10, 100]);
  });
});

describe('timelineOf', () => {
  const at = Date.parse('2025-01-31T09:33:00Z');

  it('has all five minutes of a day, those without anything too', () => {
    const { starts, intervals } = timelineOf(usageOf('24h', ['2025-01-31T09:25:00.000Z']), at);
    expect(starts).toHaveLength(288);
    expect(starts[0]).toBe(Date.parse('2025-01-30T09:35:00Z') / 1_000);
    expect(starts.at(-1)).toBe(Date.parse('2025-01-31T09:30:00Z') / 1_000);
    expect(intervals.findIndex((one) => one !== undefined)).toBe(286);
  });

  it('ends with the last interval where the clock of the server is ahead', () => {
    const { starts, intervals } = timelineOf(usageOf('90d', ['2025-02-01T00:00:00.000Z']), at);
    expect(starts).toHaveLength(90);
    expect(formatInterval(starts.at(-1) ?? 0, '90d')).toBe('2025-02-01');
    expect(intervals.at(-1)?.startsAt).toBe('2025-02-01T00:00:00.000Z');
  });
});

describe('timeTicks', () => {
  it('has as many labels as there is space for', () => {
    const { starts } = timelineOf(usageOf('90d', []), Date.parse('2025-01-31T09:33:00Z'));
    expect(timeTicks(starts, '90d', 400).map(({ label }) => label)).toEqual(['Nov 17', 'Dec 2', 'Dec 17', 'Jan 1', 'Jan 16', 'Jan 31']);
    expect(timeTicks(starts, '90d', 200).map(({ label }) => label)).toEqual(['Dec 2', 'Jan 1', 'Jan 31']);
  });

  it('has round hours', () => {
    const { starts } = timelineOf(usageOf('24h', []), Date.parse('2025-01-31T09:33:00Z'));
    const labels = timeTicks(starts, '24h', 400).map(({ label }) => label);
    expect(labels).toHaveLength(8);
    expect(new Set(labels)).toEqual(new Set(['00:00', '03:00', '06:00', '09:00', '12:00', '15:00', '18:00', '21:00']));
    expect(timeTicks(starts, '24h', 200)).toHaveLength(4);
  });
});

function usageOf(period: Usage['period'], starts: readonly string[]): Usage {
  const counts = { statements: 1, errors: 0, rows: 1, bytesIn: 1, bytesOut: 1 };
  const intervals = starts.map((startsAt): UsageInterval => ({ startsAt, ...counts, latencyMs: null, peakSessions: 1 }));
  const sessions = { wire: 0, http: 1, limits: { wire: 1, http: 1, backends: 1, requestsPerSecond: null, statementMs: null } };
  return { period, database: { bytes: 1, maxBytes: null }, sessions, intervals, totals: counts };
}
