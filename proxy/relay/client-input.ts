import type { Buffer } from 'node:buffer';
import { ServiceError } from '../../src/errors.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import type { FrameScanner } from '../../src/protocol/message-framing.ts';
import { LARGE_SQL_BYTES } from '../../src/router/schema-rewriting/rewrite-sql.ts';
import { errorResponse } from '../errors.ts';
import { inspectInSlices } from '../inspection/large-text.ts';
import type { RelayEnd } from '../sessions/session-services.ts';
import { Reason } from './input-gate.ts';
import { rewrittenMessage } from './message-builders.ts';
import { endAfterReplies, endByError, endNow } from './session-end.ts';
import type { WireSession } from './wire-session.ts';

/* Handles the client's input that is not simply forwarded. */

/** Counts the bytes of the client's input that are held. */
export function countInput({ services, clientScanner, gate }: WireSession): void {
  const { bufferBudget } = services;
  const bytes = (clientScanner.held?.bytes ?? 0) + gate.inputBytes;
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
  services.observe({ name: 'service.failure', message: 'a wire session failed', cause });
  return new ServiceError('internal', 'internal error', { cause });
}

/** Whether the scanner's message, which is rewritten, has a text so long that rewriting it at once would delay other sessions. */
export function isLargeText({ largeText }: WireSession, { first, type, length, last }: FrameScanner): boolean {
  if (!first || length < LARGE_SQL_BYTES || largeText !== undefined) return false;
  return last && (type === FrontendType.Query || type === FrontendType.Parse);
}

/** Rewrites the message in time slices. It and the input behind it wait meanwhile. */
export function rewriteLarge(session: WireSession, scanner: FrameScanner): void {
  const { client, services, gate, events } = session;
  const size = scanner.end - scanner.start;
  const input = scanner.takeMessage();
  const message = input.subarray(0, size);
  gate.holdFirst(input.subarray(size), Reason.rewriting);
  gate.holdFirst(message, Reason.rewriting);
  client.pause();
  const rewriting = rewrittenMessage(message, (sql) => services.rewriter?.rewriteLarge(sql));
  Promise.all([rewriting, inspectInSlices(message)]).then(
    ([rewritten, inspected]) => {
      if (session.isOver) return;
      gate.replaceFirst(rewritten);
      session.largeText = inspected;
      events.resumeInput();
    },
    (cause: unknown) => endByError(session, internalError(session, cause)),
  );
}
