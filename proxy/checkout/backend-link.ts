import type { BackendConnection, BackendReceiver } from '../../src/backend/connection.ts';
import { Disposition, Request } from '../../src/backend/pending-replies.ts';
import type { ReplyQueue } from '../../src/backend/reply-queue.ts';
import { mayTake, type ShareableRequest, type SharedBackend, type ShareMode } from '../../src/multiplex/multiplexer.ts';
import { SharedPipeline } from '../../src/multiplex/shared-pipeline.ts';
import type { Slot } from '../../src/multiplex/slot.ts';
import { queryMessage } from '../../src/protocol/frontend-encoder.ts';
import type { Lease } from '../../src/router/lease.ts';
import type { InFlight } from '../multiplex/in-flight.ts';
import type { Pins } from '../pinning/pins.ts';
import { type Gate, Reason } from '../relay/gate.ts';
import { type Sink, WriteBuffer } from '../relay/write-buffer.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import { CancelQueue } from './cancel-queue.ts';
import type { OwnRequest } from './own-requests.ts';
import { settingsChange } from './settings-sync.ts';

/** What a link tells the session. */
export interface LinkEvents {
  /** The request that was sent ahead, of which nothing has been answered, has to be sent again, elsewhere. */
  runElsewhere(isCanceled: boolean): void;
  /** The request has been answered, and so have others' behind it: the backend is at hand again, for this session alone. */
  gotBack(): void;
}

/** The session that has backends one after another, and is who it is by identity. */
interface LinkedSession {
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly replies: ReplyQueue;
  readonly gate: Gate;
  readonly inFlight: InFlight;
  /** Receives what the backend at hand sends. */
  readonly events: BackendReceiver & LinkEvents;
}

/**
 * A session's link to a backend: checked out with the first request of a transaction, given this session's settings, and given
 * back when nothing that belongs to the session is left on it.
 */
export class BackendLink implements SharedBackend, Slot, Sink {
  /** What goes to the backend at hand. */
  readonly out = new WriteBuffer(this);
  readonly cancels: CancelQueue;
  readonly #session: LinkedSession;
  #lease: Lease | undefined;
  /** Where others' requests are in the backend's pipeline too. */
  #shared: SharedPipeline | undefined;
  /** Resolves the wait for the end of a turn that nobody wants any more. */
  #onSlotOver: (() => void) | undefined;
  #lastBackend: BackendConnection | undefined;
  /** What is to be sent to the backend at hand later. */
  readonly #held: Buffer[] = [];
  /** How many events it waits for. */
  #heldFor = 0;

  constructor(session: LinkedSession) {
    this.#session = session;
    this.cancels = new CancelQueue(this, session.replies);
  }

  write(bytes: Buffer): void {
    if (this.#heldFor === 0) this.#lease?.backend.writeSoon(bytes);
    else this.#held.push(bytes);
  }

  /** What goes to the backend from now on waits for this, and goes out before it resolves. */
  async holdBackUntil(event: Promise<void>): Promise<void> {
    const { gate } = this.#session;
    this.#heldFor += 1;
    gate.close(Reason.signals);
    await event;
    this.#heldFor -= 1;
    if (this.#heldFor > 0) return;
    gate.open(Reason.signals);
    for (const bytes of this.#held.splice(0)) this.write(bytes);
  }

  get lease(): Lease | undefined {
    return this.#lease;
  }

  get backend(): BackendConnection | undefined {
    return this.#lease?.backend;
  }

  get shared(): SharedPipeline | undefined {
    return this.#shared;
  }

  /** Others' requests are behind this one's in the backend's pipeline. */
  get isFollowed(): boolean {
    return this.#shared?.isAwaited === true;
  }

  /** The backend is at work for another first. */
  get isQueued(): boolean {
    return this.#shared?.isActive(this) === false;
  }

  /** A cancel request may meet this session's request that was meant for another. */
  get mayMeetForeignCancel(): boolean {
    return this.#shared?.cancelInFlight === true && !this.cancels.isAsked;
  }

  get receiver(): BackendReceiver {
    return this.#session.events;
  }

  get canRunAgain(): boolean {
    return !this.cancels.isAsked && this.#session.inFlight.isUntold;
  }

  get isAtWork(): boolean {
    return this.#session.replies.length > 0;
  }

  get load(): number {
    return this.#shared?.length ?? 1;
  }

  get entered(): number {
    return this.#shared?.entered ?? 1;
  }

  requeue(): boolean {
    if (!this.#session.inFlight.isUntold) return false;
    const isCanceled = this.cancels.isAsked;
    this.#forget();
    this.#session.events.runElsewhere(isCanceled);
    return true;
  }

  pipelineFor(request: ShareableRequest, now: number, mode: ShareMode): SharedPipeline | undefined {
    const lease = this.#lease;
    if (lease === undefined || this.cancels.underWay !== undefined || !mayTake(lease.backend, request)) return undefined;
    // Where others are behind the first request already, that has been looked at.
    const since = this.isFollowed ? now : this.#shareableSince(mode);
    if (since === undefined) return undefined;
    const shared = this.#shared ?? this.#newPipeline(lease, since);
    if (!shared.isOpen(now) || (mode === 'quick' && !shared.isQuick)) return undefined;
    shared.isQuick = mode === 'quick';
    this.#shared = shared;
    return shared;
  }

  /** A pipeline in which the request that is running is the first. */
  #newPipeline(lease: Lease, since: number): SharedPipeline {
    const shared = new SharedPipeline(lease, this.#session.services.multiplexer);
    shared.begin(this, since);
    return shared;
  }

  /** Has those come along that wait for a backend, too. */
  admitWaiting(): void {
    const since = this.#shareableSince('short');
    // They go in the same turn, however long that has been.
    if (since !== undefined) this.#session.services.multiplexer.admitWaiting(this, since);
  }

  /** Since when the session's request has been running, if others may have theirs run behind it in this mode. */
  #shareableSince(mode: ShareMode): number | undefined {
    const { pins, inFlight } = this.#session;
    return pins.isShareable ? inFlight.shareableSince(mode) : undefined;
  }

  /** Sends a request ahead into a pipeline where it is another's turn. */
  enterPipeline(shared: SharedPipeline): void {
    this.#lease = shared.lease;
    this.#shared = shared;
    shared.enter(this);
  }

  slotStarted(now: number): void {
    this.#session.services.multiplexer.add(this);
    if (this.backend !== undefined) this.#moved(this.backend);
    this.#session.inFlight.slotStarted(now);
    if (this.#onSlotOver === undefined) this.cancels.sendIfDue();
    else this.#hurry();
  }

  /** The watchdog knows what to do about it. */
  stalled(): void {}

  /** Takes a backend if one is free, the last one before others. */
  tryBegin(): BackendConnection | undefined {
    const lease = this.#session.services.tryLease(this.#preferred);
    if (lease !== undefined) this.begin(lease);
    return lease?.backend;
  }

  /** The last one, unless it is reserved for another. */
  get #preferred(): BackendConnection | undefined {
    const reservation = this.#lastBackend?.session.reservation;
    return reservation === undefined || reservation === this.#session.pins.sequences ? this.#lastBackend : undefined;
  }

  /** The session is over: who waits for a backend that is reserved for it gets that. */
  cancelReservation(): void {
    const { pins, services } = this.#session;
    if (this.#lastBackend?.session.reservation === pins.sequences) void services.tryLease(this.#lastBackend)?.release(true);
  }

  /** Takes a backend and gives it the session's settings, ahead of the first request and in the same write. */
  begin(lease: Lease): void {
    const { pins, services } = this.#session;
    const { backend } = lease;
    const { session } = backend;
    this.#lease = lease;
    services.multiplexer.add(this);
    backend.attach(this.receiver);
    backend.resume();
    const change = settingsChange(session.settings, pins.settings);
    session.settings = pins.settings;
    if (change !== undefined) this.ask(queryMessage(change), { own: 'settings' });
    this.#moved(backend);
  }

  #moved(backend: BackendConnection): void {
    const { session, processId } = backend;
    const wasHere = this.#lastBackend === backend && session.lastUser === this.#session;
    this.#lastBackend = backend;
    if (wasHere) return;
    this.#session.pins.sequences.lost();
    // Also the session's own, from before it was elsewhere.
    if (session.lastUser !== undefined) session.hasOthersSequenceValues = true;
    if (session.lastUser === this.#session) return;
    this.#session.services.processIds.moved(processId);
    session.lastUser = this.#session;
  }

  /** Whether the backend stays with the session although that is at rest. */
  isPinned(): boolean {
    const { pins } = this.#session;
    if (pins.pinned && this.backend !== undefined) this.backend.session.pinnedFor = pins.reasons;
    return pins.pinned;
  }

  /** Sends a request of ours, of which the client hears nothing. It does away with the unnamed statement. */
  ask(message: Buffer, request: OwnRequest): void {
    const session = this.backend?.session;
    if (session !== undefined) session.unnamed = undefined;
    this.#session.replies.push(Request.query, Disposition.skip, request);
    this.out.insert(message);
  }

  /** Gives an idle backend back on which nothing of the session is left. */
  end(): void {
    if (this.#shared !== undefined) {
      this.finishSlot();
      return;
    }
    const lease = this.#detach();
    const { pins, services } = this.#session;
    if (pins.defaultsChanged) {
      pins.defaultsChanged = false;
      services.defaultsChanged();
    }
    // A cancel request may still be on its way to this backend: nobody else gets it before it has arrived.
    const canceled = this.cancels.letGo();
    const reservation = pins.sequences.rest();
    if (canceled === undefined) void lease?.release(true, reservation);
    else void canceled.then(() => lease?.release(true, reservation));
  }

  /** The turn is over, with whatever the answer was: the backend is the next one's in the pipeline. */
  finishSlot(): void {
    const shared = this.#forget();
    shared?.next(!this.#session.pins.holdsState);
  }

  /** The backend is gone, for everybody in its pipeline. */
  lost(cancelFailed = false): void {
    this.#forget()?.lost(cancelFailed);
  }

  /** As {@link finishSlot}, for one whose read has changed the session: it is to find there what it has left. */
  finishKeepingState(): void {
    this.#session.services.multiplexer.delete(this);
    this.#shared?.nextKeepingStateOf(this);
  }

  takeOver(): void {
    const { backend } = this;
    if (this.#onSlotOver !== undefined || backend === undefined) this.finishSlot();
    else if (backend.closed) this.receiver.closed(undefined);
    else {
      this.#shared = undefined;
      this.cancels.isAlone();
      this.#session.services.multiplexer.add(this);
      backend.attach(this.receiver);
      backend.resume();
      this.#moved(backend);
      this.#session.events.gotBack();
    }
  }

  #forget(): SharedPipeline | undefined {
    const shared = this.#shared;
    if (shared === undefined) return undefined;
    this.#session.services.multiplexer.delete(this);
    this.#lease = undefined;
    this.#shared = undefined;
    this.cancels.forget();
    this.#onSlotOver?.();
    return shared;
  }

  #detach(): Lease | undefined {
    const lease = this.#lease;
    this.#session.services.multiplexer.delete(this);
    this.#lease = undefined;
    lease?.backend.detach();
    return lease;
  }

  /**
   * The session is over. An idle backend goes back, cleaned of what the session left; one that is busy, or in a
   * transaction, is told to stop and ended.
   * @param cancelFailed what it runs does not end when it is canceled
   */
  async close(idle: boolean, cancelFailed: boolean): Promise<void> {
    if (this.#shared !== undefined) {
      if (idle && !this.isQueued) this.finishSlot();
      else if (cancelFailed && this.#shared.isActive(this)) this.lost(true);
      else await this.#leave(this.#shared);
      return;
    }
    const lease = this.#detach();
    if (lease === undefined) return;
    this.cancels.forget();
    const { pins } = this.#session;
    if (this.cancels.underWay !== undefined) await this.cancels.underWay;
    if (idle && pins.indelible) return lease.destroy();
    if (idle) return lease.release(!pins.holdsState);
    if (cancelFailed) return lease.terminate();
    await lease.abandon();
  }

  /** Others are not to suffer for it: what is left to come of the answer is read, by nobody, up to its end. */
  async #leave(shared: SharedPipeline): Promise<void> {
    const over = new Promise<void>((resolve) => {
      this.#onSlotOver = resolve;
    });
    if (shared.isActive(this)) this.#hurry();
    await over;
  }

  /** Nobody waits for what the backend runs: it must take no longer than it has to, nor as long as its client takes to read. */
  #hurry(): void {
    this.backend?.resume();
    this.#shared?.stop(this);
  }
}
