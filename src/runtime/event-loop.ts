import { type Indexed, IndexedSet } from './indexed-set.ts';

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

/**
 * A clock that can be stopped and started, and that calls once when its time is up. Nearly every deadline is cleared long
 * before that, so they share one timer, which is set for the first of them and mostly finds that there is nothing to do.
 */
export class Deadline implements Indexed {
  /** Among those that run. */
  index = -1;
  readonly #expired: () => void;
  #leftMs: number;
  /** By `performance.now()`, while it runs. */
  #dueAt = Number.POSITIVE_INFINITY;

  /** @param timeoutMs 0: never */
  constructor(timeoutMs: number, expired: () => void) {
    this.#leftMs = timeoutMs > 0 ? timeoutMs : Number.POSITIVE_INFINITY;
    this.#expired = expired;
    this.resume();
  }

  get dueAt(): number {
    return this.#dueAt;
  }

  pause(): void {
    if (!running.delete(this)) return;
    this.#leftMs = Math.max(1, this.#dueAt - performance.now());
  }

  resume(): void {
    if (this.#leftMs === Number.POSITIVE_INFINITY || this.index >= 0) return;
    this.#dueAt = performance.now() + this.#leftMs;
    running.add(this);
    wakeAt(this.#dueAt);
  }

  /** Also where it has expired. @param time by `performance.now()` */
  restart(time: number): void {
    this.#dueAt = time;
    running.add(this);
    wakeAt(time);
  }

  /** Stops it for good. */
  clear(): void {
    running.delete(this);
    this.#leftMs = Number.POSITIVE_INFINITY;
  }

  expire(): void {
    this.clear();
    this.#expired();
  }
}

const running = new IndexedSet<Deadline>();
let timer: NodeJS.Timeout | undefined;
let wakesAt = Number.POSITIVE_INFINITY;

function wakeAt(time: number): void {
  if (time >= wakesAt) return;
  clearTimeout(timer);
  wakesAt = time;
  // What the deadline is for keeps the process alive, where it has to be.
  timer = setTimeout(wake, Math.max(1, time - performance.now())).unref();
}

function wake(): void {
  const now = performance.now();
  let next = Number.POSITIVE_INFINITY;
  wakesAt = Number.POSITIVE_INFINITY;
  for (const deadline of running.all()) {
    if (deadline.index < 0) continue;
    if (deadline.dueAt <= now) deadline.expire();
    else next = Math.min(next, deadline.dueAt);
  }
  wakeAt(next);
}
