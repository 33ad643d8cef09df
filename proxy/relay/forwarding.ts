import { Buffer } from 'node:buffer';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { Disposition, Request, type RequestKind } from '../../src/backend/reply-queue.ts';
import type { ServerStatement } from '../../src/backend/session-state.ts';
import type { Counted } from '../../src/catalog/statement-counters.ts';
import { type FrameScanner, HEADER_BYTES, stringEnd } from '../../src/protocol/framing.ts';
import { FrontendType, queryMessage, statementNameStart, withStatementName } from '../../src/protocol/frontend.ts';
import { deallocatedNames, NO_TRAITS, sessionTraitsOf } from '../../src/syntax/session-traits.ts';
import { traitsOfCall } from '../inspection/function-call-traits.ts';
import {
  awaitSignals,
  inspectAgain,
  inspectOversized,
  inspectQuery,
  inspectRest,
  inspectTraits,
  lexerOptions,
  rewrittenText,
} from '../inspection/query-inspection.ts';
import { endRequest } from '../inspection/request-end.ts';
import { MAX_KEPT_DEFINITION_BYTES } from '../inspection/text-limits.ts';
import { mustEndPipeline } from '../pinning/before-statement.ts';
import { sendSignals } from '../pinning/process-id-translation.ts';
import { type NamedStatement, shapeTold } from '../prepared/client-statements.ts';
import { shapeOf, shapeOfPortal } from '../prepared/describe-reply-reader.ts';
import { forwardParse } from '../prepared/parse-forwarding.ts';
import { type Effect, UnnamedChange } from '../prepared/pending-changes.ts';
import { closeDanglingPortal, deallocatesAll, noteBind, portalBound, shownOf } from '../prepared/special-portals.ts';
import {
  awaitsShape,
  awaitsStrings,
  closeIfStale,
  closeStaleNames,
  describeUnnamed,
  ensureUnnamed,
  refuseChanged,
} from '../prepared/statement-preparation.ts';
import { resolveStatement } from '../prepared/statement-resolution.ts';
import {
  awaitsClientNames,
  describesPlaceholder,
  describesUnnamedPlaceholder,
  preparePlaceholders,
} from '../prepared/statements-under-client-names.ts';
import { countedPortal, countedQuery, portalOf } from './statement-counting.ts';
import type { WireSession } from './wire-session.ts';

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
    if (session.largeText !== undefined) inspectRest(session, scanner, scanner.start);
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
      session.replies.push(Request.sync, Disposition.forward, session.audit === undefined ? undefined : endRequest(session));
      break;
    case FrontendType.FunctionCall:
      if (mustEndPipeline(session, traitsOfCall(scanner), true)) return false;
      countStatement(session);
      inspectTraits(session, traitsOfCall(scanner));
      noteJoined(session);
      session.replies.push(Request.call, Disposition.forward, endRequest(session));
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
  const { names, replies, statements, toBackend, sentText } = session;
  if (session.portals !== undefined) session.portals.replacesDangling = false;
  const { buffer, start, last } = scanner;
  const isWhole = last && scanner.length <= MAX_KEPT_DEFINITION_BYTES;
  const end = isWhole ? scanner.end - 1 : Math.min(scanner.end, start + MAX_KEPT_DEFINITION_BYTES);
  const text = buffer.toString('latin1', start + HEADER_BYTES, end);
  if (session.unsyncedBatch === replies.batch && mustEndPipeline(session, sessionTraitsOf(text), true)) return false;
  const inspected = inspectQuery(session, scanner, text, isWhole ? undefined : end);
  if (inspected === undefined) return false;
  const { traits, sent, edits } = inspected;
  sentText.isWhole = isWhole && text.length <= SHOWN_MAX_CHARACTERS;
  sentText.text = sentText.isWhole ? text : beginningOf(session, text);
  sentText.batch = replies.batch;
  const deallocations = traits.deallocates ? deallocatedNames(text, lexerOptions(session)) : [];
  if (traits.deallocatesAll) names.changesAll();
  if (statements.unnamed !== undefined || statements.settledUnnamed !== undefined) names.changes('');
  if (deallocations.length > 0) for (const name of preparePlaceholders(session, deallocations, backend)) names.changes(name);
  if (replies.missingSync !== 'discarding') {
    if (statements.unnamed !== undefined) statements.setUnnamed(undefined);
    backend.session.unnamed = undefined;
  }
  noteJoined(session);
  const isPlain = traits === NO_TRAITS && session.audit === undefined && edits.length === 0;
  const requestEnd = isPlain ? undefined : endRequest(session, deallocations, edits, traits.shows);
  replies.push(Request.query, Disposition.forward, requestEnd, countedQuery(session, text));
  countStatement(session);
  if (sent === text) pass(session, scanner);
  else toBackend.insert(queryMessage(Buffer.from(sent, 'latin1')));
  return true;
}

/** A copy, so that long texts are not kept. */
function beginningOf(session: WireSession, text: string): string {
  return rewrittenText(session)?.beginning ?? Buffer.from(text.slice(0, SHOWN_MAX_CHARACTERS), 'latin1').toString('latin1');
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
  inspectTraits(session, statement?.traits);
  const server = isNamed ? useNamed(session, name, named, backend, kind) : useUnnamed(session, backend, kind);
  if (server === 'asked' || server === 'changed') {
    session.unsyncedBatch = session.replies.batch;
    if (server === 'changed')
      refuseChanged(session, kind, isNamed ? (named?.first?.shape ?? named?.server.shape) : unnamed && shapeTold(unnamed));
    return server === 'changed';
  }
  if (kind === Request.bind) {
    if (statement !== undefined) awaitSignals(session, sendSignals(statement.signals, scanner, session.services.processIds));
    if (statement?.watched !== undefined) inspectAgain(session, statement.watched);
    else if (statement === undefined && isNamed) inspectOversized(session, name);
    sentText.text = server?.definition ?? (isNamed ? undefined : unnamed?.definition);
    sentText.isWhole = true;
    sentText.batch = replies.batch;
    portalBound(session, scanner, statement?.traits);
    portalOf(session, scanner, server, isNamed ? undefined : unnamed);
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
  expectReply(session, Request.execute, shownOf(session, scanner), countedPortal(session, scanner));
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
