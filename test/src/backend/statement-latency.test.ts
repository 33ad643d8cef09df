import { describe, expect, it } from 'vitest';
import { LatencyBaseline, StatementLatency } from '../../../src/backend/statement-latency.ts';

function paceAfter(...durationsMs: readonly number[]): StatementLatency {
  const pace = new StatementLatency();
  const tempo = new LatencyBaseline();
  for (const durationMs of durationsMs) pace.ran(durationMs, 100, tempo);
  return pace;
}

const times = (count: number, durationMs: number) => Array<number>(count).fill(durationMs);

describe('Pace', () => {
  it('is short after eight short runs, and not before', () => {
    expect(paceAfter(...times(7, 1)).isShort).toBe(false);
    expect(paceAfter(...times(8, 1)).isShort).toBe(true);
  });

  it('loses that with one long run, and gets it back after twice as many', () => {
    expect(paceAfter(...times(8, 1), 200).isShort).toBe(false);
    expect(paceAfter(...times(8, 1), 200, ...times(15, 1)).isShort).toBe(false);
    expect(paceAfter(...times(8, 1), 200, ...times(16, 1)).isShort).toBe(true);
  });

  it('requires no more short runs if it was not short before', () => {
    expect(paceAfter(...times(9, 200), ...times(8, 1)).isShort).toBe(true);
  });

  it('is not short when it returns much', () => {
    const pace = new StatementLatency();
    for (let i = 0; i < 100; i += 1) pace.ran(1, 20_000, new LatencyBaseline());
    expect(pace.isShort).toBe(false);
  });
});

describe('a quick Pace', () => {
  const quickAfter = (...durationsMs: readonly number[]) => {
    const pace = paceAfter(...times(8, 1));
    for (const durationMs of durationsMs) pace.ranAlone(durationMs);
    return pace;
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
    const pace = quickAfter(0.1);
    const tempo = new LatencyBaseline();
    const isQuickAfter = (often: number) => {
      for (let i = 0; i < 500; i += 1) pace.ran(i % often === 0 ? 15 : 0.1, 100, tempo);
      return pace.isQuick;
    };
    expect([50, 8, 50, 4].map(isQuickAfter)).toEqual([true, false, true, false]);
  });

  it('may take long where all do', () => {
    const pace = quickAfter(0.1);
    const tempo = new LatencyBaseline();
    for (let i = 0; i < 500; i += 1) pace.ran(i % 4 === 0 ? 10 : 5, 100, tempo);
    expect(pace.isQuick).toBe(true);
  });

  it('is a short one', () => {
    const pace = quickAfter(0.1);
    pace.wasLong();
    expect(pace.isQuick).toBe(false);
  });
});

describe('Tempo', () => {
  it('calls long what takes more than 20 ms', () => expect(new LatencyBaseline().longMs).toBe(20));

  it('calls long what takes much more than is usual, on a machine where all takes long', () => {
    const tempo = new LatencyBaseline();
    for (let i = 0; i < 5_000; i += 1) tempo.ran(10);
    expect(tempo.longMs).toBeGreaterThan(75);
    expect(tempo.longMs).toBeLessThan(85);
  });

  it('is not impressed by a few that are very slow', () => {
    const tempo = new LatencyBaseline();
    for (let i = 0; i < 5_000; i += 1) tempo.ran(i % 50 === 0 ? 10_000 : 1);
    expect(tempo.longMs).toBe(20);
  });
});
