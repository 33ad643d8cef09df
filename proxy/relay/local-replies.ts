import { PARSE_COMPLETE, READY_IDLE } from '../../src/protocol/backend.ts';
import { FrontendType } from '../../src/protocol/frontend.ts';
import type { FrameScanner } from '../../src/protocol/message-framing.ts';
import { errorResponse } from '../errors.ts';
import { prepareWithoutBackend } from '../prepared/parse-forwarding.ts';
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
