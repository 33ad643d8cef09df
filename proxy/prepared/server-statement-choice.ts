import type { BackendConnection } from '../../src/backend/connection.ts';
import { newServerStatement, type ServerStatement } from '../../src/backend/server-statement.ts';
import type { WireSession } from '../relay/wire-session.ts';
import type { NamedStatement, UnnamedStatement } from './client-statements.ts';
import type { RepeatedStatement } from './parse-cache.ts';

/* Which statement on the server a client's statement is: one that clients share, or one of its own. */

/** Longer texts are not looked up in the registry. */
export const MAX_LOOKED_UP_BYTES = 16_384;

/** The server statement of a text that clients send repeatedly without a name. */
export function repeatedOf({ pins, services }: WireSession, prepared: UnnamedStatement): RepeatedStatement | undefined {
  const { context } = pins;
  if (context === undefined || prepared.definition.length > MAX_LOOKED_UP_BYTES) return undefined;
  const server = services.registry.repeated(prepared.definition, context);
  return server === undefined ? undefined : { ...prepared, definition: server.definition, server };
}

/**
 * All clients that prepare the same text with the same settings share a server statement. A new one is made if the text may
 * mean something else in another session, or if it is not known yet whether the server has the shared one.
 */
export function serverStatementOf(
  { pins, services, names }: WireSession,
  definition: Buffer,
  canBePreparedAgain: boolean,
): ServerStatement {
  const { namesAreOwn, context } = pins;
  if (namesAreOwn || context === undefined || !canBePreparedAgain) return newServerStatement(Buffer.from(definition));
  const shared = services.registry.intern(definition, context);
  return names.isUnsettled(shared) ? newServerStatement(shared.definition) : shared;
}

/**
 * What a named statement of the client's is on the backend at hand, as a rule what it was when it was prepared.
 *
 * Constants are read when a statement is prepared (`'2025-01-01'::timestamptz`, say, in the TimeZone of that moment). Where it
 * is missing, and the session's settings are not those in which it was prepared, another stands in: it must not become others'.
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
  // One that is this client's alone was made in the midst of a transaction, for that.
  const isStandIn = server !== first && (server.context === undefined ? status !== 'I' : server.context === pins.context);
  if (isStandIn) return server;
  return standIn(session, name, statement, serverStatementOf(session, first.definition, true));
}

function standIn({ statements }: WireSession, name: string, statement: NamedStatement, server: ServerStatement): ServerStatement {
  const { first = statement.server } = statement;
  if (server !== statement.server) statements.set(name, { ...statement, server, first });
  return server;
}

/** Makes a name refer to what its text means now. The client must not have been told the statement's columns. */
export function renewStatement(session: WireSession, name: string, statement: NamedStatement): ServerStatement {
  const { first = statement.server, server: _, ...rest } = statement;
  const server = serverStatementOf(session, first.definition, first.context !== undefined);
  session.statements.set(name, { ...rest, server });
  return server;
}
