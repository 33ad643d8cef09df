import { Buffer } from 'node:buffer';
import { ServiceError } from '../../src/errors.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import type { FrameScanner } from '../../src/protocol/message-framing.ts';
import { LARGE_SQL_BYTES } from '../../src/router/schema-rewriting/rewrite-sql.ts';
import { HIGH_WATER_BYTES } from '../buffer-limits.ts';
import { errorResponse } from '../errors.ts';
import { inspectInSlices } from '../inspection/streamed-traits.ts';
import type { RelayEnd } from '../sessions/session-services.ts';
import { Reason } from './input-gate.ts';
import { rewrittenMessage } from './message-builders.ts';
import { endAfterReplies, endByError, endNow } from './session-end.ts';
import { newClientScanner, type WireSession } from './wire-session.ts';

/* Handles the client's input that is not simply forwarded. */

/** Resets what is noted about a piece of input. */
export function beginInput(session: WireSession): void {
  session.usesRepeated = false;
  session.usesUnnamed = false;
  session.isPlain = true;
  session.bound = undefined;
}

/** Counts the bytes of the client's input that are held. */
export function countInput({ services, clientScanner, gate, rewrittenBytes }: WireSession): void {
  const { bufferBudget } = services;
  const bytes = clientScanner.heldBytes + gate.inputBytes + rewrittenBytes;
  if (bytes !== bufferBudget.fromClientBytes) bufferBudget.fromClient(bytes);
}

/**
 * Whether new input has to wait: the backend is shared, earlier input has not been sent yet, or ReadyForQuery is held while
 * settings are restored. A message that has begun (late data of a COPY) is read to its end first.
 */
export function mustHoldInput({ link, gate, clientScanner }: WireSession): boolean {
  return link.shared !== undefined || gate.isClosed(Reason.signals) || (gate.isClosed(Reason.settings) && clientScanner.last);
}

/** Whether held input still has to wait: nothing is sent behind a request in a shared pipeline, or before signals have arrived. */
export function mustHoldOn({ link, replies, gate }: WireSession): boolean {
  return (link.shared !== undefined && replies.length > 0) || gate.isClosed(Reason.signals);
}

export function isBackendFull({ backend }: WireSession): boolean {
  return backend !== undefined && backend.pendingBytes > HIGH_WATER_BYTES;
}

/** Reads from the client again, unless input has to wait. */
export function resumeClient(session: WireSession): void {
  const { client, gate, isOver } = session;
  if (client.isPaused() && gate.isClear && !isOver && !isBackendFull(session)) client.resume();
}

/** Delays a request that signals other sessions until the signals have arrived, because PostgreSQL's functions send theirs before they return. */
export function awaitSignals({ services, link, replies, events }: WireSession): void {
  const { processIds } = services;
  const { signals } = processIds;
  if (signals === undefined) return;
  processIds.signals = undefined;
  if (replies.length > 0) void link.holdBackUntil(signals).then(() => events.continueInput());
}

/**
 * Few bytes from the client can cause many or large statements to be prepared on the backend. The rest of the input waits then.
 * @returns false when there is no rest
 */
export function queueRest(session: WireSession, rest: Buffer): boolean {
  const { gate, events } = session;
  if (rest.length === 0) return false;
  gate.hold(rest);
  gate.close(Reason.backendBuffer);
  setImmediate(() => {
    if (gate.isClosed(Reason.backendBuffer) && !session.isOver) events.continueInput();
  });
  return true;
}

/** The client has sent Terminate. */
export function terminated(session: WireSession, { buffer, start, end }: FrameScanner): void {
  const { replies, toBackend } = session;
  // During COPY FROM STDIN PostgreSQL answers it with an error.
  if (replies.copyIn) toBackend.add(buffer, start, end);
  toBackend.flush();
  endAfterReplies(session, { reason: 'terminated' });
}

/** The client has violated the protocol, or its input could not be handled. */
export function violated(session: WireSession, error: unknown): void {
  const { replies, toBackend } = session;
  toBackend.flush();
  const told = error instanceof ServiceError ? error : internalError(session, error);
  const end: RelayEnd = { reason: 'protocol_violation', finalError: errorResponse(told, 'FATAL') };
  // A COPY would wait for data whose messages cannot be recognized any more.
  if (replies.copyIn) endNow(session, end);
  else endAfterReplies(session, end);
}

function internalError({ services }: WireSession, cause: unknown): ServiceError {
  services.failed(cause);
  return new ServiceError('internal', 'internal error', { cause });
}

/**
 * Keeps a request that has arrived alone and whole. It can be run again until a part of its reply has been sent.
 * @param batchBefore the number of its batch, if all before it had been answered
 */
export function keepInFlight(session: WireSession, chunk: Buffer, batchBefore: number | undefined): void {
  const { isUnsynced, clientScanner, gate, replies, inFlight } = session;
  const isOne = batchBefore !== undefined && replies.batch === batchBefore + 1 && !isUnsynced && !clientScanner.midMessage;
  if (isOne && gate.isClear && replies.length > 0) inFlight.begin(chunk);
  else inFlight.end();
}

/** Whether the scanner's message has a text so long that rewriting it at once would delay other sessions. */
export function isLargeText({ services, rewritten }: WireSession, { first, type, length, last }: FrameScanner): boolean {
  if (services.rewriter === undefined || !first || length < LARGE_SQL_BYTES || rewritten !== undefined) return false;
  return last && (type === FrontendType.Query || type === FrontendType.Parse);
}

/** Rewrites the message in time slices. It and the input behind it wait meanwhile. */
export function rewriteLarge(session: WireSession, scanner: FrameScanner): void {
  const { client, services, gate, events } = session;
  const message = Buffer.from(scanner.buffer.subarray(scanner.start, scanner.end));
  gate.holdFirst(Buffer.from(scanner.takeRest()), Reason.rewriting);
  session.clientScanner = newClientScanner(services);
  session.rewrittenBytes = message.length;
  client.pause();
  const rewriting = rewrittenMessage(message, (sql) => services.rewriter?.rewriteLarge(sql));
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

/** @returns the current message and all input behind it, to be handled later */
export function takeMessage(session: WireSession, scanner: FrameScanner): Buffer {
  const { services } = session;
  if (!scanner.last) session.clientScanner = newClientScanner(services);
  return Buffer.concat([scanner.buffer.subarray(scanner.start, scanner.end), scanner.takeRest()]);
}
