import { randomUUID } from 'node:crypto';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { Disposition, Request } from '../../src/backend/pending-replies.ts';
import { definitionAgain, newServerStatement, type ServerStatement } from '../../src/backend/prepared-statements.ts';
import {
  bindMessage,
  closeStatementMessage,
  DISCARD_SEQUENCES,
  describeStatementMessage,
  EMPTY_DEFINITION,
  FLUSH,
  parseMessage,
  SYNC,
} from '../../src/protocol/frontend-encoder.ts';
import { isSameShape, type StatementShape } from '../../src/protocol/statement-shape.ts';
import type { Edits } from '../../src/router/schema-rewriting/edits/edits.ts';
import { deallocatedNames, type SqlTraits } from '../../src/syntax/traits/sql-traits.ts';
import type { WireSession } from '../relay/wire-session.ts';
import type { UnnamedStatement } from './client-statements.ts';
import type { Effect } from './effects.ts';
import { ShapeReader } from './shape-reader.ts';

const NO_NAME = Buffer.alloc(0);
/** No statement has this name: what binds it fails, and so does all that comes behind it, up to the Sync. */
const MISSING_NAME = Buffer.from(`changed ${randomUUID()}`);
/** Goes with a request that fails because its statement has changed, in place of the client's. */
export const SHAPE_CHANGED: Effect = { undo: () => {} };

/** Whether a request can be sent: at once, when it is known what the backend makes of its statement, or not at all. */
export type Readiness = 'ready' | 'asked' | 'changed';

/*
 * What makes sure that the backend at hand has prepared what a client's next request names, and has nothing in the way of it.
 * What is sent for that is Postern's own, and its replies are skipped.
 */

/**
 * The server knows what the client wants to deallocate by another name, and may not have it at all: an empty statement
 * takes its place, which nothing can keep from being prepared.
 * @returns the names, as the client knows them
 */
export function preparePlaceholders(session: WireSession, text: string, traits: SqlTraits, backend: BackendConnection): string[] {
  const names = traits.deallocates ? deallocatedNames(text).filter((name) => session.statements.get(name) !== undefined) : [];
  for (const name of names) preparePlaceholder(session, name, backend);
  return names;
}

/** Prepares an empty statement under a name of the client's. */
export function preparePlaceholder(session: WireSession, name: string, backend: BackendConnection): void {
  session.clientNames?.names.delete(name);
  prepareUnderClientName(session, name, EMPTY_DEFINITION, backend);
}

/**
 * Prepares the client's statements under its own names, for SQL that refers to them (EXECUTE, pg_prepared_statements);
 * they are closed before the next request. Each fails by itself, e.g. when its table is gone, where that can be had.
 * @param isAlone no other prepared statement may be seen
 */
export function prepareUnderClientNames(session: WireSession, backend: BackendConnection, isAlone: boolean): void {
  const { statements, replies, clientNames } = session;
  const { staleNames, prepared } = backend.session;
  const isApart = !session.isUnsynced;
  if (isAlone) {
    for (const { name } of prepared.values()) staleNames.add(name.toString('latin1'));
    prepared.clear();
    closeStaleNames(session, backend);
  }
  const there = isApart || isAlone || clientNames?.batch !== replies.batch ? undefined : clientNames.names;
  const names = new Set<string>();
  for (const [name, { server }] of statements.entries()) {
    names.add(name);
    if (there?.has(name)) continue;
    prepareUnderClientName(session, name, server.definition, backend);
    if (isApart) skipSync(session);
  }
  session.clientNames = { names, batch: replies.batch };
}

/** The next request does not find it under this name any more. */
function prepareUnderClientName({ replies, toBackend }: WireSession, name: string, definition: Buffer, backend: BackendConnection): void {
  const own = Buffer.from(name, 'latin1');
  replies.push(Request.close, Disposition.skip);
  toBackend.insert(closeStatementMessage(own));
  replies.push(Request.parse, Disposition.skip);
  toBackend.insert(parseMessage(own, definition));
  backend.session.staleNames.add(name);
}

function skipSync({ replies, toBackend }: WireSession): void {
  replies.push(Request.sync, Disposition.skip);
  toBackend.insert(SYNC);
}

/**
 * Discards the values that sequences gave to other sessions, amid whatever the client has under way: its unnamed statement
 * and its portals stay.
 */
export function discardSequences(session: WireSession, backend: BackendConnection): void {
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

/** The next message waits for an answer. */
export function isAsking({ question }: WireSession): boolean {
  return question !== undefined && !question.isOver;
}

/** Whatever another client left as the unnamed statement must not be taken for this one's. */
export function ensureUnnamed(session: WireSession, backend: BackendConnection): Readiness {
  const { unnamed: wanted } = session.statements;
  if (wanted !== undefined && takeChanged(session, wanted)) return 'changed';
  if (backend.session.unnamed === wanted && wanted !== undefined) return 'ready';
  session.names.changes('');
  if (wanted !== undefined && wanted.isOversized !== true) return prepareUnnamed(session, wanted, backend);
  backend.session.unnamed = undefined;
  session.replies.push(Request.close, Disposition.skip);
  session.toBackend.insert(closeStatementMessage(NO_NAME));
  return 'ready';
}

function prepareUnnamed(session: WireSession, unnamed: UnnamedStatement, backend: BackendConnection): Readiness {
  const state = backend.session;
  const undo = () => {
    state.unnamed = undefined;
  };
  const told = unnamed.shape ?? unnamed.server?.shape;
  state.unnamed = unnamed;
  session.replies.push(Request.parse, Disposition.skip, { undo });
  session.toBackend.insert(parseMessage(NO_NAME, definitionAgain(unnamed.definition, told)));
  if (told === undefined || !canAsk(session)) return 'ready';
  return ask(session, NO_NAME, (shape) => {
    if (isSameShape(shape, told)) return;
    undo();
    session.changed = unnamed;
  });
}

/**
 * Has a backend prepare a statement if it has not. One that other clients may know is described first: while it was not
 * there, what it was made from may have changed, of which PostgreSQL, to which it is new, says nothing.
 * @param isCompared its shape is to be known in any case
 */
export function ensurePrepared(
  session: WireSession,
  statement: ServerStatement,
  backend: BackendConnection,
  isCompared = false,
): Readiness {
  if (backend.session.prepared.use(statement)) return 'ready';
  if (takeChanged(session, statement)) return 'changed';
  const asks = (statement.isSent || isCompared) && canAsk(session);
  prepareStatement(session, statement, backend, asks);
  return asks ? 'asked' : 'ready';
}

/** As {@link ensurePrepared}, for a Parse of it. @returns whether that has to wait until its shape here is known */
export function asksFirst(session: WireSession, statement: ServerStatement, backend: BackendConnection): boolean {
  session.changed = undefined;
  if (!statement.isSent || !canAsk(session) || backend.session.prepared.use(statement)) return false;
  prepareStatement(session, statement, backend, true);
  return true;
}

/** @param asks the next message waits for its shape */
export function prepareStatement(
  session: WireSession,
  statement: ServerStatement,
  backend: BackendConnection,
  asks = false,
  edits?: Edits,
): void {
  closeIfStale(session, statement.name, backend);
  const { prepared } = backend.session;
  const evicted = prepared.set(statement, statement);
  session.names.prepares(statement);
  const effect = { undo: () => prepared.delete(statement), redo: () => prepared.restore(statement, statement), statement, edits };
  session.replies.push(Request.parse, Disposition.skip, effect);
  session.toBackend.insert(parseMessage(statement.name, definitionAgain(statement.definition, statement.shape)));
  closeEvicted(session, evicted, backend);
  describeStatement(session, statement, backend, asks);
}

/** Has a statement described that the backend has just been given. @param asks as in {@link prepareStatement} */
export function describeStatement(session: WireSession, statement: ServerStatement, backend: BackendConnection, asks = false): void {
  statement.isSent = true;
  const told = (shape: StatementShape) => described(session, statement, shape, backend, asks);
  if (asks) ask(session, statement.name, told);
  else describe(session, statement.name, told, false);
}

/** Behind an error the backend answers nothing, and amid the data of a COPY nothing else. */
function canAsk({ replies }: WireSession): boolean {
  return !replies.discarding && !replies.copyIn;
}

function ask(session: WireSession, name: Buffer, told: (shape: StatementShape) => void): 'asked' {
  session.question = describe(session, name, told, true);
  session.toBackend.insert(FLUSH);
  return 'asked';
}

function describe(session: WireSession, name: Buffer, told: (shape: StatementShape) => void, isAwaited: boolean): ShapeReader {
  const reader = new ShapeReader(told, isAwaited);
  session.replies.push(Request.describe, Disposition.skip, reader);
  session.toBackend.insert(describeStatementMessage(name));
  return reader;
}

function described(
  session: WireSession,
  statement: ServerStatement,
  shape: StatementShape,
  backend: BackendConnection,
  asks: boolean,
): void {
  if (statement.shape === undefined) statement.shape = shape;
  else if (!isSameShape(statement.shape, shape)) shapeDiffers(session, statement, shape, backend, asks);
}

function shapeDiffers(
  session: WireSession,
  statement: ServerStatement,
  shape: StatementShape,
  backend: BackendConnection,
  asks: boolean,
): void {
  backend.session.unprepare(statement);
  session.services.registry.forget(statement);
  if (asks) {
    session.changed = statement;
    return;
  }
  // Two have been the first to prepare it, each on a backend of its own, with a change between them.
  const own = newServerStatement(statement.definition);
  own.isSent = true;
  own.shape = shape;
  session.statements.replace(statement, own);
}

/** Whether a statement's shape has turned out to differ from what clients know. */
function takeChanged(session: WireSession, statement: object): boolean {
  if (session.changed !== statement) return false;
  session.changed = undefined;
  return true;
}

/** In place of a request whose statement has changed since its client was told of it: the backend refuses it, and what follows. */
export function refuseChanged({ replies, toBackend }: WireSession, kind: typeof Request.bind | typeof Request.describe): void {
  replies.push(kind, Disposition.forward, SHAPE_CHANGED);
  toBackend.insert(bindMessage(MISSING_NAME));
}

export function closeEvicted(session: WireSession, statements: readonly ServerStatement[], backend: BackendConnection): void {
  for (const statement of statements) closeStatement(session, statement, backend);
}

export function closeStatement(session: WireSession, statement: ServerStatement, backend: BackendConnection): void {
  closeName(session, statement.name.toString('latin1'), backend, () => backend.session.prepared.delete(statement));
}

/** Should the Close be thrown away, the name is still in the way. */
function closeName(session: WireSession, name: string, backend: BackendConnection, redo?: () => void): void {
  session.names.changes(name);
  session.replies.push(Request.close, Disposition.skip, { undo: () => backend.session.staleNames.add(name), redo });
  session.toBackend.insert(closeStatementMessage(Buffer.from(name, 'latin1')));
}

/** A stale statement under a name must not be taken for what the client means. */
export function closeIfStale(session: WireSession, name: Buffer, backend: BackendConnection): void {
  const { staleNames } = backend.session;
  if (staleNames.size === 0) return;
  const stale = name.toString('latin1');
  if (staleNames.delete(stale)) closeName(session, stale, backend);
}

/** Closes all stale statements, ahead of a request of the client's. */
export function closeStaleNames(session: WireSession, backend: BackendConnection): void {
  for (const name of backend.session.takeStaleNames()) closeName(session, name, backend);
}
