import type { BackendConnection } from '../../src/backend/connection.ts';
import { Disposition, Request } from '../../src/backend/reply-queue.ts';
import { DISCARD_SEQUENCES, FLUSH } from '../../src/protocol/frontend.ts';
import { NO_TRAITS, type SessionTraits } from '../../src/syntax/session-traits.ts';
import { prepareUnderClientNames, skipSync, statementsForSql } from '../prepared/statements-under-client-names.ts';
import { effectsOf, type WireSession } from '../relay/wire-session.ts';

/* Notes what a client's statements leave in its session when they are sent, and prepares what they need there. */

/** The next message sends or executes a statement with these traits. */
export function statementSent(session: WireSession, traits: SessionTraits): void {
  const { backend, replies, status } = session;
  if (backend?.session.hasOthersSequenceValues && mustDiscardSequences(session, traits)) discardSequences(session, backend);
  noticeTraits(session, traits);
  const isFailed = status === 'E' && replies.length === 0;
  if (!traits.namesPrepared || backend === undefined || isFailed) return;
  const { clientNames } = session;
  if (clientNames?.state === 'ready') clientNames.state = 'used';
  else prepareUnderClientNames(session, backend, traits.listsPrepared);
  // EXECUTE may run any of them.
  for (const [, named] of statementsForSql(session.statements)) if (named.traits !== NO_TRAITS) noticeTraits(session, named.traits);
}

/**
 * What Postern sends ahead of a statement must not become part of the client's pipeline: an Execute there opens an implicit
 * transaction block, in which a procedure cannot commit, and PostgreSQL 18 loses what a Query does (a statement that fails makes
 * it ignore the client's messages besides). So a pipeline that has executed nothing yet is ended before, and begins anew behind.
 * Nothing can tell: Close, Parse and Describe leave nothing open, and a Query ends the portals that a Bind has made. Whether the
 * pipeline has failed must be known first, as its Query would run otherwise.
 * @param endsPortals the message is a Query or a FunctionCall
 * @returns whether the message has to wait until what was sent before it has been answered
 */
export function mustEndPipeline(session: WireSession, traits: SessionTraits, endsPortals = false): boolean {
  const { backend, replies, toBackend } = session;
  const { batch, missingSync } = replies;
  // What it has waited for is there.
  if (session.clientNames?.state === 'awaited') return false;
  session.awaitsAll = false;
  if (traits === NO_TRAITS || backend === undefined || session.unsyncedBatch !== batch || session.status !== 'I') return false;
  if (missingSync !== 'none' || session.executedBatch === batch || (session.boundBatch === batch && !endsPortals)) return false;
  if (!sendsAhead(session, traits, backend)) return false;
  if (replies.length > 0) {
    session.awaitsAll = true;
    toBackend.insert(FLUSH);
    return true;
  }
  skipSync(session);
  session.unsyncedBatch = NONE;
  return false;
}

function sendsAhead(session: WireSession, traits: SessionTraits, { session: { hasOthersSequenceValues } }: BackendConnection): boolean {
  return (hasOthersSequenceValues && mustDiscardSequences(session, traits)) || traits.namesPrepared;
}

/** A session must not see the sequence values of others. */
function mustDiscardSequences({ pins }: WireSession, { readsSequenceState, advancesSequences, isTruncated }: SessionTraits): boolean {
  return readsSequenceState || isTruncated || (advancesSequences && pins.maySequencesBeAskedFor);
}

/**
 * Discards the sequence values of other sessions, even in the middle of a client's pipeline. The client's unnamed statement
 * and portals remain.
 */
function discardSequences(session: WireSession, backend: BackendConnection): void {
  const { replies, toBackend } = session;
  const undo = () => {
    backend.session.hasOthersSequenceValues = true;
  };
  backend.session.hasOthersSequenceValues = false;
  replies.push(Request.parse, Disposition.skip, { undo });
  for (const kind of [Request.bind, Request.execute, Request.close, Request.close]) replies.push(kind, Disposition.skip);
  toBackend.insert(DISCARD_SEQUENCES);
  if (!session.isUnsynced) skipSync(session);
}

/** A statement that is being sent has these traits. */
export function noticeTraits(session: WireSession, traits: SessionTraits): void {
  const { pins } = session;
  pins.statementSeen(traits);
  if (traits.changesDefaults) effectsOf(session).defaultsChanged = true;
  if (traits.seedsRandom) pins.keep('seed');
  if (traits.cannotBePreparedAgain) pins.keep('oversized');
}

const NONE = -1;
