import type { BackendConnection } from '../src/backend/connection.ts';
import { Request } from '../src/backend/reply-queue.ts';
import { PARSE_COMPLETE, READY_IDLE } from '../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES } from '../src/protocol/framing.ts';
import { FrontendType } from '../src/protocol/frontend.ts';
import { NO_TRAITS, type SessionTraits, sessionTraitsOf } from '../src/syntax/session-traits.ts';
import { errorResponse } from './errors.ts';
import type { WireSession } from './wire-session.ts';

/* Sorts a client's messages: those about statements, those that are forwarded unchanged, and those that need no backend. */

/**
 * Forwards the scanner's current fragment. The caller handles Terminate.
 * @returns false if the message has to wait until the backend has described its statement
 */
export function forward(session: WireSession, scanner: FrameScanner, backend: BackendConnection): boolean {
  if (!scanner.first) {
    session.inspection.goesOn(scanner, scanner.start);
    session.toBackend.add(scanner.buffer, scanner.start, scanner.end);
    return true;
  }
  const { statements } = session;
  statements.messageBegins(backend);
  switch (scanner.type) {
    case FrontendType.Query:
      return statements.query(scanner, backend);
    case FrontendType.Parse:
      return statements.parse(scanner, backend);
    case FrontendType.Bind:
      return statements.bind(scanner, backend);
    case FrontendType.Describe:
      return statements.describe(scanner, backend);
    case FrontendType.Execute:
      statements.execute(scanner);
      return true;
    case FrontendType.Close:
      statements.close(scanner, backend);
      return true;
    case FrontendType.Sync:
      statements.sync();
      break;
    case FrontendType.FunctionCall:
      if (!statements.call(traitsOfCall(scanner))) return false;
      break;
    case FrontendType.CopyDone:
    case FrontendType.CopyFail:
      session.replies.push(Request.copyEnd);
      break;
    default:
  }
  session.toBackend.add(scanner.buffer, scanner.start, scanner.end);
  return true;
}

/**
 * Answers messages of a client that has no backend: those that need none, and those that no backend was available for.
 * @returns false when the message has to go to a backend
 */
export function answerLocally(session: WireSession, scanner: FrameScanner): boolean {
  // The beginning of the message was answered here, so the rest is ignored.
  if (!scanner.first) return true;
  switch (scanner.type) {
    case FrontendType.Sync:
      if (scanner.length > 0) return false;
      session.toClient.insert(READY_IDLE);
      session.refusal = undefined;
      return true;
    // PostgreSQL ignores copy data after a COPY has failed, too.
    case FrontendType.CopyData:
    case FrontendType.CopyDone:
    case FrontendType.CopyFail:
    case FrontendType.Flush:
      return true;
    default:
      return answerRefused(session, scanner) || answerParse(session, scanner);
  }
}

function answerRefused(session: WireSession, { type }: FrameScanner): boolean {
  const { refusal, toClient } = session;
  if (refusal === undefined) return false;
  if (refusal === 'told') return true;
  toClient.insert(errorResponse(refusal, 'ERROR'));
  const isWhole = type === FrontendType.Query || type === FrontendType.FunctionCall;
  if (isWhole) toClient.insert(READY_IDLE);
  session.refusal = isWhole ? undefined : 'told';
  return true;
}

function answerParse(session: WireSession, scanner: FrameScanner): boolean {
  const isKnown = scanner.type === FrontendType.Parse && session.statements.prepareWithoutBackend(scanner);
  if (isKnown) session.toClient.insert(PARSE_COMPLETE);
  return isKnown;
}

/** Built-in functions that leave or read state in a session, with their OIDs, which never change. */
export const STATEFUL_FUNCTIONS: Readonly<Record<string, readonly number[]>> = {
  set_config: [2078],
  pg_advisory_lock: [2880, 2886],
  pg_advisory_lock_shared: [2881, 2887],
  pg_try_advisory_lock: [2882, 2888],
  pg_try_advisory_lock_shared: [2883, 2889],
  pg_advisory_unlock: [2884, 2890],
  pg_advisory_unlock_shared: [2885, 2891],
  pg_advisory_unlock_all: [2892],
  nextval: [1574],
  currval: [1575],
  setval: [1576, 1765],
  lastval: [2559],
  setseed: [1599],
};

const TRAITS: ReadonlyMap<number, SessionTraits> = new Map(
  Object.entries(STATEFUL_FUNCTIONS).flatMap(([name, oids]) => oids.map((oid) => [oid, sessionTraitsOf(`SELECT ${name}(values)`)])),
);

/** The traits of a FunctionCall: those of a text that calls the function by name. */
function traitsOfCall({ buffer, start, end }: FrameScanner): SessionTraits {
  const at = start + HEADER_BYTES;
  return at + OID_BYTES > end ? NO_TRAITS : (TRAITS.get(buffer.readUInt32BE(at)) ?? NO_TRAITS);
}

const OID_BYTES = 4;
