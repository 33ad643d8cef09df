import { Buffer } from 'node:buffer';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { Disposition, Request, type RequestKind } from '../../src/backend/pending-replies.ts';
import type { ServerStatement } from '../../src/backend/prepared-statements.ts';
import { latin1Name, latin1String, stringEnd } from '../../src/protocol/body.ts';
import { type FrameScanner, HEADER_BYTES } from '../../src/protocol/frame.ts';
import { FrontendType, statementNameStart } from '../../src/protocol/frontend.ts';
import { queryMessage, withStatementName } from '../../src/protocol/frontend-encoder.ts';
import type { SqlTraits } from '../../src/syntax/traits/sql-traits.ts';
import { MAX_KEPT_DEFINITION_BYTES } from '../buffer-limits.ts';
import { traitsOfCall } from '../inspection/function-call-traits.ts';
import { sendSignals, translateProcessIds } from '../pinning/process-ids.ts';
import {
  demandWhole,
  endRequest,
  inspectAgain,
  inspectBeginning,
  inspectOversized,
  inspectText,
  inspectTraits,
  inspectWhole,
  rewriteText,
  textPasses,
} from '../pinning/query-inspection.ts';
import type { NamedStatement, UnnamedStatement } from '../prepared/client-statements.ts';
import { type Effect, UnnamedChange } from '../prepared/effects.ts';
import { forwardParse } from '../prepared/parse-message.ts';
import { closeDanglingPortal, deallocatesAll, noteBind, portalBound, showsSearchPath } from '../prepared/portals.ts';
import {
  awaitsShape,
  closeIfStale,
  closeStaleNames,
  ensureUnnamed,
  preparePlaceholders,
  refuseChanged,
} from '../prepared/server-statements.ts';
import { ShapeReader } from '../prepared/shape-reader.ts';
import { useStatement } from '../prepared/statement-use.ts';
import type { WireSession } from './wire-session.ts';

/*
 * How a client's messages go to whatever backend it has at the moment: it is noted which replies are due, prepared statements
 * get the names that they have on the server, and are prepared where they are missing. Everything else passes as it came.
 */

/** Whether the message that the scanner stands at cannot be sent until something else has been answered. */
export function mustWaitForReplies(session: WireSession, scanner: FrameScanner): boolean {
  const { replies, names } = session;
  if (!scanner.first || replies.oldestBatch === replies.batch) return false;
  return followsReset(session, scanner) || names.mustWait(scanner);
}

/** RESET and DISCARD go back to what the server knows as the session's start: what it really was has to be restored first. */
function followsReset({ pins, hasUnsynced, names }: WireSession, { type }: FrameScanner): boolean {
  return pins.restores && !hasUnsynced && BEGINNINGS.has(type) && names.waitForAll();
}

/** Whether what had to wait for replies, as {@link mustWaitForReplies} or {@link forward} told last, has to wait on. */
export function awaitsReplies(session: WireSession): boolean {
  return session.names.isWaiting || awaitsShape(session);
}

/**
 * Sends on the fragment that the scanner stands at; Terminate is the caller's.
 * @returns false where the message cannot be sent before the backend has described its statement
 */
export function forward(session: WireSession, scanner: FrameScanner, backend: BackendConnection): boolean {
  if (!scanner.first) {
    textPasses(session, scanner, scanner.start);
    pass(session, scanner);
    return true;
  }
  if (session.names.mayAllBeGone && session.startsPipeline) session.names.settled();
  if (backend.session.staleNames.size > 0 && session.startsPipeline) closeStaleNames(session, backend);
  switch (scanner.type) {
    case FrontendType.Query:
      forwardQuery(session, scanner, backend);
      return true;
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
      session.bindsUnnamedPortal = false;
      session.replies.push(Request.sync, Disposition.forward, endRequest(session));
      break;
    case FrontendType.FunctionCall:
      session.statementCount += 1;
      inspectTraits(session, traitsOfCall(scanner));
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

/** An extended-protocol message is due to be answered. */
function expectReply(session: WireSession, kind: RequestKind, subject?: unknown): void {
  session.unsyncedBatch = session.replies.batch;
  session.replies.push(kind, Disposition.forward, subject);
}

/** A Query also does away with the unnamed statement, on both sides. */
function forwardQuery(session: WireSession, scanner: FrameScanner, backend: BackendConnection): void {
  const { names, replies, statements, toBackend } = session;
  demandWhole(session, scanner);
  session.statementCount += 1;
  session.bindsUnnamedPortal = false;
  const { buffer, start, last } = scanner;
  const isWhole = last && scanner.length <= MAX_KEPT_DEFINITION_BYTES;
  const end = isWhole ? scanner.end - 1 : Math.min(scanner.end, start + MAX_KEPT_DEFINITION_BYTES);
  const text = buffer.toString('latin1', start + HEADER_BYTES, end);
  inspectText(session, text, isWhole);
  const traits = isWhole ? inspectWhole(session, text) : inspectBeginning(session, text);
  if (!isWhole) textPasses(session, scanner, end);
  const { sql, edits } = rewriteText(session, text);
  const sent = traits.mentionsPids ? translateProcessIds(sql, session.services.processIds).text : sql;
  const deallocations = preparePlaceholders(session, text, traits, backend);
  if (traits.deallocatesAll) names.changesAll();
  names.changes('');
  for (const name of deallocations) names.changes(name);
  if (!replies.discarding) {
    statements.unnamed = undefined;
    backend.session.unnamed = undefined;
  }
  replies.push(Request.query, Disposition.forward, endRequest(session, deallocations, edits, traits.showsSearchPath));
  if (sent === text) pass(session, scanner);
  else toBackend.insert(queryMessage(Buffer.from(sent, 'latin1')));
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
    expectReply(session, kind);
    pass(session, scanner);
    return true;
  }
  const isNamed = nameEnd > nameStart;
  const { unnamed } = session.statements;
  const name = latin1Name(buffer, nameStart, nameEnd);
  const named = isNamed ? statementNamed(session, name) : undefined;
  const statement = isNamed ? named : unnamed;
  inspectTraits(session, statement?.traits);
  const server = isNamed ? useNamed(session, name, named, backend) : useUnnamed(session, backend);
  if (server === 'asked' || server === 'changed') {
    session.unsyncedBatch = session.replies.batch;
    if (server === 'changed') refuseChanged(session, kind);
    return server === 'changed';
  }
  if (kind === Request.bind) {
    if (statement !== undefined) sendSignals(statement.signals, scanner, session.services.processIds);
    if (statement?.watched !== undefined) inspectAgain(session, statement.watched);
    else if (statement === undefined && isNamed) inspectOversized(session, name);
    portalBound(session, scanner, statement?.traits);
    expectReply(session, kind, deallocationOf(session, server?.definition ?? unnamed?.definition, statement?.traits, backend));
  } else expectReply(session, kind, isNamed || unnamed === undefined || server !== undefined ? undefined : shapeOf(unnamed));
  // A name that the client has not prepared is the server's to refuse.
  if (server === undefined) pass(session, scanner);
  else session.toBackend.insert(withStatementName(buffer, start, end, server.name));
  return true;
}

/** @returns what the server knows it by; undefined where that is the client's own name for it */
function useNamed(
  session: WireSession,
  name: string,
  named: NamedStatement | undefined,
  backend: BackendConnection,
): ServerStatement | 'asked' | 'changed' | undefined {
  // What lists the statements is not to be among them under a name of Postern's.
  if (named?.traits.listsPrepared === true && backend.session.staleNames.has(name)) return undefined;
  if (named === undefined) {
    closeIfStale(session, Buffer.from(name, 'latin1'), backend);
    return undefined;
  }
  const server = useStatement(session, name, named, backend);
  if (server === 'asked' || server === 'changed') return server;
  session.bound = server;
  if (named.isUsed !== true) session.statements.used(name);
  return server;
}

/** @returns as {@link useNamed} */
function useUnnamed(session: WireSession, backend: BackendConnection): ServerStatement | 'asked' | 'changed' | undefined {
  const server = session.statements.unnamed?.server;
  // Prepared by an earlier request, it is used as what the client sees in it: its table may have changed since.
  if (server !== undefined && session.usesRepeated && !session.names.mayAllBeGone && backend.session.prepared.use(server)) {
    session.bound = server;
    return server;
  }
  session.usesUnnamed = true;
  const readiness = ensureUnnamed(session, backend);
  return readiness === 'ready' ? undefined : readiness;
}

function statementNamed({ names, statements }: WireSession, name: string): NamedStatement | undefined {
  return names.hasTaken(name) ? undefined : statements.get(name);
}

/** A DEALLOCATE that is bound is as good as executed. */
function deallocationOf(
  session: WireSession,
  text: Buffer | undefined,
  traits: SqlTraits | undefined,
  backend: BackendConnection,
): Effect | undefined {
  if (text === undefined || traits?.deallocates !== true) return undefined;
  const names = preparePlaceholders(session, latin1String(text, 0, text.length), traits, backend);
  for (const name of names) session.names.changes(name);
  const undos = names.map((name) => session.statements.delete(name));
  return { undo: () => undos.map((undo) => undo()) };
}

function forwardExecute(session: WireSession, scanner: FrameScanner): void {
  const { names } = session;
  session.statementCount += 1;
  closeDanglingPortal(session);
  if (deallocatesAll(session, scanner)) names.executesDeallocateAll();
  if (names.mayAllBeGone) names.changesAll();
  expectReply(session, Request.execute, showsSearchPath(session, scanner) ? SEARCH_PATH : undefined);
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
    // Others may use it: it stays on the server.
    replies.push(Request.close, Disposition.simulate, { undo: statements.delete(name), redo: () => statements.delete(name) });
    return;
  }
  if (name === '') {
    const change = new UnnamedChange(statements, undefined, backend.session);
    change.note();
    replies.push(Request.close, Disposition.forward, change);
  } else replies.push(Request.close);
  pass(session, scanner);
}

/** Remembers what the client is told of its statement without a name, which may come to be prepared elsewhere. */
function shapeOf(unnamed: UnnamedStatement): ShapeReader {
  return new ShapeReader((shape) => {
    unnamed.shape ??= shape;
  });
}

const NONE = -1;
/** What goes with an Execute whose rows are values of search_path. */
const SEARCH_PATH = { showsSearchPath: true };
/** What a client's requests begin with. */
const BEGINNINGS: ReadonlySet<number> = new Set([
  FrontendType.Query,
  FrontendType.Parse,
  FrontendType.Bind,
  FrontendType.Describe,
  FrontendType.Execute,
  FrontendType.Close,
  FrontendType.FunctionCall,
]);
