import { Buffer } from 'node:buffer';
import { ServiceError } from '../../src/errors.ts';
import type { FrameScanner } from '../../src/protocol/frame.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import { LARGE_SQL_BYTES } from '../../src/router/schema-rewriting/rewrite.ts';
import { HIGH_WATER_BYTES } from '../buffer-limits.ts';
import { errorResponse } from '../errors.ts';
import { inspectInSlices } from '../inspection/streamed-traits.ts';
import type { RelayEnd } from '../sessions/session-services.ts';
import { Reason } from './gate.ts';
import { rewrittenMessage } from './messages.ts';
import { endAfterReplies, endByError, endNow } from './session-end.ts';
import { newClientScanner, type WireSession } from './wire-session.ts';

/* What a client sends, and what becomes of it where it is not simply forwarded. */

/** More input is handled: nothing of it has been seen yet. */
export function beginInput(session: WireSession): void {
  session.usesRepeated = false;
  session.usesUnnamed = false;
  session.isPlain = true;
  session.bound = undefined;
}

/** Counts what is held of what the client has sent. */
export function countInput({ services, clientScanner, gate, rewrittenBytes }: WireSession): void {
  services.held.fromClient(clientScanner.heldBytes + gate.inputBytes + rewrittenBytes);
}

/**
 * Whether new input has to wait: the backend is shared, or has not been sent what came before, or is being asked something on
 * the client's behalf before that hears that it is ready. Not before a message that has begun, late data of a COPY, is at its end.
 */
export function mustHoldInput({ link, gate, clientScanner }: WireSession): boolean {
  return link.shared !== undefined || gate.isClosed(Reason.signals) || (gate.isClosed(Reason.settings) && clientScanner.last);
}

/** Whether held input has to wait on: nothing is sent behind what a shared backend is asked, or behind signals. */
export function mustHoldOn({ link, replies, gate }: WireSession): boolean {
  return (link.shared !== undefined && replies.length > 0) || gate.isClosed(Reason.signals);
}

export function isBackendFull({ backend }: WireSession): boolean {
  return backend !== undefined && backend.pendingBytes > HIGH_WATER_BYTES;
}

/** Reads on from the client, if nothing is in the way. */
export function resumeClient(session: WireSession): void {
  const { client, gate, isOver } = session;
  if (client.isPaused() && gate.isClear && !isOver && !isBackendFull(session)) client.resume();
}

/** What has sent signals to other sessions is not answered before they have arrived: Postgres' functions send them themselves. */
export function awaitSignals({ services, link, replies, events }: WireSession): void {
  const signals = services.processIds.takeSignals();
  if (signals !== undefined && replies.length > 0) void link.holdBackUntil(signals).then(() => events.continueInput());
}

/**
 * A few bytes of the client's can make the backend be sent thousands of statements, or large ones: what is behind them waits.
 * @returns false when there is nothing behind
 */
export function leaveRest(session: WireSession, rest: Buffer): boolean {
  const { gate, events } = session;
  if (rest.length === 0) return false;
  gate.hold(rest);
  gate.close(Reason.room);
  setImmediate(() => {
    if (gate.isClosed(Reason.room) && !session.isOver) events.continueInput();
  });
  return true;
}

/** The client has sent Terminate. */
export function terminated(session: WireSession, { buffer, start, end }: FrameScanner): void {
  const { replies, toBackend } = session;
  // In the middle of COPY data Postgres takes it for an error, and says so.
  if (replies.copyIn) toBackend.add(buffer, start, end);
  toBackend.flush();
  endAfterReplies(session, { reason: 'terminated' });
}

/** The client has sent something that is no protocol, or cannot be handled. */
export function violated(session: WireSession, error: unknown): void {
  const { replies, toBackend } = session;
  toBackend.flush();
  const told = error instanceof ServiceError ? error : internalError(session, error);
  const end: RelayEnd = { reason: 'protocol_violation', finalError: errorResponse(told, 'FATAL') };
  // The reply to a COPY would wait for data that cannot be told apart any more.
  if (replies.copyIn) endNow(session, end);
  else endAfterReplies(session, end);
}

function internalError({ services }: WireSession, cause: unknown): ServiceError {
  services.failed(cause);
  return new ServiceError('internal', 'internal error', { cause });
}

/**
 * A request that has come alone and whole can be run again, as long as nothing of its answer has gone out.
 * @param requestsBefore how many requests had ended before; negative where something was unanswered
 */
export function keepInFlight(session: WireSession, chunk: Buffer, requestsBefore: number): void {
  const { requestCount, isUnsynced, clientScanner, gate, replies, inFlight } = session;
  const isOne = requestsBefore >= 0 && requestCount === requestsBefore + 1 && !isUnsynced && !clientScanner.midMessage;
  if (isOne && gate.isClear && replies.length > 0) inFlight.begin(chunk);
  else inFlight.end();
}

/** Whether the scanner stands at a text so long that others would notice its rewriting. */
export function isLargeText({ services, rewritten }: WireSession, { first, type, length, last }: FrameScanner): boolean {
  if (services.view === undefined || !first || length < LARGE_SQL_BYTES || rewritten !== undefined) return false;
  return last && (type === FrontendType.Query || type === FrontendType.Parse);
}

/** Takes the message out, rewrites it in slices, and goes on with it and what is behind it. */
export function rewriteLarge(session: WireSession, scanner: FrameScanner): void {
  const { client, services, gate, events } = session;
  const message = Buffer.from(scanner.buffer.subarray(scanner.start, scanner.end));
  gate.holdFirst(Buffer.from(scanner.takeRest()), Reason.rewriting);
  session.clientScanner = newClientScanner(services);
  session.rewrittenBytes = message.length;
  client.pause();
  const rewriting = rewrittenMessage(message, (sql) => services.view?.rewriteLarge(sql));
  Promise.all([rewriting, inspectInSlices(message)]).then(
    ([rewritten, inspected]) => {
      if (session.isOver) return;
      session.rewrittenBytes = 0;
      gate.holdFirst(rewritten, Reason.rewriting);
      session.rewritten = inspected;
      events.resumeInput();
    },
    (cause: unknown) => endByError(session, internalError(session, cause)),
  );
}

/** @returns the message that has begun, and all behind it, for later */
export function takeOut(session: WireSession, scanner: FrameScanner): Buffer {
  const { services } = session;
  if (!scanner.last) session.clientScanner = newClientScanner(services);
  return Buffer.concat([scanner.buffer.subarray(scanner.start, scanner.end), scanner.takeRest()]);
}
