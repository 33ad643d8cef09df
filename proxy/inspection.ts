import type { BackendConnection } from '../src/backend/connection.ts';
import { Disposition, Request } from '../src/backend/reply-queue.ts';
import { recordText } from '../src/catalog/audit/records.ts';
import { ServiceError } from '../src/errors.ts';
import { type FrameScanner, HEADER_BYTES, stringEnd } from '../src/protocol/framing.ts';
import { DISCARD_SEQUENCES, FLUSH, FrontendType, message } from '../src/protocol/frontend.ts';
import { LARGE_SQL_BYTES } from '../src/rewriting/rewrite-sql.ts';
import { TimeSlices } from '../src/runtime/event-loop.ts';
import { type Edits, NO_EDITS } from '../src/syntax/edits.ts';
import type { LexerOptions } from '../src/syntax/scanner.ts';
import {
  ANY_OBJECT_CHANGE,
  deallocatedNames,
  NO_TRAITS,
  objectChanges,
  type SessionTraits,
  sessionTraitsOf,
  traitsOfBeginning,
} from '../src/syntax/session-traits.ts';
import {
  type AuditedText,
  type Batch,
  DdlAudit,
  MAX_REWRITTEN_BYTES,
  PIECE_BYTES,
  piecesOf,
  type RewrittenText,
  StreamedAuditedText,
  StreamedText,
  StreamedTraits,
} from './audited-text.ts';
import type { UnnamedStatement } from './client-statements.ts';
import { Reason } from './gate.ts';
import { type Translated, translateProcessIds } from './process-ids.ts';
import { type ShownRows, shownRows } from './reply-rewriting.ts';
import { awaitsClientNames, prepareUnderClientNames, skipSync, statementsForSql } from './server-statements.ts';
import { effectsOf, type WireSession } from './wire-session.ts';

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
interface InspectedQuery {
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
export function awaitSignals(session: WireSession, signals: readonly Promise<void>[]): void {
  if (signals.length > 0) void session.link.holdBackUntil(Promise.all(signals)).then(() => session.continueInput());
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

const BEGINNING_BYTES = 8_192;

/** Whether the scanner's message, which is rewritten, has a text so long that rewriting it at once would delay other sessions. */
export function isLargeText({ largeText }: WireSession, { first, type, length, last }: FrameScanner): boolean {
  if (!first || length < LARGE_SQL_BYTES || largeText !== undefined) return false;
  return last && (type === FrontendType.Query || type === FrontendType.Parse);
}

/** Rewrites the message in time slices. It and the input behind it wait meanwhile. */
export function rewriteLarge(session: WireSession, scanner: FrameScanner): void {
  const { client, services, gate } = session;
  const size = scanner.end - scanner.start;
  const input = scanner.takeMessage();
  const message = input.subarray(0, size);
  gate.holdFirst(input.subarray(size), Reason.rewriting);
  gate.holdFirst(message, Reason.rewriting);
  client.pause();
  const options = { standardConformingStrings: session.standardConformingStrings };
  const rewriting = rewrittenMessage(message, (sql) => services.rewriter?.rewriteLarge(sql, options));
  Promise.all([rewriting, inspectInSlices(message)]).then(
    ([rewritten, inspected]) => {
      if (session.isOver) return;
      gate.replaceFirst(rewritten);
      session.largeText = inspected;
      session.resumeInput();
    },
    (cause: unknown) => session.endByFailure(cause),
  );
}

/** A Query or Parse message with its text rewritten. */
async function rewrittenMessage(
  original: Buffer,
  rewrite: (sql: Buffer) => Promise<{ readonly sql: Buffer }> | undefined,
): Promise<Buffer> {
  const start = original[0] === FrontendType.Parse ? original.indexOf(0, 5) + 1 : 5;
  const end = original.indexOf(0, start);
  const rewritten = await rewrite(original.subarray(start, end));
  return message(original[0] ?? 0, original.subarray(5, start), rewritten?.sql ?? original.subarray(start, end), original.subarray(end));
}

/** Inspects the text of a complete Query or Parse in time slices. */
async function inspectInSlices(message: Buffer): Promise<RewrittenText> {
  const traits: SessionTraits[] = [];
  const slices = new TimeSlices();
  const passing = new StreamedTraits();
  const audited = new StreamedAuditedText('');
  const isQuery = message[0] === FrontendType.Query;
  const start = isQuery ? HEADER_BYTES : stringEnd(message, HEADER_BYTES, message.length) + 1;
  for (let at = start; at < message.length; at += PIECE_BYTES) {
    const end = Math.min(message.length, at + PIECE_BYTES);
    traits.push(...passing.traitsIn(message, at, end));
    for (const piece of piecesOf(message, at, end)) audited.add(piece);
    await slices.pause();
  }
  return { traits, audited, beginning: message.toString('latin1', start, Math.min(start + BEGINNING_BYTES, message.length)) };
}

/* Notes what a client's statements leave in its session when they are sent, and prepares what they need there. */

/** The next message sends or executes a statement with these traits. */
function statementSent(session: WireSession, traits: SessionTraits): void {
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
function noticeTraits(session: WireSession, traits: SessionTraits): void {
  const { pins } = session;
  pins.statementSeen(traits);
  if (traits.changesDefaults) effectsOf(session).defaultsChanged = true;
  if (traits.seedsRandom) pins.keep('seed');
  if (traits.cannotBePreparedAgain) pins.keep('oversized');
}

const NONE = -1;

/** Stands beside the Sync, Query or FunctionCall that ends a request in the reply queue: what inspection has found for its reply. */
export interface RequestEnd {
  readonly batch: Batch | undefined;
  /** Names that a Query deallocates and that have not been answered yet, in order. */
  readonly deallocations: string[];
  /** The replacements made in the text of a Query. */
  readonly edits: Edits;
  /** What changes the rows for the client. */
  readonly shown: ShownRows | undefined;
}

/** The client's request ends here. @returns what has to be known when its reply arrives, if anything */
export function endRequest(
  session: WireSession,
  deallocations: string[] = [],
  edits: Edits = NO_EDITS,
  shows?: SessionTraits['shows'],
): RequestEnd | undefined {
  const batch = session.audit?.take();
  const shown = shows && shownRows(session.services, shows);
  const isPlain = batch === undefined && deallocations.length === 0 && edits.length === 0 && shown === undefined;
  return isPlain ? undefined : { batch, deallocations, edits, shown };
}
