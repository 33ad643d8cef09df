import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';
import { Disposition, Request, type RequestKind } from '../src/backend/reply-queue.ts';
import { mentionsServerStatement, stalenessOf } from '../src/backend/session-state.ts';
import { ServiceError } from '../src/errors.ts';
import { SCHEMA_CHANGE } from '../src/multiplex/statement-registry.ts';
import type { Observation } from '../src/observation.ts';
import {
  BackendType,
  decodeErrorFields,
  decodeParameterStatus,
  type ErrorFields,
  encodeBackendMessage,
  READY_IDLE,
  type TransactionStatus,
} from '../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES } from '../src/protocol/framing.ts';
import { EMPTY_DEFINITION, parseMessage, SYNC } from '../src/protocol/frontend.ts';
import type { Tenant } from '../src/router/lease.ts';
import type { Edits } from '../src/syntax/edits.ts';
import { isOwn } from './checkout.ts';
import { DescribeReply, type Effect } from './client-statements.ts';
import { Reason } from './gate.ts';
import type { RequestEnd } from './inspection.ts';
import { errorForClient, noticeForClient, notificationForClient, SHOWN_ROW_MAX_BYTES, type ShownRows } from './reply-rewriting.ts';
import { isMissing, NameParse, ShapeChanged, STALE_PLAN } from './server-statements.ts';
import { type CommandEffects, effectsOf, ReportedParameters, type WireSession } from './wire-session.ts';

/*
 * Replies are forwarded to the client unchanged, except those to Postern's own requests and the few messages that contain
 * the server's names.
 */

const ANSWERED = { name: 'wire.query' } as const;
const NO_NAME = Buffer.alloc(0);
const FAILED_TRANSACTION = '25P02';
/** Command tags of statements that cannot commit, unlike COMMIT, CALL and VACUUM. A request that fails after these has left nothing. */
const STAYS_OPEN = /^(?:SELECT|INSERT|UPDATE|DELETE|MERGE|COPY|FETCH|SHOW|SET|EXPLAIN)\b/;

/**
 * @param chunk from the backend, cut anywhere; its memory is in use while the gate is closed for a portion
 * @param isFollowed the replies behind those to this client's requests are another client's
 * @returns these other replies, if the chunk has any
 * @throws ServiceError `backend_lost` for bytes that violate the protocol
 */
export function receiveReplies(session: WireSession, chunk: Buffer, isFollowed: boolean): Buffer | undefined {
  const { backendScanner: scanner, replies, services, gate } = session;
  scanner.push(chunk);
  session.counting.repliesArrived();
  if (session.effects !== undefined) session.effects.reapplied = 0;
  if (gate.reasons !== 0) gate.open(Reason.replyPart);
  while (scanner.next()) {
    if (!scanner.first) {
      passOn(session, scanner, !session.skipsRest);
      if (session.skipsRest && scanner.type === BackendType.DataRow) showRow(session, shownRowsOf(session), scanner);
      if (scanner.last && session.ending?.afterMessage !== undefined) {
        session.ending.afterMessage.expire();
        break;
      }
    } else if (isData(scanner.type) && !replies.skipping && services.rewriter === undefined) {
      scanner.widen();
      passOn(session, scanner, true);
    } else receiveMessage(session, scanner);
    if (isFollowed && replies.length === 0) return scanner.takeRest();
    if (replies.missingSync === 'unclear') break;
    if (session.effects === undefined || session.effects.reapplied <= MAX_REAPPLIED_EFFECTS || replies.length === 0 || isFollowed) continue;
    gate.close(Reason.replyPart);
    break;
  }
  return undefined;
}

/** The session's settings are restored: sends the values that have really changed, and the ReadyForQuery that was held. */
export function settingsRestored(session: WireSession): void {
  const { gate, toClient, reported } = session;
  for (const [parameter, value] of reported?.settle() ?? []) insertParameter(session, parameter, value);
  if (gate.isClosed(Reason.settings)) toClient.insert(READY_IDLE);
  gate.open(Reason.settings);
}

function passOn(session: WireSession, scanner: FrameScanner, isForwarded: boolean): void {
  if (scanner.first) session.skipsRest = !isForwarded;
  if (!isForwarded || session.attempt === 'discarded') return;
  session.services.usage.bytesOut += scanner.end - scanner.start;
  session.toClient.add(scanner.buffer, scanner.start, scanner.end);
}

function receiveMessage(session: WireSession, scanner: FrameScanner): void {
  const { replies } = session;
  const { type, buffer, start, end } = scanner;
  const isForwarded = !replies.skipping || replies.forwards(type);
  switch (type) {
    case BackendType.NoticeResponse:
      receiveNotice(session, scanner, isForwarded);
      return;
    case BackendType.NotificationResponse:
      receiveNotification(session, scanner);
      return;
    case BackendType.ParameterStatus:
      receiveParameter(session, scanner, !isForwarded);
      return;
    case BackendType.ReadyForQuery:
      receiveReady(session, scanner, isForwarded);
      return;
    case BackendType.ErrorResponse:
      receiveError(session, scanner, isForwarded);
      return;
    case BackendType.CommandComplete:
      if (isForwarded) receiveCompletion(session, buffer, start + HEADER_BYTES, end - 1);
      break;
    case BackendType.DataRow:
      receiveRow(session, scanner);
      return;
    case BackendType.PortalSuspended:
      if (isForwarded && session.attempt !== 'discarded') session.counting.suspended();
      break;
    case BackendType.ParameterDescription:
    case BackendType.RowDescription:
    case BackendType.NoData: {
      const { subject } = replies;
      if (subject instanceof DescribeReply) subject.read(scanner);
      break;
    }
    default:
  }
  passOn(session, scanner, isForwarded);
  replies.receive(type);
}

function receiveNotice(session: WireSession, scanner: FrameScanner, isForwarded: boolean): void {
  const { rewriter } = session.services;
  if (!isForwarded || rewriter === undefined || !scanner.last) {
    passOn(session, scanner, isForwarded);
    return;
  }
  session.toClient.insert(noticeForClient(scanner.buffer.subarray(scanner.start, scanner.end), rewriter));
}

function receiveNotification(session: WireSession, scanner: FrameScanner): void {
  const { buffer, start, end, last } = scanner;
  const { services, toClient } = session;
  if (!last) {
    passOn(session, scanner, services.rewriter === undefined);
    return;
  }
  const notification = notificationForClient(buffer.subarray(start, end), services);
  if (notification !== undefined) toClient.insert(notification);
}

/**
 * A Query or FunctionCall behind an Execute, without a Sync between them, ends the implicit transaction of both, which is done
 * when the client reads ReadyForQuery. PostgreSQL 18 leaves the block open (the reply says `T`), and the next Sync loses it. So
 * Postern has the server enter the block again, which an empty Parse does, and end it with a Sync; the client gets the
 * ReadyForQuery of that one. A block of the client's own remains open.
 */
function endJoined(session: WireSession, scanner: FrameScanner): void {
  const { replies, toBackend, backend, statements } = session;
  passOn(session, scanner, false);
  replies.receive(scanner.type);
  if (backend !== undefined) backend.session.unnamed = undefined;
  replies.push(Request.parse, Disposition.skip);
  toBackend.insert(parseMessage(NO_NAME, EMPTY_DEFINITION));
  replies.push(Request.sync);
  toBackend.insert(SYNC);
  toBackend.flush();
  statements.waitForAll();
}

function receiveReady(session: WireSession, scanner: FrameScanner, isForwarded: boolean): void {
  const { replies, pins, services, gate, inFlight } = session;
  const status = statusOf(scanner.buffer[scanner.start + HEADER_BYTES]);
  if (status === 'T' && isForwarded && session.joinedBatch === replies.oldestBatch) {
    endJoined(session, scanner);
    return;
  }
  // A Query amid extended-protocol messages can leave a transaction open that PostgreSQL 18 reports as ended. The next
  // request then fails. A state probe takes that failure instead of a request of the client.
  if (session.status === 'T' && status === 'I' && session.completed === 'nothing') pins.suspected = true;
  session.completed = 'nothing';
  session.status = status;
  const askedAt = session.since;
  session.since = performance.now();
  // After a RESET the startup settings are restored before the client is told that the session is ready.
  if (isForwarded && pins.settingsState === 'reset' && status === 'I' && replies.length === 1) gate.close(Reason.settings);
  else passOn(session, scanner, isForwarded);
  replies.receive(scanner.type);
  if (status !== 'E') replies.failedQuery = 'none';
  if (isForwarded && session.ending?.isOver !== true) inFlight.answered(askedAt, session.attempt === 'discarded');
  if (isForwarded) session.counting.answered(askedAt, session.attempt !== 'discarded');
  if (isForwarded && session.attempt !== 'discarded') {
    services.usage.answered(session.since - askedAt, session.failure !== undefined);
    services.observe(session.failure === undefined ? ANSWERED : failedWith(session.failure, services.tenant));
    session.failure = undefined;
  }
  if (session.effects !== undefined) applyEffects(session, session.effects);
}

function failedWith(sqlstate: string, { organization }: Tenant): Observation {
  return { name: 'wire.query.failed', organizationId: organization.id, sqlstate };
}

function receiveError(session: WireSession, scanner: FrameScanner, isForwarded: boolean): void {
  const { replies, toClient, services, statements } = session;
  const { buffer, start, end, type } = scanner;
  const seen = buffer.subarray(start + HEADER_BYTES, end);
  const said = decodeErrorFields(scanner.last ? seen : Buffer.concat([seen, endOfFields(seen)]));
  const refused = replies.subject instanceof ShapeChanged && isMissing(said) ? replies.subject : undefined;
  const refusal = refused === undefined ? statements.refusalOf(said) : STALE_PLAN;
  const isRefused = refusal !== undefined;
  const fields = refusal ?? said;
  if (replies.subject instanceof NameParse) replies.subject.failed(said);
  if (fields.severity !== 'ERROR') session.makeEnding().hasFatal = true;
  const hasFatal = session.ending?.hasFatal === true;
  if (isForwarded && !hasFatal && session.completed !== 'committed' && !isRefused && canRunAgain(session, fields)) {
    session.attempt = 'discarded';
    toClient.clear();
  }
  if (isServerStatementMissing(fields)) session.backend?.session.unprepareAll();
  noteFailure(session, fields);
  const isHidden = session.attempt === 'discarded';
  if (isForwarded && !isHidden) {
    session.failure ??= fields.code;
    session.counting.failed();
  }
  const isTold = (isForwarded || hasFatal) && !isHidden;
  const isReworded = isTold && !isRefused && scanner.last && (services.rewriter !== undefined || mentionsServerStatement(fields.message));
  const edits = editsInError(session);
  const parameters = isTold ? parametersBefore(session, said, isRefused) : undefined;
  if (parameters !== undefined) toClient.insert(encodeBackendMessage({ name: 'ParameterDescription', body: parameters }));
  if (!isReworded) passOn(session, scanner, isTold && !isRefused);
  replies.receive(type);
  if (isRefused && isTold) {
    const told = services.rewriter === undefined ? fields : services.rewriter.error(fields, edits);
    toClient.insert(encodeBackendMessage({ name: 'ErrorResponse', fields: told }));
  }
  // This comes last, because the error may have undone that the client closed its name for the statement.
  if (isReworded) toClient.insert(errorForClient(buffer.subarray(start, end), fields, { rewriter: services.rewriter, statements, edits }));
}

/**
 * Whether the request can run again instead of reporting the error. The client must not see that a statement which Postern
 * prepared has become invalid, nor that a cancel request for another client has hit its request.
 */
function canRunAgain(
  { inFlight, attempt, statements: { usesRepeated }, toClient, link, replies }: WireSession,
  error: ErrorFields,
): boolean {
  if (!inFlight.isUnanswered) return false;
  // Only once, because a client's function can raise the same error.
  if (isServerStatementMissing(error)) return attempt !== 'second' && (usesRepeated || toClient.bytes === 0);
  if (link.mayMeetForeignCancel && isCanceled(error)) return true;
  return usesRepeated && attempt !== 'second' && stalenessOf(error, replies.kind !== Request.bind) !== undefined;
}

/** What the client is told of a statement before an error to its Describe. In a failed transaction that error comes first. */
function parametersBefore({ replies: { subject } }: WireSession, { code }: ErrorFields, isRefused: boolean): Buffer | undefined {
  if (code === FAILED_TRANSACTION || (subject instanceof ShapeChanged && !isRefused)) return undefined;
  return isOwn(subject) ? undefined : (subject as Effect | undefined)?.parameters;
}

/** The replacements made in the statement that an error is about. */
function editsInError({ replies }: WireSession): Edits {
  const { subject } = replies;
  return isOwn(subject) ? [] : ((subject as Effect | RequestEnd | undefined)?.edits ?? []);
}

function noteFailure(session: WireSession, fields: ErrorFields): void {
  const subject = session.replies.batchSubject;
  if (isOwn(subject)) {
    // The name may have been reserved by a library since.
    if (subject.own === 'options') return;
    session.pins.probeFailed();
    // A fatal error is sent to the client as it is.
    if (subject.own === 'settings' && session.ending?.hasFatal !== true)
      session.endByError(new ServiceError('internal', "the session's settings could not be restored", { detail: fields.message }));
    return;
  }
  if (fields !== STALE_PLAN) forgetIfStale(session, fields);
  if (session.attempt === 'discarded') return;
  const batch = (subject as RequestEnd | undefined)?.batch;
  if (batch !== undefined) batch.sqlstate = fields.code;
}

/** Whoever prepares the text from now on gets another server statement. Those who have this one get the error that PostgreSQL gives them. */
function forgetIfStale({ services, sentText, pins, replies }: WireSession, fields: ErrorFields): void {
  const { registry } = services;
  const { kind } = replies;
  const staleness = stalenessOf(fields, kind !== Request.bind);
  if (staleness === 'invalidate') registry.invalidate();
  if (staleness === 'invalidate' || staleness === undefined || (kind !== Request.bind && kind !== Request.execute)) return;
  const { text: bound } = sentText;
  if (pins.context === undefined || !Buffer.isBuffer(bound)) return;
  const server = registry.find(bound, pins.context);
  if (server !== undefined) registry.forget(server);
}

function receiveCompletion(session: WireSession, buffer: Buffer, start: number, end: number): void {
  if (session.completed === 'nothing') session.completed = 'uncommitted';
  if (session.attempt !== 'discarded') {
    const rows = rowsOf(buffer, end);
    session.services.usage.rows += rows;
    session.counting.completed(rows);
  }
  // Only for the audit log does it matter what has returned rows.
  if (!session.inspection.isAuditing && isSelect(buffer, start)) return;
  const subject = session.replies.batchSubject;
  const tag = buffer.toString('latin1', start, end);
  if (!STAYS_OPEN.test(tag)) session.completed = 'committed';
  commandCompleted(session, tag, isOwn(subject) ? undefined : (subject as RequestEnd | undefined));
}

/** The client is not told of a value that Postern's own requests change and change back, but of one that remains different. */
function receiveParameter(session: WireSession, scanner: FrameScanner, isOwnRequest: boolean): void {
  const { pins, services } = session;
  session.reported ??= new ReportedParameters(session.startParameters);
  const { reported } = session;
  const { parameter, value: serverValue } = decodeParameterStatus(scanner.buffer.subarray(scanner.start + HEADER_BYTES, scanner.end));
  if (!isOwnRequest) pins.parameterChanged(parameter, serverValue);
  const value = services.rewriter?.clientSetting(parameter, serverValue) ?? serverValue;
  if (pins.settingsState === 'reset' && session.status === 'I') reported.putOff(parameter, value);
  else if (!isOwnRequest || !reported.isTold(parameter, value)) {
    reported.tell(parameter, value);
    if (value === serverValue) passOn(session, scanner, true);
    else insertParameter(session, parameter, value);
  } else passOn(session, scanner, false);
}

function insertParameter({ toClient }: WireSession, parameter: string, value: string): void {
  toClient.insert(encodeBackendMessage({ name: 'ParameterStatus', parameter, value }));
}

function receiveRow(session: WireSession, scanner: FrameScanner): void {
  const { replies, pins } = session;
  const { buffer, start, end, last } = scanner;
  const asked = replies.skipping ? session.statements.awaitedStrings : undefined;
  if (asked !== undefined) {
    asked.row(buffer.subarray(start + HEADER_BYTES, end));
    passOn(session, scanner, false);
    return;
  }
  const subject = replies.skipping ? replies.batchSubject : replies.subject;
  if (isOwn(subject)) {
    if (subject.own === 'probe' && last) subject.probe.row(buffer.subarray(start + HEADER_BYTES, end));
    else if (subject.own === 'probe') pins.probeFailed();
    passOn(session, scanner, false);
    return;
  }
  const shown = shownRowsOf(session);
  const isShown = shown !== undefined && scanner.length <= SHOWN_ROW_MAX_BYTES;
  passOn(session, scanner, !isShown);
  if (isShown) showRow(session, shown, scanner);
}

function shownRowsOf({ replies }: WireSession): ShownRows | undefined {
  const subject = replies.skipping ? undefined : (replies.subject as Partial<RequestEnd> | undefined);
  return subject?.shown;
}

/** Takes the row, or a further part of it, which is not forwarded. */
function showRow({ attempt, toClient }: WireSession, shown: ShownRows | undefined, part: FrameScanner): void {
  const row = shown?.add(part);
  if (row !== undefined && attempt !== 'discarded') toClient.insert(row);
}

/** The bytes that terminate the fields of an incomplete error: it ends within a field, or right after one. */
function endOfFields(beginning: Buffer): Buffer {
  return Buffer.alloc(beginning.at(-1) === 0 ? 1 : 2);
}

/** The number at the end of a command tag, such as `SELECT 5`; 0 if it has none. @param end of the tag, without its zero byte */
function rowsOf(buffer: Buffer, end: number): number {
  let rows = 0;
  let unit = 1;
  for (let at = end - 1; ; at -= 1) {
    const digit = (buffer[at] ?? 0) - 0x30;
    if (digit < 0 || digit > 9) return rows;
    rows += digit * unit;
    unit *= 10;
  }
}

/** SELECT is the most frequent command tag, and has no effects. */
function isSelect(buffer: Buffer, start: number): boolean {
  return buffer[start] === 0x53 && buffer[start + 1] === 0x45 && buffer[start + 2] === 0x4c;
}

/** Messages that are frequent and are not inspected. */
function isData(type: number): boolean {
  return type === BackendType.DataRow || type === BackendType.CopyData;
}

function statusOf(byte: number | undefined): TransactionStatus {
  return byte === 0x54 ? 'T' : byte === 0x45 ? 'E' : 'I';
}

/* Errors of the server that the relay recognizes: it runs the request again, or prepares its statement again. */

/** Whether a server statement no longer exists: `DEALLOCATE ALL` in a function or a DO block may have removed it unnoticed. */
function isServerStatementMissing(fields: ErrorFields): boolean {
  return isMissing(fields) && mentionsServerStatement(fields.message);
}

/** Whether the error is that of a cancel request, and not of a timeout of the server. */
function isCanceled({ code, message }: ErrorFields): boolean {
  return code === '57014' && !message.includes('timeout');
}

/* Applies what a client's statements have changed in its session. Command tags tell, unlike the text, that a statement has run. */

/** This many take a few milliseconds: other events are then handled before the rest of a chunk. */
const MAX_REAPPLIED_EFFECTS = 20_000;

/** Requests that define or close statement names. */
const NAMING: ReadonlySet<RequestKind> = new Set([Request.parse, Request.close]);

/** @param request the request of the command, if anything was noted for it */
function commandCompleted(session: WireSession, tag: string, request: RequestEnd | undefined): void {
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
function applyEffects(session: WireSession, effects: CommandEffects): void {
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
  session.statements.allDeallocated();
  reapplyEffects(session);
  effects.allDeallocated = session.replies.length > 0;
}

/** From now on SQL may define the name again. Postern must not close such a statement, so the name is not stale any more. */
function nameDeallocated(session: WireSession, name: string): void {
  session.statements.deallocated(name);
  reapplyEffects(session);
  session.backend?.session.staleNames.delete(name);
}

/** Later requests were noted when they were sent, and remain valid: their effects are noted again. */
function reapplyEffects(session: WireSession): void {
  effectsOf(session).reapplied += session.replies.length;
  for (const subject of session.replies.subjectsOf(NAMING)) (subject as Effect | undefined)?.redo?.();
}
