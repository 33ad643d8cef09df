import { PARSE_COMPLETE, READY_IDLE } from '../../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES, latin1String, stringEnd } from '../../src/protocol/framing.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import { canBePreparedAgain, mayChangeObjects } from '../../src/syntax/session-traits.ts';
import { errorResponse } from '../errors.ts';
import { preparedOf } from '../inspection/query-inspection.ts';
import { MAX_LOOKED_UP_BYTES } from '../prepared/server-statement-choice.ts';
import type { WireSession } from './wire-session.ts';

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
  const isKnown = scanner.type === FrontendType.Parse && prepareWithoutBackend(session, scanner);
  if (isKnown) session.toClient.insert(PARSE_COMPLETE);
  return isKnown;
}

/**
 * Answers a named Parse without a backend if its statement is proven to be valid. The statement is prepared on the backend
 * that first executes it. So a client that only prepares does not wait for a backend: a program with many connections in one thread
 * (pgbench) may wait for that while its other connections have all backends in transactions, which it cannot end meanwhile.
 * @returns false when the Parse has to go to a backend
 */
function prepareWithoutBackend(session: WireSession, { buffer, start, end, length, last }: FrameScanner): boolean {
  const { pins, statements, services } = session;
  const nameStart = start + HEADER_BYTES;
  if (!last || length > MAX_LOOKED_UP_BYTES || buffer[nameStart] === 0) return false;
  const nameEnd = stringEnd(buffer, nameStart, end);
  if (nameEnd < 0) return false;
  const name = buffer.toString('latin1', nameStart, nameEnd);
  if (statements.get(name) !== undefined || !statements.hasRoomFor(name, length)) return false;
  const text = latin1String(buffer, nameEnd + 1, end);
  const { context } = pins;
  if (context === undefined || !canBePreparedAgain(text) || mayChangeObjects(text)) return false;
  const { definition, traits, signals, deallocates } = preparedOf(session, text, buffer.subarray(nameEnd + 1, end));
  const server = services.registry.find(definition, context);
  if (server === undefined || !server.proven) return false;
  statements.set(name, { server, traits, signals, deallocates });
  return true;
}
