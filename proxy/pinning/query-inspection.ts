import { ServiceError } from '../../src/errors.ts';
import type { FrameScanner } from '../../src/protocol/frame.ts';
import type { Edits } from '../../src/router/schema-rewriting/edits/edits.ts';
import { NO_TRAITS, type SqlTraits, traitsOf, traitsOfBeginning } from '../../src/syntax/traits/sql-traits.ts';
import { MAX_REWRITTEN_BYTES } from '../buffer-limits.ts';
import type { AuditedText } from '../inspection/audited-text.ts';
import type { Batch } from '../inspection/ddl-audit.ts';
import { piecesOf, StreamedTraits } from '../inspection/streamed-traits.ts';
import type { UnnamedStatement } from '../prepared/client-statements.ts';
import type { WireSession } from '../relay/wire-session.ts';
import { translateProcessIds } from './process-ids.ts';
import { noticeTraits, statementSent } from './statement-effects.ts';

/*
 * The texts in a client's Query and Parse messages: their traits are noted, they are recorded for the audit log, and they are
 * rewritten for the placement where they run.
 */

/** What goes with a Sync, Query or FunctionCall through the reply queue. */
export interface RequestEnd {
  readonly batch: Batch | undefined;
  /** Names of the client's statements that a Query takes away, in order; those that are gone are not here any more. */
  readonly deallocations: string[];
  /** What was replaced in the text of a Query. */
  readonly edits: Edits;
  /** The rows are values of search_path, which the client knows in other words. */
  readonly showsSearchPath: boolean;
}

/** @returns for the audit, a text behind which, in the same transaction, other tables may be seen than by other sessions */
export function inspectText(session: WireSession, text: string, isWhole: boolean): AuditedText | undefined {
  const { rewritten, audit } = session;
  if (rewritten !== undefined) audit.again(rewritten.audited);
  const audited = rewritten?.audited ?? audit.statement(text, isWhole);
  if (audited?.isWatched === true) unsettle(session);
  return audited;
}

/** A text that was inspected before is run again. */
export function inspectAgain(session: WireSession, watched: AuditedText): void {
  session.audit.again(watched);
  unsettle(session);
}

/** A text that is too long to be kept has been sent to the server under this name. @param name as Latin-1 */
export function recordOversized({ audit }: WireSession, name: string, watched: AuditedText): void {
  audit.oversized(name, watched);
}

/** What the server has under a name is run. @param name as Latin-1 */
export function inspectOversized(session: WireSession, name: string): void {
  if (session.audit.oversizedAgain(name)) unsettle(session);
}

function unsettle(session: WireSession): void {
  session.pins.unsettled = true;
  session.isPlain = false;
}

export function inspectTraits(session: WireSession, traits: SqlTraits | undefined): void {
  if (traits === undefined || traits === NO_TRAITS) return;
  session.isPlain = false;
  statementSent(session, traits);
}

export function inspectWhole(session: WireSession, text: string): SqlTraits {
  const traits = traitsOf(text);
  inspectTraits(session, traits);
  return traits;
}

/** For a text of which only the beginning is inspected before it is sent; the rest of it {@link textPasses passes}. */
export function inspectBeginning(session: WireSession, text: string, cannotBePreparedAgain = false): SqlTraits {
  const traits = { ...traitsOfBeginning(text), cannotBePreparedAgain };
  inspectTraits(session, traits);
  if (session.rewritten === undefined) session.streamed = new StreamedTraits(text);
  else for (const noticed of session.rewritten.traits) noticeTraits(session, noticed);
  return traits;
}

/** More of a text that has not come whole is forwarded. */
export function textPasses(session: WireSession, { buffer, end, last }: FrameScanner, start: number): void {
  const { audit, streamed } = session;
  if (audit.isPassing) {
    for (const piece of piecesOf(buffer, start, end)) if (audit.by(piece)) unsettle(session);
    if (last) audit.passed();
  }
  if (streamed === undefined) return;
  for (const traits of streamed.say(buffer, start, end)) noticeTraits(session, traits);
  if (last) session.streamed = undefined;
}

/** @throws ServiceError `payload_too_large`, `too_many_requests` for a text that is to be rewritten and has not come whole */
export function demandWhole({ services, rewritten }: WireSession, { length, last }: FrameScanner): void {
  if (last || services.view === undefined || rewritten !== undefined) return;
  if (length > MAX_REWRITTEN_BYTES)
    throw new ServiceError('payload_too_large', `a statement may have at most ${MAX_REWRITTEN_BYTES} bytes in this placement`);
  throw new ServiceError('too_many_requests', 'statements that are being sent exceed the memory limit', {
    hint: 'Wait for some of them to end, or send less at once.',
  });
}

/** The text as it has to be where the organization's `public` is a schema of another name. */
export function rewriteText({ services, rewritten }: WireSession, text: string): { readonly sql: string; readonly edits: Edits } {
  const { view } = services;
  if (view === undefined || rewritten !== undefined) return { sql: text, edits: NO_EDITS };
  const { sql, edits } = view.rewrite(Buffer.from(text, 'latin1'));
  return { sql: edits.length === 0 ? text : sql.toString('latin1'), edits };
}

/** @param definition a view that begins with the text; what is kept of it is a copy */
export function preparedOf(session: WireSession, text: string, definition: Buffer, watched?: AuditedText): UnnamedStatement {
  const traits = traitsOf(text);
  const { sql, edits } = rewriteText(session, text);
  const translated = traits.mentionsPids ? translateProcessIds(sql, session.services.processIds) : { text: sql, signals: [] };
  const changed = translated.text !== text;
  return {
    definition: changed ? Buffer.concat([Buffer.from(translated.text, 'latin1'), definition.subarray(text.length)]) : definition,
    changed,
    traits,
    edits,
    signals: translated.signals,
    watched,
  };
}

/** The client's request ends here. @returns what has to be known of its texts when they are answered, if anything */
export function endRequest(
  session: WireSession,
  deallocations: string[] = [],
  edits: Edits = NO_EDITS,
  showsSearchPath = false,
): RequestEnd | undefined {
  session.requestCount += 1;
  const batch = session.audit.take();
  const isPlain = batch === undefined && deallocations.length === 0 && edits.length === 0 && !showsSearchPath;
  return isPlain ? undefined : { batch, deallocations, edits, showsSearchPath };
}

const NO_EDITS: Edits = [];
