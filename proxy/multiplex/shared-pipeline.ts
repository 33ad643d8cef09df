import { performance } from 'node:perf_hooks';
import type { BackendReceiver } from '../../src/backend/connection.ts';
import type { LatencyBaseline } from '../../src/backend/latency.ts';
import { YOUNG_MS } from '../../src/multiplex/shareable-sql.ts';
import type { Lease } from '../../src/router/lease.ts';
import { AbandonedSlot } from './abandoned-slot.ts';

/** How many requests a pipeline may hold, and how long one may hold up others. */
export interface PipelineLimits {
  readonly depth: number;
  readonly latencies: { readonly baseline: LatencyBaseline };
}

/** A client's place in a shared pipeline. */
export interface Slot {
  readonly receiver: BackendReceiver;
  /** What the backend says from now on is for this one. */
  slotStarted(now: number): void;
  /** Whether it could do without an answer now, and have its request run again. */
  readonly canRequeue: boolean;
  /** Before its turn: has its request run elsewhere. @returns whether it can, and wants no answer here any more */
  requeue(): boolean;
  /** The backend, whose session it has changed, is its own: nobody else's request is in the pipeline any more. */
  takeOver(): void;
}

/**
 * A backend whose pipeline holds requests of several clients, one behind the other. Each is a transaction of its own, and
 * what the backend says up to a ReadyForQuery belongs to the client whose turn it is. Who turns out to hold up others is
 * left alone: where all are quick, and so have other backends to go to, the others run again there; else it is canceled and
 * runs again by itself. A cancel request that comes too late and meets another does it no more harm than that. Behind one who
 * turns out to have changed the session, the others run again elsewhere, too; it gets the session back when their answers have
 * been read by nobody.
 */
export class SharedPipeline {
  readonly lease: Lease;
  /** A cancel request has been sent that may meet whoever has a turn after it. */
  cancelInFlight = false;
  /** All in it are quick. */
  isQuick = true;
  readonly #slots: Slot[];
  readonly #depth: number;
  readonly #baseline: LatencyBaseline;
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
  #stateOwner: Slot | undefined;

  /** @param first whose request is running */
  constructor(lease: Lease, first: Slot, startedAt: number, { depth, latencies }: PipelineLimits) {
    this.lease = lease;
    this.#slots = [first];
    this.#startedAt = startedAt;
    this.#depth = depth;
    this.#baseline = latencies.baseline;
  }

  /** Whether another may get on. */
  isOpen(now: number): boolean {
    return !this.cancelInFlight && !this.#isClosed && !this.#isLost && this.#slots.length < this.#depth && now - this.#startedAt < YOUNG_MS;
  }

  get length(): number {
    return this.#slots.length;
  }

  /** Whether it is this one's turn. */
  isActive(slot: Slot): boolean {
    return this.#slots[0] === slot;
  }

  /** Whether others wait behind the one whose turn it is. */
  get isAwaited(): boolean {
    return this.#slots.length > 1;
  }

  enter(slot: Slot): void {
    this.#slots.push(slot);
    if (this.#slots.length === 2) this.#awaitedSince = performance.now();
    this.#watch(this.#stallTimeoutMs);
  }

  /** One timer for many turns: to set it anew for each takes longer than to see afterwards that it was too early. */
  #watch(ms: number): void {
    this.#timer ??= setTimeout(() => this.#checkStall(), ms);
  }

  /**
   * The one whose turn it was has been answered: the next one's begins, or the backend goes back.
   * @param clean nothing is left of it in the session
   */
  next(clean: boolean): void {
    this.#slots.shift();
    this.#isClean &&= clean;
    // What it has changed in the session, the others have been run with.
    if (!clean) this.#evictQueued(0);
    const [slot] = this.#slots;
    if (slot === undefined) {
      this.#end();
      return;
    }
    this.#startedAt = performance.now();
    this.#awaitedSince = this.#startedAt;
    if (this.isAwaited) this.#watch(this.#stallTimeoutMs);
    const { backend } = this.lease;
    backend.attach(slot.receiver);
    backend.resume();
    slot.slotStarted(this.#startedAt);
  }

  /** As {@link next}, for one that keeps what it has left in the session. */
  nextKeepingStateOf(stateOwner: Slot): void {
    this.#stateOwner = stateOwner;
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
    const stateOwner = this.#stateOwner;
    this.#stateOwner = undefined;
    if (stateOwner === undefined) void this.lease.release(this.#isClean);
    else stateOwner.takeOver();
  }

  /** Gives whoever's turn it is what has come behind the last one's answer. */
  deliver(bytes: Buffer): void {
    this.#slots[0]?.receiver.data(bytes);
  }

  /** Has the backend cancel what it runs for this one. Resolves when the server has taken the request. */
  async cancel(slot: Slot): Promise<void> {
    // One after another, so that none is forgotten about that is still on its way.
    while (this.#canceling !== undefined) await this.#canceling;
    if (this.#isLost || !this.isActive(slot)) return;
    this.cancelInFlight = true;
    this.#canceling = this.lease.cancel().finally(() => {
      this.#canceling = undefined;
    });
    await this.#canceling;
  }

  /**
   * There will be no more answers.
   * @param cancelFailed the backend goes on with what it was told to cancel
   */
  lost(cancelFailed: boolean): void {
    if (this.#isLost) return;
    this.#isLost = true;
    clearTimeout(this.#timer);
    if (cancelFailed) this.lease.terminate();
    else this.lease.destroy();
    const [first, ...others] = this.#slots.splice(0);
    first?.receiver.closed(undefined);
    for (const slot of others) if (!slot.requeue()) slot.receiver.closed(undefined);
    this.#stateOwner?.receiver.closed(undefined);
  }

  /** How long one may hold up others. */
  get #stallTimeoutMs(): number {
    return this.isQuick ? this.#baseline.stallTimeoutMs : this.#baseline.longMs;
  }

  /**
   * Somebody has waited for long: as soon as it is sure that no answer lies there unread, whoever holds it up makes way, or
   * the others go where there is more room.
   */
  #checkStall(): void {
    this.#timer = undefined;
    if (!this.isAwaited) return;
    const leftMs = this.#awaitedSince + this.#stallTimeoutMs - performance.now();
    if (leftMs > 0) {
      this.#watch(leftMs);
      return;
    }
    const [slot] = this.#slots;
    setImmediate(() => {
      if (slot === undefined || !this.isActive(slot) || !this.isAwaited) return;
      if (this.isQuick || !slot.canRequeue) this.#evictQueued(1);
      else void this.cancel(slot);
    });
  }

  /**
   * Has those run elsewhere who can be, also where a client knows the beginning of its answer and may take its time to read the rest.
   * @param from the first of them
   */
  #evictQueued(from: number): void {
    this.#isClosed = true;
    for (let i = from; i < this.#slots.length; i += 1) if (this.#slots[i]?.requeue()) this.#slots[i] = new AbandonedSlot(this);
  }
}
