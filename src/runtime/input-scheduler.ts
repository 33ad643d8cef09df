import { performance } from 'node:perf_hooks';
import { setTimeout as startTimer } from 'node:timers';

/** How long the input of all organizations together may be handled before the event loop looks for new input. */
const TURN_MS = 4;
/**
 * What one organization may use of a turn, at most and at least. Beside 200 busy clients of another organization a quiet one's
 * median is 8.2 ms without turns, 5.6 ms with 1 ms and 2.4 ms with 0.3 ms (`npm run bench -- fairness`; PgBouncer's is 2.0 ms).
 */
const QUANTUM_MAX_MS = 0.3;
const QUANTUM_MIN_MS = 0.1;
/** Input of one organization alone needs no turns: others have been quiet for so long. */
const CALM_MS = 10_000;

/** What has read input that it has not handled: a client's connection, or a backend's. */
export interface InputSource {
  /** Handles what was deferred. */
  handleInput(): void;
}

/**
 * Deals the event loop out to organizations by deficit round robin, whatever door their input comes by and whichever side
 * of Postern it comes from: each may use so much processor time before the loop looks for input again, and what an
 * organization has read beyond that waits for the next turn.
 * @see https://dl.acm.org/doi/10.1109/90.502236 Shreedhar and Varghese, Efficient Fair Queuing Using Deficit Round Robin
 */
export class InputScheduler {
  readonly #organizations = new Map<string, OrganizationInput>();
  /** Organizations with deferred input, in the order in which they are served. */
  #waiting: OrganizationInput[] = [];
  /** Whose input came last. */
  #latest: OrganizationInput | undefined;
  #contendedAt = Number.NEGATIVE_INFINITY;
  #isScheduled = false;
  readonly now: () => number;
  /** Input of several organizations has come lately. */
  isContended = false;
  /** Counts turns of the event loop while there is contention. */
  turn = 0;

  /** @param now in milliseconds */
  constructor(now = () => performance.now()) {
    this.now = now;
  }

  /** One connection more. Each has to {@link OrganizationInput.leave} when it is closed. */
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

  /** Input of this organization has come. */
  came(input: OrganizationInput): void {
    if (this.#latest === input) return;
    const isFirst = this.#latest === undefined;
    this.#latest = input;
    if (isFirst) return;
    this.#contendedAt = this.now();
    if (this.isContended) return;
    this.isContended = true;
    this.#calmLater();
  }

  #calmLater(): void {
    startTimer(() => {
      if (this.now() - this.#contendedAt < CALM_MS) this.#calmLater();
      else this.isContended = false;
    }, CALM_MS).unref();
  }

  /** A turn ends when the event loop has seen all the input that there was. */
  inTurn(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(this.#endTurn);
  }

  defer(input: OrganizationInput): void {
    this.#waiting.push(input);
    this.inTurn();
  }

  readonly #endTurn = (): void => {
    this.#isScheduled = false;
    this.turn += 1;
    const waiting = this.#waiting;
    if (waiting.length === 0) return;
    this.#waiting = [];
    for (const input of waiting) if (input.handleDeferred()) this.#waiting.push(input);
    if (this.#waiting.length > 0) this.inTurn();
  };
}

/** The input of one organization: what it has used of this turn, and what waits for the next ones. */
export class OrganizationInput {
  connections = 0;
  readonly #scheduler: InputScheduler;
  readonly #ended: () => void;
  readonly #deferred: InputSource[] = [];
  #turn = 0;
  #usedMs = 0;
  #startedAt = 0;

  constructor(scheduler: InputScheduler, ended: () => void) {
    this.#scheduler = scheduler;
    this.#ended = ended;
  }

  /** One connection less. */
  leave(): void {
    this.connections -= 1;
    if (this.connections === 0) this.#ended();
  }

  /**
   * Input has come, and is handled between this and {@link end} or deferred.
   * @returns whether the organization has its turn
   */
  begin(): boolean {
    const scheduler = this.#scheduler;
    scheduler.came(this);
    if (!scheduler.isContended) return true;
    scheduler.inTurn();
    this.#replenish();
    this.#startedAt = scheduler.now();
    return this.#deferred.length === 0 && this.#usedMs < scheduler.quantumMs;
  }

  /** What came with the last {@link begin} has been handled. */
  end(): void {
    if (this.#startedAt === 0) return;
    this.#usedMs += this.#scheduler.now() - this.#startedAt;
    this.#startedAt = 0;
  }

  /** Has a source handle its input later; order is kept within an organization. */
  defer(source: InputSource): void {
    if (this.#deferred.push(source) === 1) this.#scheduler.defer(this);
  }

  /** @returns whether something is left for the next turn */
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

  /** What was used beyond the quantum is owed by the next turn. */
  #replenish(): void {
    const { turn, quantumMs } = this.#scheduler;
    const turns = turn - this.#turn;
    if (turns <= 0) return;
    this.#turn = turn;
    this.#usedMs = Math.max(0, this.#usedMs - turns * quantumMs);
  }
}
