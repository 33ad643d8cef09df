import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { ServiceError } from '../../src/errors.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import type { FrameScanner } from '../../src/protocol/message-framing.ts';
import { joined } from '../../src/runtime/bytes.ts';
import { SMALL_BYTES } from '../../src/runtime/memory-budget.ts';
import { HIGH_WATER_BYTES } from '../buffer-limits.ts';
import { isCheckinDone } from '../checkout/before-checkin.ts';
import { receiveReplies, settingsRestored } from './backend-messages.ts';
import {
  awaitSignals,
  beginInput,
  countInput,
  isBackendFull,
  isLargeText,
  keepInFlight,
  mustHoldOn,
  queueRest,
  resumeClient,
  rewriteLarge,
  takeMessage,
  terminated,
  violated,
} from './client-input.ts';
import { awaitsReplies, forward, mustWaitForReplies } from './forwarding.ts';
import { Reason } from './input-gate.ts';
import { answerLocally } from './local-replies.ts';
import { endAfterProtocolError, endedAtRest, endedWithReplies } from './session-end.ts';
import type { WireSession } from './wire-session.ts';

/*
 * The life of a request:
 *
 *     receive     the client's bytes, cut anywhere                     Relay.clientData → handleInput
 *     inspect     a large text is rewritten in slices first            handleMessage: isLargeText; forwarding → pinning/query-inspection
 *     check out   a backend that is free, or a shared one              checkOut
 *     gate        it waits for replies, settings or signals            mustWaitForReplies, Gate
 *     forward     with the names that the server knows                 forward
 *     reply       the backend's bytes go to the client                 Relay.data → handleReplies
 *     settle      all that was asked has been answered                 answered → settle
 *     check in    the backend goes back with nothing of the session    isCheckinDone, BackendLink.end
 */

/** Handles what the client has sent, message by message. @param chunk cut anywhere */
export function handleInput(session: WireSession, chunk: Buffer): void {
  const { clientScanner: scanner, replies, toBackend } = session;
  const wasIdle = replies.length === 0;
  const isFirst = wasIdle && session.status === 'I' && !scanner.midMessage && !session.isUnsynced;
  const batchBefore = isFirst ? replies.batch : undefined;
  beginInput(session);
  try {
    scanner.push(chunk);
    while (scanner.next()) {
      if (scanner.type === FrontendType.Terminate) {
        terminated(session, scanner);
        return;
      }
      if (!handleMessage(session, scanner, isFirst ? chunk : undefined)) break;
      if (toBackend.bytes > HIGH_WATER_BYTES && queueRest(session, scanner.takeRest())) break;
    }
  } catch (error) {
    violated(session, error);
    return;
  }
  if (replies.isUnclear) {
    endAfterProtocolError(session);
    return;
  }
  awaitSignals(session);
  toBackend.flush();
  if (wasIdle && replies.length > 0) session.since = performance.now();
  keepInFlight(session, chunk, batchBefore);
  if (session.link.lease === undefined) session.toClient.flush();
  else if (replies.length === 0) settle(session);
  if (isBackendFull(session)) session.client.pause();
}

/**
 * @param chunk whose beginning may be a request
 * @returns false when the message, and all behind it, has to wait
 */
function handleMessage(session: WireSession, scanner: FrameScanner, chunk: Buffer | undefined): boolean {
  const { gate } = session;
  if (isLargeText(session, scanner)) {
    rewriteLarge(session, scanner);
    return false;
  }
  let { backend } = session;
  if (backend === undefined) {
    if (answerLocally(session, scanner)) {
      session.rewritten = undefined;
      return true;
    }
    backend = checkOut(session, scanner, chunk);
    if (backend === undefined) return false;
  }
  const isHeld = mustWaitForReplies(session, scanner) || (scanner.first && gate.isClosed(Reason.settings));
  if (isHeld || !forward(session, scanner, backend)) {
    gate.hold(takeMessage(session, scanner));
    return false;
  }
  session.rewritten = undefined;
  return true;
}

/** @returns undefined when there is no backend yet, for which the message, and all behind it, waits */
function checkOut(session: WireSession, scanner: FrameScanner, chunk: Buffer | undefined): BackendConnection | undefined {
  const { checkout, gate } = session;
  const request = scanner.buffer === chunk && scanner.start === 0 ? chunk : undefined;
  const backend = checkout.tryCheckout(request);
  if (backend !== undefined) return backend;
  gate.holdFirst(takeMessage(session, scanner), Reason.backend);
  session.since = performance.now();
  checkout.wait(request !== undefined);
  return undefined;
}

/** Handles what the backend has sent. @param chunk cut anywhere */
export function handleReplies(session: WireSession, chunk: Buffer): void {
  const { client, replies, gate, link, toClient } = session;
  const { shared, isFollowed } = link;
  let rest: Buffer | undefined;
  try {
    rest = receiveReplies(session, chunk, isFollowed);
  } catch (error) {
    if (!(error instanceof ServiceError)) session.services.failed(error);
    session.events.closed(undefined);
    return;
  }
  if (replies.isUnclear) {
    endAfterProtocolError(session);
    return;
  }
  if (gate.isClosed(Reason.replyPart)) receiveMoreSoon(session);
  if (link.cancels.due !== undefined) link.cancels.sendIfDue();
  if (replies.length === 0) answered(session);
  else if (!session.isOver && !holdsBackReply(session)) toClient.flushPart(!session.backendScanner.last);
  if (client.writableLength === 0) session.lastTakenAt = performance.now();
  else if (client.writableLength > HIGH_WATER_BYTES && !session.isOver && !link.isQueued) session.backend?.pause();
  // The chunk may be read into again; the next one's bytes are few.
  if (rest !== undefined && rest.length > 0) shared?.deliver(joined([rest], rest.length));
  if (link.shared === undefined) continueInput(session);
}

/** What the backend has sent is much work: other events are handled first. */
function receiveMoreSoon(session: WireSession): void {
  session.backend?.pause();
  setImmediate(() => {
    const { backend, gate, client } = session;
    if (backend === undefined || !gate.isClosed(Reason.replyPart)) return;
    if (client.writableLength <= HIGH_WATER_BYTES) backend.resume();
    handleReplies(session, NOTHING);
  });
}

/** The answer may yet be cut short by a cancel request that was meant for another: the beginning of a short one can wait. */
function holdsBackReply({ link, inFlight, toClient }: WireSession): boolean {
  return link.mayMeetForeignCancel && inFlight.isUntold && toClient.bytes <= HELD_BACK_MAX_BYTES;
}

/** All that was asked has been answered. */
export function answered(session: WireSession): void {
  const { link, inFlight, pins, services, sentText, isHidden: runsAgain, isOver } = session;
  sentText.text = undefined;
  session.hasRunAgain = runsAgain;
  if (!isOver) inFlight.answered(runsAgain);
  const { isAsked: isCanceled } = link.cancels;
  const isDone = runsAgain || isOver;
  if (link.shared !== undefined) {
    if (runsAgain && !isOver) services.shared('requeued');
    // Where there is more to find out, others' backend is not the place for it.
    if (!isDone && pins.holdsState) link.finishKeepingState();
    else if (isDone || link.isFollowed) link.finishSlot();
  }
  if (session.isOver || link.isQueued) return;
  if (runsAgain) {
    runAgain(session);
    // Too late for what was canceled on behalf of others, and meant for what is run now.
    if (isCanceled) void cancel(session);
  } else if (!endedWithReplies(session)) {
    if (link.lease === undefined) passedOn(session);
    else settle(session);
  }
}

/** Sends again what has held up others, or has been hit by what was meant for one: to a backend that it has for itself. */
export function runAgain(session: WireSession): void {
  const { inFlight, checkout } = session;
  session.isHidden = false;
  if (inFlight.bytes === undefined) return;
  checkout.isExclusive = true;
  handleInput(session, inFlight.bytes);
  checkout.isExclusive = false;
}

/** The backend is another's already. */
function passedOn(session: WireSession): void {
  session.inFlight.end();
  session.toClient.flush();
  endedAtRest(session);
}

/** Nothing is owed. Others get the backend before the client gets its answer: they wait for it to work, not to read. */
export function settle(session: WireSession): void {
  settleBackend(session);
  session.toClient.flush();
}

/** Finds out what the session holds, checks the backend in, or keeps it. */
function settleBackend(session: WireSession): void {
  const { link, pins, inFlight } = session;
  if (link.lease === undefined || session.isOver || !session.isAtRest || !session.clientScanner.last) return;
  if (!isCheckinDone(session)) return;
  pins.restores = false;
  pins.unsettled = false;
  inFlight.end();
  settingsRestored(session);
  if (endedAtRest(session) || link.isPinned() || !mayWaitForReader(session)) return;
  link.end();
  resumeClient(session);
}

/** Whether there is room for what the client has not read: a backend that is kept sends no more, so that it is never much. */
function mayWaitForReader({ client, toClient, services, gate }: WireSession): boolean {
  gate.open(Reason.reader);
  if (client.writableLength + toClient.bytes <= SMALL_BYTES) return true;
  toClient.flush();
  const unread = client.writableLength;
  if (unread > SMALL_BYTES && !services.bufferBudget.mayGrow(unread)) gate.close(Reason.reader);
  else services.bufferBudget.toClient(unread);
  return !gate.isClosed(Reason.reader);
}

/** Goes on with input that has waited, if nothing is in its way any more. */
export function continueInput(session: WireSession): void {
  const { gate } = session;
  if (gate.isClear || gate.isClosed(STILL_WAITING) || (gate.isClosed(Reason.backendBuffer) && isBackendFull(session))) return;
  if (!awaitsReplies(session)) resumeInput(session);
}

/** Goes on with input that has waited. */
export function resumeInput(session: WireSession): void {
  const { gate } = session;
  gate.open(Reason.backendBuffer);
  for (const bytes of gate.release()) {
    // Waiting may begin again in the middle; the rest then belongs behind it.
    if (!gate.isClear || mustHoldOn(session)) gate.hold(bytes);
    else if (!session.isEnding) handleInput(session, bytes);
  }
  countInput(session);
  resumeClient(session);
}

/** Cancels what the client is waiting for, be it an answer or a backend. Resolves when the server has taken the request. */
export async function cancel({ link, checkout }: WireSession): Promise<void> {
  if (link.lease === undefined) checkout.giveUp();
  else await link.cancels.send();
}

const HELD_BACK_MAX_BYTES = 65_536;
export const NOTHING = Buffer.alloc(0);
const STILL_WAITING = Reason.backend | Reason.rewriting | Reason.signals | Reason.settings;
