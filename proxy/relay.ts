import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../src/backend/connection.ts';
import { millisecondsOf } from '../src/backend/session-state.ts';
import { ServiceError } from '../src/errors.ts';
import type { FrameScanner } from '../src/protocol/framing.ts';
import { FrontendType } from '../src/protocol/frontend.ts';
import type { Lease } from '../src/router/lease.ts';
import { joined } from '../src/runtime/bytes.ts';
import { SMALL_BYTES } from '../src/runtime/memory-budget.ts';
import { BegunTransaction, beginsTransaction } from './begun-transaction.ts';
import type { ClientReceiver } from './client-connection.ts';
import { answerLocally, forward } from './frontend-messages.ts';
import { Reason } from './gate.ts';
import { StateProbe, settingsChange } from './pins.ts';
import { WireSession } from './wire-session.ts';

/**
 * One client's session at work. It receives what happens to it: input of the client, replies of its present backend, calls of the
 * service, and the end of whatever a step of a request has waited for. It calls the step that comes next.
 *
 * The life of a request:
 *
 *     receive     the client's bytes, cut anywhere                     clientData → #handleInput
 *     inspect     a large text is rewritten in slices first            #rewriteLarge; forward → Inspection
 *     check out   a backend that is free, or a shared one              #checkOut
 *     gate        the message waits for replies, settings or signals   Statements.mustWait, Gate
 *     forward     the message goes to the backend, with server names   forward
 *     reply       the backend's bytes go to the client                 data
 *     settle      all that was asked has been answered                 #answered → #settle
 *     check in    the backend goes back with nothing of the session    #isCheckinDone, BackendLink.end
 */
export class Relay extends WireSession implements ClientReceiver {
  /** Among those who are watched. */
  index = -1;

  /* The client. */

  clientData(chunk: Buffer): void {
    const { gate, link, services, clientScanner } = this;
    if (this.ending !== undefined && this.ignoresInput) return;
    this.bytesIn += chunk.length;
    services.usage.bytesIn += chunk.length;
    if ((link.shared !== undefined || gate.reasons !== 0) && this.#mustHoldInput()) gate.holdNext();
    if (gate.input === undefined) this.#handleInput(chunk);
    else {
      gate.hold(chunk);
      // Most clients send nothing more until they are answered. One that does is not read for a while.
      this.client.pause();
    }
    if (gate.input !== undefined || (clientScanner.held?.bytes ?? 0) !== services.bufferBudget.fromClientBytes) this.#countInput();
  }

  clientDrained(): void {
    this.services.bufferBudget.toClient(0);
    this.backend?.resume();
    if (this.gate.isClosed(Reason.reader) && !this.isBusy) this.#checkInAgain();
  }

  clientEnded(): void {
    this.makeEnding().halfClosed = true;
    if (this.link.begun?.isAwaited === true) this.toClient.flush();
    if (!this.isBusy) this.clientGone();
  }

  clientClosed(): void {
    this.clientGone();
  }

  /* The backend. */

  /** Replies are written to the client at once. The chunk is needed longer if the kernel has not taken all, or a part is not handled yet. */
  override get holdsChunk(): boolean {
    const { client, toClient, gate } = this;
    return client.writableLength > 0 || toClient.bytes > 0 || (gate.reasons !== 0 && gate.isClosed(Reason.replyPart));
  }

  override drain(): void {
    if (this.isOver) return;
    if (this.gate.isClosed(Reason.backendBuffer)) this.continueInput();
    else if (this.gate.input === undefined) this.client.resume();
  }

  override closed(): void {
    while (this.gate.isClosed(Reason.replyPart) && this.link.lease !== undefined) this.data(NOTHING);
    this.link.lost();
    this.endWithoutBackend();
  }

  /* What a step has waited for. */

  /** The client's next request is answered with this error, unless the error ends the session. */
  override refused(reason: ServiceError): void {
    if (isFinal(reason)) {
      this.endByError(reason);
      return;
    }
    this.refusal = reason;
    this.resumeInput();
  }

  /** Tries a checkin again. */
  #checkInAgain(): void {
    this.#settle();
    this.continueInput();
  }

  override runElsewhere(isCanceled: boolean): void {
    if (this.isOver) return;
    this.replies.abandon();
    // These are replies that Postern has made. They waited for replies of the server, which will not come.
    this.toClient.clear();
    this.services.observe({ name: 'request.requeued' });
    this.#runAgain();
    if (isCanceled) void this.cancel();
    this.continueInput();
  }

  override tookOver(): void {
    this.#answered();
    this.continueInput();
  }

  /* The service: the watchdog, revoked keys, shutdown, cancel requests. */

  get halfClosed(): boolean {
    return this.ending?.halfClosed === true;
  }

  /** How long a request of this organization may run; 0: as long as it likes; null: as long as those of others. */
  get ownStatementMs(): number | null {
    return this.services.tenant.organization.limits.statementMs;
  }

  /** After how long the session ends where it is idle outside a transaction; 0: never. */
  get idleSessionMs(): number {
    return millisecondsOf(this.pins.settings.get('idle_session_timeout')) ?? 0;
  }

  /** Bytes that the client has not read yet. */
  get unsent(): number {
    return this.client.writableLength;
  }

  /** Bytes that the client has read since its login. */
  get taken(): number {
    return this.toClient.written - this.unsent;
  }

  /** The backend at hand, e.g. to be canceled. */
  get lease(): Lease | undefined {
    const { link } = this;
    return link.isQueued ? undefined : link.lease;
  }

  /** Cancels what the client is waiting for, be it an answer or a backend. Resolves when the server has taken the request. */
  async cancel(): Promise<void> {
    const { link, checkout } = this;
    if (link.lease === undefined) checkout.giveUp();
    else await link.cancel();
  }

  /** As {@link cancel}, but the service cancels: what the client sends meanwhile waits, so that the cancel request does not hit it. */
  stop(): void {
    void this.link.holdBackUntil(this.cancel()).then(() => this.continueInput());
  }

  /**
   * Handles what the client has sent, message by message.
   * @param chunk cut anywhere
   * @param mayShare false: the requests in it have delayed others, or a cancel request for another has hit them
   */
  #handleInput(chunk: Buffer, mayShare = true): void {
    const { clientScanner: scanner, replies, toBackend, gate, inFlight, link } = this;
    const wasIdle = replies.length === 0;
    const isFirst = wasIdle && this.status === 'I' && !this.isUnsynced && scanner.last && scanner.held === undefined;
    const { batch } = replies;
    this.statements.inputBegins();
    this.timed = 'text';
    let handled = 0;
    try {
      scanner.push(chunk);
      while (scanner.next()) {
        if (scanner.type === FrontendType.Terminate) {
          this.terminated(scanner);
          return;
        }
        if (!this.#handleMessage(scanner, isFirst && mayShare ? chunk : undefined)) break;
        handled += 1;
        if ((toBackend.bytes > HIGH_WATER_BYTES || handled === PART_MESSAGES) && this.#queueRest(scanner.takeRest())) break;
      }
    } catch (error) {
      this.violated(error);
      return;
    }
    if (replies.missingSync === 'unclear') {
      this.endAfterProtocolError();
      return;
    }
    toBackend.flush();
    const isAnswered = replies.length === 0;
    if (wasIdle && !isAnswered) this.since = performance.now();
    const isOne = isFirst && !isAnswered && replies.batch === batch + 1 && this.unsyncedBatch < batch;
    // A request that has arrived alone and whole can be run again until a part of its reply has been sent.
    if (isOne && gate.input === undefined && scanner.last && scanner.held === undefined) inFlight.begin(chunk);
    else inFlight.end();
    if (link.lease === undefined) this.toClient.flush();
    else if (isAnswered) this.#settle();
    if (this.#isBackendFull()) this.client.pause();
  }

  /**
   * @param chunk whose beginning may be a request that may share a backend
   * @returns false when the message, and all behind it, has to wait
   */
  #handleMessage(scanner: FrameScanner, chunk: Buffer | undefined): boolean {
    const { gate, services, link, inspection } = this;
    if (link.begun !== undefined) this.#leaveBegun(scanner, link.begun);
    if (services.rewriter !== undefined && inspection.isRewrittenInSlices(scanner)) {
      if (link.lease !== undefined && this.statements.awaitsStrings(scanner)) {
        gate.hold(scanner.takeMessage());
        return false;
      }
      this.#rewriteLarge(scanner);
      return false;
    }
    let backend = link.lease?.backend;
    if (backend === undefined) {
      const isQuery = scanner.type === FrontendType.Query && scanner.first && this.refusal === undefined;
      if (!isQuery && answerLocally(this, scanner)) {
        if (scanner.last) inspection.isOver();
        return true;
      }
      backend = this.#checkOut(scanner, chunk);
      if (backend === undefined) return false;
    }
    if (this.status === 'I' && beginsTransaction(scanner) && this.startsPipeline && link.shared === undefined)
      link.begun = new BegunTransaction(this, scanner);
    const isHeld = this.statements.mustWait(scanner) || (gate.reasons !== 0 && scanner.first && gate.isClosed(WAITS_FOR_SETTINGS));
    if (isHeld || !forward(this, scanner, backend)) {
      gate.hold(scanner.takeMessage());
      return false;
    }
    if (scanner.last) inspection.isOver();
    return true;
  }

  /** The transaction does more than begin, on the backend on which it has begun, or on a second one. */
  #leaveBegun(scanner: FrameScanner, begun: BegunTransaction): void {
    const { link, replies, gate, status, received } = this;
    if (begun.isAwaited && replies.length === 0) this.toClient.flush();
    link.begun = undefined;
    const isAtRest = replies.length === 0 && gate.reasons === 0 && status === 'T' && !received.isAmidMessage;
    const mayMove = isAtRest && link.lease !== undefined && link.cancels?.underWay === undefined;
    const lease = begun.next(mayMove ? scanner : undefined);
    if (lease !== undefined) link.goOnWith(lease);
  }

  /** What waited for a second transaction to begin does so no longer. */
  beganElsewhere(begun: BegunTransaction): void {
    if (this.link.begun === begun && !this.isOver && this.replies.length === 0) this.toClient.flush();
  }

  /** Rewrites the message in time slices. It and the input behind it wait meanwhile. */
  #rewriteLarge(scanner: FrameScanner): void {
    const { client, gate } = this;
    const size = scanner.end - scanner.start;
    const input = scanner.takeMessage();
    const message = input.subarray(0, size);
    gate.holdFirst(input.subarray(size), Reason.rewriting);
    gate.holdFirst(message, Reason.rewriting);
    client.pause();
    this.inspection.rewriteInSlices(message).then(
      ({ rewritten, begin }) => {
        if (this.isOver) return;
        gate.replaceFirst(rewritten);
        begin();
        this.resumeInput();
      },
      (cause: unknown) => this.endByFailure(cause),
    );
  }

  /** @returns undefined when there is no backend yet, for which the message, and all behind it, waits */
  #checkOut(scanner: FrameScanner, chunk: Buffer | undefined): BackendConnection | undefined {
    const { checkout, gate } = this;
    const request = scanner.buffer === chunk && scanner.start === 0 ? chunk : undefined;
    const backend = checkout.tryCheckout(request);
    if (backend !== undefined) return backend;
    gate.holdFirst(scanner.takeMessage(), Reason.backend);
    this.since = performance.now();
    checkout.wait(request !== undefined);
    return undefined;
  }

  /** Handles what the backend has sent. @param chunk cut anywhere */
  override data(chunk: Buffer): void {
    const { client, replies, gate, link, toClient } = this;
    const { shared } = link;
    const isFollowed = shared?.isAwaited === true;
    let rest: Buffer | undefined;
    try {
      rest = this.received.receive(chunk, isFollowed);
    } catch (error) {
      if (!(error instanceof ServiceError))
        this.services.observe({ name: 'service.failure', message: 'a wire session failed', cause: error });
      this.closed();
      return;
    }
    if (replies.missingSync === 'unclear') {
      this.endAfterProtocolError();
      return;
    }
    if (gate.reasons !== 0 && gate.isClosed(Reason.replyPart)) this.#receiveMoreSoon();
    if (link.cancels?.due !== undefined) link.cancels.sendIfDue();
    if (replies.length === 0) this.#answered();
    else if (!this.isOver && !this.#holdsBackReply()) toClient.flushPart(this.received.isAmidMessage);
    if (client.writableLength > HIGH_WATER_BYTES && !this.isOver && !link.isQueued) this.backend?.pause();
    // The rest is copied, because the chunk's memory may be read into again. It is short.
    if (rest !== undefined && rest.length > 0) shared?.deliver(joined([rest], rest.length));
    if (gate.input !== undefined && link.shared === undefined) this.continueInput();
  }

  /** Lets the event loop handle other events before the rest of the backend's messages, which take long. */
  #receiveMoreSoon(): void {
    this.backend?.pause();
    setImmediate(() => {
      const { backend, gate, client } = this;
      if (backend === undefined || !gate.isClosed(Reason.replyPart)) return;
      if (client.writableLength <= HIGH_WATER_BYTES) backend.resume();
      this.data(NOTHING);
    });
  }

  /**
   * A cancel request that was meant for another client's request may still end this reply with an error. The request can run again only
   * if its client has no part of the reply. So a short reply is held until it is complete.
   */
  #holdsBackReply(): boolean {
    const { link, inFlight, toClient } = this;
    return link.mayMeetForeignCancel && inFlight.isUnanswered && toClient.bytes <= HELD_BACK_MAX_BYTES;
  }

  /** All that was asked has been answered. */
  #answered(): void {
    const { link, pins, services, received } = this;
    const isOver = this.ending !== undefined && this.isOver;
    const runsAgain = isOver ? received.isDiscarded : received.takeDiscarded();
    this.statements.answered();
    const isCanceled = link.cancels?.isAsked === true;
    const isDone = runsAgain || isOver;
    if (link.shared !== undefined) {
      if (runsAgain && !isOver) services.observe({ name: 'request.requeued' });
      // A state probe needs a backend on which no other client has requests.
      if (!isDone && pins.holdsState) link.finishKeepingState();
      else if (isDone || link.shared.isAwaited) link.finishSlot();
    }
    if (isOver || (link.shared !== undefined && link.isQueued)) return;
    if (runsAgain) {
      this.#runAgain();
      // The client's own cancel request came too late for the first attempt. It is meant for this one.
      if (isCanceled) void this.cancel();
    } else if (this.ending === undefined || !this.endedWithReplies()) {
      if (link.lease === undefined) this.#settleWithoutBackend();
      else this.#settle();
    }
  }

  /** Runs a request again, on a backend of its own: it has delayed others, or a cancel request for another client has hit it. */
  #runAgain(): void {
    if (this.received.isDiscarded) this.received.takeDiscarded();
    const { bytes } = this.inFlight;
    if (this.link.isUnsuited) this.link.giveUpUnsuited();
    if (bytes !== undefined) this.#handleInput(bytes, false);
  }

  /** The request was answered in a shared pipeline, and its slot has ended: no backend has to be checked in. */
  #settleWithoutBackend(): void {
    this.toClient.flush();
    this.endedAtRest();
  }

  /** All requests have been answered. The backend is checked in before the reply is written, so that the next client gets it sooner. */
  #settle(): void {
    this.#settleBackend();
    if (this.link.begun?.isAwaited !== true) this.toClient.flush();
  }

  /** Finds out what the session holds, checks the backend in, or keeps it. */
  #settleBackend(): void {
    const { link, pins, ending, gate } = this;
    if (link.lease === undefined || ending?.isOver === true || this.status !== 'I' || this.isUnsynced) return;
    if (!this.clientScanner.last) return;
    if (gate.reasons !== 0 && gate.isClosed(Reason.taking)) {
      this.#settingsTaken();
      return;
    }
    if (!this.#isCheckinDone()) return;
    pins.settingsState = 'settled';
    this.received.settingsRestored();
    if (ending !== undefined && this.endedAtRest()) return;
    if ((pins.reasons.size > 0 && link.isPinned()) || !this.#mayWaitForReader()) return;
    if (this.received.takeDefaultsChanged()) this.services.defaultsChanged();
    link.end();
    if (this.client.isPaused()) this.#resumeClient();
  }

  /** The backend has the session's settings, or has refused them for good. The input that has waited for that comes next. */
  #settingsTaken(): void {
    const { gate, link } = this;
    gate.open(Reason.taking);
    if (link.isUnsuited) link.giveUpUnsuited();
  }

  /**
   * Whether the unread part of the reply may stay in memory while the backend goes to another client. If not, the session keeps its
   * backend until the client has read: it then sends no more.
   */
  #mayWaitForReader(): boolean {
    const { client, toClient, services, gate } = this;
    if (gate.reasons !== 0) gate.open(Reason.reader);
    if (client.writableLength + toClient.bytes <= SMALL_BYTES) return true;
    toClient.flush();
    const unread = client.writableLength;
    if (unread > SMALL_BYTES && !services.bufferBudget.mayGrow(unread)) gate.close(Reason.reader);
    else services.bufferBudget.toClient(unread);
    return gate.reasons === 0 || !gate.isClosed(Reason.reader);
  }

  /** Goes on with input that has waited, if no reason to wait is left. */
  override continueInput(): void {
    const { gate } = this;
    if (gate.input === undefined || gate.isClosed(STILL_WAITING) || (gate.isClosed(Reason.backendBuffer) && this.#isBackendFull())) return;
    if (!this.statements.isWaiting) this.resumeInput();
  }

  /** Goes on with input that has waited. */
  override resumeInput(): void {
    const { gate } = this;
    gate.open(Reason.backendBuffer);
    for (const bytes of gate.release()) {
      // One of the messages may have to wait again. The input after it then waits behind it.
      if (gate.input !== undefined || this.#mustHoldOn()) gate.hold(bytes);
      else if (!this.isEnding) this.#handleInput(bytes);
    }
    this.#countInput();
    if (this.client.isPaused()) this.#resumeClient();
  }

  /** Reads from the client again, unless input has to wait. */
  #resumeClient(): void {
    if (this.gate.input === undefined && !this.isOver && !this.#isBackendFull()) this.client.resume();
  }

  #isBackendFull(): boolean {
    const { link } = this;
    return link.lease !== undefined && link.lease.backend.pendingBytes > HIGH_WATER_BYTES;
  }

  /** Counts the bytes of the client's input that are held. */
  #countInput(): void {
    const { services, clientScanner, gate } = this;
    const { bufferBudget } = services;
    const bytes = (clientScanner.held?.bytes ?? 0) + gate.inputBytes;
    if (bytes !== bufferBudget.fromClientBytes) bufferBudget.fromClient(bytes);
  }

  /**
   * Whether new input has to wait: the backend is shared, earlier input has not been sent yet, or ReadyForQuery is held while
   * settings are restored. A message that has begun (late data of a COPY) is read to its end first.
   */
  #mustHoldInput(): boolean {
    const { link, gate, clientScanner } = this;
    return link.shared !== undefined || gate.isClosed(Reason.signals) || (gate.isClosed(Reason.settings) && clientScanner.last);
  }

  /** Whether held input still has to wait: nothing is sent behind a request in a shared pipeline, or before signals have arrived. */
  #mustHoldOn(): boolean {
    const { link, replies, gate } = this;
    return (link.shared !== undefined && replies.length > 0) || gate.isClosed(Reason.signals);
  }

  /**
   * Few bytes from the client can hold many messages, or cause large statements to be prepared on the backend. The rest of the input
   * waits then.
   * @returns false when there is no rest
   */
  #queueRest(rest: Buffer): boolean {
    const { gate } = this;
    if (rest.length === 0) return false;
    gate.hold(rest);
    gate.close(Reason.backendBuffer);
    setImmediate(() => {
      if (gate.isClosed(Reason.backendBuffer) && !this.isOver) this.continueInput();
    });
    return true;
  }

  /**
   * Asks what the session has left on its idle backend, and restores the session's settings there.
   * @returns true when nothing remains to be done; false when a reply to one of Postern's own requests has to arrive first
   */
  #isCheckinDone(): boolean {
    const { link, pins, replies } = this;
    if (pins.suspected || replies.syncInCopy === 'ambiguous') {
      pins.suspected = false;
      const probe = new StateProbe(pins.customSettings, pins.unconfirmedOptions);
      link.ask(probe.message, { own: 'probe', probe });
    } else if (pins.locks?.checkDue === true) {
      pins.locks.checkDue = false;
      this.#checkLocks();
      return false;
    } else if (pins.hasSqlStatements && this.statements.describeBySql()) {
      // The session keeps its backend until it is known what they are.
    } else {
      const { cancels, backend } = link;
      if (backend !== undefined) pins.statementsHeld(this.statements.mustStay(backend));
      if (backend === undefined || !this.#mustRestoreSettings(backend)) return true;
      // The cancel request was meant for the client's request and could hit Postern's own.
      if (cancels?.underWay !== undefined) {
        this.#checkInAgainAfter(cancels.underWay);
        return false;
      }
      link.giveSettings(backend);
    }
    link.out.flush();
    return false;
  }

  /** RESET and DISCARD go back to the server's defaults, and not to the settings with which the client started. */
  #mustRestoreSettings({ session }: BackendConnection): boolean {
    const { pins } = this;
    return session.settings !== pins.settings && settingsChange(session.settings, pins.settings) !== undefined;
  }

  #checkLocks(): void {
    const { backend, services, pins } = this;
    this.#checkInAgainAfter(services.holdsAdvisoryLocks(backend?.processId ?? 0).then((held) => pins.locksHeld(held)));
  }

  #checkInAgainAfter(event: Promise<void>): void {
    const { link, replies } = this;
    const { lease } = link;
    void event.then(
      () => {
        if (link.lease === lease && replies.length === 0) this.#checkInAgain();
      },
      () => {},
    );
  }
}

/** Errors that end the session, and not only the request. */
function isFinal({ kind }: ServiceError): boolean {
  return kind === 'shutting_down' || kind === 'key_revoked' || kind === 'organization_suspended';
}

/** When more bytes than this wait to be written to one side, the other side is not read. */
const HIGH_WATER_BYTES = 262_144;
const HELD_BACK_MAX_BYTES = 65_536;
const NOTHING = Buffer.alloc(0);
const WAITS_FOR_SETTINGS = Reason.settings | Reason.taking;
const STILL_WAITING = Reason.backend | Reason.rewriting | Reason.signals | Reason.settings;

/** How many of the client's messages are handled in one turn of the event loop. Most of them take microseconds. */
const PART_MESSAGES = 1_000;
