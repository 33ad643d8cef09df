import { randomUUID } from 'node:crypto';
import type { BackendConnection } from '../src/backend/connection.ts';
import { Disposition, Request } from '../src/backend/reply-queue.ts';
import { definitionToReprepare, newServerStatement, type ServerStatement } from '../src/backend/session-state.ts';
import { type ErrorFields, isSameShape, type StatementShape } from '../src/protocol/backend.ts';
import { type FrameScanner, HEADER_BYTES, stringEnd } from '../src/protocol/framing.ts';
import {
  bindMessage,
  CLOSE_UNNAMED_PORTAL,
  closeStatementMessage,
  DISCARD_SEQUENCES,
  describeStatementMessage,
  EMPTY_DEFINITION,
  FLUSH,
  FrontendType,
  parseMessage,
  SHOW_STANDARD_CONFORMING_STRINGS,
  SYNC,
} from '../src/protocol/frontend.ts';
import type { Edits } from '../src/syntax/edits.ts';
import { withExplicitEscapes } from '../src/syntax/scanner.ts';
import { NO_TRAITS, type SessionTraits } from '../src/syntax/session-traits.ts';
import {
  type ClientStatements,
  DescribeReply,
  type Effect,
  type NamedStatement,
  StringsReply,
  shapeTold,
  type UnnamedStatement,
} from './client-statements.ts';
import type { Inspected } from './inspection.ts';
import type { ClientNames, WireSession } from './wire-session.ts';

const NO_NAME = Buffer.alloc(0);
const BACKSLASH = 0x5c;
/** Lies before all batches. */
const NEVER = -1;
/** No statement has this name. A Bind of it fails, and the server ignores what follows up to the Sync. */
const MISSING_NAME = Buffer.from(`changed ${randomUUID()}`);

/** PostgreSQL's error when a statement's columns are not those that the client has been sent. Drivers recognize it by the routine. */
export const STALE_PLAN: ErrorFields = {
  severity: 'ERROR',
  code: '0A000',
  message: 'cached plan must not change result type',
  file: 'plancache.c',
  routine: 'RevalidateCachedQuery',
};

/** Whether the error says that a prepared statement does not exist. */
export function isMissing({ code }: ErrorFields): boolean {
  return code === '26000';
}

/** Stands in the reply queue beside the request that fails because its statement has changed. */
export class ShapeChanged implements Effect {
  /** Body of the ParameterDescription that comes before the error; undefined if none does, or if it is too long to be kept. */
  readonly parameters: Buffer | undefined;

  constructor(parameters: Buffer | undefined) {
    this.parameters = parameters;
  }

  undo(): void {}
}

/** Whether a request can be sent: now, after the backend has described its statement, or not at all. */
type Readiness = 'ready' | 'asked' | 'changed';

/*
 * These functions ensure that the backend has prepared the statements that a client's next request names, and that no other
 * statement has their names. Postern sends the messages for that itself and skips their replies.
 */

/** Whether the next message waits until the backend has described a statement. */
export function awaitsShape({ question }: WireSession): boolean {
  return question !== undefined && !question.reply.isOver;
}

/** Ensures that the backend's unnamed statement is this client's, and not one that another client left. */
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

/**
 * The definition of a statement that was parsed before. The server reads it now as it did then: where the setting for that may be
 * another one, its strings say themselves whether a backslash escapes.
 */
function readAlike(session: WireSession, { definition, hasEscapes = false }: Pick<UnnamedStatement, 'definition' | 'hasEscapes'>): Buffer {
  if (!definition.includes(BACKSLASH)) return definition;
  const isKnown = session.pins.context !== undefined || !session.mayChangeStrings;
  if (isKnown && session.standardConformingStrings !== hasEscapes) return definition;
  const textEnd = definition.indexOf(0);
  const text = withExplicitEscapes(definition.toString('latin1', 0, textEnd), { standardConformingStrings: !hasEscapes });
  return Buffer.concat([Buffer.from(text, 'latin1'), definition.subarray(textEnd)]);
}

/** Prepares an empty statement with these parameters, without a name. The backend's unnamed statement then belongs to no client. */
function prepareUnnamedPlaceholder(session: WireSession, backend: BackendConnection, shape: StatementShape): void {
  session.names.changes('');
  backend.session.unnamed = undefined;
  session.replies.push(Request.parse, Disposition.skip);
  session.toBackend.insert(parseMessage(NO_NAME, definitionToReprepare(EMPTY_DEFINITION, shape)));
}

/**
 * Describes the unnamed statement before a portal of it is executed, where its client has not: a client may know its columns, and bind
 * it again after these have changed. Also where it returns no rows: its parameters keep the types that they had.
 */
export function describeUnnamed(session: WireSession, unnamed: UnnamedStatement): void {
  const { replies, backend } = session;
  const isKnown = unnamed.describedIn === replies.batch || unnamed.isOversized === true || backend?.session.unnamed !== unnamed;
  if (isKnown || replies.copyIn) return;
  unnamed.describedIn = replies.batch;
  describe(
    session,
    NO_NAME,
    (shape) => {
      unnamed.shape ??= shape;
    },
    false,
  );
}

function prepareUnnamed(session: WireSession, unnamed: UnnamedStatement, backend: BackendConnection): Readiness {
  const state = backend.session;
  const undo = () => {
    state.unnamed = undefined;
  };
  const told = shapeTold(unnamed);
  closeReplacedPortal(session);
  state.unnamed = unnamed;
  session.replies.push(Request.parse, Disposition.skip, { undo, parameters: parametersToTell(session, told) });
  session.toBackend.insert(parseMessage(NO_NAME, definitionToReprepare(readAlike(session, unnamed), told)));
  if (told === undefined || !canAsk(session)) return 'ready';
  return ask(session, NO_NAME, (shape) => {
    if (isSameShape(shape, told)) return;
    undo();
    noteChanged(session, unnamed);
  });
}

/**
 * Prepares a statement on a backend that does not have it. If other clients may know the statement, it is described first:
 * its tables may have changed since they were told its columns, and PostgreSQL does not report that for a new statement.
 * @param isCompared the caller compares its shape, so it is described in any case
 */
export function ensurePrepared(
  session: WireSession,
  statement: ServerStatement,
  backend: BackendConnection,
  isCompared = false,
): Readiness {
  if (backend.session.prepared.use(statement)) return 'ready';
  if (takeChanged(session, statement)) return 'changed';
  closeReplacedPortal(session);
  const asks = (statement.isSent || isCompared) && canAsk(session);
  prepareStatement(session, statement, backend, asks, undefined, parametersToTell(session, statement.shape));
  return asks ? 'asked' : 'ready';
}

/**
 * A Bind removes the unnamed portal before it finds that its statement has become invalid. If what Postern sends ahead of it fails
 * instead, the portal must be gone, too: after ROLLBACK TO SAVEPOINT the client could execute it.
 */
function closeReplacedPortal({ clientScanner: { type, buffer, start }, replies, toBackend }: WireSession): void {
  if (type !== FrontendType.Bind || buffer[start + HEADER_BYTES] !== 0) return;
  replies.push(Request.close, Disposition.skip);
  toBackend.insert(CLOSE_UNNAMED_PORTAL);
}

/** PostgreSQL tells the parameters of a statement before it finds that this has become invalid. */
function parametersToTell({ clientScanner: { type } }: WireSession, told: StatementShape | undefined): Buffer | undefined {
  return type === FrontendType.Describe ? told?.parameters : undefined;
}

/**
 * As {@link ensurePrepared}, for a Parse of the statement.
 * @param edits of its text, for the position of an error
 * @returns whether the Parse has to wait until the shape on this backend is known
 */
export function mustDescribeFirst(session: WireSession, statement: ServerStatement, backend: BackendConnection, edits: Edits): boolean {
  session.question = undefined;
  if (!statement.isSent || !canAsk(session) || backend.session.prepared.use(statement)) return false;
  prepareStatement(session, statement, backend, true, edits);
  return true;
}

/** @param asks the next message waits for the statement's shape */
export function prepareStatement(
  session: WireSession,
  statement: ServerStatement,
  backend: BackendConnection,
  asks = false,
  edits?: Edits,
  parameters?: Buffer,
): void {
  closeIfStale(session, statement.name, backend);
  const { prepared } = backend.session;
  const evicted = prepared.set(statement, statement);
  session.names.prepares(statement);
  const effect = {
    undo: () => prepared.delete(statement),
    redo: () => prepared.restore(statement, statement),
    statement,
    edits,
    parameters,
  };
  session.replies.push(Request.parse, Disposition.skip, effect);
  session.toBackend.insert(parseMessage(statement.name, definitionToReprepare(readAlike(session, statement), statement.shape)));
  closeEvicted(session, evicted, backend);
  describeStatement(session, statement, backend, asks);
}

/** Describes a statement that has just been prepared. @param asks as in {@link prepareStatement} */
export function describeStatement(session: WireSession, statement: ServerStatement, backend: BackendConnection, asks = false): void {
  statement.isSent = true;
  const told = (shape: StatementShape) => described(session, statement, shape, backend, asks);
  if (asks) ask(session, statement.name, told);
  else describe(session, statement.name, told, false);
}

/**
 * Whether the scanner's message has to wait until it is known how the server reads the strings in its text. The server uses the
 * setting of the moment at which the message is its turn, and an earlier request may change that.
 */
export function awaitsStrings(session: WireSession, { type, buffer, start, end }: FrameScanner): boolean {
  if (!session.mayChangeStrings || session.inspection.isLong) return false;
  if (type !== FrontendType.Query && type !== FrontendType.Parse) return false;
  const textStart = type === FrontendType.Query ? start + HEADER_BYTES : stringEnd(buffer, start + HEADER_BYTES, end) + 1;
  const text = buffer.subarray(textStart, end);
  if (!text.includes(BACKSLASH)) return false;
  const { replies, services, pins, names } = session;
  if (pins.context !== undefined && services.rewriter?.dependsOnStrings(text) !== true) return false;
  if (replies.oldestBatch !== replies.batch) return names.waitForAll();
  if (!canAsk(session)) return false;
  askForStrings(session);
  return true;
}

function askForStrings(session: WireSession): void {
  const { replies, toBackend } = session;
  const { batch } = replies;
  const reply = new StringsReply((areStandard) => {
    session.learnedStrings = { batch, areStandard };
    session.unknownStringsBatch = NEVER;
  });
  session.question = { reply, named: undefined, changed: undefined };
  for (const kind of [Request.parse, Request.bind, Request.execute, Request.close]) replies.push(kind, Disposition.skip);
  replies.push(Request.close, Disposition.skip, reply);
  toBackend.insert(SHOW_STANDARD_CONFORMING_STRINGS);
}

/** After an error the backend ignores messages up to the Sync, and during COPY FROM STDIN it accepts only copy data. */
function canAsk({ replies }: WireSession): boolean {
  return replies.missingSync !== 'discarding' && !replies.copyIn;
}

function ask(session: WireSession, name: Buffer, told: (shape: StatementShape) => void): 'asked' {
  session.question = { reply: describe(session, name, told, true), named: undefined, changed: undefined };
  session.toBackend.insert(FLUSH);
  return 'asked';
}

function describe(session: WireSession, name: Buffer, told: (shape: StatementShape) => void, isAwaited: boolean): DescribeReply {
  const reader = new DescribeReply(told, isAwaited);
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
    noteChanged(session, statement);
    return;
  }
  // Two sessions were both the first to prepare it, on different backends, and its tables changed in between.
  const own = newServerStatement(statement.definition, undefined, statement.hasEscapes);
  own.isSent = true;
  own.shape = shape;
  session.statements.replace(statement, own);
}

function noteChanged({ question }: WireSession, statement: object): void {
  if (question !== undefined) question.changed = statement;
}

/** Whether the backend has described the statement differently from what clients were told. Clears the mark. */
function takeChanged({ question }: WireSession, statement: object): boolean {
  if (question?.changed !== statement) return false;
  question.changed = undefined;
  return true;
}

/**
 * Sends a failing Bind in place of a request whose statement has changed since its client was told of it. The backend refuses it
 * and ignores what follows.
 * @param told what the client was told. PostgreSQL describes the parameters before it finds that the columns have changed
 * @see https://github.com/postgres/postgres/blob/master/src/backend/tcop/postgres.c exec_describe_statement_message
 */
export function refuseChanged(
  session: WireSession,
  kind: typeof Request.bind | typeof Request.describe,
  told: StatementShape | undefined,
): void {
  const { replies, toBackend } = session;
  closeReplacedPortal(session);
  replies.push(kind, Disposition.forward, new ShapeChanged(kind === Request.describe ? told?.parameters : undefined));
  toBackend.insert(bindMessage(MISSING_NAME));
}

export function closeEvicted(session: WireSession, statements: readonly ServerStatement[], backend: BackendConnection): void {
  for (const statement of statements) closeStatement(session, statement, backend);
}

export function closeStatement(session: WireSession, statement: ServerStatement, backend: BackendConnection): void {
  closeName(session, statement.name.toString('latin1'), backend, () => backend.session.prepared.delete(statement));
}

/** If the server ignores the Close, the name remains stale. */
function closeName(session: WireSession, name: string, backend: BackendConnection, redo?: () => void): void {
  session.names.changes(name);
  session.replies.push(Request.close, Disposition.skip, { undo: () => backend.session.staleNames.add(name), redo });
  session.toBackend.insert(closeStatementMessage(Buffer.from(name, 'latin1')));
}

/** Closes a stale statement that has the name which the client is about to use. */
export function closeIfStale(session: WireSession, name: Buffer, backend: BackendConnection): void {
  const { staleNames } = backend.session;
  if (staleNames.size === 0) return;
  const stale = name.toString('latin1');
  if (staleNames.delete(stale)) closeName(session, stale, backend);
}

/** Closes all stale statements before a request of the client. */
export function closeStaleNames(session: WireSession, backend: BackendConnection): void {
  for (const name of backend.session.takeStaleNames()) closeName(session, name, backend);
}

/*
 * The server knows a client's statements by other names. These functions prepare statements under the client's own names, for SQL
 * that refers to them. Postern skips the replies.
 */

/**
 * The server knows the statement that the client deallocates by another name, and may not have it at all. So Postern
 * prepares an empty statement under the client's name, which always succeeds, and the DEALLOCATE removes that.
 * @returns those of the names that the client has given to statements
 */
export function preparePlaceholders(session: WireSession, deallocated: readonly string[], backend: BackendConnection): string[] {
  const names = deallocated.filter((name) => session.statements.get(name) !== undefined);
  for (const name of names) preparePlaceholder(session, name, backend);
  return names;
}

/** Prepares an empty statement under one of the client's names. @param shape has the parameters that it is to have */
export function preparePlaceholder(session: WireSession, name: string, backend: BackendConnection, shape?: StatementShape): void {
  session.clientNames?.names.delete(name);
  prepareUnderClientName(session, name, definitionToReprepare(EMPTY_DEFINITION, shape), backend);
}

/**
 * Prepares the client's statements under its own names, for SQL that refers to them (EXECUTE, pg_prepared_statements);
 * they are closed before the next request. Outside a pipeline each gets its own Sync, so that one that fails, for example
 * because its table was dropped, does not affect the others.
 * @param isAlone the SQL must not see any other prepared statement
 */
function prepareUnderClientNames(session: WireSession, backend: BackendConnection, isAlone: boolean, isCompared = false): void {
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
  const refusals = there === undefined ? new Map<string, ErrorFields>() : clientNames?.refusals;
  session.clientNames = { names, batch: replies.batch, refusals, state: 'used' };
  for (const [name, statement] of statementsForSql(statements)) {
    names.add(name);
    if (there?.has(name)) continue;
    const { server, first = server } = statement;
    const told = first.shape ?? server.shape;
    const failing = isCompared ? new NameParse(session, name) : undefined;
    prepareUnderClientName(
      session,
      name,
      definitionToReprepare(readAlike(session, server), isCompared ? told : undefined),
      backend,
      failing,
    );
    if (isCompared) describe(session, Buffer.from(name, 'latin1'), (shape) => compare(session, name, statement, told, shape), false);
    if (isApart) skipSync(session);
  }
}

/** Stands in the reply queue beside a Parse under a client's name. */
export class NameParse implements Effect {
  readonly #session: WireSession;
  readonly #name: string;

  constructor(session: WireSession, name: string) {
    this.#session = session;
    this.#name = name;
  }

  undo(): void {}

  /** The statement is not valid any more: EXECUTE says why. */
  failed(error: ErrorFields): void {
    this.#session.clientNames?.refusals?.set(this.#name, error);
  }
}

function compare(
  session: WireSession,
  name: string,
  statement: NamedStatement,
  told: StatementShape | undefined,
  shape: StatementShape,
): void {
  if (told === undefined || isSameShape(told, shape)) return;
  if (statement.isUsed === true) {
    session.clientNames?.refusals?.set(name, STALE_PLAN);
    return;
  }
  // The client has seen none of its rows: it gets those of now.
  session.services.registry.forget(statement.first ?? statement.server);
  const renewed = renewStatement(session, name, statement);
  renewed.isSent = true;
  renewed.shape ??= shape;
}

/**
 * SQL that executes a client's statements waits until these are prepared under its names, and described: their tables may have changed
 * since the client was told their columns. Those that have other columns by now are closed, and the server's error that they do not
 * exist becomes the one that it would give.
 * @returns whether the message has to wait
 */
export function awaitsClientNames(session: WireSession, traits: SessionTraits): boolean {
  const { backend, replies, statements, clientNames } = session;
  if (!traits.namesPrepared || backend === undefined || !statements.hasNames) return false;
  if (clientNames?.state === 'awaited') {
    clientNames.state = 'ready';
    session.awaitsAll = false;
    session.unsyncedBatch = NONE;
    for (const name of clientNames.names) statements.used(name);
    if (!traits.listsPrepared) closeRefused(session, clientNames);
    return false;
  }
  if (session.isUnsynced || session.status === 'E' || replies.copyIn) return false;
  prepareUnderClientNames(session, backend, traits.listsPrepared, true);
  if (session.clientNames !== undefined) session.clientNames.state = 'awaited';
  session.awaitsAll = true;
  // The session keeps its backend meanwhile.
  session.unsyncedBatch = replies.batch;
  return true;
}

function closeRefused({ replies, toBackend }: WireSession, { refusals }: ClientNames): void {
  for (const name of refusals?.keys() ?? []) {
    replies.push(Request.close, Disposition.skip);
    toBackend.insert(closeStatementMessage(Buffer.from(name, 'latin1')));
  }
}

/** The error that a client gets in the place of one that says that one of its statements does not exist. */
export function refusalOf({ clientNames, statements }: WireSession, error: ErrorFields): ErrorFields | undefined {
  if (clientNames?.refusals === undefined || !isMissing(error)) return undefined;
  for (const [name, refusal] of clientNames.refusals)
    if (error.message.includes(`"${Buffer.from(name, 'latin1')}"`) && statements.get(name) !== undefined) return refusal;
  return undefined;
}

const NONE = -1;

/** More are not prepared for one request, which has few bytes itself: all at once would hold up other sessions and fill the memory. */
const FOR_SQL_MAX = 4_000;
const FOR_SQL_MAX_BYTES = 8 * 1024 * 1024;

/** The client's statements that SQL finds by name: the oldest ones. */
export function* statementsForSql(statements: ClientStatements): Iterable<[string, NamedStatement]> {
  let [count, bytes] = [0, 0];
  for (const entry of statements.entries()) {
    count += 1;
    bytes += entry[0].length + entry[1].server.definition.length;
    if (count > FOR_SQL_MAX || bytes > FOR_SQL_MAX_BYTES) return;
    yield entry;
  }
}

/** The name is closed again before the next request. */
function prepareUnderClientName(
  { replies, toBackend }: WireSession,
  name: string,
  definition: Buffer,
  backend: BackendConnection,
  effect?: Effect,
): void {
  const own = Buffer.from(name, 'latin1');
  replies.push(Request.close, Disposition.skip);
  toBackend.insert(closeStatementMessage(own));
  replies.push(Request.parse, Disposition.skip, effect);
  toBackend.insert(parseMessage(own, definition));
  backend.session.staleNames.add(name);
}

/** A Sync whose reply the client does not see. */
function skipSync({ replies, toBackend }: WireSession): void {
  replies.push(Request.sync, Disposition.skip);
  toBackend.insert(SYNC);
}

/**
 * PostgreSQL describes a statement that returns no rows also in a failed transaction, in which Postern cannot prepare it on a
 * backend that does not have it. So an empty statement with its parameters takes its place, in a failed transaction or not:
 * whether there is one may only be known when replies arrive.
 * @returns false if the statement itself has to be described
 * @see https://github.com/postgres/postgres/blob/master/src/backend/tcop/postgres.c exec_describe_statement_message
 */
export function describesPlaceholder(
  session: WireSession,
  name: string,
  { server, first = server }: NamedStatement,
  backend: BackendConnection,
): boolean {
  const { prepared } = backend.session;
  if (session.question?.named?.name === name) return false;
  if (!isKnownWithoutColumns(first.shape) || prepared.use(first) !== undefined || prepared.use(server) !== undefined) return false;
  preparePlaceholder(session, name, backend, first.shape);
  return true;
}

/** As {@link describesPlaceholder}, for the client's unnamed statement. */
export function describesUnnamedPlaceholder(session: WireSession, unnamed: UnnamedStatement, backend: BackendConnection): boolean {
  const shape = shapeTold(unnamed);
  if (!isKnownWithoutColumns(shape) || backend.session.unnamed === unnamed) return false;
  prepareUnnamedPlaceholder(session, backend, shape);
  return true;
}

function isKnownWithoutColumns(shape: StatementShape | undefined): shape is StatementShape {
  return shape?.hasColumns === false && shape.parameters !== undefined;
}

/**
 * All clients that prepare the same text with the same settings share a server statement. A new one is made if the text may
 * mean something else in another session, or if it is not known yet whether the server has the shared one.
 * @param hasEscapes as in {@link ServerStatement}; the role's default may be the reason, which is in no context
 */
export function serverStatementOf(
  { pins, services, names }: WireSession,
  definition: Buffer,
  canBePreparedAgain: boolean,
  hasEscapes = false,
): ServerStatement {
  const { namesAreOwn, context } = pins;
  if (namesAreOwn || context === undefined || !canBePreparedAgain || hasEscapes)
    return newServerStatement(Buffer.from(definition), undefined, hasEscapes);
  const shared = services.registry.intern(definition, context);
  return names.isUnsettled(shared) ? newServerStatement(shared.definition) : shared;
}

/** Makes a name refer to what its text means now. The client must not have been told the statement's columns. */
export function renewStatement(session: WireSession, name: string, statement: NamedStatement): ServerStatement {
  const { first = statement.server, server: _, ...rest } = statement;
  const server = serverStatementOf(session, first.definition, first.context !== undefined, first.hasEscapes);
  session.statements.set(name, { ...rest, server });
  return server;
}

/*
 * What Postern sends ahead of a statement: it discards the sequence values of others, and prepares what SQL finds under the client's
 * own names.
 */

/** The next message sends this text. */
export function sendText(session: WireSession, inspected: Inspected): void {
  const { traits } = inspected;
  if (traits !== NO_TRAITS) discardForeignSequences(session, traits);
  session.inspection.apply(inspected);
  if (traits !== NO_TRAITS) prepareNamed(session, traits);
}

/** As {@link sendText}, for a text that is too long to be inspected as a whole. */
export function sendLongText(session: WireSession, text: string, inspected: Inspected, scanner: FrameScanner, end: number): void {
  discardForeignSequences(session, inspected.traits);
  session.inspection.applyBeginning(text, inspected);
  prepareNamed(session, inspected.traits);
  session.inspection.goesOn(scanner, end);
}

/** The next message executes a statement with these traits, which has been inspected before. */
export function sendTraits(session: WireSession, traits: SessionTraits | undefined): void {
  if (traits === undefined || traits === NO_TRAITS) return;
  discardForeignSequences(session, traits);
  session.inspection.notice(traits);
  prepareNamed(session, traits);
}

function discardForeignSequences(session: WireSession, traits: SessionTraits): void {
  const { backend } = session;
  if (backend?.session.hasOthersSequenceValues && mustDiscardSequences(session, traits)) discardSequences(session, backend);
}

function prepareNamed(session: WireSession, traits: SessionTraits): void {
  const { backend, replies, status, inspection, clientNames } = session;
  const isFailed = status === 'E' && replies.length === 0;
  if (!traits.namesPrepared || backend === undefined || isFailed) return;
  if (clientNames?.state === 'ready') clientNames.state = 'used';
  else prepareUnderClientNames(session, backend, traits.listsPrepared);
  // EXECUTE may run any of them.
  for (const [, named] of statementsForSql(session.statements)) if (named.traits !== NO_TRAITS) inspection.notice(named.traits);
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
