import { Buffer } from 'node:buffer';
import { NO_RECEIVER } from '../backend/connection.ts';
import type { LatencyBaseline } from '../backend/session-state.ts';
import type { Lease } from '../router/lease.ts';
import { Deadline } from '../runtime/event-loop.ts';
import { AbandonedSlot } from './abandoned-slot.ts';
import type { Slot } from './pipeline-slot.ts';

/** No request enters behind one that has been running for longer. */
const ENTER_WITHIN_MS = 1;
/** How long a backend may take to obey a cancel request before its pipeline is given up. */
const OBEY_TIMEOUT_MS = 5_000;

/** How many requests a pipeline may hold, and what tells how long one may hold up others. */
interface PipelineLimits {
  readonly depth: number;
  readonly baseline: LatencyBaseline;
}

/**
 * A backend with requests of several clients of one organization in its pipeline, for both doors. Each is a transaction of
 * its own and only reads; the reply up to a ReadyForQuery belongs to the first slot. When that takes long, the requests behind
 * it run elsewhere, which harms nobody, and their replies here are discarded. The same happens behind a request that has
 * changed the session (by a function that a view calls), and behind one with which the connection is lost.
 */
export class SharedPipeline {
  readonly lease: Lease;
  /** How many requests have ever entered. */
  entered = 0;
  /** All requests in it are quick; else only short. */
  isQuick = true;
  /** A cancel request has been sent that may hit the request of a later slot. */
  cancelInFlight = false;
  readonly #slots: Slot[] = [];
  readonly #limits: PipelineLimits;
  readonly #stallDeadline = new Deadline(0, () => this.#checkStall());
  /** When the first slot became the first. */
  #startedAt = 0;
  #canceling: Promise<void> | undefined;
  #obeyTimer: NodeJS.Timeout | undefined;
  #isLost = false;
  /** No more requests may enter. */
  #isClosed = false;
  #isClean = true;
  /** The slot that has changed the session's state and keeps it. */
  #stateOwner: Slot | undefined;

  constructor(lease: Lease, limits: PipelineLimits) {
    this.lease = lease;
    this.#limits = limits;
  }

  /** Whether another request may enter. */
  isOpen(now: number): boolean {
    if (this.#isClosed || this.#isLost || this.cancelInFlight || this.lease.backend.session.retired) return false;
    return this.#slots.length < this.#limits.depth && now - this.#startedAt < ENTER_WITHIN_MS;
  }

  get length(): number {
    return this.#slots.length;
  }

  /** Whether the backend runs the slot's request. */
  isActive(slot: Slot): boolean {
    return this.#slots[0] === slot;
  }

  /** Whether other requests are behind the first one. */
  get isAwaited(): boolean {
    return this.#slots.length > 1;
  }

  /** Makes a request that is running already the first one. */
  begin(slot: Slot, startedAt: number): void {
    this.#slots.push(slot);
    this.entered = 1;
    this.#startedAt = startedAt;
  }

  /** Adds a request that is being sent. */
  enter(slot: Slot): void {
    this.entered += 1;
    const length = this.#slots.push(slot);
    if (length === 2) this.#restartStallDeadline();
    if (length > 1) return;
    this.#startSlot(slot);
    if (this.lease.backend.closed) this.lost(false);
  }

  #startSlot(slot: Slot): void {
    const { backend } = this.lease;
    this.#startedAt = performance.now();
    this.#restartStallDeadline();
    backend.receiver = slot.receiver;
    if (backend.isPaused) backend.resume();
    slot.slotStarted(this.#startedAt);
  }

  /** Once the requests behind the first one run elsewhere, nobody waits: only what is long stalls. */
  #restartStallDeadline(): void {
    const { baseline } = this.#limits;
    this.#stallDeadline.restart(this.#startedAt + (this.isQuick && !this.#isClosed ? baseline.stallTimeoutMs : baseline.longMs));
  }

  /**
   * The first request has been answered: the next one becomes the first, or the lease is released.
   * @param clean it has left no state in the session
   * @param rest what has come behind its reply; a copy is passed on, because the memory may be read into again
   */
  next(clean: boolean, rest?: Buffer): void {
    this.#slots.shift();
    clearTimeout(this.#obeyTimer);
    this.#isClean &&= clean;
    // The others have been run with the state that it has left.
    if (!clean) this.#evict(0);
    const [slot] = this.#slots;
    if (slot === undefined) this.#end();
    else this.#startSlot(slot);
    if (rest !== undefined && rest.length > 0) this.deliver(Buffer.from(rest));
  }

  /** As {@link next}, for a slot that gets the backend back with the state that it has left there. */
  nextKeepingStateOf(stateOwner: Slot): void {
    this.#stateOwner = stateOwner;
    this.next(false);
  }

  /** Passes on what has come behind the last reply. */
  deliver(bytes: Buffer): void {
    this.#slots[0]?.receiver.data(bytes);
  }

  /** Releases the lease if no request has entered. */
  endIfUnused(): void {
    if (this.entered === 0) this.#end();
  }

  /** Waits for a cancel request that is under way: it must not hit a later user of the backend. */
  #end(): void {
    this.#isClosed = true;
    this.#stallDeadline.clear();
    this.lease.backend.receiver = NO_RECEIVER;
    if (this.#canceling === undefined) this.#handOver();
    else void this.#canceling.then(() => this.#handOver());
  }

  #handOver(): void {
    const stateOwner = this.#stateOwner;
    this.#stateOwner = undefined;
    if (stateOwner === undefined) void this.lease.release(this.#isClean);
    else stateOwner.takeOver();
  }

  /**
   * Cancels the slot's request, if the backend runs it. Resolves when the server has taken the cancel request. It may arrive
   * late: quick requests run elsewhere before it could hit them, and short ones are run again if it does.
   */
  async cancel(slot: Slot): Promise<void> {
    // One after another: the last one must have arrived before the backend is released.
    while (this.#canceling !== undefined) await this.#canceling;
    if (this.#isLost || !this.isActive(slot)) return;
    if (this.isQuick) this.evictQueued();
    else this.cancelInFlight = true;
    this.#canceling = this.lease.cancel().finally(() => {
      this.#canceling = undefined;
    });
    await this.#canceling;
  }

  /** Cancels the slot's request, for which nobody waits. If the backend does not obey, the pipeline is given up. */
  stop(slot: Slot): void {
    clearTimeout(this.#obeyTimer);
    this.#obeyTimer = setTimeout(() => this.lost(true), OBEY_TIMEOUT_MS);
    void this.cancel(slot);
  }

  /**
   * There will be no more replies.
   * @param cancelFailed the backend has not obeyed a cancel request
   */
  lost(cancelFailed: boolean): void {
    if (this.#isLost) return;
    this.#isLost = true;
    clearTimeout(this.#obeyTimer);
    this.#stallDeadline.clear();
    if (cancelFailed) this.lease.terminate();
    else this.lease.destroy();
    const [first, ...others] = this.#slots.splice(0);
    first?.receiver.closed(undefined);
    for (const slot of others) if (!slot.requeue()) slot.receiver.closed(undefined);
    this.#stateOwner?.receiver.closed(undefined);
  }

  /**
   * The first slot stalls, unless its reply has come and has not been read yet. Where all backends are busy, it is canceled
   * and runs again by itself, if that goes unnoticed; else the requests behind it run elsewhere.
   */
  #checkStall(): void {
    const [slot] = this.#slots;
    setImmediate(() => {
      if (slot === undefined || !this.isActive(slot)) return;
      if (!this.isQuick && this.isAwaited && slot.canRunAgain) {
        void this.cancel(slot);
        return;
      }
      this.evictQueued();
      slot.stalled();
    });
  }

  /** Has the requests behind the first one run elsewhere. No more may enter. */
  evictQueued(): void {
    this.#evict(1);
  }

  #evict(from: number): void {
    this.#isClosed = true;
    for (let i = from; i < this.#slots.length; i += 1) if (this.#slots[i]?.requeue()) this.#slots[i] = new AbandonedSlot(this);
  }
}
