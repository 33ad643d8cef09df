import type { BackendConnection } from '../../src/backend/connection.ts';
import type { ServerStatement } from '../../src/backend/session-state.ts';
import { isSameShape } from '../../src/protocol/backend.ts';
import type { WireSession } from '../relay/wire-session.ts';
import type { NamedStatement } from './client-statements.ts';
import { renewStatement, serverStatementFor } from './server-statement-choice.ts';
import { ensurePrepared } from './statement-preparation.ts';

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

function differs({ shape }: ServerStatement, { shape: told }: ServerStatement): boolean {
  return shape !== undefined && told !== undefined && !isSameShape(shape, told);
}
