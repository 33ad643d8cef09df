import { Request, type RequestKind } from '../../src/backend/reply-queue.ts';
import { SCHEMA_CHANGE } from '../../src/multiplex/statement-registry.ts';
import type { RequestEnd } from '../inspection/request-end.ts';
import type { Effect } from '../prepared/pending-changes.ts';
import { type CommandEffects, effectsOf, type WireSession } from '../relay/wire-session.ts';

/* Applies what a client's statements have changed in its session. Command tags tell, unlike the text, that a statement has run. */

/** This many take a few milliseconds: other events are then handled before the rest of a chunk. */
export const MAX_REAPPLIED_EFFECTS = 20_000;

/** Requests that define or close statement names. */
const NAMING: ReadonlySet<RequestKind> = new Set([Request.parse, Request.close]);

/** @param request the request of the command, if anything was noted for it */
export function commandCompleted(session: WireSession, tag: string, request: RequestEnd | undefined): void {
  const batch = request?.batch;
  batch?.completed(tag);
  const deallocated = tag === 'DEALLOCATE' ? request?.deallocations.shift() : undefined;
  if (deallocated !== undefined) nameDeallocated(session, deallocated);
  // CREATE TABLE AS reports the command tag SELECT.
  if (SCHEMA_CHANGE.test(tag) || batch?.isWatched === true) effectsOf(session).schemaChanged = true;
  if (tag === 'DEALLOCATE ALL' || tag === 'DISCARD ALL') allDeallocated(session);
  if (tag === 'DISCARD ALL') session.pins.discarded();
}

/** After a transaction that has changed tables, statements are prepared again. */
export function applyEffects(session: WireSession, effects: CommandEffects): void {
  if (effects.schemaChanged) session.services.registry.invalidate();
  effects.schemaChanged &&= session.status !== 'I';
  if (session.replies.length > 0) return;
  effects.allDeallocated = false;
  if (!effects.schemaChanged && !effects.defaultsChanged) session.effects = undefined;
}

/** A client may send many of these in a pipeline, so a repeated one must cost nothing. */
function allDeallocated(session: WireSession): void {
  const effects = effectsOf(session);
  if (effects.allDeallocated) return;
  session.statements.clear();
  session.backend?.session.prepared.clear();
  reapplyEffects(session);
  effects.allDeallocated = session.replies.length > 0;
}

/** From now on SQL may define the name again. Postern must not close such a statement, so the name is not stale any more. */
function nameDeallocated(session: WireSession, name: string): void {
  session.statements.delete(name);
  reapplyEffects(session);
  session.backend?.session.staleNames.delete(name);
}

/** Later requests were noted when they were sent, and remain valid: their effects are noted again. */
function reapplyEffects(session: WireSession): void {
  effectsOf(session).reapplied += session.replies.length;
  for (const subject of session.replies.subjectsOf(NAMING)) (subject as Effect | undefined)?.redo?.();
}
