import type { Readable } from 'node:stream';
import { PostgresError } from '../protocol/backend.ts';
import type { Lease } from '../router/lease.ts';
import type { JsonValue } from './json-value.ts';
import { jsonLayout, type RowMode, type StatementOutcome } from './layout.ts';
import { bindAndExecute } from './messages.ts';
import { checkParameterCount, checkParameterLimit, encodeParameters } from './parameters.ts';
import { ReplyBody } from './reply-body.ts';
import { outcomeOf, ResultWriter, typedFields } from './result.ts';
import { checkStatement } from './rules.ts';
import { type Description, Session } from './session.ts';
import { pinSettings } from './settings.ts';
import { TypeCatalog } from './type-catalog.ts';

export type { RowMode, StatementOutcome } from './layout.ts';

export interface QueryRequest {
  readonly sql: string;
  readonly params?: readonly JsonValue[];
  readonly rowMode: RowMode;
  /** How long Postgres may take, by our own clock; the time a slow reader takes does not count. 0: no limit. */
  readonly timeoutMs: number;
  readonly readOnly?: boolean;
  /** The caller has gone away: what runs is cancelled. */
  readonly signal?: AbortSignal;
}

export interface QueryReply {
  /**
   * The reply of `/api/query` as UTF-8 JSON: one Buffer while it is small, else a stream that carries the backend's pace.
   * Reading it slowly slows Postgres down, destroying it cancels the statement, and a failure destroys it with the error,
   * so that it never looks whole when it is not.
   */
  readonly body: Buffer | Readable;
  /** How it ended. Once it has settled the lease is given back. A rejection nobody listens to does no harm. */
  readonly done: Promise<StatementOutcome>;
}

/**
 * Runs one statement and takes over the lease: it is released or destroyed on every path.
 * @throws PostgresError when Postgres refuses it before a stream has begun (`lineAndColumn` in position.ts tells where)
 * @throws ServiceError `invalid_request`, `unsupported_statement`, `statement_timeout`, `query_canceled`, `response_too_large`, `backend_lost`
 */
export async function runQuery(lease: Lease, request: QueryRequest): Promise<QueryReply> {
  const session = new Session(lease, request);
  const body = new ReplyBody(session);
  const outcome = execute(session, request, body);
  const done = outcome.finally(() => session.end());
  outcome.catch((error) => body.fail(error));
  done.catch(() => {});
  try {
    return { body: await Promise.race([outcome.then(() => body.finish()), body.streaming]), done };
  } catch (error) {
    await done.catch(() => {});
    throw withHint(error);
  }
}

/** Once a snapshot is taken, which the SELECT does, nothing can make the transaction READ WRITE again. */
const BEGIN_READ_ONLY = 'BEGIN READ ONLY; SELECT';

/** Described first, then executed: no row can come before the types of its columns are known. */
async function execute(session: Session, request: QueryRequest, body: ReplyBody): Promise<StatementOutcome> {
  const { sql, params = [], rowMode, readOnly = false } = request;
  const startedAt = performance.now();
  checkStatement(sql, 'single');
  checkParameterLimit(params);
  const [, , description] = await Promise.all([pinSettings(session), readOnly && session.query(BEGIN_READ_ONLY), session.describe(sql)]);
  const values = await encodeAsDescribed(session, params, description);
  const result = new ResultWriter(jsonLayout(rowMode), body.out);
  result.open(typedFields(description.fields, TypeCatalog.of(session.lease.backend)));
  const row = (source: Buffer, start: number) => {
    if (session.isAborted) return;
    result.row(source, start);
    body.flow();
  };
  const [{ tag, warnings }] = await Promise.all([session.request(bindAndExecute(values), { row }), readOnly && session.query('COMMIT')]);
  const outcome = outcomeOf(tag, startedAt);
  result.close(outcome, warnings);
  return outcome;
}

/** Also learns the types of the result's columns, so that it is one look-up if any. */
async function encodeAsDescribed(session: Session, params: readonly JsonValue[], { parameters, fields }: Description) {
  checkParameterCount(params.length, parameters.length);
  const types = TypeCatalog.of(session.lease.backend);
  await types.learn(session, [...parameters, ...fields.map(({ dataTypeOid }) => dataTypeOid)]);
  return encodeParameters(
    params,
    parameters.map((oid) => types.get(oid)),
  );
}

/** Postgres says that there are several statements, but not what to do about it. */
function withHint(error: unknown): unknown {
  if (!(error instanceof PostgresError) || error.fields.routine !== 'exec_parse_message' || error.fields.code !== '42601') return error;
  return new PostgresError({ hint: 'Send one statement per call, or several as one transaction: POST /api/transaction.', ...error.fields });
}
