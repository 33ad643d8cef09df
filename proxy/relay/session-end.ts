import { ServiceError } from '../../src/errors.ts';
import { errorResponse } from '../errors.ts';
import type { RelayEnd } from '../sessions/session-services.ts';
import type { WireSession } from './wire-session.ts';

/* How a session ends: at once, as soon as it is at rest, or when what its client has asked has been answered. */

const CLIENT_GONE: RelayEnd = { reason: 'client_gone' };

export function endNow(session: WireSession, end: RelayEnd): void {
  if (session.isOver) return;
  session.isOver = true;
  session.toClient.flush();
  void leave(session, end);
}

/** From our side; the error is told only where it does not fall into the middle of a message. */
export function endByError(session: WireSession, error: ServiceError): void {
  endTelling(session, error, 'ended', session.backendScanner.last);
}

/** As {@link endByError}, and ends the statement that obeys no cancel request. */
export function endByForce(session: WireSession, error: ServiceError): void {
  session.cancelFailed = true;
  endByError(session, error);
}

/** What the client has sent amid the data of a COPY leaves it open what is answered: in Postgres' own words for the like. */
export function endOutOfStep(session: WireSession): void {
  endByError(session, new ServiceError('protocol_violation', 'terminating connection because protocol synchronization was lost'));
}

export function endWithoutBackend(session: WireSession): void {
  const error = new ServiceError('backend_lost', 'the connection to the database server was lost');
  endTelling(session, error, 'backend_lost', session.backendScanner.last && !session.hasFatal);
}

function endTelling(session: WireSession, error: ServiceError, reason: RelayEnd['reason'], isTold: boolean): void {
  endNow(session, { reason, ...(isTold ? { finalError: errorResponse(error, 'FATAL') } : {}) });
}

export function clientGone(session: WireSession): void {
  endNow(session, CLIENT_GONE);
}

/** Without a word: the client does not read what it is sent. */
export function abandon(session: WireSession): void {
  endNow(session, session.endsAfterReplies ?? CLIENT_GONE);
}

/** As soon as the session is in no transaction and owed nothing. */
export function endAtRest(session: WireSession, error: ServiceError): void {
  session.endsAtRest = error;
  endIfAtRest(session);
}

/**
 * The client has sent Terminate, or something that is no protocol: what came before that is still answered. Like one whose
 * client has closed its side, it ends in good time.
 */
export function endAfterReplies(session: WireSession, end: RelayEnd): void {
  session.endsAfterReplies = end;
  session.halfClosed = true;
  if (session.replies.length === 0) endNow(session, end);
}

/** All that was asked has been answered: ends a session that was to end then. @returns whether it was one */
export function endedWithReplies(session: WireSession): boolean {
  if (session.endsAfterReplies === undefined) return false;
  endNow(session, session.endsAfterReplies);
  return true;
}

/** The session may be at rest: ends one that was to end then, or whose client sends no more. @returns whether it was one */
export function endedAtRest(session: WireSession): boolean {
  if (endIfAtRest(session)) return true;
  if (!session.halfClosed || !session.gate.isClear) return false;
  abandon(session);
  return true;
}

function endIfAtRest(session: WireSession): boolean {
  if (session.endsAtRest === undefined || !session.isAtRest) return false;
  endByError(session, session.endsAtRest);
  return true;
}

/** Checks in what is checked out, and reports it. */
async function leave(session: WireSession, end: RelayEnd): Promise<void> {
  // The caller may still be at work on what is checked out.
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
  // What still comes of a shared backend's answer is nobody's.
  session.isHidden = true;
  statements.end();
  services.held.end();
  if (link.lease === undefined) link.cancelReservation();
  else await link.close(session.isAtRest && session.clientScanner.last, session.cancelFailed);
}
