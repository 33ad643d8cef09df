import { ServiceError } from '../../src/errors.ts';
import type { FrameScanner } from '../../src/protocol/message-framing.ts';
import type { Edits } from '../../src/router/schema-rewriting/edits/edits.ts';
import { NO_TRAITS, type SessionTraits, sessionTraitsOf, traitsOfBeginning } from '../../src/syntax/traits/session-traits.ts';
import { MAX_REWRITTEN_BYTES } from '../buffer-limits.ts';
import { type AuditedText, auditedText } from '../inspection/audited-ddl-text.ts';
import { type Batch, DdlAudit } from '../inspection/ddl-audit.ts';
import { piecesOf, StreamedTraits } from '../inspection/streamed-traits.ts';
import type { UnnamedStatement } from '../prepared/client-statements.ts';
import type { WireSession } from '../relay/wire-session.ts';
import { translateProcessIds } from './process-ids.ts';
import { noticeTraits, statementSent } from './sent-statements.ts';

/*
 * These functions take the texts of a client's Query and Parse messages, note their traits, record them for the audit log, and
 * rewrite them for the placement.
 */

/** Stands beside a Sync, Query or FunctionCall in the reply queue. */
export interface RequestEnd {
  readonly batch: Batch | undefined;
  /** Names that a Query deallocates and that have not been answered yet, in order. */
  readonly deallocations: string[];
  /** The replacements made in the text of a Query. */
  readonly edits: Edits;
  /** The rows are values of search_path, in which the placement's schema has to be renamed for the client. */
  readonly showsSearchPath: boolean;
}

/** @returns the text for the audit log, if it may change objects or roles */
export function inspectText(session: WireSession, text: string, isWhole: boolean): AuditedText | undefined {
  const audited = session.rewritten?.audited ?? (isWhole ? auditedText(text) : auditOf(session).begin(text));
  if (audited === undefined) return undefined;
  auditOf(session).runs(audited);
  if (audited.isWatched) unsettle(session);
  return audited;
}

function auditOf(session: WireSession): DdlAudit {
  session.audit ??= new DdlAudit(session.services);
  return session.audit;
}

/** A text that was inspected before runs again. */
export function inspectAgain(session: WireSession, watched: AuditedText): void {
  auditOf(session).runs(watched);
  unsettle(session);
}

/** A statement that is too long to keep has been prepared on the server. @param name as Latin-1 */
export function recordOversized(session: WireSession, name: string, watched: AuditedText): void {
  auditOf(session).oversized(name, watched);
}

/** The statement with this name on the server runs. @param name as Latin-1 */
export function inspectOversized(session: WireSession, name: string): void {
  if (session.audit?.oversizedAgain(name) === true) unsettle(session);
}

function unsettle(session: WireSession): void {
  session.pins.unsettled = true;
  session.isPlain = false;
}

export function inspectTraits(session: WireSession, traits: SessionTraits | undefined): void {
  if (traits === undefined || traits === NO_TRAITS) return;
  session.isPlain = false;
  statementSent(session, traits);
}

export function inspectWhole(session: WireSession, text: string): SessionTraits {
  const traits = sessionTraitsOf(text);
  inspectTraits(session, traits);
  return traits;
}

/** Inspects the beginning of a long text; {@link textPasses} inspects the rest. */
export function inspectBeginning(session: WireSession, text: string, cannotBePreparedAgain = false): SessionTraits {
  const traits = { ...traitsOfBeginning(text), cannotBePreparedAgain };
  inspectTraits(session, traits);
  if (session.rewritten === undefined) session.streamed = new StreamedTraits(text);
  else for (const noticed of session.rewritten.traits) noticeTraits(session, noticed);
  return traits;
}

/** Inspects a further part of a long text that is forwarded. */
export function textPasses(session: WireSession, { buffer, end, last }: FrameScanner, start: number): void {
  const { audit, streamed } = session;
  if (audit?.isPassing === true) {
    for (const piece of piecesOf(buffer, start, end)) if (audit.by(piece)) unsettle(session);
    if (last) audit.passed();
  }
  if (streamed === undefined) return;
  for (const traits of streamed.say(buffer, start, end)) noticeTraits(session, traits);
  if (last) session.streamed = undefined;
}

/** @throws ServiceError `payload_too_large`, `too_many_requests` for an incomplete text that has to be rewritten */
export function demandWhole({ services, rewritten }: WireSession, { length, last }: FrameScanner): void {
  if (last || services.rewriter === undefined || rewritten !== undefined) return;
  if (length > MAX_REWRITTEN_BYTES)
    throw new ServiceError('payload_too_large', `a statement may have at most ${MAX_REWRITTEN_BYTES} bytes in this placement`);
  throw new ServiceError('too_many_requests', 'statements that are being sent exceed the memory limit', {
    hint: 'Wait for some of them to end, or send less at once.',
  });
}

/** Rewrites a text for the `schema` placement, where the organization's `public` has another name. */
export function rewriteText({ services, rewritten }: WireSession, text: string): { readonly sql: string; readonly edits: Edits } {
  const { rewriter } = services;
  if (rewriter === undefined || rewritten !== undefined) return { sql: text, edits: NO_EDITS };
  const { sql, edits } = rewriter.rewrite(Buffer.from(text, 'latin1'));
  return { sql: edits.length === 0 ? text : sql.toString('latin1'), edits };
}

/** @param definition shares the message's memory and begins with the text; whoever keeps it copies it */
export function preparedOf(session: WireSession, text: string, definition: Buffer, watched?: AuditedText): UnnamedStatement {
  const traits = sessionTraitsOf(text);
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

/** The client's request ends here. @returns what has to be known when its reply arrives, if anything */
export function endRequest(
  session: WireSession,
  deallocations: string[] = [],
  edits: Edits = NO_EDITS,
  showsSearchPath = false,
): RequestEnd | undefined {
  const batch = session.audit?.take();
  const isPlain = batch === undefined && deallocations.length === 0 && edits.length === 0 && !showsSearchPath;
  return isPlain ? undefined : { batch, deallocations, edits, showsSearchPath };
}

const NO_EDITS: Edits = [];
