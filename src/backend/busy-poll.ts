import { availableParallelism } from 'node:os';

/** How many requests in a row must have had the processors to themselves. */
const CALM_REQUESTS = 100;

/** What the event loop may wait for. */
interface Wait {
  /** Whether it came soon the last time. */
  isShort: boolean;
}

/**
 * Keeps the event loop awake while something is about to come, the answer to a request or the next request of a client that
 * has just had its answer: to go to sleep and be woken takes longer than many a statement, and leaves the processor's caches
 * to others. It costs processor time, and is done where that takes none from PostgreSQL: while there are processors enough for
 * all sessions at work besides our own, and only for what came soon the last time. What other programs want is not known.
 * @see https://docs.kernel.org/virt/kvm/halt-polling.html for the same in hypervisors
 */
export class BusyPoll {
  readonly #maxMs: number;
  /** Processors besides our own. */
  readonly #others: number;
  readonly #answer: Wait = { isShort: true };
  readonly #request: Wait = { isShort: true };
  /** Sessions that have been asked something and have not begun to answer. */
  #asked = 0;
  /** Requests since there was last more to do than processors to do it. */
  #calm = 0;
  /** What is being waited for, where it is known since when. */
  #wait: Wait | undefined;
  #since = 0;
  #until = 0;
  #isPolling = false;

  /**
   * @param maxMs how long the loop is kept awake for one thing; what takes longer counts as not soon
   * @param processors that there are, our own among them
   */
  constructor(maxMs: number, processors = availableParallelism()) {
    this.#maxMs = maxMs;
    this.#others = processors - 1;
  }

  /** A session that had nothing to do has been asked something. */
  asked(): void {
    this.#asked += 1;
    if (this.#asked > this.#others) {
      this.contended();
      return;
    }
    this.#calm += 1;
    this.#waitFor(this.#answer);
  }

  /** A session has been asked several things at once: others have their requests under way, too. */
  contended(): void {
    this.#calm = 0;
    this.#wait = undefined;
  }

  /** A session has begun to answer, or is gone. The rest of a short answer comes at once, and that of a long one is not waited for. */
  answered(): void {
    this.#asked -= 1;
    this.#waitFor(this.#asked > 0 ? this.#answer : this.#request);
  }

  #waitFor(next: Wait): void {
    if (this.#calm < CALM_REQUESTS) return;
    const now = performance.now();
    if (this.#wait !== undefined) this.#wait.isShort = now - this.#since <= this.#maxMs;
    this.#wait = next;
    this.#since = now;
    this.#until = next.isShort ? now + this.#maxMs : 0;
    if (this.#isPolling || !next.isShort) return;
    this.#isPolling = true;
    setImmediate(this.#poll);
  }

  readonly #poll = (): void => {
    if (this.#calm >= CALM_REQUESTS && performance.now() < this.#until) setImmediate(this.#poll);
    else this.#isPolling = false;
  };
}
