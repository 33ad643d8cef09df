import { performance } from 'node:perf_hooks';
import { type BackendConnection, type BackendReceiver, NO_RECEIVER } from '../src/backend/connection.ts';
import { Disposition, type ReplyQueue, Request } from '../src/backend/reply-queue.ts';
import type { Settings } from '../src/backend/session-state.ts';
import { ServiceError } from '../src/errors.ts';
import {
  mayTake,
  type ShareableRequest,
  type SharedBackend,
  SharedPipeline,
  type ShareMode,
  type Slot,
  suits,
  type WaitingClient,
} from '../src/multiplex/multiplexer.ts';
import { type ErrorFields, encodeBackendMessage } from '../src/protocol/backend.ts';
import { queryMessage } from '../src/protocol/frontend.ts';
import type { Lease } from '../src/router/lease.ts';
import { NO_WAIT } from '../src/router/router.ts';
import { UNNAMED_OPTIONS } from '../src/syntax/session-traits.ts';
import { type BegunTransaction, leaveTransaction } from './begun-transaction.ts';
import type { DescribeReply } from './client-statements.ts';
import { type Gate, Reason } from './gate.ts';
import {
  isAboutTemporaryTables,
  isRefusedSetting,
  makeOptions,
  mayBeRefused,
  type Pins,
  type StateProbe,
  settingsChange,
  settingsChanges,
} from './pins.ts';
import type { SessionServices } from './session-services.ts';
import { type RequestInFlight, shareableRequest } from './sharing.ts';
import type { Statements } from './statements.ts';
import { type Sink, WriteBuffer } from './write-buffer.ts';

/** The parts of the session that a checkout needs. */
interface CheckoutSession {
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly statements: Statements;
  readonly gate: Gate;
  readonly inFlight: RequestInFlight;
  readonly link: BackendLink;
  readonly isOver: boolean;
  /** It has a backend. */
  resumeInput(): void;
  /** It gets no backend. */
  refused(reason: ServiceError): void;
}

/**
 * Gets backends for a session: a free one, or else a slot in a shared pipeline. If there is neither, the session waits for
 * whichever comes first.
 */
export class Checkout implements WaitingClient {
  readonly #session: CheckoutSession;
  #wait = NO_WAIT;

  constructor(session: CheckoutSession) {
    this.#session = session;
  }

  /**
   * Takes a backend without waiting, if there is one.
   * @param request the client's request, if it has arrived whole, may be short, and may share a backend
   */
  tryCheckout(request: Buffer | undefined): BackendConnection | undefined {
    const { services, link, pins } = this.#session;
    return (
      (request !== undefined && services.multiplexer.isSpread && pins.sequences?.isReserved !== true
        ? this.#tryShare(request, 'quick')
        : undefined) ??
      link.tryBegin() ??
      (request !== undefined ? this.#tryShare(request, 'short') : undefined)
    );
  }

  /** Puts the request behind a similar request of another client, if that is possible. */
  #tryShare(request: Buffer, mode: ShareMode): BackendConnection | undefined {
    const { services, inFlight } = this.#session;
    const { multiplexer } = services;
    const now = performance.now();
    multiplexer.contended(now);
    if (multiplexer.depth <= 1 || !services.mayKeepBusy(mode === 'quick')) return undefined;
    const shareable = this.#shareable(request);
    if (shareable === undefined) return undefined;
    inFlight.expect(request, shareable.latency);
    if (!suits(shareable.latency, mode)) return undefined;
    const shared = multiplexer.find(shareable, now, mode, false);
    if (shared === undefined) return undefined;
    this.#enterPipeline(shared);
    return shared.lease.backend;
  }

  /**
   * Waits for a backend on behalf of the input that the gate holds.
   * @param mayShare the input may be a short request that may share a backend
   */
  wait(mayShare: boolean): void {
    const { services } = this.#session;
    let isSettled = false;
    const wait = services.enqueue((result) => {
      isSettled = true;
      this.#settled(result);
    });
    // The callback may have run already, and may even have started another wait.
    if (isSettled) return;
    this.#wait = wait;
    if (mayShare && !this.#session.isOver) services.multiplexer.wait(this);
  }

  /** Ends the wait, because the session needs no backend any more. */
  giveUp(): void {
    this.#wait.giveUp();
  }

  #settled(result: Lease | ServiceError): void {
    const { services, link, isOver } = this.#session;
    this.#wait = NO_WAIT;
    services.multiplexer.stopWaiting(this);
    if (isOver) {
      if (!(result instanceof ServiceError)) void result.release(true);
    } else if (result instanceof ServiceError) this.#session.refused(result);
    else {
      link.begin(result);
      this.#session.resumeInput();
      link.admitWaiting();
    }
  }

  join(backend: SharedBackend, now: number): boolean {
    const { gate, isOver } = this.#session;
    const request = gate.onlyInput;
    if (isOver || request === undefined) return false;
    const shareable = this.#shareable(request);
    const shared = shareable && backend.pipelineFor(shareable, now, 'short');
    if (shared === undefined || !this.#wait.leave()) return false;
    this.#wait = NO_WAIT;
    this.#enterPipeline(shared);
    this.#session.resumeInput();
    return true;
  }

  /** The shareable request that a chunk from the client contains, if it is one. */
  #shareable(chunk: Buffer): ShareableRequest | undefined {
    const { services, statements, pins } = this.#session;
    const { parseCache, registry } = services;
    const { context, settings, customOptions } = pins;
    if (!pins.isShareable || context === undefined || statements.mayAllBeGone) return undefined;
    return shareableRequest(chunk, { statements, parseCache, registry, settings, customOptions, context });
  }

  #enterPipeline(shared: SharedPipeline): void {
    const { link, services } = this.#session;
    link.enterPipeline(shared);
    services.observe({ name: 'request.shared' });
  }
}

const STRINGS = 'standard_conforming_strings';

/** A request that Postern sends between the client's requests. */
type OwnRequest =
  | SettingsRequest
  | { readonly own: 'options' | 'statement' }
  | { readonly own: 'probe'; readonly probe: StateProbe }
  | DescribeReply;

/** Gives a backend the session's settings, or one of them. */
interface SettingsRequest {
  readonly own: 'settings';
  /** Those that it had before. */
  readonly before: Settings;
  /** The only one that is set. Undefined: all of them are, or some are reset. */
  readonly name?: string | undefined;
  /** The server's error, if it has refused them. */
  refusal?: ErrorFields;
}

/** So many backends are given up for one session because they refuse its `temp_buffers`; a new one does not. */
const MAX_GIVEN_UP = 20;

/** Whether the subject of an entry in the reply queue marks the request as Postern's own. */
export function isOwn(subject: unknown): subject is OwnRequest {
  return typeof subject === 'object' && subject !== null && 'own' in subject;
}

/** The session that uses the link, and receives what its backend sends. It is compared by identity. */
interface LinkedSession extends BackendReceiver {
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly replies: ReplyQueue;
  readonly gate: Gate;
  readonly inFlight: RequestInFlight;
  readonly toClient: WriteBuffer;
  readonly statements: Statements;
  /** The request in the shared pipeline has not been answered at all and has to be requeued. */
  runElsewhere(isCanceled: boolean): void;
  /** The session's request and those behind it have been answered: the session has the backend for itself again. */
  tookOver(): void;
}

/**
 * A session's link to its backend. The backend is checked out with the first request of a transaction, gets the session's
 * settings, and is checked in when nothing of the session is left on it.
 */
export class BackendLink implements SharedBackend, Slot, Sink {
  /** The bytes for the current backend. */
  readonly out = new WriteBuffer(this);
  readonly #session: LinkedSession;
  /* Only this class sets these. */
  lease: Lease | undefined;
  /** The shared pipeline, if other clients have requests on the backend. */
  shared: SharedPipeline | undefined;
  /** Its cancel requests, from the first one on. */
  cancels: CancelQueue | undefined;
  /** Set while the session has done nothing on its backend except BEGIN. */
  begun: BegunTransaction | undefined;
  /** Resolves when the slot of an ended session is over. */
  #onSlotOver: (() => void) | undefined;
  #lastBackend: BackendConnection | undefined;
  /** Bytes that will be sent to the backend later. */
  readonly #held: Buffer[] = [];
  /** The number of events that these bytes wait for. */
  #heldFor = 0;
  /** The session cannot go on on this backend, and has done nothing there: it is given up once it is idle. */
  isUnsuited = false;
  #givenUp = 0;

  constructor(session: LinkedSession) {
    this.#session = session;
  }

  write(bytes: Buffer): void {
    if (this.#heldFor === 0) this.lease?.backend.writeSoon(bytes);
    else this.#held.push(bytes);
  }

  /** Cancels what the backend runs for the client. Resolves when the server has the cancel request, or nothing is left to cancel. */
  cancel(): Promise<void> {
    this.cancels ??= new CancelQueue(this, this.#session.replies);
    return this.cancels.send();
  }

  /** Holds the bytes for the backend until the event has happened, and sends them before the returned promise resolves. */
  async holdBackUntil(event: Promise<unknown>): Promise<void> {
    const { gate } = this.#session;
    this.#heldFor += 1;
    gate.close(Reason.signals);
    await event;
    this.#heldFor -= 1;
    if (this.#heldFor > 0) return;
    gate.open(Reason.signals);
    for (const bytes of this.#held.splice(0)) this.write(bytes);
  }

  get backend(): BackendConnection | undefined {
    return this.lease?.backend;
  }

  /** Other clients' requests are behind this session's in the shared pipeline. */
  get isFollowed(): boolean {
    return this.shared?.isAwaited === true;
  }

  /** The backend answers another client's request first. */
  get isQueued(): boolean {
    return this.shared?.isActive(this) === false;
  }

  /** A cancel request for another client may hit this session's request. */
  get mayMeetForeignCancel(): boolean {
    return this.shared?.cancelInFlight === true && this.cancels?.isAsked !== true;
  }

  get receiver(): BackendReceiver {
    return this.#session;
  }

  get canRunAgain(): boolean {
    return this.cancels?.isAsked !== true && this.#session.inFlight.isUnanswered;
  }

  get isAtWork(): boolean {
    return this.#session.replies.length > 0;
  }

  get load(): number {
    return this.shared?.length ?? 1;
  }

  get entered(): number {
    return this.shared?.entered ?? 1;
  }

  requeue(): boolean {
    if (!this.#session.inFlight.isUnanswered) return false;
    const isCanceled = this.cancels?.isAsked === true;
    this.#forget();
    this.#session.runElsewhere(isCanceled);
    return true;
  }

  pipelineFor(request: ShareableRequest, now: number, mode: ShareMode): SharedPipeline | undefined {
    const lease = this.lease;
    if (lease === undefined || this.cancels?.underWay !== undefined || !mayTake(lease.backend, request)) return undefined;
    // If others are behind the request already, it is known to be shareable.
    const since = this.isFollowed ? now : this.#shareableSince(mode);
    if (since === undefined) return undefined;
    const shared = this.shared ?? this.#newPipeline(lease, since);
    if (!shared.isOpen(now) || (mode === 'quick' && !shared.isQuick)) return undefined;
    shared.isQuick = mode === 'quick';
    this.shared = shared;
    return shared;
  }

  /** Makes a shared pipeline whose first request is the one that is running. */
  #newPipeline(lease: Lease, since: number): SharedPipeline {
    const shared = new SharedPipeline(lease, this.#session.services.multiplexer);
    shared.begin(this, since);
    return shared;
  }

  /** Lets sessions that wait for a backend put their requests behind this one. */
  admitWaiting(): void {
    const since = this.#shareableSince('short');
    // Their requests are sent in the same turn of the event loop.
    if (since !== undefined) this.#session.services.multiplexer.admitWaiting(this, since);
  }

  /** When the session's request began, if others may put theirs behind it in this mode. */
  #shareableSince(mode: ShareMode): number | undefined {
    const { pins, inFlight } = this.#session;
    return pins.isShareable ? inFlight.shareableSince(mode) : undefined;
  }

  /** Takes a slot in a shared pipeline, where another client's request is active. */
  enterPipeline(shared: SharedPipeline): void {
    this.lease = shared.lease;
    this.shared = shared;
    shared.enter(this);
  }

  slotStarted(now: number): void {
    this.#session.services.multiplexer.add(this);
    if (this.backend !== undefined) this.#backendChanged(this.backend);
    this.#session.inFlight.slotStarted(now);
    if (this.#onSlotOver === undefined) this.cancels?.sendIfDue();
    else this.#stopRequest();
  }

  /** The watchdog ends a wire session that stalls. */
  stalled(): void {}

  /** Takes a free backend, if there is one; the session's last backend is preferred. */
  tryBegin(): BackendConnection | undefined {
    const lease = this.#tryLease(this.#preferred);
    if (lease !== undefined) this.begin(lease);
    return lease?.backend;
  }

  #tryLease(preferred: BackendConnection | undefined): Lease | undefined {
    const { router, tenant } = this.#session.services;
    return router.tryLease(tenant, 'wire', preferred, this.#session.pins.customOptions);
  }

  /** The session's last backend, unless it is reserved for another session. */
  get #preferred(): BackendConnection | undefined {
    const reservation = this.#lastBackend?.session.reservation;
    return reservation === undefined || reservation === this.#session.pins.sequences ? this.#lastBackend : undefined;
  }

  /** The session is over: a backend that is reserved for it goes to the next waiting client. */
  cancelReservation(): void {
    const { pins } = this.#session;
    const reservation = this.#lastBackend?.session.reservation;
    if (reservation !== undefined && reservation === pins.sequences) void this.#tryLease(this.#lastBackend)?.release(true);
  }

  /** Takes a backend and gives it the session's settings, ahead of the first request and in the same write. */
  begin(lease: Lease): void {
    const { pins, services, gate, statements } = this.#session;
    const { backend } = lease;
    const { session } = backend;
    this.lease = lease;
    this.#backendChanged(backend);
    services.multiplexer.add(this);
    backend.receiver = this.#session;
    if (backend.isPaused) backend.resume();
    if (session.sqlHome !== undefined) statements.backendTaken(session);
    if (backend.parameters.get(STRINGS) !== pins.startStrings) pins.keepsStartStrings();
    if (session.settings !== pins.settings && mayBeRefused(session.settings, pins.settings)) gate.close(Reason.taking);
    if (session.settings !== pins.settings) this.giveSettings(backend);
    if (session.customOptions !== pins.customOptions) this.#makeOptions(backend, pins);
  }

  /** Asks the backend for the settings of the session, if it has others. @returns whether it has */
  giveSettings({ session }: BackendConnection): boolean {
    const { pins } = this.#session;
    const before = session.settings;
    const change = settingsChange(before, pins.settings);
    session.settingsMade(pins.settings);
    if (change !== undefined) this.ask(queryMessage(change), { own: 'settings', before });
    return change !== undefined;
  }

  /** The backend has refused settings. @returns false if the session cannot go on: a request of the client has run without them */
  settingsRefused(request: SettingsRequest, error: ErrorFields): boolean {
    if (!isRefusedSetting(error) || !this.#session.replies.onlyOurs) return false;
    request.refusal = error;
    return true;
  }

  /** The backend has answered a request for settings. Where it has refused them, it is asked for each by itself. */
  settingsAnswered({ before, name, refusal }: SettingsRequest): void {
    const { pins, toClient, services } = this.#session;
    const { backend } = this;
    if (refusal === undefined || backend === undefined) return;
    const { session } = backend;
    if (isAboutTemporaryTables(refusal) && this.#givenUp < MAX_GIVEN_UP && this.#session.gate.isClosed(Reason.taking)) {
      this.isUnsuited = true;
    } else if (name === undefined) {
      for (const [one, sql] of settingsChanges(before, pins.settings)) this.ask(queryMessage(sql), { own: 'settings', before, name: one });
      this.out.flush();
    } else {
      pins.settingRefused(name);
      session.settingsMade(pins.settings);
      const fields = { severity: 'WARNING', code: refusal.code, message: `the setting "${name}" has been reset`, detail: refusal.message };
      toClient.insert(encodeBackendMessage({ name: 'NoticeResponse', fields: services.rewriter?.error(fields) ?? fields }));
    }
  }

  /** Gives up a backend on which the session cannot go on, because of temporary tables that others have had there: the next is another one. */
  giveUpUnsuited(): void {
    const { pins } = this.#session;
    this.isUnsuited = false;
    this.#givenUp += 1;
    if (this.backend !== undefined) this.backend.session.retired = true;
    pins.sequences?.lost();
    this.end();
  }

  /** Whether the session may go on elsewhere after an error of its request: `temp_buffers` cannot be set where there have been temporary tables. */
  mayLeave(error: ErrorFields): boolean {
    const { pins } = this.#session;
    if (this.shared !== undefined || this.#givenUp >= MAX_GIVEN_UP || !isAboutTemporaryTables(error)) return false;
    return pins.reasons.size === 0 && !pins.hadTemporary;
  }

  /** The session's transaction, in which nothing has been done except BEGIN, goes on with the one that has begun on another backend. */
  goOnWith(lease: Lease): void {
    if (this.lease !== undefined) leaveTransaction(this.lease);
    this.lease = lease;
    this.#backendChanged(lease.backend);
    lease.backend.receiver = this.#session;
  }

  /** An option that the session has set in a transaction is empty on each of its backends from then on. */
  #makeOptions({ session }: BackendConnection, { customOptions, settings }: Pins): void {
    const missing = [...customOptions].filter(
      (name) => name !== UNNAMED_OPTIONS && !session.customOptions.has(name) && !settings.has(name),
    );
    session.customOptions = customOptions;
    const change = makeOptions(missing);
    if (change !== undefined) this.ask(queryMessage(change), { own: 'options' });
  }

  #backendChanged(backend: BackendConnection): void {
    const { session, processId } = backend;
    const wasHere = this.#lastBackend === backend && session.lastUser === this.#session;
    this.#lastBackend = backend;
    if (wasHere) return;
    this.#session.pins.sequences?.lost();
    // Its own values from before it used another backend count as others', too.
    if (session.lastUser !== undefined) session.hasOthersSequenceValues = true;
    if (session.lastUser === this.#session) return;
    this.#session.services.processIds.moved(processId);
    session.lastUser = this.#session;
  }

  /** Whether the session keeps the backend although it is idle. */
  isPinned(): boolean {
    const { pins } = this.#session;
    if (pins.reasons.size === 0) return false;
    if (this.backend !== undefined) this.backend.session.pinnedFor = pins.reasons;
    return true;
  }

  /** Sends one of Postern's own requests, whose reply the client does not see. A Query destroys the unnamed statement. */
  ask(message: Buffer, request: OwnRequest): void {
    const session = this.backend?.session;
    if (session !== undefined) session.unnamed = undefined;
    this.#session.replies.push(Request.query, Disposition.skip, request);
    this.out.insert(message);
  }

  /** Releases an idle backend on which nothing of the session is left. */
  end(): void {
    if (this.shared !== undefined) {
      this.finishSlot();
      return;
    }
    const lease = this.#detach();
    const { pins } = this.#session;
    // A cancel request may still be on its way to this backend. No other session gets the backend before it has arrived.
    const canceled = this.cancels?.takeUnderWay();
    const reservation = pins.sequences?.rest();
    if (canceled === undefined) void lease?.release(true, reservation);
    else void canceled.then(() => lease?.release(true, reservation));
  }

  /** The slot is over, whatever the reply was: the next request in the shared pipeline becomes active. */
  finishSlot(): void {
    const shared = this.#forget();
    shared?.next(!this.#session.pins.holdsState);
  }

  /** The backend is lost for all clients in its pipeline. */
  lost(cancelFailed = false): void {
    this.#forget()?.lost(cancelFailed);
  }

  /** As {@link finishSlot}, for a request that has left state on the backend: the session takes the backend over afterwards. */
  finishKeepingState(): void {
    this.#session.services.multiplexer.delete(this);
    this.shared?.nextKeepingStateOf(this);
  }

  takeOver(): void {
    const { backend } = this;
    if (this.#onSlotOver !== undefined || backend === undefined) this.finishSlot();
    else if (backend.closed) this.receiver.closed(undefined);
    else {
      this.shared = undefined;
      this.cancels?.isAlone();
      this.#session.services.multiplexer.add(this);
      backend.receiver = this.receiver;
      if (backend.isPaused) backend.resume();
      this.#backendChanged(backend);
      this.#session.tookOver();
    }
  }

  #forget(): SharedPipeline | undefined {
    const shared = this.shared;
    if (shared === undefined) return undefined;
    this.#session.services.multiplexer.delete(this);
    this.lease = undefined;
    this.shared = undefined;
    this.cancels?.forget();
    this.#onSlotOver?.();
    return shared;
  }

  #detach(): Lease | undefined {
    const lease = this.lease;
    this.#session.services.multiplexer.delete(this);
    this.lease = undefined;
    if (lease !== undefined) {
      lease.backend.receiver = NO_RECEIVER;
      lease.backend.session.customOptions = this.#session.pins.optionsLeft;
      this.#session.statements.backendLeft(lease.backend.session);
    }
    return lease;
  }

  /**
   * The session is over. An idle backend is released, and reset if the session left state on it. A backend that is busy or in
   * a transaction is canceled and closed.
   * @param cancelFailed the running statement does not end when it is canceled
   */
  async close(idle: boolean, cancelFailed: boolean): Promise<void> {
    if (this.shared !== undefined) {
      if (idle && !this.isQueued) this.finishSlot();
      else if (cancelFailed && this.shared.isActive(this)) this.lost(true);
      else await this.#leave(this.shared);
      return;
    }
    this.begun?.next(undefined);
    const lease = this.#detach();
    if (lease === undefined) return;
    this.cancels?.forget();
    const { pins } = this.#session;
    if (this.cancels?.underWay !== undefined) await this.cancels.underWay;
    if (idle && pins.cannotBeReset) return lease.destroy();
    if (idle) return lease.release(!pins.holdsState);
    if (cancelFailed) return lease.terminate();
    await lease.abandon();
  }

  /** Discards the rest of the reply, so that the other clients in the pipeline keep their backend. */
  async #leave(shared: SharedPipeline): Promise<void> {
    const over = new Promise<void>((resolve) => {
      this.#onSlotOver = resolve;
    });
    if (shared.isActive(this)) this.#stopRequest();
    await over;
  }

  /** Cancels the request of a client that is gone, and reads its reply at full speed. */
  #stopRequest(): void {
    this.backend?.resume();
    this.shared?.stop(this);
  }
}

/** Where the session's requests run at the moment. */
interface CancelTarget extends Slot {
  readonly lease: Lease | undefined;
  /** The shared pipeline, if other clients have requests on the backend. */
  readonly shared: SharedPipeline | undefined;
}

/** A cancel request that waits until it can be sent. Further ones that arrive meanwhile are merged into it. */
interface DueCancel {
  /** The batch of requests that it is meant for. */
  readonly batch: number;
  /** Resolves when the server has the cancel request, or when the requests that it was meant for have ended. */
  readonly settled: Promise<void>;
  readonly settle: () => void;
}

/**
 * A session's cancel requests. Each is sent when the server runs the request that it is meant for, and one at a time. A client
 * may send its next request as soon as its cancel connection is closed. So that is not closed before the server has the cancel
 * request, which would otherwise hit the next request.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-CANCELING-REQUESTS
 */
class CancelQueue {
  readonly #target: CancelTarget;
  readonly #replies: ReplyQueue;
  /** Resolves when the cancel request that has been sent for this backend has arrived. */
  underWay: Promise<void> | undefined;
  /** The cancel request that waits. */
  due: DueCancel | undefined;
  /** The client itself has asked to cancel its request in a shared pipeline. */
  isAsked = false;

  constructor(target: CancelTarget, replies: ReplyQueue) {
    this.#target = target;
    this.#replies = replies;
  }

  /** See {@link BackendLink.cancel}. */
  async send(): Promise<void> {
    const { lease, shared } = this.#target;
    if (lease === undefined || this.#replies.onlyOurs) return;
    if (shared !== undefined) this.isAsked = true;
    if (this.#mustWait) await this.#whenDue();
    else if (shared !== undefined) await shared.cancel(this.#target);
    else await this.#sendTo(lease);
  }

  /** Another request is ahead of the client's, or an earlier cancel request is on its way and may be enough. */
  get #mustWait(): boolean {
    const { shared } = this.#target;
    if (shared !== undefined) return !shared.isActive(this.#target);
    return this.underWay !== undefined || this.#replies.answeringOurs;
  }

  #whenDue(): Promise<void> {
    if (this.due === undefined) {
      let settle = () => {};
      const settled = new Promise<void>((resolve) => {
        settle = resolve;
      });
      this.due = { batch: this.#replies.oldestBatch, settled, settle };
    }
    return this.due.settled;
  }

  async #sendTo(lease: Lease): Promise<void> {
    const underWay = lease.cancel();
    this.underWay = underWay;
    await underWay;
    // The session may have another backend by now, with another cancel request on its way.
    if (this.underWay === underWay) this.underWay = undefined;
    this.sendIfDue();
  }

  /** Sends the cancel request that waits, if it has to wait no longer. Drops it if its requests have ended. */
  sendIfDue(): void {
    const due = this.due;
    if (due === undefined) return;
    const isOver = this.#isOver(due);
    if (!isOver && this.#mustWait) return;
    this.due = undefined;
    if (isOver) due.settle();
    else void this.send().then(due.settle);
  }

  /** COPY FROM STDIN ignores a Sync, which the reply queue counts as the end of the batch. */
  #isOver({ batch }: DueCancel): boolean {
    const replies = this.#replies;
    return replies.onlyOurs || (replies.oldestBatch !== batch && !replies.copyIn);
  }

  /** The backend is given back. @returns resolves when the cancel request has arrived: no other session may get the backend before */
  takeUnderWay(): Promise<void> | undefined {
    const { underWay } = this;
    this.underWay = undefined;
    return underWay;
  }

  /** The requests that the cancel requests were meant for have ended. */
  forget(): void {
    this.due?.settle();
    this.due = undefined;
    this.isAsked = false;
  }

  /** The backend runs only this client's requests again. */
  isAlone(): void {
    this.isAsked = false;
  }
}
