import { ServiceError } from '../src/errors.ts';
import type { FrameScanner } from '../src/protocol/framing.ts';
import { Deadline } from '../src/runtime/event-loop.ts';
import { errorResponse } from './errors.ts';
import type { RelayEnd } from './session-services.ts';
import { SessionEnding, type WireSession } from './wire-session.ts';

/* A session ends at once, when it is idle outside a transaction, or when all of its client's requests have been answered. */

const CLIENT_GONE: RelayEnd = { reason: 'client_gone' };
const REST_TIMEOUT_MS = 500;

export function endingOf(session: WireSession): SessionEnding {
  session.ending ??= new SessionEnding();
  return session.ending;
}

function endNow(session: WireSession, end: RelayEnd): void {
  const ending = endingOf(session);
  if (ending.isOver) return;
  ending.isOver = true;
  ending.afterMessage?.clear();
  session.toClient.flush();
  void leave(session, end);
}

/** Ends the session with an error, which the client is told unless a message to it is incomplete. */
export function endByError(session: WireSession, error: ServiceError): void {
  endTelling(session, error, 'ended', session.backendScanner.last);
}

/**
 * As {@link endByError}. If the client has only the beginning of a message, it gets the rest first, because the error can be sent only
 * between messages. The statement is canceled, so the rest comes soon if the client reads.
 */
export function endAfterMessage(session: WireSession, error: ServiceError): void {
  // To cancel in a shared pipeline would affect the requests of other clients too. The replies there are short.
  if (session.backendScanner.last || session.link.shared !== undefined) endByError(session, error);
  else if (!session.isEnding) {
    endingOf(session).afterMessage = new Deadline(REST_TIMEOUT_MS, () => endByError(session, error));
    void session.link.cancel();
  }
}

/** As {@link endByError}, for a statement that does not end when it is canceled: its backend is terminated. */
export function endByForce(session: WireSession, error: ServiceError): void {
  endingOf(session).cancelFailed = true;
  endByError(session, error);
}

/** Messages that the client has sent during a COPY make it unknown which reply comes next. PostgreSQL uses this message in such a case. */
export function endAfterProtocolError(session: WireSession): void {
  endByError(session, new ServiceError('protocol_violation', 'terminating connection because protocol synchronization was lost'));
}

export function endWithoutBackend(session: WireSession): void {
  const error = new ServiceError('backend_lost', 'the connection to the database server was lost');
  endTelling(session, error, 'backend_lost', session.backendScanner.last && session.ending?.hasFatal !== true);
}

/** As {@link endByError}, for an unexpected failure, which is reported. */
export function endByFailure(session: WireSession, cause: unknown): void {
  endByError(session, internalError(session, cause));
}

function endTelling(session: WireSession, error: ServiceError, reason: RelayEnd['reason'], isTold: boolean): void {
  endNow(session, { reason, ...(isTold ? { finalError: errorResponse(error, 'FATAL') } : {}) });
}

export function clientGone(session: WireSession): void {
  endNow(session, CLIENT_GONE);
}

/** Ends the session without an error, because the client does not read. */
export function abandon(session: WireSession): void {
  endNow(session, session.ending?.afterReplies ?? CLIENT_GONE);
}

/** Ends the session when it is idle outside a transaction. */
export function endAtRest(session: WireSession, error: ServiceError): void {
  endingOf(session).atRest = error;
  endIfAtRest(session);
}

/**
 * The client has sent Terminate, or has violated the protocol. Earlier requests are still answered. The watchdog limits the
 * time for that, as for a client that has closed its sending side.
 */
function endAfterReplies(session: WireSession, end: RelayEnd): void {
  const ending = endingOf(session);
  ending.afterReplies = end;
  ending.halfClosed = true;
  if (session.replies.length === 0) endNow(session, end);
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
  // During COPY FROM STDIN the server waits for data, and Postern can no longer tell where messages begin.
  if (replies.copyIn) endNow(session, end);
  else endAfterReplies(session, end);
}

/** Reports an unexpected failure. @returns the error that the client is told */
function internalError({ services }: WireSession, cause: unknown): ServiceError {
  services.observe({ name: 'service.failure', message: 'a wire session failed', cause });
  return new ServiceError('internal', 'internal error', { cause });
}

/** All requests have been answered: ends the session if it was to end then. @returns whether it has ended */
export function endedWithReplies(session: WireSession): boolean {
  const end = session.ending?.afterReplies;
  if (end !== undefined) endNow(session, end);
  return end !== undefined;
}

/** Ends the session if it is idle and was to end then, or if its client sends no more. @returns whether it has ended */
export function endedAtRest(session: WireSession): boolean {
  if (endIfAtRest(session)) return true;
  if (session.ending?.halfClosed !== true || session.gate.input !== undefined) return false;
  abandon(session);
  return true;
}

function endIfAtRest(session: WireSession): boolean {
  const error = session.ending?.atRest;
  if (error === undefined || !session.isAtRest) return false;
  endByError(session, error);
  return true;
}

/** Gives back all that the session holds, and reports its end. */
async function leave(session: WireSession, end: RelayEnd): Promise<void> {
  // The caller may still be using the backend.
  await undefined;
  let failure: unknown;
  try {
    await giveBack(session);
  } catch (error) {
    failure = error;
  }
  session.services.ended(end, failure);
}

async function giveBack(session: WireSession): Promise<void> {
  const { checkout, statements, services, link } = session;
  checkout.giveUp();
  // The rest of a reply from a shared backend is discarded.
  session.attempt = 'discarded';
  statements.end();
  services.bufferBudget.end();
  if (link.lease === undefined) link.cancelReservation();
  else await link.close(session.isAtRest && session.clientScanner.last, session.ending?.cancelFailed === true);
}
