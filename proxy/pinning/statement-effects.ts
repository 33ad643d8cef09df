import { NO_TRAITS, type SqlTraits } from '../../src/syntax/traits/sql-traits.ts';
import { discardSequences, prepareUnderClientNames } from '../prepared/server-statements.ts';
import type { WireSession } from '../relay/wire-session.ts';

/* What a client's statements, as they are sent, leave in its session, and what they need to find there. */

/** A statement with traits is sent next, or executed again. */
export function statementSent(session: WireSession, traits: SqlTraits): void {
  const { backend, replies, status } = session;
  if (backend?.session.hasOthersSequenceValues && mustDiscardSequences(session, traits)) discardSequences(session, backend);
  noticeTraits(session, traits);
  const isFailed = status === 'E' && replies.length === 0;
  if (!traits.namesPrepared || backend === undefined || isFailed) return;
  prepareUnderClientNames(session, backend, traits.listsPrepared);
  // Any of them may be the one that is executed.
  for (const [, named] of session.statements.entries()) if (named.traits !== NO_TRAITS) noticeTraits(session, named.traits);
}

/** What sequences gave to other sessions is not this one's to see, nor what it is told together with its own. */
function mustDiscardSequences({ pins }: WireSession, { readsSequenceState, advancesSequences, isTruncated }: SqlTraits): boolean {
  return readsSequenceState || isTruncated || (advancesSequences && pins.sequences.use.mayBeAskedFor);
}

/** A statement that is on its way has turned out to have these traits. */
export function noticeTraits({ pins }: WireSession, traits: SqlTraits): void {
  pins.statementSeen(traits);
  if (traits.changesDefaults) pins.defaultsChanged = true;
  if (traits.advancesSequences) pins.sequences.moved(traits.insertsWithoutReturning);
  if (traits.callsSequenceFunction) pins.sequences.called();
  if (traits.seedsRandom) pins.keep('seed');
  if (traits.cannotBePreparedAgain) pins.keep('oversized');
}
