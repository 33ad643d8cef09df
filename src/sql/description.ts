import type { BackendConnection } from '../backend/connection.ts';
import type { ServerStatement } from '../backend/session-state.ts';
import { type FieldDescription, type StatementShape, statementShape, UNKNOWN_SHAPE } from '../protocol/backend.ts';
import { FLUSH } from '../protocol/frontend.ts';
import type { Edits } from '../syntax/edits.ts';
import { closeStatement, extendedQuery, parseAndDescribe, type Replies } from './pipeline.ts';
import type { SqlSession } from './session.ts';

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

/**
 * Sets the settings that decide the text form of values. An organization can change their defaults (ALTER ROLE … SET), which
 * is right on the wire; the JSON encoders, however, expect these values. `DateStyle` keeps its order of
 * day and month, which input depends on. Every returned row names a setting that had another value and has been set.
 */
const SET_OUTPUT_SETTINGS = `SELECT pg_catalog.set_config(name, wanted, false)
FROM (VALUES ('DateStyle', 'ISO', '^ISO'), ('IntervalStyle', 'postgres', '^postgres$'), ('bytea_output', 'hex', '^hex$'), ('extra_float_digits', '1', '^[123]$'), ('array_nulls', 'on', '^on$'))
  AS expected(name, wanted, accepted)
WHERE pg_catalog.current_setting(name) !~ accepted`;

/** Backends whose defaults are known to be right. A backend's defaults never change. */
const HAVE_EXPECTED_SETTINGS = new WeakSet<BackendConnection>();

/** @returns whether it is known that {@link setOutputSettings} has nothing to do */
export function hasExpectedSettings(backend: BackendConnection): boolean {
  return HAVE_EXPECTED_SETTINGS.has(backend);
}

/**
 * Makes the server send values in the form that the encoders expect. It costs nothing after the first call for a backend, unless
 * the organization has other defaults.
 */
export async function setOutputSettings(session: SqlSession): Promise<void> {
  const { backend } = session.lease;
  if (HAVE_EXPECTED_SETTINGS.has(backend)) return;
  let changed = 0;
  await session.request(extendedQuery(SET_OUTPUT_SETTINGS), {
    row: () => {
      changed += 1;
    },
  });
  if (changed === 0) HAVE_EXPECTED_SETTINGS.add(backend);
  else session.mustBeReset();
}
