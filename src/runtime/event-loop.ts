import { performance } from 'node:perf_hooks';

let startedAt = 0;

/**
 * When this turn of the event loop started, by `performance.now()`: the time of the first call in it. Input that is read in a turn
 * had arrived by then; what is read later in the turn has waited only for other work of the same turn.
 */
export function turnStartedAt(): number {
  if (startedAt > 0) return startedAt;
  startedAt = performance.now();
  setImmediate(ended);
  return startedAt;
}

function ended(): void {
  startedAt = 0;
}

const SLICE_MS = 3;

/** When long work started in this turn of the event loop; 0: there has been none. */
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

  /** To be awaited often. @returns undefined while the slice is not over */
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
