import { describe, expect, it } from 'vitest';
import { LatencyBaseline, StatementLatency } from '../../../src/backend/session-state.ts';

function latencyAfter(...durationsMs: readonly number[]): StatementLatency {
  const latency = new StatementLatency();
  const baseline = new LatencyBaseline();
  for (const durationMs of durationsMs) latency.ran(durationMs, 100, baseline);
  return latency;
}

const times = (count: number, durationMs: number) => Array<number>(count).fill(durationMs);

describe('a statement', () => {
  it('is short after eight short runs, and not before', () => {
    expect(latencyAfter(...times(7, 1)).isShort).toBe(false);
    expect(latencyAfter(...times(8, 1)).isShort).toBe(true);
  });

  it('loses that with one long run, and gets it back after twice as many', () => {
    expect(latencyAfter(...times(8, 1), 200).isShort).toBe(false);
    expect(latencyAfter(...times(8, 1), 200, ...times(15, 1)).isShort).toBe(false);
    expect(latencyAfter(...times(8, 1), 200, ...times(16, 1)).isShort).toBe(true);
  });

  it('requires no more short runs if it was not short before', () => {
    expect(latencyAfter(...times(9, 200), ...times(8, 1)).isShort).toBe(true);
  });

  it('is not short when it returns much', () => {
    const latency = new StatementLatency();
    for (let i = 0; i < 100; i += 1) latency.ran(1, 20_000, new LatencyBaseline());
    expect(latency.isShort).toBe(false);
  });
});

describe('a quick statement', () => {
  const quickAfter = (...durationsMs: readonly number[]) => {
    const latency = latencyAfter(...times(8, 1));
    for (const durationMs of durationsMs) latency.ranAlone(durationMs);
    return latency;
  };

  it('is one that has answered within half a millisecond of late', () => {
    expect(quickAfter().isQuick).toBe(false);
    expect(quickAfter(...times(300, 0.6)).isQuick).toBe(false);
    expect(quickAfter(...times(100, 5), 0.4, ...times(100, 5)).isQuick).toBe(true);
  });

  it('is one no longer when that is long ago', () => expect(quickAfter(0.4, ...times(512, 0.6)).isQuick).toBe(false));

  it('may follow as many as end within a millisecond', () => {
    expect([10, 11].map((count) => quickAfter(0.1).mayFollow(count))).toEqual([true, false]);
  });

  it('is none that takes many times as long as is usual now and then, for other parameters say', () => {
    const latency = quickAfter(0.1);
    const baseline = new LatencyBaseline();
    const isQuickAfter = (often: number) => {
      for (let i = 0; i < 500; i += 1) latency.ran(i % often === 0 ? 15 : 0.1, 100, baseline);
      return latency.isQuick;
    };
    expect([50, 8, 50, 4].map(isQuickAfter)).toEqual([true, false, true, false]);
  });

  it('may take long where all do', () => {
    const latency = quickAfter(0.1);
    const baseline = new LatencyBaseline();
    for (let i = 0; i < 500; i += 1) latency.ran(i % 4 === 0 ? 10 : 5, 100, baseline);
    expect(latency.isQuick).toBe(true);
  });

  it('is a short one', () => {
    const latency = quickAfter(0.1);
    latency.wasLong();
    expect(latency.isQuick).toBe(false);
  });
});

describe('the baseline of latencies', () => {
  it('calls long what takes more than 20 ms', () => expect(new LatencyBaseline().longMs).toBe(20));

  it('calls long what takes much more than is usual, on a machine where all takes long', () => {
    const baseline = new LatencyBaseline();
    for (let i = 0; i < 5_000; i += 1) baseline.ran(10);
    expect(baseline.longMs).toBeGreaterThan(75);
    expect(baseline.longMs).toBeLessThan(85);
  });

  it('is not impressed by a few that are very slow', () => {
    const baseline = new LatencyBaseline();
    for (let i = 0; i < 5_000; i += 1) baseline.ran(i % 50 === 0 ? 10_000 : 1);
    expect(baseline.longMs).toBe(20);
  });
});
