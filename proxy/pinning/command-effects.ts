import { Request, type RequestKind } from '../../src/backend/pending-replies.ts';
import { SCHEMA_CHANGE } from '../../src/multiplex/statement-registry.ts';
import type { Effect } from '../prepared/effects.ts';
import type { WireSession } from '../relay/wire-session.ts';
import type { RequestEnd } from './query-inspection.ts';

/* What a client's statements leave in its session once they have run. Command tags tell what text cannot: that they really have. */

/** So many are a few milliseconds' work. */
const NOTED_AGAIN_MAX = 20_000;

/** Requests that give and take names of statements. */
const NAMING: ReadonlySet<RequestKind> = new Set([Request.parse, Request.close]);

/** The effects of one chunk have been much work: other events are handled before the rest of it. */
export function areEffectsMuchWork({ notedAgain }: WireSession): boolean {
  return notedAgain > NOTED_AGAIN_MAX;
}

/** @param request that the command belongs to, where something has to be known of that */
export function commandCompleted(session: WireSession, tag: string, request: RequestEnd | undefined): void {
  const batch = request?.batch;
  batch?.completed(tag);
  const deallocated = tag === 'DEALLOCATE' ? request?.deallocations.shift() : undefined;
  if (deallocated !== undefined) nameDeallocated(session, deallocated);
  // CREATE TABLE AS is told of as the SELECT in it.
  if (SCHEMA_CHANGE.test(tag) || batch?.isWatched === true) session.schemaChanged = true;
  if (tag === 'DEALLOCATE ALL' || tag === 'DISCARD ALL') allDeallocated(session);
  if (tag === 'DISCARD ALL') session.pins.discarded();
}

/** The transaction may have ended: statements whose tables it has changed are prepared anew. */
export function applySchemaChange(session: WireSession): void {
  if (session.replies.length === 0) session.allDeallocated = false;
  if (!session.schemaChanged) return;
  session.schemaChanged = session.status !== 'I';
  session.services.registry.invalidate();
}

/** Many of these may come, one behind the other, with much behind them. */
function allDeallocated(session: WireSession): void {
  if (session.allDeallocated) return;
  session.statements.clear();
  session.backend?.session.prepared.clear();
  noteAgain(session);
  session.allDeallocated = session.replies.length > 0;
}

/** The name may now be given to another statement, in SQL, which is not Postern's to close. */
function nameDeallocated(session: WireSession, name: string): void {
  session.statements.delete(name);
  noteAgain(session);
  session.backend?.session.staleNames.delete(name);
}

/** What the client has asked behind what is being answered was noted when it was sent, and stands. */
function noteAgain(session: WireSession): void {
  session.notedAgain += session.replies.length;
  for (const subject of session.replies.subjectsOf(NAMING)) (subject as Effect | undefined)?.redo?.();
}
