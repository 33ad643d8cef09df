import type { BackendConnection } from '../../src/backend/connection.ts';
import type { ServerStatement } from '../../src/backend/server-statement.ts';
import { isSameShape, type StatementShape } from '../../src/protocol/statement-shape.ts';
import type { WireSession } from '../relay/wire-session.ts';
import type { NamedStatement, UnnamedStatement } from './client-statements.ts';
import { renewStatement, serverStatementFor } from './server-statement-choice.ts';
import { ensurePrepared, prepareUnnamedPlaceholder } from './server-statements.ts';
import { preparePlaceholder } from './statements-under-client-names.ts';

/**
 * Finds the server statement for a client's name. A client decodes rows by the columns that it was told once. If the
 * statement has other columns by now, it is refused, as PostgreSQL refuses a cached plan whose result type has changed.
 * @returns the server statement, once the backend has it; `asked`, `changed`: as {@link ensurePrepared}
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/cache/plancache.c RevalidateCachedQuery
 */
export function resolveStatement(
  session: WireSession,
  name: string,
  statement: NamedStatement,
  backend: BackendConnection,
): ServerStatement | 'asked' | 'changed' {
  const { isUsed = false, first = statement.server } = statement;
  const asked = session.question?.named;
  const server = asked?.name === name ? asked.server : serverStatementFor(session, name, statement, backend);
  if (session.question !== undefined) session.question.named = undefined;
  let readiness = ensurePrepared(session, server, backend, server !== first);
  if (readiness === 'ready' && server !== first && differs(server, first)) readiness = 'changed';
  if (readiness === 'ready') return server;
  if (readiness === 'asked' && session.question !== undefined) session.question.named = { name, server };
  if (readiness === 'asked' || isUsed) return readiness;
  // The client has not been told its columns, so the client cannot tell whether the statement is prepared now or was before.
  const renewed = renewStatement(session, name, statement);
  readiness = ensurePrepared(session, renewed, backend);
  return readiness === 'ready' ? renewed : readiness;
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
  const shape = unnamed.shape ?? unnamed.server?.shape;
  if (!isKnownWithoutColumns(shape) || backend.session.unnamed === unnamed) return false;
  prepareUnnamedPlaceholder(session, backend, shape);
  return true;
}

function isKnownWithoutColumns(shape: StatementShape | undefined): shape is StatementShape {
  return shape?.hasColumns === false && shape.parameters !== undefined;
}

function differs({ shape }: ServerStatement, { shape: told }: ServerStatement): boolean {
  return shape !== undefined && told !== undefined && !isSameShape(shape, told);
}
