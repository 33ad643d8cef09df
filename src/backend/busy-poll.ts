import { availableParallelism } from 'node:os';

/** How many requests in a row must have run without contention for processors. */
const UNCONTENDED_REQUESTS = 100;

/** A kind of input that the event loop waits for. */
interface Wait {
  /** Whether it arrived soon the last time. */
  isShort: boolean;
}

/**
 * Keeps the event loop polling while input is expected soon: the answer to a request, or the next request of a client that
 * has just had an answer. Sleeping and being woken takes longer than many statements do, and other processes replace the
 * contents of the processor's caches meanwhile. Polling costs processor time, so it is done only while there are processors for all
 * busy sessions besides Postern's own, and only for input that arrived soon the last time. The load of other programs is not known.
 * @see https://docs.kernel.org/virt/kvm/halt-polling.html for the same in hypervisors
 */
export class BusyPoll {
  readonly #maxMs: number;
  /** The number of processors, less the one that Postern uses. */
  readonly #others: number;
  readonly #answer: Wait = { isShort: true };
  readonly #request: Wait = { isShort: true };
  /** The number of sessions with a request that they have not begun to answer. */
  #asked = 0;
  /** The number of requests since there were last more busy sessions than processors. */
  #uncontended = 0;
  /** The input that is expected. */
  #wait: Wait | undefined;
  #since = 0;
  #until = 0;
  #isPolling = false;

  /**
   * @param maxMs how long the loop polls for one input; input that takes longer did not arrive soon
   * @param processors the number of processors, including Postern's own
   */
  constructor(maxMs: number, processors = availableParallelism()) {
    this.#maxMs = maxMs;
    this.#others = processors - 1;
  }

  /** Called when a request is sent to an idle session. */
  asked(): void {
    this.#asked += 1;
    if (this.#asked > this.#others) {
      this.contended();
      return;
    }
    this.#uncontended += 1;
    this.#waitFor(this.#answer);
  }

  /** Called when a session has several requests at once: then several clients are active. */
  contended(): void {
    this.#uncontended = 0;
    this.#wait = undefined;
  }

  /** Called when a session begins to answer, or is closed. The rest of a short answer arrives at once; the rest of a long one is not polled for. */
  answered(): void {
    this.#asked -= 1;
    this.#waitFor(this.#asked > 0 ? this.#answer : this.#request);
  }

  #waitFor(next: Wait): void {
    if (this.#uncontended < UNCONTENDED_REQUESTS) return;
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
    if (this.#uncontended >= UNCONTENDED_REQUESTS && performance.now() < this.#until) setImmediate(this.#poll);
    else this.#isPolling = false;
  };
}
