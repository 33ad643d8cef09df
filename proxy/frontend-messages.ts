import { Buffer } from 'node:buffer';
import type { BackendConnection } from '../src/backend/connection.ts';
import { Disposition, Request, type RequestKind } from '../src/backend/reply-queue.ts';
import type { ServerStatement } from '../src/backend/session-state.ts';
import type { Counted } from '../src/catalog/statement-counters.ts';
import { PARSE_COMPLETE, READY_IDLE } from '../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES, latin1String, stringEnd } from '../src/protocol/framing.ts';
import { CLOSE_UNNAMED_PORTAL, FrontendType, queryMessage, statementNameStart, withStatementName } from '../src/protocol/frontend.ts';
import { canBePreparedAgain, mayChangeObjects, NO_TRAITS, type SessionTraits, sessionTraitsOf } from '../src/syntax/session-traits.ts';
import { MAX_KEPT_DEFINITION_BYTES, PIECE_BYTES } from './audited-text.ts';
import { type Effect, type NamedStatement, shapeOf, shapeOfPortal, shapeTold, UnnamedChange } from './client-statements.ts';
import { errorResponse } from './errors.ts';
import type { RequestEnd } from './inspection.ts';
import { forwardParse, MAX_LOOKED_UP_BYTES, preparedOf, resolveStatement } from './parse.ts';
import { shownRows } from './reply-rewriting.ts';
import {
  awaitsClientNames,
  awaitsShape,
  awaitsStrings,
  closeIfStale,
  closeStaleNames,
  describesPlaceholder,
  describesUnnamedPlaceholder,
  describeUnnamed,
  ensureUnnamed,
  mustEndPipeline,
  preparePlaceholders,
  refuseChanged,
  sendLongText,
  sendText,
  sendTraits,
} from './server-statements.ts';
import type { SpecialPortals, WireSession } from './wire-session.ts';

/*
 * These functions forward a client's messages to its backend. They note the replies that are due, give prepared statements the
 * names that these have on the server, and prepare missing statements. All other messages are forwarded unchanged.
 */

/** Whether the scanner's message has to wait until earlier requests have been answered. */
export function mustWaitForReplies(session: WireSession, scanner: FrameScanner): boolean {
  const { replies, names } = session;
  if (!scanner.first) return false;
  if (replies.oldestBatch === replies.batch) return session.unknownStringsBatch === replies.batch && awaitsStrings(session, scanner);
  return (
    awaitsStrings(session, scanner) ||
    followsReset(session, scanner) ||
    (session.joinedBatch >= replies.oldestBatch && names.waitForAll()) ||
    names.mustWait(scanner)
  );
}

/** RESET and DISCARD go back to the server's defaults. The client's startup settings are restored before its next request. */
function followsReset({ pins, hasUnsynced, names }: WireSession, { type }: FrameScanner): boolean {
  return pins.settingsState === 'reset' && !hasUnsynced && REQUEST_STARTS.has(type) && names.waitForAll();
}

/** Whether the message that {@link mustWaitForReplies} or {@link forward} made wait still has to. */
export function awaitsReplies(session: WireSession): boolean {
  return session.names.isWaiting || awaitsShape(session) || (session.awaitsAll && session.replies.length > 0);
}

/**
 * Forwards the scanner's current fragment. The caller handles Terminate.
 * @returns false if the message has to wait until the backend has described its statement
 */
export function forward(session: WireSession, scanner: FrameScanner, backend: BackendConnection): boolean {
  if (!scanner.first) {
    session.inspection.goesOn(scanner, scanner.start);
    pass(session, scanner);
    return true;
  }
  if (session.names.deallocations !== undefined && session.startsPipeline) session.names.settled();
  if (backend.session.staleNames.size > 0 && session.startsPipeline) closeStaleNames(session, backend);
  switch (scanner.type) {
    case FrontendType.Query:
      return forwardQuery(session, scanner, backend);
    case FrontendType.Parse: {
      const outcome = forwardParse(session, scanner, backend);
      session.unsyncedBatch = session.replies.batch;
      return outcome !== 'asked';
    }
    case FrontendType.Bind:
      noteBind(session, scanner);
      return forwardNamed(session, scanner, backend, Request.bind);
    case FrontendType.Describe:
      return forwardNamed(session, scanner, backend, Request.describe);
    case FrontendType.Execute:
      forwardExecute(session, scanner);
      return true;
    case FrontendType.Close:
      forwardClose(session, scanner, backend);
      return true;
    case FrontendType.Sync:
      session.unsyncedBatch = NONE;
      if (session.portals !== undefined) session.portals.replacesDangling = false;
      session.replies.push(Request.sync, Disposition.forward, session.inspection.isAuditing ? session.inspection.endRequest() : undefined);
      break;
    case FrontendType.FunctionCall:
      if (mustEndPipeline(session, traitsOfCall(scanner), true)) return false;
      countStatement(session);
      sendTraits(session, traitsOfCall(scanner));
      noteJoined(session);
      session.replies.push(Request.call, Disposition.forward, session.inspection.endRequest());
      break;
    case FrontendType.CopyDone:
    case FrontendType.CopyFail:
      session.replies.push(Request.copyEnd);
      break;
    default:
  }
  pass(session, scanner);
  return true;
}

function pass({ toBackend }: WireSession, { buffer, start, end }: FrameScanner): void {
  toBackend.add(buffer, start, end);
}

function countStatement(session: WireSession): void {
  session.statementCount += 1;
  session.services.usage.statements += 1;
}

/** Notes that an extended-protocol message will be answered. */
function expectReply(session: WireSession, kind: RequestKind, subject?: unknown, counted?: Counted): void {
  session.unsyncedBatch = session.replies.batch;
  session.replies.push(kind, Disposition.forward, subject, counted);
}

/** Notes that a Query or FunctionCall is no request of its own. */
function noteJoined(session: WireSession): void {
  const { replies } = session;
  if (session.unsyncedBatch === replies.batch || replies.missingSync === 'ignored') session.joinedBatch = replies.batch;
}

/** A Query also destroys the unnamed statement, of the client and of the backend. @returns as {@link forward} */
function forwardQuery(session: WireSession, scanner: FrameScanner, backend: BackendConnection): boolean {
  const { names, replies, statements, toBackend, sentText, inspection } = session;
  if (session.portals !== undefined) session.portals.replacesDangling = false;
  const { buffer, start, last } = scanner;
  const maxBytes = inspection.beginning === undefined ? MAX_KEPT_DEFINITION_BYTES : PIECE_BYTES;
  const isWhole = last && scanner.length <= maxBytes;
  const end = isWhole ? scanner.end - 1 : Math.min(scanner.end, start + maxBytes);
  const text = buffer.toString('latin1', start + HEADER_BYTES, end);
  inspection.demandWhole(scanner);
  const inspected = inspection.inspect(text, isWhole);
  const { traits, sent, edits, deallocates } = inspected;
  if (session.unsyncedBatch === replies.batch && mustEndPipeline(session, isWhole ? traits : sessionTraitsOf(text), true)) return false;
  if (awaitsClientNames(session, traits)) return false;
  if (isWhole) sendText(session, inspected);
  else sendLongText(session, text, inspected, scanner, end);
  sentText.isWhole = isWhole && text.length <= SHOWN_MAX_CHARACTERS;
  sentText.text = sentText.isWhole ? text : beginningOf(session, text);
  sentText.batch = replies.batch;
  if (traits.deallocatesAll) names.changesAll();
  if (statements.unnamed !== undefined || statements.settledUnnamed !== undefined) names.changes('');
  if (deallocates.length > 0) for (const name of preparePlaceholders(session, deallocates, backend)) names.changes(name);
  if (replies.missingSync !== 'discarding') {
    if (statements.unnamed !== undefined) statements.setUnnamed(undefined);
    backend.session.unnamed = undefined;
  }
  noteJoined(session);
  const isPlain = traits === NO_TRAITS && !inspection.isAuditing && edits.length === 0;
  const requestEnd = isPlain ? undefined : inspection.endRequest(deallocates, edits, traits.shows);
  replies.push(Request.query, Disposition.forward, requestEnd, session.counting.query(text));
  countStatement(session);
  if (sent === text) pass(session, scanner);
  else toBackend.insert(queryMessage(Buffer.from(sent, 'latin1')));
  return true;
}

/** A copy, so that long texts are not kept. */
function beginningOf({ inspection }: WireSession, text: string): string {
  return inspection.beginning ?? Buffer.from(text.slice(0, SHOWN_MAX_CHARACTERS), 'latin1').toString('latin1');
}

/** Bind, and Describe of a statement, under the name that the statement has on the server. @returns as {@link forward} */
function forwardNamed(
  session: WireSession,
  scanner: FrameScanner,
  backend: BackendConnection,
  kind: typeof Request.bind | typeof Request.describe,
): boolean {
  const { buffer, start, end } = scanner;
  const nameStart = statementNameStart(buffer, start, end);
  const nameEnd = nameStart < 0 ? -1 : stringEnd(buffer, nameStart, end);
  if (nameEnd < 0) {
    expectReply(session, kind, kind === Request.describe ? shapeOfPortal(session, scanner) : undefined);
    pass(session, scanner);
    return true;
  }
  const isNamed = nameEnd > nameStart;
  const { sentText, replies } = session;
  const { unnamed } = session.statements;
  const name = buffer.toString('latin1', nameStart, nameEnd);
  const named = isNamed ? statementNamed(session, name) : undefined;
  const statement = isNamed ? named : unnamed;
  if (statement !== undefined && (mustEndPipeline(session, statement.traits) || awaitsClientNames(session, statement.traits))) return false;
  if (kind === Request.bind) session.boundBatch = replies.batch;
  sendTraits(session, statement?.traits);
  const server = isNamed ? useNamed(session, name, named, backend, kind) : useUnnamed(session, backend, kind);
  if (server === 'asked' || server === 'changed') {
    session.unsyncedBatch = session.replies.batch;
    if (server === 'changed')
      refuseChanged(session, kind, isNamed ? (named?.first?.shape ?? named?.server.shape) : unnamed && shapeTold(unnamed));
    return server === 'changed';
  }
  if (kind === Request.bind) {
    if (statement !== undefined) session.inspection.signalsOf(statement.signals, scanner);
    if (statement?.watched !== undefined) session.inspection.runs(statement.watched);
    else if (statement === undefined && isNamed) session.inspection.runsOversized(name);
    sentText.text = server?.definition ?? (isNamed ? undefined : unnamed?.definition);
    sentText.isWhole = true;
    sentText.batch = replies.batch;
    portalBound(session, scanner, statement?.traits);
    session.counting.bound(scanner, server, isNamed ? undefined : unnamed);
    if (unnamed !== undefined) {
      if (buffer[start + HEADER_BYTES] === 0) unnamed.hasPortal = !isNamed;
      unnamed.isBound = !isNamed && unnamed.server === undefined;
    }
    expectReply(session, kind, deallocationOf(session, statement?.deallocates, backend));
  } else expectReply(session, kind, isNamed || unnamed === undefined || server !== undefined ? undefined : shapeOf(unnamed, replies.batch));
  // The server refuses a name that the client has not prepared.
  if (server === undefined) pass(session, scanner);
  else session.toBackend.insert(withStatementName(buffer, start, end, server.name));
  return true;
}

/** @returns the server statement; undefined if the server knows the statement by the client's own name */
function useNamed(
  session: WireSession,
  name: string,
  named: NamedStatement | undefined,
  backend: BackendConnection,
  kind: RequestKind,
): ServerStatement | 'asked' | 'changed' | undefined {
  // A statement that lists prepared statements must not appear among them under a name of Postern's.
  if (named?.traits.listsPrepared === true && backend.session.staleNames.has(name)) return undefined;
  if (named === undefined) {
    closeIfStale(session, Buffer.from(name, 'latin1'), backend);
    return undefined;
  }
  if (kind === Request.describe && describesPlaceholder(session, name, named, backend)) {
    session.timed = 'none';
    session.statements.used(name);
    return undefined;
  }
  const server = resolveStatement(session, name, named, backend);
  if (server === 'asked' || server === 'changed') return server;
  noteTimed(session, server);
  if (named.isUsed !== true) session.statements.used(name);
  return server;
}

/** @returns as {@link useNamed} */
function useUnnamed(
  session: WireSession,
  backend: BackendConnection,
  kind: RequestKind,
): ServerStatement | 'asked' | 'changed' | undefined {
  const { unnamed } = session.statements;
  const server = unnamed?.server;
  // One of an earlier request is used as an unnamed statement, because its tables may have changed since then.
  if (server !== undefined && session.usesRepeated && !session.names.mayAllBeGone && backend.session.prepared.use(server)) {
    noteTimed(session, server);
    return server;
  }
  session.timed = 'none';
  if (kind === Request.describe && unnamed !== undefined && describesUnnamedPlaceholder(session, unnamed, backend)) return undefined;
  const readiness = ensureUnnamed(session, backend);
  return readiness === 'ready' ? undefined : readiness;
}

function noteTimed(session: WireSession, statement: ServerStatement): void {
  if (session.timed !== 'none') session.timed = statement;
}

function statementNamed({ names, statements }: WireSession, name: string): NamedStatement | undefined {
  return names.hasTaken(name) ? undefined : statements.get(name);
}

/** A DEALLOCATE takes effect here when it is bound. */
function deallocationOf(session: WireSession, deallocates: readonly string[] | undefined, backend: BackendConnection): Effect | undefined {
  if (deallocates === undefined || deallocates.length === 0) return undefined;
  const names = preparePlaceholders(session, deallocates, backend);
  for (const name of names) session.names.changes(name);
  const undos = names.map((name) => session.statements.delete(name));
  return { undo: () => undos.map((undo) => undo()) };
}

function forwardExecute(session: WireSession, scanner: FrameScanner): void {
  const { names, replies } = session;
  countStatement(session);
  session.unknownStringsBatch = replies.batch;
  closeDanglingPortal(session);
  session.executedBatch = session.replies.batch;
  const { unnamed } = session.statements;
  if (unnamed?.isBound === true && unnamed.shape === undefined) describeUnnamed(session, unnamed);
  if (deallocatesAll(session, scanner)) names.executesDeallocateAll();
  if (names.mayAllBeGone) names.changesAll();
  expectReply(session, Request.execute, shownOf(session, scanner), session.counting.executed(scanner));
  pass(session, scanner);
}

function forwardClose(session: WireSession, scanner: FrameScanner, backend: BackendConnection): void {
  const { statements, names, replies } = session;
  const { buffer, start, end } = scanner;
  const nameStart = statementNameStart(buffer, start, end);
  const name = nameStart < 0 ? undefined : buffer.toString('latin1', nameStart, stringEnd(buffer, nameStart, end));
  const isKnown = name !== undefined && name !== '' && statements.get(name) !== undefined;
  session.unsyncedBatch = replies.batch;
  if (isKnown || name === '') names.changes(name);
  if (isKnown) {
    // Other clients may use the statement, so it remains on the server.
    let undo = statements.delete(name);
    const redo = () => {
      undo = statements.delete(name);
    };
    replies.push(Request.close, Disposition.simulate, { undo: () => undo(), redo });
    return;
  }
  if (name === '') {
    const change = new UnnamedChange(statements, undefined, backend.session);
    change.note();
    replies.push(Request.close, Disposition.forward, change);
  } else replies.push(Request.close);
  pass(session, scanner);
}

const NONE = -1;
/** Of longer texts only the beginning is kept for the list of sessions. */
const SHOWN_MAX_CHARACTERS = 8_192;
/** The messages with which a request can begin. */
const REQUEST_STARTS: ReadonlySet<number> = new Set([
  FrontendType.Query,
  FrontendType.Parse,
  FrontendType.Bind,
  FrontendType.Describe,
  FrontendType.Execute,
  FrontendType.Close,
  FrontendType.FunctionCall,
]);

/**
 * Answers messages of a client that has no backend: those that need none, and those that no backend was available for.
 * @returns false when the message has to go to a backend
 */
export function answerLocally(session: WireSession, scanner: FrameScanner): boolean {
  // The beginning of the message was answered here, so the rest is ignored.
  if (!scanner.first) return true;
  switch (scanner.type) {
    case FrontendType.Sync:
      if (scanner.length > 0) return false;
      session.toClient.insert(READY_IDLE);
      session.refusal = undefined;
      return true;
    // PostgreSQL ignores copy data after a COPY has failed, too.
    case FrontendType.CopyData:
    case FrontendType.CopyDone:
    case FrontendType.CopyFail:
    case FrontendType.Flush:
      return true;
    default:
      return answerRefused(session, scanner) || answerParse(session, scanner);
  }
}

function answerRefused(session: WireSession, { type }: FrameScanner): boolean {
  const { refusal, toClient } = session;
  if (refusal === undefined) return false;
  if (refusal === 'told') return true;
  toClient.insert(errorResponse(refusal, 'ERROR'));
  const isWhole = type === FrontendType.Query || type === FrontendType.FunctionCall;
  if (isWhole) toClient.insert(READY_IDLE);
  session.refusal = isWhole ? undefined : 'told';
  return true;
}

function answerParse(session: WireSession, scanner: FrameScanner): boolean {
  const isKnown = scanner.type === FrontendType.Parse && prepareWithoutBackend(session, scanner);
  if (isKnown) session.toClient.insert(PARSE_COMPLETE);
  return isKnown;
}

/**
 * Answers a named Parse without a backend if its statement is proven to be valid. The statement is prepared on the backend
 * that first executes it. So a client that only prepares does not wait for a backend: a program with many connections in one thread
 * (pgbench) may wait for that while its other connections have all backends in transactions, which it cannot end meanwhile.
 * @returns false when the Parse has to go to a backend
 */
function prepareWithoutBackend(session: WireSession, { buffer, start, end, length, last }: FrameScanner): boolean {
  const { pins, statements, services, inspection } = session;
  const nameStart = start + HEADER_BYTES;
  if (!last || length > MAX_LOOKED_UP_BYTES || buffer[nameStart] === 0) return false;
  const nameEnd = stringEnd(buffer, nameStart, end);
  if (nameEnd < 0) return false;
  const name = buffer.toString('latin1', nameStart, nameEnd);
  if (statements.get(name) !== undefined || !statements.hasRoomFor(name, length)) return false;
  const text = latin1String(buffer, nameEnd + 1, end);
  const { context } = pins;
  if (context === undefined || !canBePreparedAgain(text) || mayChangeObjects(text)) return false;
  const inspected = inspection.inspect(text, true);
  const { definition, traits, signals, deallocates } = preparedOf(inspected, text, buffer.subarray(nameEnd + 1, end));
  const server = services.registry.find(definition, context);
  if (server === undefined || !server.proven) return false;
  inspection.signal(inspected.due);
  statements.set(name, { server, traits, signals, deallocates });
  return true;
}

/* Some portals need special treatment when they are executed. They are recognized when they are bound. */

/** Notes a Bind that is forwarded, of any statement. */
function noteBind(session: WireSession, { buffer, start }: FrameScanner): void {
  if (mayDangle(session) && buffer[start + HEADER_BYTES] === 0) portalsOf(session).replacesDangling = true;
}

function portalsOf(session: WireSession): SpecialPortals {
  session.portals ??= { deallocating: undefined, shown: undefined, replacesDangling: false };
  return session.portals;
}

/** @param traits those of the bound statement, if Postern knows it */
function portalBound(session: WireSession, bind: FrameScanner, traits: SessionTraits | undefined): void {
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
function deallocatesAll({ portals }: WireSession, execute: FrameScanner): boolean {
  return portals?.deallocating !== undefined && portalName(execute) === portals.deallocating;
}

/** Stands in the reply queue beside an Execute whose rows are changed for the client. */
function shownOf({ portals }: WireSession, execute: FrameScanner): Pick<RequestEnd, 'shown'> | undefined {
  const shown = portals?.shown;
  return shown !== undefined && portalName(execute) === shown.portal ? { shown: shown.rows } : undefined;
}

/**
 * A Query that fails inside a transaction leaves an unnamed portal whose plan has been freed. Executing that portal
 * crashes the server (seen with PostgreSQL 15.20 and 18.4), and with it the sessions of all organizations. Postern closes
 * the portal before an Execute that may refer to it.
 */
function closeDanglingPortal(session: WireSession): void {
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

/** Built-in functions that leave or read state in a session, with their OIDs, which never change. */
export const STATEFUL_FUNCTIONS: Readonly<Record<string, readonly number[]>> = {
  set_config: [2078],
  pg_advisory_lock: [2880, 2886],
  pg_advisory_lock_shared: [2881, 2887],
  pg_try_advisory_lock: [2882, 2888],
  pg_try_advisory_lock_shared: [2883, 2889],
  pg_advisory_unlock: [2884, 2890],
  pg_advisory_unlock_shared: [2885, 2891],
  pg_advisory_unlock_all: [2892],
  nextval: [1574],
  currval: [1575],
  setval: [1576, 1765],
  lastval: [2559],
  setseed: [1599],
};

const TRAITS: ReadonlyMap<number, SessionTraits> = new Map(
  Object.entries(STATEFUL_FUNCTIONS).flatMap(([name, oids]) => oids.map((oid) => [oid, sessionTraitsOf(`SELECT ${name}(values)`)])),
);

/** The traits of a FunctionCall: those of a text that calls the function by name. */
function traitsOfCall({ buffer, start, end }: FrameScanner): SessionTraits {
  const at = start + HEADER_BYTES;
  return at + OID_BYTES > end ? NO_TRAITS : (TRAITS.get(buffer.readUInt32BE(at)) ?? NO_TRAITS);
}

const OID_BYTES = 4;
