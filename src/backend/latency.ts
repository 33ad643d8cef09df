/** A statement that returned more is no short one. */
const SMALL_BYTES = 16_384;
/** How many short runs in a row make a statement a short one; whenever it then is not, twice as many are asked for. */
const RUNS = 8;
const RUNS_MAX = 8_192;

/** What has answered within this time is quick. */
const QUICK_MS = 0.5;
/** A statement of which more than this share is slow is not quick, however little time it takes else. */
const SELDOM = 1 / 16;
/** To wait so long is no wait. */
const NO_WAIT_MS = 1;
/** The least of so many runs tells a quick statement on a busy machine; so does that of as many before them. */
const LEAST_OF = 256;

/** How long a statement has been taking of late. */
export class StatementLatency {
  #short = 0;
  #wanted = RUNS;
  #runs = 0;
  #leastMs = Number.POSITIVE_INFINITY;
  #leastMsBefore = Number.POSITIVE_INFINITY;
  /** How much of what it has run of late was slow. */
  #slowShare = 0;

  /** It has been short for some time, so that it may be expected to be so again. */
  get isShort(): boolean {
    return this.#short >= this.#wanted;
  }

  /** It takes about as long as it takes to wake a session. */
  get isQuick(): boolean {
    return this.isShort && this.#least <= QUICK_MS && this.#slowShare <= SELDOM;
  }

  /** Whether the end of so many like it is so near that it need not be waited for. */
  mayFollow(count: number): boolean {
    return this.#least * count <= NO_WAIT_MS;
  }

  get #least(): number {
    return Math.min(this.#leastMs, this.#leastMsBefore);
  }

  /** @param durationMs from when it was sent to a session that had nothing else to do, until it was answered */
  ranAlone(durationMs: number): void {
    if (durationMs < this.#leastMs) this.#leastMs = durationMs;
    this.#runs += 1;
    if (this.#runs % LEAST_OF !== 0) return;
    this.#leastMsBefore = this.#leastMs;
    this.#leastMs = Number.POSITIVE_INFINITY;
  }

  /** @param bytes that it returned */
  ran(durationMs: number, bytes: number, tempo: LatencyBaseline): void {
    tempo.ran(durationMs);
    this.#slowShare += ((durationMs > tempo.slowMs ? 1 : 0) - this.#slowShare) * WEIGHT;
    if (durationMs > tempo.longMs || bytes > SMALL_BYTES) {
      this.wasLong();
      return;
    }
    this.#short += 1;
    if (this.#wanted > RUNS && this.#short >= 2 * this.#wanted) this.#wanted >>= 1;
  }

  wasLong(): void {
    if (this.isShort) this.#wanted = Math.min(2 * this.#wanted, RUNS_MAX);
    this.#short = 0;
  }
}

/** On a machine with time to spare, what takes longer is not short. */
const LONG_MS = 20;
/** There, what takes longer is felt by those behind it. */
const SLOW_MS = 2;
/** Nor has anybody to wait for longer behind what should be quick: there are other backends. */
const PATIENCE_MS = 5;
/** On one without, where everything takes its time, what takes so many times as long as is usual. */
const TIMES_USUAL = 8;
/** How much the last run counts in what is usual, and in what share is slow. */
const WEIGHT = 1 / 64;

/** How long statements take as a rule, whichever they are: tells a slow one from a slow machine. */
export class LatencyBaseline {
  #usualMs = 1;

  /** What takes longer is not short. */
  get longMs(): number {
    return Math.max(LONG_MS, TIMES_USUAL * this.#usualMs);
  }

  /** What takes longer is not quick. */
  get slowMs(): number {
    return Math.max(SLOW_MS, TIMES_USUAL * this.#usualMs);
  }

  /** How long others wait behind one that should be quick. Where everything takes its time, running them again would make it worse. */
  get stallTimeoutMs(): number {
    return Math.max(PATIENCE_MS, this.slowMs);
  }

  /** A single one that is very slow says little. */
  ran(durationMs: number): void {
    this.#usualMs += (Math.min(durationMs, 2 * this.#usualMs + 1) - this.#usualMs) * WEIGHT;
  }
}
