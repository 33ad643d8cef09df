import { type Indexed, IndexedSet } from './indexed-set.ts';

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
