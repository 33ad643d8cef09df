import type { ServerStatement } from '../../backend/session-state.ts';
import { type FieldDescription, type StatementShape, statementShape, UNKNOWN_SHAPE } from '../../protocol/backend.ts';
import { FLUSH } from '../../protocol/frontend.ts';
import type { Edits } from '../../syntax/edits.ts';
import { closeStatement, parseAndDescribe } from './extended-query-messages.ts';
import type { Replies } from './replies-and-completion.ts';
import type { SqlSession } from './sql-session.ts';

/** Postgres' description of a statement: the types of its parameters and the columns of its result. */
export interface Description {
  readonly parameters: readonly number[];
  readonly fields: readonly FieldDescription[];
  readonly shape: StatementShape;
}

/** Parses a statement (as the unnamed one) and describes it. Its implicit transaction stays open until the next request. */
export function describeStatement(session: SqlSession, text: string): Promise<Description> {
  const { sql, edits } = session.rewrite(text);
  return describe(session, parseAndDescribe(sql), edits);
}

/** As {@link describeStatement}; the statement stays prepared in the session under its own name. */
export async function prepareStatement(session: SqlSession, text: string, statement: ServerStatement): Promise<Description> {
  const { sql, edits } = session.rewrite(text);
  const state = session.lease.backend.session;
  const evicted = state.prepared.set(statement, statement);
  statement.isSent = true;
  const closes = evicted.map(({ name }) => closeStatement(name.toString('latin1')));
  try {
    const description = await describe(session, [...closes, ...parseAndDescribe(sql, statement.name.toString('latin1'))], edits);
    statement.proven = true;
    return description;
  } catch (error) {
    state.unprepare(statement);
    for (const other of evicted) state.unprepare(other);
    throw error;
  }
}

async function describe(session: SqlSession, messages: readonly Uint8Array[], edits: Edits): Promise<Description> {
  let parameters: readonly number[] = [];
  let parametersBody = Buffer.alloc(0);
  let fields: readonly FieldDescription[] = [];
  let shape = UNKNOWN_SHAPE;
  const replies: Replies = {
    parameters: (types, body) => {
      parameters = types;
      parametersBody = Buffer.from(body);
    },
    fields: (columns, body) => {
      fields = columns;
      shape = statementShape(parametersBody, body);
    },
  };
  await session.request([...messages, FLUSH], replies, edits, 'described');
  return { parameters, fields, shape };
}
