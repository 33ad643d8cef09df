import { Disposition, Request } from '../../src/backend/reply-queue.ts';
import { type FrameScanner, HEADER_BYTES, latin1String } from '../../src/protocol/framing.ts';
import { CLOSE_UNNAMED_PORTAL } from '../../src/protocol/frontend.ts';
import type { SessionTraits } from '../../src/syntax/session-traits.ts';
import type { RequestEnd } from '../inspection/request-end.ts';
import { shownRows } from '../relay/reply-rewriting.ts';
import type { SpecialPortals, WireSession } from '../relay/wire-session.ts';

/* Some portals need special treatment when they are executed. They are recognized when they are bound. */

/** Notes a Bind that is forwarded, of any statement. */
export function noteBind(session: WireSession, { buffer, start }: FrameScanner): void {
  if (mayDangle(session) && buffer[start + HEADER_BYTES] === 0) portalsOf(session).replacesDangling = true;
}

function portalsOf(session: WireSession): SpecialPortals {
  session.portals ??= { deallocating: undefined, shown: undefined, replacesDangling: false };
  return session.portals;
}

/** @param traits those of the bound statement, if Postern knows it */
export function portalBound(session: WireSession, bind: FrameScanner, traits: SessionTraits | undefined): void {
  const shows = traits?.shows;
  const rows = shows && shownRows(session.services, shows);
  const isSpecial = traits?.deallocatesAll === true || rows !== undefined;
  if (!isSpecial && session.portals === undefined) return;
  const portals = portalsOf(session);
  if (traits?.deallocatesAll === true) portals.deallocating = portalName(bind);
  else if (deallocatesAll(session, bind)) portals.deallocating = undefined;
  portals.shown = rows === undefined ? undefined : { portal: portalName(bind), rows };
}

/** Whether an Execute deallocates all prepared statements. */
export function deallocatesAll({ portals }: WireSession, execute: FrameScanner): boolean {
  return portals?.deallocating !== undefined && portalName(execute) === portals.deallocating;
}

/** Stands in the reply queue beside an Execute whose rows are changed for the client. */
export function shownOf({ portals }: WireSession, execute: FrameScanner): Pick<RequestEnd, 'shown'> | undefined {
  const shown = portals?.shown;
  return shown !== undefined && portalName(execute) === shown.portal ? { shown: shown.rows } : undefined;
}

/**
 * A Query that fails inside a transaction leaves an unnamed portal whose plan has been freed. Executing that portal
 * crashes the server (seen with PostgreSQL 15.20 and 18.4), and with it the sessions of all organizations. Postern closes
 * the portal before an Execute that may refer to it.
 */
export function closeDanglingPortal(session: WireSession): void {
  const { replies, toBackend, portals } = session;
  if (!mayDangle(session) || replies.copyIn || portals?.replacesDangling === true) return;
  replies.push(Request.close, Disposition.skip);
  toBackend.insert(CLOSE_UNNAMED_PORTAL);
}

/** Whether a Query has left the unnamed portal without its plan, or may yet. */
function mayDangle({ replies }: WireSession): boolean {
  return replies.failedQuery !== 'none' || replies.owesQuery;
}

/** The portal name in a Bind or an Execute, as Latin-1. */
function portalName({ buffer, start, end }: FrameScanner): string {
  return latin1String(buffer, start + HEADER_BYTES, end);
}
