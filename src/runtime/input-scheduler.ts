import { performance } from 'node:perf_hooks';
import { setTimeout as startTimer } from 'node:timers';

/** How long one turn may handle the input of all organizations together before the event loop polls for new input. */
const TURN_MS = 4;
/**
 * Bounds of the processor time that one organization may use in a turn. Beside 200 busy clients of another organization, the median
 * latency of a quiet one is 8.2 ms without this scheduler, 5.6 ms with quanta of 1 ms and 2.4 ms with 0.3 ms
 * (`npm run bench -- fairness`; PgBouncer's is 2.0 ms).
 */
const QUANTUM_MAX_MS = 0.3;
const QUANTUM_MIN_MS = 0.1;
/** When only one organization has sent input for this long, its input is not scheduled any more. */
const CONTENTION_MS = 10_000;

/** A connection, to a client or to a backend, that has read input and not handled it yet. */
export interface InputSource {
  /** Handles the deferred input. */
  handleInput(): void;
}

/**
 * Divides the event loop's time among organizations by deficit round robin. Input of both doors counts, and of backends as well
 * as clients. Each organization may use one quantum of processor time before the event loop polls for input again; input that it
 * has read beyond that waits for the next turn.
 * @see https://dl.acm.org/doi/10.1109/90.502236 Shreedhar and Varghese, Efficient Fair Queuing Using Deficit Round Robin
 */
export class InputScheduler {
  readonly #organizations = new Map<string, OrganizationInput>();
  /** Organizations with deferred input, in the order in which they are served. */
  #waiting: OrganizationInput[] = [];
  /** The organization that sent input last. */
  #latest: OrganizationInput | undefined;
  #contendedAt = Number.NEGATIVE_INFINITY;
  #isScheduled = false;
  readonly now: () => number;
  /** Several organizations have sent input lately. */
  isContended = false;
  /** Counts turns of the event loop while there is contention. */
  turn = 0;

  /** @param now in milliseconds */
  constructor(now = () => performance.now()) {
    this.now = now;
  }

  /** Adds a connection. It calls {@link OrganizationInput.leave} when it is closed. */
  join(organizationId: string): OrganizationInput {
    let input = this.#organizations.get(organizationId);
    if (input === undefined) {
      input = new OrganizationInput(this, () => this.#organizations.delete(organizationId));
      this.#organizations.set(organizationId, input);
    }
    input.connections += 1;
    return input;
  }

  get quantumMs(): number {
    return Math.max(QUANTUM_MIN_MS, Math.min(QUANTUM_MAX_MS, TURN_MS / Math.max(1, this.#waiting.length)));
  }

  /** Notes that this organization has sent input. */
  noteInput(input: OrganizationInput): void {
    if (this.#latest === input) return;
    const isFirst = this.#latest === undefined;
    this.#latest = input;
    if (isFirst) return;
    this.#contendedAt = this.now();
    if (this.isContended) return;
    this.isContended = true;
    this.#endContentionLater();
  }

  #endContentionLater(): void {
    startTimer(() => {
      if (this.now() - this.#contendedAt < CONTENTION_MS) this.#endContentionLater();
      else this.isContended = false;
    }, CONTENTION_MS).unref();
  }

  /** Has the turn end after the event loop has read all input that has arrived. */
  scheduleTurnEnd(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(this.#endTurn);
  }

  defer(input: OrganizationInput): void {
    this.#waiting.push(input);
    this.scheduleTurnEnd();
  }

  readonly #endTurn = (): void => {
    this.#isScheduled = false;
    this.turn += 1;
    const waiting = this.#waiting;
    if (waiting.length === 0) return;
    this.#waiting = [];
    for (const input of waiting) if (input.handleDeferred()) this.#waiting.push(input);
    if (this.#waiting.length > 0) this.scheduleTurnEnd();
  };
}

/** The input of one organization: the processor time that it has used in this turn, and its deferred input. */
export class OrganizationInput {
  connections = 0;
  readonly #scheduler: InputScheduler;
  readonly #onEmpty: () => void;
  readonly #deferred: InputSource[] = [];
  #turn = 0;
  #usedMs = 0;
  /** When the input that is being handled began to be; 0 while no time is measured. Only this class sets it. */
  startedAt = 0;

  /** @param onEmpty called when the last connection is closed */
  constructor(scheduler: InputScheduler, onEmpty: () => void) {
    this.#scheduler = scheduler;
    this.#onEmpty = onEmpty;
  }

  /** Removes a connection. */
  leave(): void {
    this.connections -= 1;
    if (this.connections === 0) this.#onEmpty();
  }

  /**
   * Called when input has arrived. The caller handles it and then calls {@link end}, or defers it.
   * @returns whether the organization may handle input now
   */
  begin(): boolean {
    const scheduler = this.#scheduler;
    scheduler.noteInput(this);
    if (!scheduler.isContended) return true;
    scheduler.scheduleTurnEnd();
    this.#replenish();
    this.startedAt = scheduler.now();
    return this.#deferred.length === 0 && this.#usedMs < scheduler.quantumMs;
  }

  /** Called when the input announced by the last {@link begin} has been handled. Not needed if {@link startedAt} is 0. */
  end(): void {
    if (this.startedAt === 0) return;
    this.#usedMs += this.#scheduler.now() - this.startedAt;
    this.startedAt = 0;
  }

  /** Has a source handle its input in a later turn. An organization's sources are served in the order in which they were deferred. */
  defer(source: InputSource): void {
    this.startedAt = 0;
    if (this.#deferred.push(source) === 1) this.#scheduler.defer(this);
  }

  /** @returns whether deferred input is left for the next turn */
  handleDeferred(): boolean {
    const scheduler = this.#scheduler;
    const { quantumMs } = scheduler;
    this.#replenish();
    let now = scheduler.now();
    let done = 0;
    while (done < this.#deferred.length && this.#usedMs < quantumMs) {
      this.#deferred[done++]?.handleInput();
      const before = now;
      now = scheduler.now();
      this.#usedMs += now - before;
    }
    this.#deferred.splice(0, done);
    return this.#deferred.length > 0;
  }

  /** Time used beyond the quantum is deducted from the next turns. */
  #replenish(): void {
    const { turn, quantumMs } = this.#scheduler;
    const turns = turn - this.#turn;
    if (turns <= 0) return;
    this.#turn = turn;
    this.#usedMs = Math.max(0, this.#usedMs - turns * quantumMs);
  }
}
