import { performance } from 'node:perf_hooks';
import type { BackendReceiver } from '../src/backend/connection.ts';
import type { Tempo } from '../src/backend/pace.ts';
import type { Lease } from '../src/router/lease.ts';
import { YOUNG_MS } from '../src/sql/sharing-rules.ts';
import type { Sharing } from './sharing.ts';
import { Unheard } from './unheard.ts';

/** A client's place in a shared pipeline. */
export interface Turn {
  readonly receiver: BackendReceiver;
  /** What the backend says from now on is for this one. */
  turnBegins(now: number): void;
  /** Whether it could do without an answer now, and have its request run again. */
  readonly canStepBack: boolean;
  /** Before its turn: has its request run elsewhere. @returns whether it can, and wants no answer here any more */
  stepAside(): boolean;
  /** The backend, whose session it has changed, is its own: nobody else's request is in the pipeline any more. */
  inherits(): void;
}

/**
 * A backend whose pipeline holds errands of several clients, one behind the other. Each is a transaction of its own, and
 * what the backend says up to a ReadyForQuery belongs to the client whose turn it is. Who turns out to hold up others is
 * left alone: where all are quick, and so have other backends to go to, the others run again there; else it is canceled and
 * runs again by itself. A cancel request that comes too late and meets another does it no more harm than that. Behind one who
 * turns out to have changed the session, the others run again elsewhere, too; it gets the session back when their answers have
 * been read by nobody.
 */
export class SharedPipeline {
  readonly lease: Lease;
  /** A cancel request has been sent that may meet whoever has a turn after it. */
  disturbed = false;
  /** All in it are quick. */
  isQuick = true;
  readonly #turns: Turn[];
  readonly #depth: number;
  readonly #tempo: Tempo;
  #startedAt: number;
  /** When the turn began, or when somebody came to wait behind it. */
  #awaitedSince = 0;
  #canceling: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isLost = false;
  /** Nobody gets on any more. */
  #isClosed = false;
  #isClean = true;
  /** Who has changed the session. */
  #heir: Turn | undefined;

  /** @param first whose request is running */
  constructor(lease: Lease, first: Turn, startedAt: number, { depth, paces }: Sharing) {
    this.lease = lease;
    this.#turns = [first];
    this.#startedAt = startedAt;
    this.#depth = depth;
    this.#tempo = paces.tempo;
  }

  /** Whether another may get on. */
  isOpen(now: number): boolean {
    return !this.disturbed && !this.#isClosed && !this.#isLost && this.#turns.length < this.#depth && now - this.#startedAt < YOUNG_MS;
  }

  get length(): number {
    return this.#turns.length;
  }

  /** Whether it is this one's turn. */
  isTurnOf(turn: Turn): boolean {
    return this.#turns[0] === turn;
  }

  /** Whether others wait behind the one whose turn it is. */
  get isAwaited(): boolean {
    return this.#turns.length > 1;
  }

  board(turn: Turn): void {
    this.#turns.push(turn);
    if (this.#turns.length === 2) this.#awaitedSince = performance.now();
    this.#watch(this.#patienceMs);
  }

  /** One timer for many turns: to set it anew for each takes longer than to see afterwards that it was too early. */
  #watch(ms: number): void {
    this.#timer ??= setTimeout(() => this.#lookAgain(), ms);
  }

  /**
   * The one whose turn it was has been answered: the next one's begins, or the backend goes back.
   * @param clean nothing is left of it in the session
   */
  next(clean: boolean): void {
    this.#turns.shift();
    this.#isClean &&= clean;
    // What it has changed in the session, the others have been run with.
    if (!clean) this.#scatter(0);
    const [turn] = this.#turns;
    if (turn === undefined) {
      this.#end();
      return;
    }
    this.#startedAt = performance.now();
    this.#awaitedSince = this.#startedAt;
    if (this.isAwaited) this.#watch(this.#patienceMs);
    const { backend } = this.lease;
    backend.attach(turn.receiver);
    backend.resume();
    turn.turnBegins(this.#startedAt);
  }

  /** As {@link next}, for one that keeps what it has left in the session. */
  nextBefore(heir: Turn): void {
    this.#heir = heir;
    this.next(false);
  }

  /** Once no cancel request is on its way to it. */
  #end(): void {
    clearTimeout(this.#timer);
    this.lease.backend.detach();
    if (this.#canceling === undefined) this.#handOver();
    else void this.#canceling.then(() => this.#handOver());
  }

  #handOver(): void {
    const heir = this.#heir;
    this.#heir = undefined;
    if (heir === undefined) void this.lease.release(this.#isClean);
    else heir.inherits();
  }

  /** Gives whoever's turn it is what has come behind the last one's answer. */
  deliver(bytes: Buffer): void {
    this.#turns[0]?.receiver.data(bytes);
  }

  /** Has the backend cancel what it runs for this one. Resolves when the server has taken the request. */
  async cancel(turn: Turn): Promise<void> {
    // One after another, so that none is forgotten about that is still on its way.
    while (this.#canceling !== undefined) await this.#canceling;
    if (this.#isLost || !this.isTurnOf(turn)) return;
    this.disturbed = true;
    this.#canceling = this.lease.cancel().finally(() => {
      this.#canceling = undefined;
    });
    await this.#canceling;
  }

  /**
   * There will be no more answers.
   * @param disobeyed the backend goes on with what it was told to cancel
   */
  lost(disobeyed: boolean): void {
    if (this.#isLost) return;
    this.#isLost = true;
    clearTimeout(this.#timer);
    if (disobeyed) this.lease.terminate();
    else this.lease.destroy();
    const [first, ...others] = this.#turns.splice(0);
    first?.receiver.closed(undefined);
    for (const turn of others) if (!turn.stepAside()) turn.receiver.closed(undefined);
    this.#heir?.receiver.closed(undefined);
  }

  /** How long one may hold up others. */
  get #patienceMs(): number {
    return this.isQuick ? this.#tempo.patienceMs : this.#tempo.longMs;
  }

  /**
   * Somebody has waited for long: as soon as it is sure that no answer lies there unread, whoever holds it up makes way, or
   * the others go where there is more room.
   */
  #lookAgain(): void {
    this.#timer = undefined;
    if (!this.isAwaited) return;
    const leftMs = this.#awaitedSince + this.#patienceMs - performance.now();
    if (leftMs > 0) {
      this.#watch(leftMs);
      return;
    }
    const [turn] = this.#turns;
    setImmediate(() => {
      if (turn === undefined || !this.isTurnOf(turn) || !this.isAwaited) return;
      if (this.isQuick || !turn.canStepBack) this.#scatter(1);
      else void this.cancel(turn);
    });
  }

  /**
   * Has those run elsewhere who can be, also where a client knows the beginning of its answer and may take its time to read the rest.
   * @param from the first of them
   */
  #scatter(from: number): void {
    this.#isClosed = true;
    for (let i = from; i < this.#turns.length; i += 1) if (this.#turns[i]?.stepAside()) this.#turns[i] = new Unheard(this);
  }
}
