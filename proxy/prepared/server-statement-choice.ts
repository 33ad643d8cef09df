import type { BackendConnection } from '../../src/backend/connection.ts';
import { newServerStatement, type ServerStatement } from '../../src/backend/session-state.ts';
import type { WireSession } from '../relay/wire-session.ts';
import type { NamedStatement, UnnamedStatement } from './client-statements.ts';
import type { RepeatedStatement } from './parse-cache.ts';

/* Which statement on the server a client's statement is: one that clients share, or one of its own. */

/** Longer texts are not looked up in the registry. */
export const MAX_LOOKED_UP_BYTES = 16_384;

/** The server statement of a text that clients send repeatedly without a name. */
export function repeatedOf({ pins, services }: WireSession, prepared: UnnamedStatement): RepeatedStatement | undefined {
  const { context } = pins;
  if (context === undefined || prepared.hasEscapes === true || prepared.definition.length > MAX_LOOKED_UP_BYTES) return undefined;
  const server = services.registry.repeated(prepared.definition, context);
  return server === undefined ? undefined : { ...prepared, definition: server.definition, server };
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

/**
 * The server statement for a client's named statement on this backend. It is usually the one that the client prepared.
 *
 * PostgreSQL reads constants when it prepares a statement (`'2025-01-01'::timestamptz` in the TimeZone of that moment). If the
 * backend lacks the statement and the session's settings have changed since, preparing it now would change what it means for the other
 * clients that share it. So a stand-in is prepared.
 */
export function serverStatementFor(
  session: WireSession,
  name: string,
  statement: NamedStatement,
  backend: BackendConnection,
): ServerStatement {
  const { server, first = server } = statement;
  const { pins, status } = session;
  const isAsPrepared = first.context === undefined || first.context === pins.context || backend.session.prepared.use(first) !== undefined;
  if (isAsPrepared) return standIn(session, name, statement, first);
  // A stand-in without a context belongs to this client alone. It was made within a transaction, and is used up to its end.
  const isStandIn = server !== first && (server.context === undefined ? status !== 'I' : server.context === pins.context);
  if (isStandIn) return server;
  return standIn(session, name, statement, serverStatementOf(session, first.definition, true, first.hasEscapes));
}

function standIn({ statements }: WireSession, name: string, statement: NamedStatement, server: ServerStatement): ServerStatement {
  const { first = statement.server } = statement;
  if (server !== statement.server) statements.set(name, { ...statement, server, first });
  return server;
}

/** Makes a name refer to what its text means now. The client must not have been told the statement's columns. */
export function renewStatement(session: WireSession, name: string, statement: NamedStatement): ServerStatement {
  const { first = statement.server, server: _, ...rest } = statement;
  const server = serverStatementOf(session, first.definition, first.context !== undefined, first.hasEscapes);
  session.statements.set(name, { ...rest, server });
  return server;
}
