import type { BackendConnection } from '../../src/backend/connection.ts';
import { Disposition, Request } from '../../src/backend/reply-queue.ts';
import { definitionToReprepare } from '../../src/backend/session-state.ts';
import { type ErrorFields, isSameShape, type StatementShape } from '../../src/protocol/backend.ts';
import { closeStatementMessage, EMPTY_DEFINITION, parseMessage, SYNC } from '../../src/protocol/frontend.ts';
import type { SessionTraits } from '../../src/syntax/session-traits.ts';
import { isMissing, STALE_PLAN } from '../relay/recognized-errors.ts';
import type { ClientNames, WireSession } from '../relay/wire-session.ts';
import { type ClientStatements, type NamedStatement, shapeTold, type UnnamedStatement } from './client-statements.ts';
import type { Effect } from './pending-changes.ts';
import { renewStatement } from './server-statement-choice.ts';
import { closeStaleNames, describe, prepareUnnamedPlaceholder, readAlike } from './statement-preparation.ts';

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
export function prepareUnderClientNames(session: WireSession, backend: BackendConnection, isAlone: boolean, isCompared = false): void {
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
export function skipSync({ replies, toBackend }: WireSession): void {
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
