import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import type { BackendConnection } from '../src/backend/connection.ts';
import { Request, type RequestKind } from '../src/backend/reply-queue.ts';
import { ServiceError } from '../src/errors.ts';
import { CLOSE_COMPLETE, PARSE_COMPLETE } from '../src/protocol/backend.ts';
import type { FrameScanner } from '../src/protocol/framing.ts';
import { FrontendType, queryMessage } from '../src/protocol/frontend.ts';
import type { Lease } from '../src/router/lease.ts';
import { joined } from '../src/runtime/bytes.ts';
import { SMALL_BYTES } from '../src/runtime/memory-budget.ts';
import { receiveReplies, settingsRestored } from './backend-messages.ts';
import { isOwn } from './checkout.ts';
import type { ClientReceiver } from './client-connection.ts';
import { DescribeReply, type Effect } from './client-statements.ts';
import { answerLocally, awaitsReplies, forward, mustWaitForReplies } from './frontend-messages.ts';
import { Reason } from './gate.ts';
import { isLargeText, type RequestEnd, rewriteLarge } from './inspection.ts';
import { type Pins, StateProbe, settingsChange } from './pins.ts';
import { awaitsStrings } from './server-statements.ts';
import {
  abandon,
  clientGone,
  endAfterMessage,
  endAfterProtocolError,
  endAtRest,
  endByError,
  endByForce,
  endedAtRest,
  endedWithReplies,
  endingOf,
  endWithoutBackend,
  terminated,
  violated,
} from './session-end.ts';
import type { SessionServices } from './session-services.ts';
import { type Activity, type RelayEvents, WireSession } from './wire-session.ts';

/**
 * Receives what happens to one {@link WireSession}: input of the client, replies of its present backend, calls of the service, and
 * the end of whatever a step of a request has waited for. It calls the step that comes next.
 */
export class Relay implements RelayEvents, ClientReceiver {
  /** Among those who are watched. */
  index = -1;
  readonly session: WireSession;

  /** @param parameters ParameterStatus values as the client knows them */
  constructor(client: Duplex, services: SessionServices, pins: Pins, parameters: ReadonlyMap<string, string>) {
    this.session = new WireSession(client, services, pins, parameters, this);
  }

  /* The client. */

  clientData(chunk: Buffer): void {
    const { session } = this;
    const { gate, link, services, clientScanner } = session;
    if (session.ending !== undefined && session.ignoresInput) return;
    session.bytesIn += chunk.length;
    services.usage.bytesIn += chunk.length;
    if ((link.shared !== undefined || gate.reasons !== 0) && mustHoldInput(session)) gate.holdNext();
    if (gate.input === undefined) handleInput(session, chunk);
    else {
      gate.hold(chunk);
      // Most clients send nothing more until they are answered. One that does is not read for a while.
      session.client.pause();
    }
    if (gate.input !== undefined || (clientScanner.held?.bytes ?? 0) !== services.bufferBudget.fromClientBytes) countInput(session);
  }

  clientDrained(): void {
    const { session } = this;
    session.services.bufferBudget.toClient(0);
    session.backend?.resume();
    if (session.gate.isClosed(Reason.reader) && !session.isBusy) this.checkInAgain();
  }

  clientEnded(): void {
    endingOf(this.session).halfClosed = true;
    if (!this.session.isBusy) clientGone(this.session);
  }

  clientClosed(): void {
    clientGone(this.session);
  }

  /* The backend. */

  data(chunk: Buffer): void {
    handleReplies(this.session, chunk);
  }

  /** Replies are written to the client at once. The chunk is needed longer if the kernel has not taken all, or a part is not handled yet. */
  get holdsChunk(): boolean {
    const { client, toClient, gate } = this.session;
    return client.writableLength > 0 || toClient.bytes > 0 || (gate.reasons !== 0 && gate.isClosed(Reason.replyPart));
  }

  drain(): void {
    const { session } = this;
    if (session.isOver) return;
    if (session.gate.isClosed(Reason.backendBuffer)) continueInput(session);
    else if (session.gate.input === undefined) session.client.resume();
  }

  closed(): void {
    const { session } = this;
    while (session.gate.isClosed(Reason.replyPart) && session.link.lease !== undefined) handleReplies(session, NOTHING);
    session.link.lost();
    endWithoutBackend(session);
  }

  /* The replies that are owed. */

  simulate(request: RequestKind): void {
    const { attempt, toClient } = this.session;
    if (attempt !== 'discarded') toClient.insert(request === Request.parse ? PARSE_COMPLETE : CLOSE_COMPLETE);
  }

  done(request: RequestKind, subject: unknown): void {
    const { session } = this;
    const isOurs = subject !== undefined && isOwn(subject);
    if (request === Request.query && !isOurs) unnamedDestroyed(session);
    if (subject === undefined) return;
    if (hasEffect(request)) {
      if (session.effects !== undefined) session.effects.allDeallocated = false;
      const effect = subject as Effect;
      effect.done?.();
      if (effect.statement !== undefined) effect.statement.proven = true;
    } else if (!isOurs) {
      const { batch } = subject as RequestEnd;
      if (batch !== undefined) session.audit?.done(batch);
    } else if (subject.own === 'probe') probed(session, subject.probe);
    else if (subject.own === 'shape') subject.done();
  }

  dropped(request: RequestKind, subject: unknown, failed: boolean): void {
    const { effects, statements } = this.session;
    if (subject instanceof DescribeReply) subject.dropped();
    else if (subject !== undefined && hasEffect(request)) {
      if (effects !== undefined) effects.allDeallocated = false;
      (subject as Effect).undo(failed);
    } else if (request === Request.query) statements.unnamedUndone(undefined, false);
  }

  /* What a step has waited for. */

  granted(): void {
    resumeInput(this.session);
  }

  /** The client's next request is answered with this error, unless the error ends the session. */
  refused(reason: ServiceError): void {
    const { session } = this;
    if (isFinal(reason)) {
      endByError(session, reason);
      return;
    }
    session.refusal = reason;
    resumeInput(session);
  }

  continueInput(): void {
    continueInput(this.session);
  }

  resumeInput(): void {
    resumeInput(this.session);
  }

  checkInAgain(): void {
    settle(this.session);
    continueInput(this.session);
  }

  runElsewhere(isCanceled: boolean): void {
    const { session } = this;
    if (session.isOver) return;
    session.replies.abandon();
    // These are replies that Postern has made. They waited for replies of the server, which will not come.
    session.toClient.clear();
    session.services.observe({ name: 'request.requeued' });
    runAgain(session);
    if (isCanceled) void this.cancel();
    continueInput(session);
  }

  tookOver(): void {
    answered(this.session);
    continueInput(this.session);
  }

  /* The service: the watchdog, revoked keys, shutdown, cancel requests. */

  get activity(): Activity {
    return this.session.activity;
  }

  get since(): number {
    return this.session.since;
  }

  get halfClosed(): boolean {
    return this.session.ending?.halfClosed === true;
  }

  /** Bytes that the client has not read yet. */
  get unsent(): number {
    return this.session.client.writableLength;
  }

  /** Bytes that the client has read since its login. */
  get taken(): number {
    return this.session.toClient.written - this.unsent;
  }

  /** The backend at hand, e.g. to be canceled. */
  get lease(): Lease | undefined {
    const { link } = this.session;
    return link.isQueued ? undefined : link.lease;
  }

  /** As the function {@link cancel}. */
  cancel(): Promise<void> {
    return cancel(this.session);
  }

  /** As {@link cancel}, but the service cancels: what the client sends meanwhile waits, so that the cancel request does not hit it. */
  stop(): void {
    void this.session.link.holdBackUntil(this.cancel()).then(() => continueInput(this.session));
  }

  /** As {@link endAfterMessage}. */
  end(error: ServiceError): void {
    endAfterMessage(this.session, error);
  }

  /** As {@link endByForce}. */
  terminate(error: ServiceError): void {
    endByForce(this.session, error);
  }

  get isAtRest(): boolean {
    return this.session.isAtRest;
  }

  endAtRest(error: ServiceError): void {
    endAtRest(this.session, error);
  }

  abandon(): void {
    abandon(this.session);
  }
}

/** Errors that end the session, and not only the request. */
function isFinal({ kind }: ServiceError): boolean {
  return kind === 'shutting_down' || kind === 'key_revoked' || kind === 'organization_suspended';
}

/** Requests that change the client's statements or portals. */
function hasEffect(request: RequestKind): boolean {
  return request === Request.parse || request === Request.bind || request === Request.close;
}

/** A Query has destroyed the unnamed statement. */
function unnamedDestroyed({ statements }: WireSession): void {
  if (statements.unnamed !== undefined || statements.settledUnnamed !== undefined) statements.unnamedSettled(undefined);
}

function probed({ pins, backend }: WireSession, probe: StateProbe): void {
  const facts = probe.facts();
  pins.probed(facts);
  backend?.session.settingsMade(facts.settings);
}

/*
 * The life of a request:
 *
 *     receive     the client's bytes, cut anywhere                     Relay.clientData → handleInput
 *     inspect     a large text is rewritten in slices first            isLargeText, rewriteLarge; forwarding → inspection/query-inspection
 *     check out   a backend that is free, or a shared one              checkOut
 *     gate        the message waits for replies, settings or signals   mustWaitForReplies, Gate
 *     forward     the message goes to the backend, with server names   forward
 *     reply       the backend's bytes go to the client                 Relay.data → handleReplies
 *     settle      all that was asked has been answered                 answered → settle
 *     check in    the backend goes back with nothing of the session    isCheckinDone, BackendLink.end
 */

/**
 * Handles what the client has sent, message by message.
 * @param chunk cut anywhere
 * @param mayShare false: the requests in it have delayed others, or a cancel request for another has hit them
 */
function handleInput(session: WireSession, chunk: Buffer, mayShare = true): void {
  const { clientScanner: scanner, replies, toBackend, gate, inFlight, link } = session;
  const wasIdle = replies.length === 0;
  const isFirst = wasIdle && session.status === 'I' && !session.isUnsynced && scanner.last && scanner.held === undefined;
  const { batch } = replies;
  session.usesRepeated = false;
  session.timed = 'text';
  let handled = 0;
  try {
    scanner.push(chunk);
    while (scanner.next()) {
      if (scanner.type === FrontendType.Terminate) {
        terminated(session, scanner);
        return;
      }
      if (!handleMessage(session, scanner, isFirst && mayShare ? chunk : undefined)) break;
      handled += 1;
      if ((toBackend.bytes > HIGH_WATER_BYTES || handled === PART_MESSAGES) && queueRest(session, scanner.takeRest())) break;
    }
  } catch (error) {
    violated(session, error);
    return;
  }
  if (replies.missingSync === 'unclear') {
    endAfterProtocolError(session);
    return;
  }
  toBackend.flush();
  const isAnswered = replies.length === 0;
  if (wasIdle && !isAnswered) session.since = performance.now();
  const isOne = isFirst && !isAnswered && replies.batch === batch + 1 && session.unsyncedBatch < batch;
  // A request that has arrived alone and whole can be run again until a part of its reply has been sent.
  if (isOne && gate.input === undefined && scanner.last && scanner.held === undefined) inFlight.begin(chunk);
  else inFlight.end();
  if (link.lease === undefined) session.toClient.flush();
  else if (isAnswered) settle(session);
  if (isBackendFull(session)) session.client.pause();
}

/**
 * @param chunk whose beginning may be a request that may share a backend
 * @returns false when the message, and all behind it, has to wait
 */
function handleMessage(session: WireSession, scanner: FrameScanner, chunk: Buffer | undefined): boolean {
  const { gate, services, link } = session;
  if (services.rewriter !== undefined && isLargeText(session, scanner)) {
    if (link.lease !== undefined && awaitsStrings(session, scanner)) {
      gate.hold(scanner.takeMessage());
      return false;
    }
    rewriteLarge(session, scanner);
    return false;
  }
  let backend = link.lease?.backend;
  if (backend === undefined) {
    const isQuery = scanner.type === FrontendType.Query && scanner.first && session.refusal === undefined;
    if (!isQuery && answerLocally(session, scanner)) {
      if (scanner.last) session.largeText = undefined;
      return true;
    }
    backend = checkOut(session, scanner, chunk);
    if (backend === undefined) return false;
  }
  const isHeld = mustWaitForReplies(session, scanner) || (gate.reasons !== 0 && scanner.first && gate.isClosed(Reason.settings));
  if (isHeld || !forward(session, scanner, backend)) {
    gate.hold(scanner.takeMessage());
    return false;
  }
  if (scanner.last) session.largeText = undefined;
  return true;
}

/** @returns undefined when there is no backend yet, for which the message, and all behind it, waits */
function checkOut(session: WireSession, scanner: FrameScanner, chunk: Buffer | undefined): BackendConnection | undefined {
  const { checkout, gate } = session;
  const request = scanner.buffer === chunk && scanner.start === 0 ? chunk : undefined;
  const backend = checkout.tryCheckout(request);
  if (backend !== undefined) return backend;
  gate.holdFirst(scanner.takeMessage(), Reason.backend);
  session.since = performance.now();
  checkout.wait(request !== undefined);
  return undefined;
}

/** Handles what the backend has sent. @param chunk cut anywhere */
function handleReplies(session: WireSession, chunk: Buffer): void {
  const { client, replies, gate, link, toClient } = session;
  const { shared } = link;
  const isFollowed = shared?.isAwaited === true;
  let rest: Buffer | undefined;
  try {
    rest = receiveReplies(session, chunk, isFollowed);
  } catch (error) {
    if (!(error instanceof ServiceError))
      session.services.observe({ name: 'service.failure', message: 'a wire session failed', cause: error });
    session.events.closed(undefined);
    return;
  }
  if (replies.missingSync === 'unclear') {
    endAfterProtocolError(session);
    return;
  }
  if (gate.reasons !== 0 && gate.isClosed(Reason.replyPart)) receiveMoreSoon(session);
  if (link.cancels?.due !== undefined) link.cancels.sendIfDue();
  if (replies.length === 0) answered(session);
  else if (!session.isOver && !holdsBackReply(session)) toClient.flushPart(!session.backendScanner.last);
  if (client.writableLength > HIGH_WATER_BYTES && !session.isOver && !link.isQueued) session.backend?.pause();
  // The rest is copied, because the chunk's memory may be read into again. It is short.
  if (rest !== undefined && rest.length > 0) shared?.deliver(joined([rest], rest.length));
  if (gate.input !== undefined && link.shared === undefined) continueInput(session);
}

/** Lets the event loop handle other events before the rest of the backend's messages, which take long. */
function receiveMoreSoon(session: WireSession): void {
  session.backend?.pause();
  setImmediate(() => {
    const { backend, gate, client } = session;
    if (backend === undefined || !gate.isClosed(Reason.replyPart)) return;
    if (client.writableLength <= HIGH_WATER_BYTES) backend.resume();
    handleReplies(session, NOTHING);
  });
}

/**
 * A cancel request that was meant for another client's request may still end this reply with an error. The request can run again only
 * if its client has no part of the reply. So a short reply is held until it is complete.
 */
function holdsBackReply({ link, inFlight, toClient }: WireSession): boolean {
  return link.mayMeetForeignCancel && inFlight.isUnanswered && toClient.bytes <= HELD_BACK_MAX_BYTES;
}

/** All that was asked has been answered. */
function answered(session: WireSession): void {
  const { link, pins, services, sentText, attempt } = session;
  const isOver = session.ending !== undefined && session.isOver;
  const runsAgain = attempt === 'discarded';
  sentText.text = undefined;
  if (!isOver) session.attempt = runsAgain ? 'second' : 'first';
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
    runAgain(session);
    // The client's own cancel request came too late for the first attempt. It is meant for this one.
    if (isCanceled) void cancel(session);
  } else if (session.ending === undefined || !endedWithReplies(session)) {
    if (link.lease === undefined) settleWithoutBackend(session);
    else settle(session);
  }
}

/** Runs a request again, on a backend of its own: it has delayed others, or a cancel request for another client has hit it. */
function runAgain(session: WireSession): void {
  if (session.attempt === 'discarded') session.attempt = 'second';
  const { bytes } = session.inFlight;
  if (bytes !== undefined) handleInput(session, bytes, false);
}

/** The request was answered in a shared pipeline, and its slot has ended: no backend has to be checked in. */
function settleWithoutBackend(session: WireSession): void {
  session.toClient.flush();
  endedAtRest(session);
}

/** All requests have been answered. The backend is checked in before the reply is written, so that the next client gets it sooner. */
function settle(session: WireSession): void {
  settleBackend(session);
  session.toClient.flush();
}

/** Finds out what the session holds, checks the backend in, or keeps it. */
function settleBackend(session: WireSession): void {
  const { link, pins, gate, ending } = session;
  if (link.lease === undefined || ending?.isOver === true || session.status !== 'I' || session.isUnsynced) return;
  if (!session.clientScanner.last) return;
  if (!isCheckinDone(session)) return;
  pins.settingsState = 'settled';
  if (session.reported !== undefined || gate.reasons !== 0) settingsRestored(session);
  if (ending !== undefined && endedAtRest(session)) return;
  if ((pins.reasons.size > 0 && link.isPinned()) || !mayWaitForReader(session)) return;
  if (session.effects?.defaultsChanged === true) session.services.defaultsChanged();
  session.effects = undefined;
  link.end();
  if (session.client.isPaused()) resumeClient(session);
}

/**
 * Whether the unread part of the reply may stay in memory while the backend goes to another client. If not, the session keeps its
 * backend until the client has read: it then sends no more.
 */
function mayWaitForReader({ client, toClient, services, gate }: WireSession): boolean {
  if (gate.reasons !== 0) gate.open(Reason.reader);
  if (client.writableLength + toClient.bytes <= SMALL_BYTES) return true;
  toClient.flush();
  const unread = client.writableLength;
  if (unread > SMALL_BYTES && !services.bufferBudget.mayGrow(unread)) gate.close(Reason.reader);
  else services.bufferBudget.toClient(unread);
  return gate.reasons === 0 || !gate.isClosed(Reason.reader);
}

/** Goes on with input that has waited, if no reason to wait is left. */
function continueInput(session: WireSession): void {
  const { gate } = session;
  if (gate.input === undefined || gate.isClosed(STILL_WAITING) || (gate.isClosed(Reason.backendBuffer) && isBackendFull(session))) return;
  if (!awaitsReplies(session)) resumeInput(session);
}

/** Goes on with input that has waited. */
function resumeInput(session: WireSession): void {
  const { gate } = session;
  gate.open(Reason.backendBuffer);
  for (const bytes of gate.release()) {
    // One of the messages may have to wait again. The input after it then waits behind it.
    if (gate.input !== undefined || mustHoldOn(session)) gate.hold(bytes);
    else if (!session.isEnding) handleInput(session, bytes);
  }
  countInput(session);
  if (session.client.isPaused()) resumeClient(session);
}

/** Reads from the client again, unless input has to wait. */
function resumeClient(session: WireSession): void {
  if (session.gate.input === undefined && !session.isOver && !isBackendFull(session)) session.client.resume();
}

function isBackendFull({ link }: WireSession): boolean {
  return link.lease !== undefined && link.lease.backend.pendingBytes > HIGH_WATER_BYTES;
}

/** Cancels what the client is waiting for, be it an answer or a backend. Resolves when the server has taken the request. */
async function cancel({ link, checkout }: WireSession): Promise<void> {
  if (link.lease === undefined) checkout.giveUp();
  else await link.cancel();
}

/** When more bytes than this wait to be written to one side, the other side is not read. */
const HIGH_WATER_BYTES = 262_144;
const HELD_BACK_MAX_BYTES = 65_536;
const NOTHING = Buffer.alloc(0);
const STILL_WAITING = Reason.backend | Reason.rewriting | Reason.signals | Reason.settings;

/* Which of the client's input has to wait, and the count of what is held. */

/** Counts the bytes of the client's input that are held. */
function countInput({ services, clientScanner, gate }: WireSession): void {
  const { bufferBudget } = services;
  const bytes = (clientScanner.held?.bytes ?? 0) + gate.inputBytes;
  if (bytes !== bufferBudget.fromClientBytes) bufferBudget.fromClient(bytes);
}

/**
 * Whether new input has to wait: the backend is shared, earlier input has not been sent yet, or ReadyForQuery is held while
 * settings are restored. A message that has begun (late data of a COPY) is read to its end first.
 */
function mustHoldInput({ link, gate, clientScanner }: WireSession): boolean {
  return link.shared !== undefined || gate.isClosed(Reason.signals) || (gate.isClosed(Reason.settings) && clientScanner.last);
}

/** Whether held input still has to wait: nothing is sent behind a request in a shared pipeline, or before signals have arrived. */
function mustHoldOn({ link, replies, gate }: WireSession): boolean {
  return (link.shared !== undefined && replies.length > 0) || gate.isClosed(Reason.signals);
}

/** How many of the client's messages are handled in one turn of the event loop. Most of them take microseconds. */
const PART_MESSAGES = 1_000;

/**
 * Few bytes from the client can hold many messages, or cause large statements to be prepared on the backend. The rest of the input
 * waits then.
 * @returns false when there is no rest
 */
function queueRest(session: WireSession, rest: Buffer): boolean {
  const { gate, events } = session;
  if (rest.length === 0) return false;
  gate.hold(rest);
  gate.close(Reason.backendBuffer);
  setImmediate(() => {
    if (gate.isClosed(Reason.backendBuffer) && !session.isOver) events.continueInput();
  });
  return true;
}

/**
 * Asks what the session has left on its idle backend, and restores the session's settings there.
 * @returns true when nothing remains to be done; false when a reply to one of Postern's own requests has to arrive first
 */
function isCheckinDone(session: WireSession): boolean {
  const { link, pins, replies } = session;
  if (pins.suspected || replies.syncInCopy === 'ambiguous') {
    pins.suspected = false;
    const probe = new StateProbe(pins.customSettings, pins.unconfirmedOptions);
    link.ask(probe.message, { own: 'probe', probe });
  } else if (pins.locks?.checkDue === true) {
    pins.locks.checkDue = false;
    checkLocks(session);
    return false;
  } else {
    const change = settingsToRestore(session);
    if (change === undefined) return true;
    const { cancels, backend } = link;
    // The cancel request was meant for the client's request and could hit Postern's own.
    if (cancels?.underWay !== undefined) {
      checkInAgainAfter(session, cancels.underWay);
      return false;
    }
    backend?.session.settingsMade(pins.settings);
    link.ask(queryMessage(change), { own: 'settings' });
  }
  link.out.flush();
  return false;
}

/** RESET and DISCARD go back to the server's defaults, and not to the settings with which the client started. */
function settingsToRestore({ pins, link }: WireSession): string | undefined {
  const backend = link.lease?.backend;
  if (backend === undefined || backend.session.settings === pins.settings) return undefined;
  return settingsChange(backend.session.settings, pins.settings);
}

function checkLocks(session: WireSession): void {
  const { backend, services, pins } = session;
  checkInAgainAfter(
    session,
    services.holdsAdvisoryLocks(backend?.processId ?? 0).then((held) => pins.locksHeld(held)),
  );
}

function checkInAgainAfter(session: WireSession, event: Promise<void>): void {
  const { link, replies, events } = session;
  const { lease } = link;
  void event.then(
    () => {
      if (link.lease === lease && replies.length === 0) events.checkInAgain();
    },
    () => {},
  );
}
