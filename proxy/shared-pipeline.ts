import type { BackendReceiver } from '../src/backend/connection.ts';
import type { Settings } from '../src/backend/session-state.ts';
import type { Lease } from '../src/router/lease.ts';
import { type Errand, Paces } from './errand.ts';

/** A client's place in a shared pipeline. */
export interface Turn {
  readonly receiver: BackendReceiver;
  /** What the backend says from now on is for this one. */
  turnBegins(now: number): void;
  /** Whether it could do without an answer now, and have its request run again. */
  readonly canStepBack: boolean;
}

/** Nobody gets on behind a request that has been running for longer. */
const YOUNG_MS = 1;
/**
 * A backend whose pipeline holds errands of several clients, one behind the other. Each is a transaction of its own, and
 * what the backend says up to a ReadyForQuery belongs to the client whose turn it is. Who turns out to hold up others is
 * canceled, and runs again by itself where there is nobody behind it; a cancel request that comes too late and meets
 * another does it no more harm than that.
 */
export class SharedPipeline {
  readonly lease: Lease;
  /** A cancel request has been sent that may meet whoever has a turn after it. */
  disturbed = false;
  readonly #turns: Turn[];
  readonly #depth: number;
  /** How long one may hold up others before it has to make way. */
  readonly #patienceMs: number;
  #startedAt: number;
  #canceling: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isLost = false;
  #isClean = true;

  /** @param first whose request is running */
  constructor(lease: Lease, first: Turn, startedAt: number, { depth, paces }: Sharing) {
    this.lease = lease;
    this.#turns = [first];
    this.#startedAt = startedAt;
    this.#depth = depth;
    this.#patienceMs = paces.tempo.longMs;
  }

  /** Whether another may get on. */
  isOpen(now: number): boolean {
    return !this.disturbed && !this.#isLost && this.#turns.length < this.#depth && now - this.#startedAt < YOUNG_MS;
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
    if (this.#timer === undefined) this.#timer = setTimeout(() => this.#lookAgain(), this.#patienceMs);
    else if (this.#turns.length === 2) this.#timer.refresh();
  }

  /**
   * The one whose turn it was has been answered: the next one's begins, or the backend goes back.
   * @param clean nothing is left of it in the session
   */
  next(clean: boolean): void {
    this.#turns.shift();
    this.#isClean &&= clean;
    const [turn] = this.#turns;
    if (turn === undefined) {
      this.#end();
      return;
    }
    this.#startedAt = performance.now();
    if (this.isAwaited) this.#timer?.refresh();
    const { backend } = this.lease;
    backend.attach(turn.receiver);
    backend.resume();
    turn.turnBegins(this.#startedAt);
  }

  /** Once no cancel request is on its way to it. */
  #end(): void {
    clearTimeout(this.#timer);
    this.lease.backend.detach();
    if (this.#canceling === undefined) void this.lease.release(this.#isClean);
    else void this.#canceling.then(() => this.lease.release(this.#isClean));
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
    for (const { receiver } of this.#turns.splice(0)) receiver.closed(undefined);
  }

  /** Somebody has waited for long: as soon as it is sure that no answer lies there unread, whoever holds it up makes way. */
  #lookAgain(): void {
    const [turn] = this.#turns;
    setImmediate(() => {
      if (turn !== undefined && this.isTurnOf(turn) && this.isAwaited && turn.canStepBack) void this.cancel(turn);
    });
  }
}

/** Who has a backend at work, and may have others on it. */
export interface Sharer {
  /** Whether one more might get on now. */
  hasRoom(now: number): boolean;
  /** @returns where to get on, if it is possible now, with an errand that runs with certain settings */
  share(errand: Errand, settings: Settings, now: number): SharedPipeline | undefined;
}

/** A client whose errand waits for a backend. */
export interface Waiting {
  /** @returns whether it has got on with that one */
  join(sharer: Sharer, now: number): boolean;
}

/** So many of those that have got their backend last are asked. */
const ASKED = 8;
/** So many of those that have waited longest are asked whether they come along. */
const INVITED = 8;
/** It is crowded as long as somebody has found all backends busy within this time. */
const CROWDED_MS = 1_000;

/** What the wire sessions of one organization do about having to share backends. */
export class Sharing {
  /** How many requests may be in one backend's pipeline; with 1 none is shared. */
  readonly depth: number;
  readonly paces = new Paces();
  /** Those that have a backend, in the order in which they got it. */
  readonly #sharers: Sharer[] = [];
  /** First come, first served. */
  readonly #waiting: Waiting[] = [];
  #crowdedAt = Number.NEGATIVE_INFINITY;

  constructor(depth: number) {
    this.depth = depth;
  }

  /** Whether it is worth looking at how long statements take. */
  isCrowded(now: number): boolean {
    return this.depth > 1 && now - this.#crowdedAt < CROWDED_MS;
  }

  /** All backends are busy. @returns where an errand may get on */
  find(errand: Errand, settings: Settings, now: number): SharedPipeline | undefined {
    const sharers = this.#sharers;
    for (let i = sharers.length - 1; i >= Math.max(0, sharers.length - ASKED); i -= 1) {
      const shared = sharers[i]?.share(errand, settings, now);
      if (shared !== undefined) return shared;
    }
    return undefined;
  }

  /** Has waiting clients come along with one that has just got its backend, as many as there is room for. */
  invite(sharer: Sharer, now: number): void {
    for (const waiting of this.#waiting.slice(0, INVITED)) {
      if (!sharer.hasRoom(now)) return;
      if (waiting.join(sharer, now)) this.stopWaiting(waiting);
    }
  }

  wait(waiting: Waiting): void {
    this.#waiting.push(waiting);
  }

  stopWaiting(waiting: Waiting): void {
    remove(this.#waiting, this.#waiting.indexOf(waiting));
  }

  crowded(now: number): void {
    this.#crowdedAt = now;
  }

  add(sharer: Sharer): void {
    this.#sharers.push(sharer);
  }

  delete(sharer: Sharer): void {
    remove(this.#sharers, this.#sharers.lastIndexOf(sharer));
  }
}

function remove<T>(from: T[], at: number): void {
  if (at < 0) return;
  if (at === from.length - 1) from.pop();
  else from.splice(at, 1);
}
