import { Buffer } from 'node:buffer';
import { type BackendConnection, type BackendReceiver, NO_RECEIVER } from '../backend/connection.ts';
import type { LatencyBaseline, StatementLatency } from '../backend/session-state.ts';
import type { Organization } from '../catalog/organization.ts';
import { backendFrames } from '../protocol/framing.ts';
import { type ReplyHandler, ReplyReader } from '../protocol/reply-reader.ts';
import type { Lease } from '../router/lease.ts';
import { Deadline } from '../runtime/event-loop.ts';
import { registryOf, type StatementRegistry } from './statement-registry.ts';

export interface SharingLimits {
  /** How many requests may be in one backend's pipeline; with 1 none is shared. */
  readonly depth: number;
  /** When so many backends are at work, quick requests share them. */
  readonly spread: number;
}

/**
 * Which requests share a backend. `quick`: enough backends are at work, and more would only compete for the processors, so quick
 * requests share them. `short`: all backends are busy, so short requests share them too.
 */
export type ShareMode = 'short' | 'quick';

/** A request that only reads, is a transaction of its own, and leaves nothing in the session. */
export interface ShareableRequest {
  readonly latency: StatementLatency | undefined;
  /** Whether the backend would run it as one of its own: with the same settings, and the statement prepared. */
  fits(backend: BackendConnection): boolean;
}

/** The user of a backend, which may let others enter its pipeline. */
export interface SharedBackend {
  /** Its backend runs something, and is not only kept. */
  readonly isAtWork: boolean;
  /** How many requests are in its backend's pipeline, and how many have ever been. */
  readonly load: number;
  readonly entered: number;
  /** @returns the pipeline, if the request may enter it now */
  pipelineFor(request: ShareableRequest, now: number, mode: ShareMode): SharedPipeline | undefined;
}

/** A client whose request waits for a backend. */
export interface WaitingClient {
  /** @returns whether its request has entered the backend's pipeline */
  join(backend: SharedBackend, now: number): boolean;
}

/** How many backends are considered: those that were taken last. */
const MAX_CONSIDERED = 16;
/** How many waiting clients may enter the pipeline of a backend that another client has just got: those that have waited longest. */
const MAX_ADMITTED = 8;
/** A backend with more bytes than this to be written is not shared. */
const MAX_PENDING_BYTES = 65_536;
/** Backends are contended as long as a session has found too few of them free within this time. */
const CONTENDED_MS = 1_000;

/** The multiplexers of all organizations. */
export class Multiplexers {
  readonly #limits: SharingLimits;
  /** Each is kept as long as the organization's credential is. */
  readonly #multiplexers = new WeakMap<Organization, Multiplexer>();

  constructor(limits: SharingLimits) {
    this.#limits = limits;
  }

  /** Whether any requests share backends. */
  get mayShare(): boolean {
    return this.#limits.depth > 1;
  }

  of(organization: Organization): Multiplexer {
    let multiplexer = this.#multiplexers.get(organization);
    if (multiplexer === undefined) {
      multiplexer = new Multiplexer(this.#limits, registryOf(organization));
      this.#multiplexers.set(organization, multiplexer);
    }
    return multiplexer;
  }
}

/** Decides, for one organization at both doors, whether a quick request enters the pipeline of a backend that is at work. */
export class Multiplexer {
  readonly depth: number;
  readonly registry: StatementRegistry;
  readonly #spread: number;
  /** In the order in which they have got their backends. */
  readonly #backends: SharedBackend[] = [];
  /** Those that have waited longest come first. */
  readonly #waiting: WaitingClient[] = [];
  /** Until then latencies are worth measuring; on performance.now()'s clock. Only this class sets it. */
  contendedUntil = Number.NEGATIVE_INFINITY;

  constructor({ depth, spread }: SharingLimits, registry: StatementRegistry) {
    this.depth = depth;
    this.#spread = spread;
    this.registry = registry;
  }

  get baseline(): StatementRegistry['baseline'] {
    return this.registry.baseline;
  }

  /** Whether so many backends are at work that one more would only compete for the processors. */
  get isSpread(): boolean {
    let atWork = 0;
    for (let i = this.#backends.length - 1; i >= 0 && atWork < this.#spread; i -= 1) if (this.#backends[i]?.isAtWork) atWork += 1;
    return atWork >= this.#spread;
  }

  contended(now: number): void {
    if (this.depth > 1) this.contendedUntil = now + CONTENDED_MS;
  }

  /**
   * @param isAwaited a client waits for a backend: each pipeline takes few more requests, so that its backend becomes free soon
   * @returns a pipeline that the request may enter; the shortest of several
   */
  find(request: ShareableRequest, now: number, mode: ShareMode, isAwaited: boolean): SharedPipeline | undefined {
    const backends = this.#backends;
    let load = this.depth;
    let shared: SharedPipeline | undefined;
    for (let i = backends.length - 1; i >= Math.max(0, backends.length - MAX_CONSIDERED); i -= 1) {
      const backend = backends[i];
      if (backend === undefined || backend.load >= load || (isAwaited && backend.entered >= this.depth)) continue;
      if (mode === 'quick' && !request.latency?.mayFollow(backend.load)) continue;
      const found = backend.pipelineFor(request, now, mode);
      if (found === undefined) continue;
      shared = found;
      ({ load } = backend);
    }
    return shared;
  }

  add(backend: SharedBackend): void {
    if (this.depth > 1) this.#backends.push(backend);
  }

  delete(backend: SharedBackend): void {
    remove(this.#backends, this.#backends.lastIndexOf(backend));
  }

  /** Has waiting clients' requests enter the pipeline of a backend that another has just got, as many as there is room for. */
  admitWaiting(backend: SharedBackend, now: number): void {
    for (const waiting of this.#waiting.slice(0, MAX_ADMITTED)) {
      if (backend.load >= this.depth) return;
      if (waiting.join(backend, now)) this.stopWaiting(waiting);
    }
  }

  wait(waiting: WaitingClient): void {
    if (this.depth > 1) this.#waiting.push(waiting);
  }

  stopWaiting(waiting: WaitingClient): void {
    remove(this.#waiting, this.#waiting.indexOf(waiting));
  }
}

function remove<T>(from: T[], at: number): void {
  if (at < 0) return;
  if (at === from.length - 1) from.pop();
  else from.splice(at, 1);
}

/** Whether requests of such a latency share backends. */
export function suits(latency: StatementLatency | undefined, mode: ShareMode): boolean {
  return (mode === 'quick' ? latency?.isQuick : latency?.isShort) === true;
}

/** Whether a backend's session can take another request into its pipeline. */
export function mayTake(backend: BackendConnection, request: ShareableRequest): boolean {
  const { session, pendingBytes } = backend;
  return !session.retired && session.staleNames.size === 0 && pendingBytes <= MAX_PENDING_BYTES && request.fits(backend);
}

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

/** Only ReadyForQuery is read; all other messages are discarded as they arrive. */
const FRAMES = backendFrames({ Z: 1 });

/** The pipeline of the request that runs elsewhere now. */
interface PipelineOfReply {
  next(clean: boolean, rest: Buffer): void;
  stop(slot: Slot): void;
  lost(cancelFailed: boolean): void;
}

/** Takes the place of a slot whose request runs elsewhere: discards its reply, and cancels the request if that takes long. */
class AbandonedSlot implements Slot, BackendReceiver, ReplyHandler {
  readonly holdsChunk = false;
  readonly canRunAgain = false;
  readonly #shared: PipelineOfReply;
  readonly #reader = new ReplyReader(FRAMES, this);

  constructor(shared: PipelineOfReply) {
    this.#shared = shared;
  }

  get receiver(): BackendReceiver {
    return this;
  }

  slotStarted(): void {}

  stalled(): void {
    this.#shared.stop(this);
  }

  requeue(): boolean {
    return false;
  }

  takeOver(): void {}

  data(chunk: Buffer): void {
    const reader = this.#reader;
    try {
      reader.push(chunk);
      while (reader.next());
    } catch {
      this.closed();
    }
  }

  /** The reply has ended; what follows belongs to the next slot. */
  ready(): void {
    this.#shared.next(true, this.#reader.takeRest());
  }

  drain(): void {}

  closed(): void {
    this.#shared.lost(false);
  }
}

/** The place of one request in a {@link SharedPipeline}. */
export interface Slot {
  /** Receives what the backend sends while this slot is the first. */
  readonly receiver: BackendReceiver;
  /** Whether it could be canceled now, and its request run again, unnoticed. */
  readonly canRunAgain: boolean;
  /** Called when it becomes the first: the backend runs its request now. @param now on performance.now()'s clock */
  slotStarted(now: number): void;
  /** Called when it has been the first for too long. No other's request is behind it any more. */
  stalled(): void;
  /** Has the request run elsewhere, before any of its reply has come. @returns false where it cannot, or has to stay */
  requeue(): boolean;
  /** Called when it has changed the session's state and keeps it: the backend is its own, without a pipeline. */
  takeOver(): void;
}
