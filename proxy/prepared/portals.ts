import { Disposition, Request } from '../../src/backend/pending-replies.ts';
import { latin1String } from '../../src/protocol/body.ts';
import { type FrameScanner, HEADER_BYTES } from '../../src/protocol/frame.ts';
import { CLOSE_UNNAMED_PORTAL } from '../../src/protocol/frontend-encoder.ts';
import type { SqlTraits } from '../../src/syntax/traits/sql-traits.ts';
import type { WireSession } from '../relay/wire-session.ts';

/* What has to be known of the portals that a client binds, when it executes them. */

/** A Bind is forwarded, whatever it is of. */
export function bindSeen(session: WireSession, { buffer, start }: FrameScanner): void {
  session.bindsUnnamedPortal ||= buffer[start + HEADER_BYTES] === 0;
}

/** @param traits of the statement that the Bind is of, where it is known */
export function portalBound(session: WireSession, bind: FrameScanner, traits: SqlTraits | undefined): void {
  if (traits?.deallocatesAll === true) session.deallocatingPortal = portalName(bind);
  else if (deallocatesAll(session, bind)) session.deallocatingPortal = undefined;
  session.searchPathPortal = traits?.showsSearchPath === true ? portalName(bind) : undefined;
}

/** Whether an Execute takes all prepared statements away. */
export function deallocatesAll({ deallocatingPortal }: WireSession, execute: FrameScanner): boolean {
  return deallocatingPortal !== undefined && portalName(execute) === deallocatingPortal;
}

/** Whether the rows of an Execute are values of search_path. */
export function showsSearchPath({ searchPathPortal }: WireSession, execute: FrameScanner): boolean {
  return searchPathPortal !== undefined && portalName(execute) === searchPathPortal;
}

/**
 * A Query that fails inside a transaction leaves an unnamed portal behind whose plan has been freed: to execute that
 * crashes the server (seen with PostgreSQL 15.20 and 18.4), and every organization's sessions with it. Where that may be
 * what a client is about to do, the portal is closed first.
 */
export function closeDanglingPortal({ replies, toBackend, bindsUnnamedPortal }: WireSession): void {
  if (bindsUnnamedPortal || replies.copyIn || !(replies.danglingPortal || replies.owesQuery)) return;
  replies.push(Request.close, Disposition.skip);
  toBackend.insert(CLOSE_UNNAMED_PORTAL);
}

/** Of a Bind or an Execute, as Latin-1. */
function portalName({ buffer, start, end }: FrameScanner): string {
  return latin1String(buffer, start + HEADER_BYTES, end);
}
