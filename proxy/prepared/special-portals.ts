import { Disposition, Request } from '../../src/backend/pending-replies.ts';
import { latin1String } from '../../src/protocol/body.ts';
import { CLOSE_UNNAMED_PORTAL } from '../../src/protocol/frontend-encoder.ts';
import { type FrameScanner, HEADER_BYTES } from '../../src/protocol/message-framing.ts';
import type { SessionTraits } from '../../src/syntax/traits/session-traits.ts';
import type { WireSession } from '../relay/wire-session.ts';

/* Some portals need special treatment when they are executed. They are recognized when they are bound. */

/** Notes a Bind that is forwarded, of any statement. */
export function noteBind(session: WireSession, { buffer, start }: FrameScanner): void {
  session.bindsUnnamedPortal ||= buffer[start + HEADER_BYTES] === 0;
}

/** @param traits those of the bound statement, if Postern knows it */
export function portalBound(session: WireSession, bind: FrameScanner, traits: SessionTraits | undefined): void {
  if (traits?.deallocatesAll === true) session.deallocatingPortal = portalName(bind);
  else if (deallocatesAll(session, bind)) session.deallocatingPortal = undefined;
  session.searchPathPortal = traits?.showsSearchPath === true ? portalName(bind) : undefined;
}

/** Whether an Execute deallocates all prepared statements. */
export function deallocatesAll({ deallocatingPortal }: WireSession, execute: FrameScanner): boolean {
  return deallocatingPortal !== undefined && portalName(execute) === deallocatingPortal;
}

/** Whether the rows of an Execute are values of search_path. */
export function showsSearchPath({ searchPathPortal }: WireSession, execute: FrameScanner): boolean {
  return searchPathPortal !== undefined && portalName(execute) === searchPathPortal;
}

/**
 * A Query that fails inside a transaction leaves an unnamed portal whose plan has been freed. Executing that portal
 * crashes the server (seen with PostgreSQL 15.20 and 18.4), and with it the sessions of all organizations. Postern closes
 * the portal before an Execute that may refer to it.
 */
export function closeDanglingPortal({ replies, toBackend, bindsUnnamedPortal }: WireSession): void {
  if (bindsUnnamedPortal || replies.copyIn || !(replies.danglingPortal || replies.owesQuery)) return;
  replies.push(Request.close, Disposition.skip);
  toBackend.insert(CLOSE_UNNAMED_PORTAL);
}

/** The portal name in a Bind or an Execute, as Latin-1. */
function portalName({ buffer, start, end }: FrameScanner): string {
  return latin1String(buffer, start + HEADER_BYTES, end);
}
