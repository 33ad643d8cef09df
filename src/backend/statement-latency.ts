/** A statement that returns more is not short. */
const SMALL_BYTES = 16_384;
/** How many short runs in a row make a statement short. Each time it then runs long, twice as many are required. */
const MIN_SHORT_RUNS = 8;
const MAX_SHORT_RUNS = 8_192;

/** A statement is quick if its shortest recent run took no longer. */
const QUICK_MS = 0.5;
/** A statement is not quick if a larger share of its runs is slow. */
const MAX_SLOW_SHARE = 1 / 16;
/** A request may wait this long for others without harm. */
const NEGLIGIBLE_WAIT_MS = 1;
/** The minimum latency is taken of this many runs, and as many before them: on a busy machine it still shows a quick statement. */
const LEAST_WINDOW = 256;

/** The recent latency of a statement. */
export class StatementLatency {
  #short = 0;
  #wanted = MIN_SHORT_RUNS;
  #runs = 0;
  #leastMs = Number.POSITIVE_INFINITY;
  #leastMsBefore = Number.POSITIVE_INFINITY;
  /** The share of slow runs, as an exponentially weighted average. */
  #slowShare = 0;

  /** Enough runs in a row have been short, so that the next one is expected to be short. */
  get isShort(): boolean {
    return this.#short >= this.#wanted;
  }

  /** It takes about as long as waking an idle session. */
  get isQuick(): boolean {
    return this.isShort && this.#least <= QUICK_MS && this.#slowShare <= MAX_SLOW_SHARE;
  }

  /** Whether another request may be sent behind `count` requests like this, because they end soon enough. */
  mayFollow(count: number): boolean {
    return this.#least * count <= NEGLIGIBLE_WAIT_MS;
  }

  get #least(): number {
    return Math.min(this.#leastMs, this.#leastMsBefore);
  }

  /** Records a run on an otherwise idle session. @param durationMs from sending it until the answer */
  ranAlone(durationMs: number): void {
    if (durationMs < this.#leastMs) this.#leastMs = durationMs;
    this.#runs += 1;
    if (this.#runs % LEAST_WINDOW !== 0) return;
    this.#leastMsBefore = this.#leastMs;
    this.#leastMs = Number.POSITIVE_INFINITY;
  }

  /** Records a run. @param bytes the size of its result */
  ran(durationMs: number, bytes: number, baseline: LatencyBaseline): void {
    baseline.ran(durationMs);
    this.#slowShare += ((durationMs > baseline.slowMs ? 1 : 0) - this.#slowShare) * WEIGHT;
    if (durationMs > baseline.longMs || bytes > SMALL_BYTES) {
      this.wasLong();
      return;
    }
    this.#short += 1;
    if (this.#wanted > MIN_SHORT_RUNS && this.#short >= 2 * this.#wanted) this.#wanted >>= 1;
  }

  wasLong(): void {
    if (this.isShort) this.#wanted = Math.min(2 * this.#wanted, MAX_SHORT_RUNS);
    this.#short = 0;
  }
}

/** A run that takes longer is not short, unless the machine is busy. */
const LONG_MS = 20;
/** A run that takes longer delays the requests behind it noticeably, unless the machine is busy. */
const SLOW_MS = 2;
/** No request waits longer behind one that should be quick, unless the machine is busy: there are other backends. */
const STALL_TIMEOUT_MS = 5;
/** On a busy machine, a run counts as long or slow if it takes this many times the usual latency. */
const USUAL_FACTOR = 8;
/** The weight of the last run in the averages. */
const WEIGHT = 1 / 64;

/** The usual latency of all statements. It distinguishes a slow statement from a slow machine. */
export class LatencyBaseline {
  #usualMs = 1;

  /** A run that takes longer is not short. */
  get longMs(): number {
    return Math.max(LONG_MS, USUAL_FACTOR * this.#usualMs);
  }

  /** A run that takes longer is slow. */
  get slowMs(): number {
    return Math.max(SLOW_MS, USUAL_FACTOR * this.#usualMs);
  }

  /** How long requests wait behind one that should be quick. On a busy machine it is longer, because requeuing requests adds load. */
  get stallTimeoutMs(): number {
    return Math.max(STALL_TIMEOUT_MS, this.slowMs);
  }

  /** Records a run. A single very slow one is limited, so that it changes the average little. */
  ran(durationMs: number): void {
    this.#usualMs += (Math.min(durationMs, 2 * this.#usualMs + 1) - this.#usualMs) * WEIGHT;
  }
}
