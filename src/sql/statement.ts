import type { Readable } from 'node:stream';
import { ServiceError } from '../errors.ts';
import { PostgresError } from '../protocol/backend.ts';
import type { Lease } from '../router/lease.ts';
import { runBatch } from './batch.ts';
import { StatementFailure } from './failure.ts';
import { type Footprint, footprintOf } from './footprint.ts';
import type { JsonValue } from './json-value.ts';
import { jsonLayout, type ResultLayout, type RowMode, type StatementOutcome } from './layout.ts';
import { bindAndExecute } from './messages.ts';
import { type Keep, keptBudget, type OnceReply, once, type RepeatableRequest } from './once.ts';
import { checkParameterCount, checkParameterLimit, encodeParameters, type ParameterText } from './parameters.ts';
import { ReplyBody } from './reply-body.ts';
import { outcomeOf, ResultWriter, typedFields } from './result.ts';
import { checkStatement } from './rules.ts';
import { type Description, nameOf, Session } from './session.ts';
import { pinSettings } from './settings.ts';
import { DescribedStatement, type KnownStatement, StatementCache } from './statement-cache.ts';
import { transact } from './transact.ts';
import { TypeCatalog } from './type-catalog.ts';

export type { RowMode, StatementOutcome } from './layout.ts';

export interface QueryRequest {
  readonly sql: string;
  readonly params?: readonly JsonValue[];
  readonly rowMode: RowMode;
  /** How the result is written; as the reply of `/api/query` if absent. */
  readonly layout?: ResultLayout;
  /** What a stream that breaks off ends with, for layouts that have a way to say so. */
  readonly lastWords?: (error: Error) => Uint8Array;
  /** How long Postgres may take, by our own clock; the time a slow reader takes does not count. 0: no limit. */
  readonly timeoutMs: number;
  readonly readOnly?: boolean;
  /** The caller has gone away: what runs is cancelled. */
  readonly signal?: AbortSignal;
}

export interface QueryReply {
  /**
   * The reply as its layout has it, in UTF-8: one Buffer while it is small, else a stream that carries the backend's pace.
   * Reading it slowly slows Postgres down, destroying it cancels the statement, and a failure destroys it with the error (or
   * ends it with the last words), so that it never looks whole when it is not.
   */
  readonly body: Buffer | Readable;
  /** How it ended. Once it has settled the lease is given back. A rejection nobody listens to does no harm. */
  readonly done: Promise<StatementOutcome>;
}

export interface QueryOnceReply extends OnceReply {
  /** Absent from a replay. */
  readonly outcome?: StatementOutcome;
}

/**
 * Runs one statement and takes over the lease: it is released or destroyed on every path.
 * @throws PostgresError when Postgres refuses it before a stream has begun (`lineAndColumn` in position.ts tells where)
 * @throws ServiceError `invalid_request`, `unsupported_statement`, `statement_timeout`, `query_canceled`, `response_too_large`, `backend_lost`
 */
export async function runQuery(lease: Lease, request: QueryRequest): Promise<QueryReply> {
  const session = new Session(lease, request);
  const body = new ReplyBody(session, request.lastWords);
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

/**
 * As {@link runQuery}, once for a key: in a transaction that also keeps the reply.
 * @throws as {@link runQuery} and {@link once}; StatementFailure when it was COMMIT's
 */
export function runQueryOnce(lease: Lease, request: QueryRequest, repeatable: RepeatableRequest): Promise<QueryOnceReply> {
  let outcome: StatementOutcome | undefined;
  const { sql, params = [], rowMode, layout = jsonLayout(rowMode) } = request;
  const perform = async (session: Session, keep: Keep) => {
    checkStatement(sql, 'single');
    checkParameterLimit(params);
    const work = async () => {
      const [result] = await runBatch(session, [{ sql, params }], layout, keptBudget(session));
      if (result === undefined) throw new ServiceError('internal', 'a statement has no result');
      await keep(200, result.body);
      outcome = result.outcome;
      return result.body;
    };
    const [, , body] = await Promise.all([pinSettings(session), session.expect(footprintOf(sql)), transact(session, 'BEGIN', work)]);
    return { status: 200, body };
  };
  return once(lease, request, repeatable, perform).then(
    (reply) => ({ ...reply, ...(outcome === undefined ? {} : { outcome }) }),
    (error: unknown) => {
      throw withHint(ofOneStatement(error));
    },
  );
}

/**
 * A statement that this backend has prepared runs at once. Any other is described first: no row can come before the types
 * of its columns are known.
 */
async function execute(session: Session, request: QueryRequest, body: ReplyBody): Promise<StatementOutcome> {
  const { sql, params = [] } = request;
  const startedAt = performance.now();
  const cache = StatementCache.of(session.lease.tenant.organization);
  const known = cache.find(sql);
  if (known === undefined) checkStatement(sql, 'single');
  checkParameterLimit(params);
  await session.ready(sql);
  const run = new Run(session, request, body, known?.footprint ?? footprintOf(sql));
  if (known !== undefined && session.lease.backend.session.prepared.use(known.server)) {
    try {
      return await run.atOnce(known.described, nameOf(known.server), startedAt);
    } catch (error) {
      if (!mayBeStale(error) || run.hasRows || session.status !== 'I') throw error;
      session.unprepare(known.server);
      cache.forget(sql);
    }
  }
  return run.described(cache, known, startedAt);
}

/** Once a snapshot is taken, which the SELECT does, nothing can make the transaction READ WRITE again. */
const BEGIN_READ_ONLY = 'BEGIN READ ONLY; SELECT';

/** One statement on its way through Postgres. */
class Run {
  hasRows = false;
  readonly #session: Session;
  readonly #request: QueryRequest;
  readonly #layout: ResultLayout;
  readonly #body: ReplyBody;
  readonly #footprint: Footprint;

  constructor(session: Session, request: QueryRequest, body: ReplyBody, footprint: Footprint) {
    this.#session = session;
    this.#request = request;
    this.#layout = request.layout ?? jsonLayout(request.rowMode);
    this.#body = body;
    this.#footprint = footprint;
  }

  /** All in one write. */
  async atOnce(statement: DescribedStatement, name: string, startedAt: number): Promise<StatementOutcome> {
    const values = this.#encode(statement);
    const [, outcome] = await Promise.all([this.#begin(), this.#finish(statement, values, name, startedAt)]);
    return outcome;
  }

  /** What has been run before is likely to be run again: it is prepared. */
  async described(cache: StatementCache, known: KnownStatement | undefined, startedAt: number): Promise<StatementOutcome> {
    const session = this.#session;
    const { sql } = this.#request;
    const isKnown = known !== undefined && cache.find(sql) === known;
    const [, description] = await Promise.all([this.#begin(), isKnown ? session.prepare(sql, known.server) : session.describe(sql)]);
    if (isKnown && known.described.isAs(description)) {
      return this.#finish(known.described, this.#encode(known.described), nameOf(known.server), startedAt);
    }
    const statement = await understand(session, description);
    cache.remember(sql, this.#footprint, statement);
    if (isKnown) session.unprepare(known.server);
    return this.#finish(statement, this.#encode(statement), isKnown ? nameOf(known.server) : '', startedAt);
  }

  async #begin(): Promise<void> {
    const session = this.#session;
    const { readOnly = false } = this.#request;
    await Promise.all([pinSettings(session), session.expect(this.#footprint), readOnly && session.query(BEGIN_READ_ONLY)]);
  }

  #encode({ parameters }: DescribedStatement): readonly ParameterText[] {
    const { params = [] } = this.#request;
    checkParameterCount(params.length, parameters.length);
    return encodeParameters(params, parameters);
  }

  async #finish(
    statement: DescribedStatement,
    values: readonly ParameterText[],
    name: string,
    startedAt: number,
  ): Promise<StatementOutcome> {
    const session = this.#session;
    const body = this.#body;
    body.out.length = 0;
    const result = new ResultWriter(statement.shape(this.#layout), body.out);
    const row = (source: Buffer, start: number) => {
      if (session.isAborted) return;
      this.hasRows = true;
      result.row(source, start);
      body.flow();
    };
    const running = session.request(bindAndExecute(values, name), { row });
    const ended = this.#request.readOnly ? session.query('COMMIT') : undefined;
    await Promise.allSettled([running, ended]);
    const [{ tag, warnings }] = await Promise.all([running, ended]);
    const outcome = outcomeOf(tag, startedAt);
    result.close(outcome, warnings);
    return outcome;
  }
}

/** Also learns the types of the result's columns, so that it is one look-up if any. */
async function understand(session: Session, description: Description): Promise<DescribedStatement> {
  const { parameters, fields } = description;
  const types = TypeCatalog.of(session.lease.backend);
  await types.learn(session, [...parameters, ...fields.map(({ dataTypeOid }) => dataTypeOid)]);
  return new DescribedStatement(
    description,
    parameters.map((oid) => types.get(oid)),
    typedFields(fields, types),
  );
}

/**
 * Whether what went wrong may be due to the statement's having been prepared before something changed: its result has
 * another shape (0A000), it is not there any more (26000), or what it names is not what it was. Nothing of it has happened.
 */
function mayBeStale(error: unknown): boolean {
  return error instanceof PostgresError && /^(?:0A000|26000|42...)$/.test(error.fields.code);
}

/** Which statement it was needs no telling where there is only one. */
function ofOneStatement(error: unknown): unknown {
  return error instanceof StatementFailure && error.place.phase === 'statement' ? error.error : error;
}

/** What Postgres says is true, but not what to do about it. */
function withHint(error: unknown): unknown {
  if (!(error instanceof PostgresError)) return error;
  const { code, routine } = error.fields;
  if (routine === 'exec_parse_message' && code === '42601') {
    return new PostgresError({
      hint: 'Send one statement per call, or several as one transaction: POST /api/transaction.',
      ...error.fields,
    });
  }
  if (routine === 'PreventInTransactionBlock') {
    return new PostgresError({ hint: 'With an Idempotency-Key it would run in a transaction: leave out the key.', ...error.fields });
  }
  return error;
}
