import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { ServiceError } from '../../src/errors.ts';
import type { FrameScanner } from '../../src/protocol/framing.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import { joined } from '../../src/runtime/bytes.ts';
import { SMALL_BYTES } from '../../src/runtime/memory-budget.ts';
import { isCheckinDone } from '../checkout/before-checkin.ts';
import { isLargeText, rewriteLarge } from '../inspection/large-text-rewriting.ts';
import { awaitsStrings } from '../prepared/statement-preparation.ts';
import { receiveReplies, settingsRestored } from './backend-messages.ts';
import { awaitsReplies, forward, mustWaitForReplies } from './forwarding.ts';
import { Reason } from './input-gate.ts';
import { countInput, mustHoldOn, queueRest } from './input-hold-rules.ts';
import { answerLocally } from './local-replies.ts';
import { endAfterProtocolError, endedAtRest, endedWithReplies, terminated, violated } from './session-end.ts';
import type { WireSession } from './wire-session.ts';

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
export function handleInput(session: WireSession, chunk: Buffer, mayShare = true): void {
  const { clientScanner: scanner, replies, toBackend, gate, inFlight, link } = session;
  const wasIdle = replies.length === 0;
  const isFirst = wasIdle && session.status === 'I' && !session.isUnsynced && scanner.last && scanner.held === undefined;
  const { batch } = replies;
  session.usesRepeated = false;
  session.timed = 'text';
  try {
    scanner.push(chunk);
    while (scanner.next()) {
      if (scanner.type === FrontendType.Terminate) {
        terminated(session, scanner);
        return;
      }
      if (!handleMessage(session, scanner, isFirst && mayShare ? chunk : undefined)) break;
      if (toBackend.bytes > HIGH_WATER_BYTES && queueRest(session, scanner.takeRest())) break;
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
export function handleReplies(session: WireSession, chunk: Buffer): void {
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
export function answered(session: WireSession): void {
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
export function runAgain(session: WireSession): void {
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
export function settle(session: WireSession): void {
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
export function continueInput(session: WireSession): void {
  const { gate } = session;
  if (gate.input === undefined || gate.isClosed(STILL_WAITING) || (gate.isClosed(Reason.backendBuffer) && isBackendFull(session))) return;
  if (!awaitsReplies(session)) resumeInput(session);
}

/** Goes on with input that has waited. */
export function resumeInput(session: WireSession): void {
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
export async function cancel({ link, checkout }: WireSession): Promise<void> {
  if (link.lease === undefined) checkout.giveUp();
  else await link.cancel();
}

/** When more bytes than this wait to be written to one side, the other side is not read. */
const HIGH_WATER_BYTES = 262_144;
const HELD_BACK_MAX_BYTES = 65_536;
export const NOTHING = Buffer.alloc(0);
const STILL_WAITING = Reason.backend | Reason.rewriting | Reason.signals | Reason.settings;
