import { performance } from 'node:perf_hooks';

let startedAt = 0;

/**
 * When this turn of the event loop started, by `performance.now()`: the time of the first call in it. The input that a turn reads
 * has arrived by then, so this is when its latency starts to count.
 */
export function turnStartedAt(): number {
  if (startedAt > 0) return startedAt;
  startedAt = performance.now();
  setImmediate(endTurn);
  return startedAt;
}

function endTurn(): void {
  startedAt = 0;
}

const SLICE_MS = 3;

/** When long work started in this turn of the event loop; 0: none has started. */
let sliceStartedAt = 0;
const waiting: (() => void)[] = [];

/**
 * Splits long work into slices of a few milliseconds, between which the event loop handles other events. All long work of the
 * process shares the slices: each turn of the event loop has one, however many pieces of work there are.
 */
export class TimeSlices {
  readonly #sliceMs: number;

  constructor(sliceMs = SLICE_MS) {
    this.#sliceMs = sliceMs;
    sliceStart();
  }

  /** Long work awaits this often. @returns undefined while the slice lasts */
  pause(): Promise<void> | undefined {
    const start = sliceStart();
    return performance.now() - start < this.#sliceMs ? undefined : new Promise((resolve) => waiting.push(resolve));
  }
}

function sliceStart(): number {
  if (sliceStartedAt > 0) return sliceStartedAt;
  sliceStartedAt = performance.now();
  setImmediate(endSlice);
  return sliceStartedAt;
}

function endSlice(): void {
  sliceStartedAt = 0;
  const next = waiting.shift();
  if (next === undefined) return;
  sliceStart();
  next();
}
