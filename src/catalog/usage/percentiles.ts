import { BUCKETS_PER_DOUBLING, FIRST_DOUBLING } from './counters.ts';

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
