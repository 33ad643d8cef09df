import { recordText } from '../../src/catalog/audit/records.ts';
import { ServiceError } from '../../src/errors.ts';
import type { FrameScanner } from '../../src/protocol/framing.ts';
import { type Edits, NO_EDITS } from '../../src/syntax/edits.ts';
import type { LexerOptions } from '../../src/syntax/scanner.ts';
import {
  ANY_OBJECT_CHANGE,
  deallocatedNames,
  NO_TRAITS,
  objectChanges,
  type SessionTraits,
  sessionTraitsOf,
  traitsOfBeginning,
} from '../../src/syntax/session-traits.ts';
import { noticeTraits, statementSent } from '../pinning/before-statement.ts';
import { type Translated, translateProcessIds } from '../pinning/process-id-translation.ts';
import type { UnnamedStatement } from '../prepared/client-statements.ts';
import { awaitsClientNames } from '../prepared/statements-under-client-names.ts';
import type { WireSession } from '../relay/wire-session.ts';
import { type AuditedText, StreamedAuditedText } from './audited-ddl-text.ts';
import { DdlAudit } from './ddl-audit.ts';
import { piecesOf, type RewrittenText, StreamedText } from './large-text.ts';
import { MAX_REWRITTEN_BYTES } from './text-limits.ts';

/*
 * These functions take the texts of a client's Query and Parse messages, note their traits, record them for the audit log, and
 * rewrite them for the placement.
 */

/** @returns the text for the audit log, if it may change objects or roles */
export function inspectText(session: WireSession, text: string, isWhole: boolean): AuditedText | undefined {
  const audited = rewrittenText(session)?.audited ?? (isWhole ? auditedText(text) : new StreamedAuditedText(text));
  if (audited === undefined) return undefined;
  auditOf(session).runs(audited);
  if (audited.isWatched) unsettle(session);
  return audited;
}

/** @param text whole, as Latin-1 @returns undefined if it changes neither objects nor roles */
export function auditedText(text: string): AuditedText | undefined {
  if (!ANY_OBJECT_CHANGE.test(text)) return undefined;
  const changes = objectChanges(text);
  return changes && { ...changes, recorded: recordText(Buffer.from(text, 'latin1').toString('utf8')) };
}

/** The inspection of the text that is being forwarded, if it has been rewritten in slices. */
export function rewrittenText({ largeText }: WireSession): RewrittenText | undefined {
  return largeText instanceof StreamedText ? undefined : largeText;
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
  session.pins.unsettle();
  session.timed = 'none';
}

export function inspectTraits(session: WireSession, traits: SessionTraits | undefined): void {
  if (traits === undefined || traits === NO_TRAITS) return;
  session.timed = 'none';
  statementSent(session, traits);
}

/** What is sent for a Query. */
export interface InspectedQuery {
  readonly sent: string;
  readonly traits: SessionTraits;
  readonly edits: Edits;
}

/**
 * Inspects the text of a Query, and rewrites it.
 * @returns undefined if the message has to wait
 * @param end where the text ends in the scanner's buffer, if that is only its beginning: {@link inspectRest} inspects the rest
 * @throws as {@link demandWhole}
 */
export function inspectQuery(
  session: WireSession,
  scanner: FrameScanner,
  text: string,
  end: number | undefined,
): InspectedQuery | undefined {
  demandWhole(session, scanner);
  const audited = inspectText(session, text, end === undefined);
  const traits = end === undefined ? sessionTraitsOf(text, lexerOptions(session)) : inspectBeginning(session, text, audited);
  if (traits === NO_TRAITS && session.services.rewriter === undefined) return { sent: text, traits, edits: NO_EDITS };
  if (awaitsClientNames(session, traits)) return undefined;
  if (end === undefined) inspectTraits(session, traits);
  else inspectRest(session, scanner, end);
  const { sql, edits } = rewriteText(session, text);
  return { sent: traits.mentionsPids ? translated(session, sql).text : sql, traits, edits };
}

/** Inspects the beginning of a long text; {@link inspectRest} inspects the rest. @param audited as {@link inspectText} returned it */
export function inspectBeginning(
  session: WireSession,
  text: string,
  audited: AuditedText | undefined,
  cannotBePreparedAgain = false,
): SessionTraits {
  const traits = { ...traitsOfBeginning(text), cannotBePreparedAgain };
  inspectTraits(session, traits);
  const rewritten = rewrittenText(session);
  if (rewritten === undefined) session.largeText = new StreamedText(text, audited instanceof StreamedAuditedText ? audited : undefined);
  else for (const noticed of rewritten.traits) noticeTraits(session, noticed);
  return traits;
}

/** Inspects a further part of a long text that is forwarded. */
export function inspectRest(session: WireSession, { buffer, end }: FrameScanner, start: number): void {
  const { largeText } = session;
  if (!(largeText instanceof StreamedText)) return;
  const { traits, audited } = largeText;
  if (audited !== undefined) for (const piece of piecesOf(buffer, start, end)) audited.add(piece);
  if (audited?.isWatched === true) unsettle(session);
  for (const noticed of traits.traitsIn(buffer, start, end)) noticeTraits(session, noticed);
}

/** @throws ServiceError `payload_too_large`, `too_many_requests` for an incomplete text that has to be rewritten */
export function demandWhole({ services, largeText }: WireSession, { length, last }: FrameScanner): void {
  if (last || services.rewriter === undefined || largeText !== undefined) return;
  if (length > MAX_REWRITTEN_BYTES)
    throw new ServiceError('payload_too_large', `a statement may have at most ${MAX_REWRITTEN_BYTES} bytes in this placement`);
  throw new ServiceError('too_many_requests', 'statements that are being sent exceed the memory limit', {
    hint: 'Wait for some of them to end, or send less at once.',
  });
}

/** Rewrites a text for the `schema` placement, where the organization's `public` has another name. */
function rewriteText(session: WireSession, text: string): { readonly sql: string; readonly edits: Edits } {
  const { services, largeText } = session;
  const { rewriter } = services;
  if (rewriter === undefined || largeText !== undefined) return { sql: text, edits: NO_EDITS };
  const { sql, edits } = rewriter.rewrite(Buffer.from(text, 'latin1'), lexerOptions(session));
  return { sql: edits.length === 0 ? text : sql.toString('latin1'), edits };
}

/** Translates process ids in the text, and sends the signals that it asks for. */
function translated(session: WireSession, text: string): Translated {
  const result = translateProcessIds(text, session.services.processIds, lexerOptions(session));
  awaitSignals(session, result.sent);
  return result;
}

/** Delays a request that signals other sessions until the signals have arrived, because PostgreSQL's functions send theirs before they return. */
export function awaitSignals({ link, events }: WireSession, signals: readonly Promise<void>[]): void {
  if (signals.length > 0) void link.holdBackUntil(Promise.all(signals)).then(() => events.continueInput());
}

/** @param definition shares the message's memory and begins with the text; a caller that keeps it makes a copy */
export function preparedOf(session: WireSession, text: string, definition: Buffer, watched?: AuditedText): UnnamedStatement {
  const options = lexerOptions(session);
  const traits = sessionTraitsOf(text, options);
  const { sql, edits } = rewriteText(session, text);
  const { text: sent, signals } = traits.mentionsPids ? translated(session, sql) : { text: sql, signals: [] };
  const changed = sent !== text;
  return {
    definition: changed ? Buffer.concat([Buffer.from(sent, 'latin1'), definition.subarray(text.length)]) : definition,
    changed,
    traits,
    edits,
    signals,
    hasEscapes: options !== undefined && text.includes('\\'),
    deallocates: traits.deallocates ? deallocatedNames(text, options) : NO_NAMES,
    watched,
  };
}

const NO_NAMES: readonly string[] = [];
const WITH_ESCAPES: LexerOptions = { standardConformingStrings: false };

/** How the server reads the session's next text; undefined: as it does by default. */
export function lexerOptions(session: WireSession): LexerOptions | undefined {
  return session.standardConformingStrings ? undefined : WITH_ESCAPES;
}
