import type { BackendConnection } from '../../src/backend/connection.ts';
import { Disposition, Request } from '../../src/backend/reply-queue-entries.ts';
import { definitionToReprepare } from '../../src/backend/server-statement.ts';
import { closeStatementMessage, EMPTY_DEFINITION, parseMessage, SYNC } from '../../src/protocol/frontend-encoder.ts';
import type { StatementShape } from '../../src/protocol/statement-shape.ts';
import type { WireSession } from '../relay/wire-session.ts';
import { type ClientStatements, type NamedStatement, shapeTold, type UnnamedStatement } from './client-statements.ts';
import { closeStaleNames, prepareUnnamedPlaceholder, readAlike } from './statement-preparation.ts';

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
  for (const [name, { server }] of statementsForSql(statements)) {
    names.add(name);
    if (there?.has(name)) continue;
    prepareUnderClientName(session, name, readAlike(session, server), backend);
    if (isApart) skipSync(session);
  }
  session.clientNames = { names, batch: replies.batch };
}

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
function prepareUnderClientName({ replies, toBackend }: WireSession, name: string, definition: Buffer, backend: BackendConnection): void {
  const own = Buffer.from(name, 'latin1');
  replies.push(Request.close, Disposition.skip);
  toBackend.insert(closeStatementMessage(own));
  replies.push(Request.parse, Disposition.skip);
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
