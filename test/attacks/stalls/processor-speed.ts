/** A processor that sorts these numbers in this time is as fast as bounds in milliseconds presume. */
const NUMBERS = Float64Array.from({ length: 100_000 }, (_, i) => (i * 7_919) % 100_003);
const USUAL_MS = 20;
/** The fastest counts: V8 compiles during the first, and others may meet the collection of garbage. */
const SAMPLES = 3;

/**
 * How many times as long as usual this machine's processor takes at the moment, at least 1. Processor time is longer on a slow
 * processor, and on one whose core another machine uses as well. It is V8 that sorts: no change of the service makes this slower.
 */
export function slowness(): number {
  const samples = Array.from({ length: SAMPLES }, () => timeToSort(NUMBERS.slice()));
  return Math.max(1, Math.min(...samples) / USUAL_MS);
}

function timeToSort(numbers: Float64Array): number {
  const start = process.cpuUsage();
  numbers.sort((a, b) => a - b);
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1_000;
}
