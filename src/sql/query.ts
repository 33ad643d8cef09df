import type { Readable } from 'node:stream';
import { isDeepStrictEqual } from 'node:util';
import type { BackendConnection } from '../backend/connection.ts';
import {
  type LatencyBaseline,
  type ServerStatement,
  type Staleness,
  type StatementLatency,
  stalenessOf,
} from '../backend/session-state.ts';
import type { StatementCounter } from '../catalog/statement-counters.ts';
import { ServiceError } from '../errors.ts';
import { registryOf, type StatementRegistry } from '../multiplex/statement-registry.ts';
import { isSameShape, PostgresError, type TransactionStatus } from '../protocol/backend.ts';
import { bindAndExecute } from '../protocol/frontend.ts';
import type { DisconnectSignal, Lease, Tenant } from '../router/lease.ts';
import { turnStartedAt } from '../runtime/event-loop.ts';
import type { MemoryReservation } from '../runtime/memory-budget.ts';
import type { Edits } from '../syntax/edits.ts';
import { checkStatement } from '../syntax/http-restrictions.ts';
import { canBePreparedAgain } from '../syntax/session-traits.ts';
import { type SideEffects, sideEffectsOf } from '../syntax/side-effects.ts';
import { inTransaction, type LocalSettings, runBatch, setLocally } from './batch.ts';
import { type Description, describeStatement, hasExpectedSettings, prepareStatement, setOutputSettings } from './description.ts';
import { StatementFailure, withCompletion, withHint } from './failures.ts';
import { jsonFormat, type ResultFormat, type RowMode } from './formats.ts';
import { type IdempotentRequest, type KeepReply, keptReplyLimit, type OnceReply, once } from './idempotency.ts';
import type { Field, PostgresType } from './json-values.ts';
import { areMany, checkParameterLimit, encodeAnyOf, encodeParametersOf, type JsonValue, type ParameterText } from './parameters.ts';
import type { Completion, Replies, Settle } from './pipeline.ts';
import { ReplyBody, type RowSource } from './reply-body.ts';
import { ResultShape, ResultWriter, typedFields } from './result.ts';
import { outcomeOf, type StatementOutcome } from './result-budget.ts';
import { SqlSession } from './session.ts';
import { TypeCatalog } from './types.ts';
import { withAdvice } from './warnings.ts';

interface QueryOnceReply extends OnceReply {
  /** Undefined in a replay. */
  readonly outcome?: StatementOutcome;
}

/**
 * Runs one statement and takes over the lease, which is released or destroyed on every path. A statement that the backend has
 * prepared runs at once; any other is described first.
 * @param isFresh what is known of the statement may not hold any more
 * @throws PostgresError when Postgres refuses the statement before a stream has begun (`lineAndColumn` in line-and-column.ts finds the position)
 * @throws ServiceError `invalid_request`, `unsupported_statement`, `statement_timeout`, `query_canceled`, `response_too_large`, `backend_lost`
 */
export function runQuery(lease: Lease, request: QueryRequest, isFresh = false): Promise<QueryReply> {
  return new Promise((resolve, reject) => {
    const fail = (error: unknown) => reject(withHint(error));
    const session = new SqlSession(lease, request);
    const known = isFresh ? undefined : findStatement(lease.tenant, request.sql);
    if (known === undefined || !PreparedRun.isPossible(lease.backend, request, known)) {
      runInSession(session, request, isFresh, resolve, fail);
      return;
    }
    new PreparedRun(session, request, known, {
      replied: resolve,
      failed: fail,
      stale: (staleness) => {
        forgetIfStale(lease, known, staleness);
        runInSession(session, request, true, resolve, fail);
      },
    }).start();
  });
}

function runInSession(
  session: SqlSession,
  request: QueryRequest,
  isFresh: boolean,
  replied: (reply: QueryReply) => void,
  failed: (error: unknown) => void,
): void {
  const startedAt = performance.now();
  const body = new ReplyBody(session, (stream) => replied({ body: stream, done }), request.finalBytes);
  const outcome = runStatement(session, request, body, isFresh);
  const done = outcome.finally(() => session.end());
  done.catch(() => {});
  outcome.then(
    (completed) => {
      session.count(request.sql, startedAt, completed.rowCount, body.bytes);
      replied({ body: body.finish(), outcome: completed, done });
    },
    (error: Error) => {
      session.countFailure(request.sql, startedAt, error, body.bytes);
      body.fail(error);
      done.catch(() => failed(error));
    },
  );
}

/**
 * Runs a statement like {@link runQuery}, but once for each Idempotency-Key: in a transaction that also keeps the reply.
 * @throws as {@link runQuery} and {@link once}; StatementFailure when COMMIT fails
 */
export function runQueryOnce(lease: Lease, request: QueryRequest, repeatable: IdempotentRequest): Promise<QueryOnceReply> {
  let outcome: StatementOutcome | undefined;
  const { sql, params = [], rowMode, settings = NO_SETTINGS, format = jsonFormat(rowMode) } = request;
  const perform = async (session: SqlSession, keep: KeepReply) => {
    checkStatement(sql, 'single');
    checkParameterLimit(params);
    const work = async () => {
      await setLocally(session, settings);
      const [result] = await runBatch(session, [{ sql, params }], format, keptReplyLimit(session));
      if (result === undefined) throw new ServiceError('internal', 'a statement has no result');
      await keep(200, result.body);
      outcome = result.outcome;
      return result.body;
    };
    await Promise.all([setOutputSettings(session), session.expect(sideEffectsOf(sql))]);
    return { status: 200, body: await inTransaction(session, 'BEGIN', work) };
  };
  return once(lease, request, repeatable, perform).then(
    (reply) => ({ ...reply, ...(outcome === undefined ? {} : { outcome }) }),
    (error: unknown) => {
      throw withHint(withoutIndex(error));
    },
  );
}

/** Takes out which statement failed, because there is only one. */
function withoutIndex(error: unknown): unknown {
  return error instanceof StatementFailure && error.place.phase === 'statement' ? error.error : error;
}

/**
 * Runs a statement in a session. One that this backend has prepared runs at once. Any other is described first, because rows cannot
 * be encoded before the types of their columns are known.
 * @param isFresh as in {@link runQuery}
 */
async function runStatement(session: SqlSession, request: QueryRequest, body: ReplyBody, isFresh: boolean): Promise<StatementOutcome> {
  const { sql, params = [] } = request;
  const startedAt = performance.now();
  const known = findStatement(session.lease.tenant, sql);
  if (known === undefined) checkStatement(sql, 'single');
  checkParameterLimit(params);
  await session.rewriteAhead(sql);
  const run = new QueryRun(session, request, body, known?.sideEffects ?? sideEffectsOf(sql));
  if (isFresh || known === undefined || !session.lease.backend.session.prepared.use(known.server)) return run.described(startedAt, isFresh);
  try {
    return await run.prepared(known.described, known.server.name, startedAt);
  } catch (error) {
    const staleness = run.hasRows || session.status !== 'I' ? undefined : stalenessOfRun(error, run.isBound);
    if (staleness === undefined) throw error;
    forgetIfStale(session.lease, known, staleness);
  }
  return run.described(startedAt, true);
}

/**
 * The SELECT takes a snapshot, after which nothing can make the transaction READ WRITE again.
 * @see https://www.postgresql.org/docs/current/sql-set-transaction.html
 */
const BEGIN_READ_ONLY = 'BEGIN READ ONLY; SELECT';

const NO_SETTINGS: LocalSettings = {};

class QueryRun {
  /** Since the statement has been sent. */
  #sink: RowSink | undefined;
  readonly #session: SqlSession;
  readonly #request: QueryRequest;
  readonly #format: ResultFormat;
  readonly #body: ReplyBody;
  readonly #sideEffects: SideEffects;

  constructor(session: SqlSession, request: QueryRequest, body: ReplyBody, sideEffects: SideEffects) {
    this.#session = session;
    this.#request = request;
    this.#format = request.format ?? jsonFormat(request.rowMode);
    this.#body = body;
    this.#sideEffects = sideEffects;
  }

  /** Whether the statement runs between BEGIN and COMMIT of Postern's. */
  get #hasTransaction(): boolean {
    return this.#request.readOnly === true || this.#request.settings !== undefined;
  }

  get isBound(): boolean {
    return this.#sink?.isBound === true;
  }

  get hasRows(): boolean {
    return this.#sink?.hasRows === true;
  }

  /** Runs a statement that the backend has prepared. */
  async prepared(statement: DescribedStatement, name: Uint8Array, startedAt: number): Promise<StatementOutcome> {
    const values = await encodeAnyOf(statement, this.#request.params);
    await this.#begin();
    return this.#finish(statement, values, name, startedAt);
  }

  /**
   * Describes a statement and runs it. One that has been run before is prepared, because it is likely to be run again.
   * @param isFresh as in {@link runQuery}: it is not prepared
   */
  async described(startedAt: number, isFresh: boolean): Promise<StatementOutcome> {
    const session = this.#session;
    const { sql } = this.#request;
    const known = findStatement(session.lease.tenant, sql);
    const types = TypeCatalog.of(session);
    await this.#begin();
    const prepared = isFresh ? undefined : known?.server;
    const description = await (prepared === undefined ? describeStatement(session, sql) : prepareStatement(session, sql, prepared));
    const statement = await this.#describedStatement(known, description, types);
    return this.#finish(statement, await encodeAnyOf(statement, this.#request.params), prepared?.name, startedAt);
  }

  async #describedStatement(known: KnownStatement | undefined, description: Description, types: TypeCatalog): Promise<DescribedStatement> {
    if (known?.described.matches(description)) return known.described;
    const session = this.#session;
    // Under this name the backend now has a statement with another description, which other calls must not use.
    if (known !== undefined) session.lease.backend.session.unprepare(known.server);
    const statement = await withTypes(session, description, types);
    rememberStatement(session, this.#request.sql, this.#sideEffects, statement, types.schemaVersion);
    return statement;
  }

  /** Must be awaited: the statement must not run if a cancel request stopped one of these. Mostly there is nothing to do. */
  async #begin(): Promise<void> {
    const session = this.#session;
    const { readOnly = false, settings } = this.#request;
    await Promise.all([
      setOutputSettings(session),
      session.expect(this.#sideEffects),
      this.#hasTransaction && session.query(readOnly ? BEGIN_READ_ONLY : 'BEGIN'),
      settings !== undefined && setLocally(session, settings),
    ]);
  }

  async #finish(
    statement: DescribedStatement,
    values: readonly ParameterText[],
    name: Uint8Array | undefined,
    startedAt: number,
  ): Promise<StatementOutcome> {
    const session = this.#session;
    const body = this.#body;
    body.out.length = 0;
    const sink = new RowSink(session, body, statement.shape(this.#format));
    this.#sink = sink;
    const running = session.request([bindAndExecute(values, name)], session.repliesTo(this.#request.sql, values, sink));
    const committed = this.#hasTransaction ? session.query('COMMIT') : undefined;
    await Promise.allSettled([running, committed]);
    const [completion] = await Promise.all([running, committed]);
    const { cutBy } = sink;
    if (cutBy !== undefined) throw cutBy;
    return sink.close(completion, startedAt, this.#request.sql);
  }
}

/** Writes the rows of one statement to its reply, until they are not wanted any more. */
class RowSink implements Replies {
  readonly #host: Pick<RunHost, 'abortReason'>;
  readonly #body: ReplyBody;
  readonly #result: ResultWriter;
  /** The statement has its parameters. */
  isBound = false;
  /** The reply has begun. */
  hasRows = false;
  #isCut = false;

  constructor(host: Pick<RunHost, 'abortReason'>, body: ReplyBody, shape: ResultShape) {
    this.#host = host;
    this.#body = body;
    this.#result = new ResultWriter(shape, body.out);
  }

  bound(): void {
    this.isBound = true;
  }

  row(source: Buffer, start: number, end: number): void {
    this.#isCut ||= this.#host.abortReason !== undefined || !this.#body.hasRoomFor(end - start);
    if (this.#isCut) return;
    this.hasRows = true;
    this.#result.row(source, start);
    this.#isCut = !this.#body.flow();
  }

  async largeRow(source: Buffer, start: number): Promise<void> {
    this.#isCut ||= this.#host.abortReason !== undefined;
    if (this.#isCut) return;
    this.hasRows = true;
    this.#isCut = !(await this.#body.flowInParts(this.#result.rowInParts(source, start)));
  }

  interrupt(): void {
    this.#body.interrupt();
  }

  /** Why not all rows were taken: the statement may have completed before it could be canceled. Undefined: they were. */
  get cutBy(): Error | undefined {
    const { abortReason } = this.#host;
    return this.#isCut && abortReason !== undefined ? withCompletion(abortReason) : undefined;
  }

  /** Writes what follows the rows. @param sql the statement; '' for one that only reads or writes rows */
  close({ tag, warnings }: Completion, startedAt: number, sql = ''): StatementOutcome {
    const outcome = outcomeOf(tag, startedAt);
    this.#result.close(outcome, withAdvice(warnings, outcome.command, sql));
    return outcome;
  }
}

/** Looks up the types of the parameters and of the columns together, so that it takes one query at most. */
async function withTypes(session: SqlSession, description: Description, types: TypeCatalog): Promise<DescribedStatement> {
  const { parameters, fields } = description;
  await types.learn(session, [...parameters, ...fields.map(({ dataTypeOid }) => dataTypeOid)]);
  return new DescribedStatement(
    description,
    parameters.map((oid) => types.get(oid)),
    typedFields(fields, types),
  );
}

/** Is notified how a run ends. One of these methods is called, once. */
interface RunListener {
  replied(reply: QueryReply): void;
  failed(error: unknown): void;
  /** The statement has to be described again. The session can still be used, and the listener has to end it. */
  stale(staleness: NonNullable<Staleness>): void;
}

/** Where a statement runs: in a session of its own, or in a slot of a shared pipeline. */
export interface RunHost extends RowSource {
  readonly status: TransactionStatus;
  /** When the statements ahead of this one had been answered, by `performance.now()`; undefined if there were none. */
  readonly slotStartedAt: number | undefined;
  /** The backend is not shared with other requests. */
  readonly isAlone: boolean;
  expect(sideEffects: SideEffects): unknown;
  send(messages: readonly Uint8Array[], replies: Replies, edits: Edits, settle: Settle): void;
  end(): Promise<void>;
}

/** Settles `done` of a reply that was handed out as a stream. */
interface DoneSettler {
  resolve(outcome: StatementOutcome): void;
  reject(error: Error): void;
}

/**
 * Runs a statement that its backend has prepared, in one write. Nearly all queries are of this kind, so their replies need no promises:
 * in the turn in which a reply is complete, first the backend goes to whoever waits for it, and then the reply is sent.
 */
export class PreparedRun {
  readonly #host: RunHost;
  readonly #request: QueryRequest;
  readonly #known: KnownStatement;
  readonly #listener: RunListener;
  readonly #startedAt = performance.now();
  readonly #shape: ResultShape;
  readonly #body: ReplyBody;
  readonly #sink: RowSink;
  #done: DoneSettler | undefined;

  constructor(host: RunHost, request: QueryRequest, known: KnownStatement, listener: RunListener) {
    this.#host = host;
    this.#request = request;
    this.#known = known;
    this.#listener = listener;
    this.#shape = known.described.shape(request.format ?? jsonFormat(request.rowMode));
    this.#body = new ReplyBody(host, (stream) => this.#startStream(stream), request.finalBytes, this.#shape.lastBytes);
    this.#sink = new RowSink(host, this.#body, this.#shape);
  }

  /** @returns whether the statement can be sent at once, with no other request before it */
  static isPossible(
    backend: BackendConnection,
    { readOnly = false, settings, params = [] }: QueryRequest,
    { sideEffects, server }: KnownStatement,
  ): boolean {
    return (
      !readOnly &&
      settings === undefined &&
      !areMany(params) &&
      !sideEffects.readsSequences &&
      hasExpectedSettings(backend) &&
      backend.session.prepared.use(server) !== undefined
    );
  }

  start(): void {
    const { sideEffects, described, server } = this.#known;
    const { params = [] } = this.#request;
    try {
      checkParameterLimit(params);
      const values = encodeParametersOf(described, params);
      void this.#host.expect(sideEffects);
      this.#host.send([bindAndExecute(values, server.name)], this.#sink, [], (ended) => this.#settle(ended));
    } catch (error) {
      const staleness = stalenessOfRun(error, false);
      if (staleness !== undefined) this.#listener.stale(staleness);
      else this.#fail(error instanceof Error ? error : new Error('the statement could not be sent', { cause: error }));
    }
  }

  #settle(ended: Completion | Error): void {
    if (!(ended instanceof Error)) {
      this.#succeed(ended);
      return;
    }
    const { hasRows, isBound } = this.#sink;
    const staleness = hasRows || this.#host.status !== 'I' ? undefined : stalenessOfRun(ended, isBound);
    if (staleness === undefined) {
      this.#count(0, true);
      this.#fail(ended);
    } else this.#listener.stale(staleness);
  }

  #succeed(completion: Completion): void {
    const { cutBy } = this.#sink;
    if (cutBy !== undefined) {
      this.#count(completion.tag?.rowCount ?? 0, true);
      this.#fail(cutBy);
      return;
    }
    const outcome = this.#sink.close(completion, this.#startedAt);
    this.#measure();
    this.#count(outcome.rowCount ?? 0, false);
    const done = this.#host.end().then(() => outcome);
    if (this.#done === undefined) this.#shape.lastBytes = this.#body.out.length;
    const body = this.#body.finish();
    if (this.#done === undefined) this.#listener.replied({ body, outcome, done });
    else done.then(this.#done.resolve, this.#done.reject);
  }

  /** Records how long Postgres took. This decides whether the same statement may share a backend next time. */
  #measure(): void {
    const { latency, baseline } = this.#known;
    if (latency === undefined) return;
    const durationMs = this.#durationMs;
    latency.ran(durationMs, this.#done === undefined ? this.#body.out.length : Number.POSITIVE_INFINITY, baseline);
    if (this.#host.isAlone) latency.ranAlone(durationMs);
  }

  #count(rows: number, hasFailed: boolean): void {
    this.#known.counted?.ran(turnStartedAt(), this.#durationMs, rows, this.#body.bytes, hasFailed);
  }

  /** Since it was sent, or those ahead of it were answered. */
  get #durationMs(): number {
    return Math.max(0, turnStartedAt() - (this.#host.slotStartedAt ?? this.#startedAt));
  }

  #fail(error: Error): void {
    this.#body.fail(error);
    const settle = () => (this.#done === undefined ? this.#listener.failed(error) : this.#done.reject(error));
    this.#host.end().then(settle, settle);
  }

  #startStream(stream: Readable): void {
    const done = new Promise<StatementOutcome>((resolve, reject) => {
      this.#done = { resolve, reject };
    });
    done.catch(() => {});
    this.#listener.replied({ body: stream, done });
  }
}

/** Postgres' description of a statement, with its types looked up. */
class DescribedStatement {
  readonly description: Description;
  readonly parameters: readonly PostgresType[];
  readonly #fields: readonly Field[];
  readonly #shapes = new Map<ResultFormat, ResultShape>();

  constructor(description: Description, parameters: readonly PostgresType[], fields: readonly Field[]) {
    this.description = description;
    this.parameters = parameters;
    this.#fields = fields;
  }

  /** @returns how the result is written in a format; made once for each format */
  shape(format: ResultFormat): ResultShape {
    const shape = this.#shapes.get(format) ?? new ResultShape(format, this.#fields);
    this.#shapes.set(format, shape);
    return shape;
  }

  /** @returns whether another description says the same */
  matches(other: Description): boolean {
    return isDeepStrictEqual(this.description, other);
  }
}

/** What is known of a statement that the HTTP door has run before. */
export interface KnownStatement {
  readonly sideEffects: SideEffects;
  readonly described: DescribedStatement;
  /** The prepared statement on backends. Whatever has its name there fits {@link described}. */
  readonly server: ServerStatement;
  /** How long the statement takes; undefined if it must not share a backend with others. */
  readonly latency: StatementLatency | undefined;
  readonly baseline: LatencyBaseline;
  /** Counts its runs for the query statistics. */
  readonly counted: StatementCounter | undefined;
}

/** Statements with longer texts are not remembered. */
const TEXT_MAX_CHARACTERS = 16_384;
/** The memory that a description takes, and that each of its columns takes in addition. */
const DESCRIPTION_BYTES = 1_024;
const COLUMN_BYTES = 512;

/** What is known of server statements. It is kept for as long as the registry keeps these. */
const knownStatements = new WeakMap<ServerStatement, KnownStatement>();

/** @returns undefined also where tables or types have changed since, so that the text may mean something else */
export function findStatement(tenant: Tenant, sql: string): KnownStatement | undefined {
  if (sql.length > TEXT_MAX_CHARACTERS) return undefined;
  const server = registryOf(tenant.organization).findText(sql, contextOf(tenant));
  return server === undefined ? undefined : knownStatements.get(server);
}

/**
 * Remembers the description that a session has just received, if the statement can be run again.
 * @param schemaVersion the registry's before the statement was described
 */
function rememberStatement(
  { lease }: SqlSession,
  sql: string,
  sideEffects: SideEffects,
  described: DescribedStatement,
  schemaVersion: number,
): void {
  if (sql.length > TEXT_MAX_CHARACTERS || !sideEffects.isPlain || !canBePreparedAgain(sql)) return;
  const registry = registryOf(lease.tenant.organization);
  if (registry.schemaVersion !== schemaVersion) return;
  const server = serverStatement(registry, sql, lease.tenant, described.description);
  const latency = sideEffects.leavesState === 'no' && !sideEffects.readsSequences ? registry.latencyOf(server) : undefined;
  const counted = lease.tenant.statements?.find(sql)[0];
  knownStatements.set(server, { sideEffects, described, server, latency, baseline: registry.baseline, counted });
  registry.weigh(server, DESCRIPTION_BYTES + COLUMN_BYTES * described.description.fields.length);
}

/** @returns the server statement of a text; a new one if the known one was described differently */
function serverStatement(registry: StatementRegistry, sql: string, tenant: Tenant, { shape }: Description): ServerStatement {
  const definition = Buffer.from(`${sql}\0\0\0`);
  const context = contextOf(tenant);
  let server = registry.intern(definition, context);
  if (server.shape !== undefined && !isSameShape(server.shape, shape)) {
    registry.forget(server);
    server = registry.intern(definition, context);
  }
  server.shape ??= shape;
  return server;
}

/** Makes the next run describe the statement again, and prepare it under another name, unless it is only to be checked. */
export function forgetIfStale(
  { backend, tenant }: Pick<Lease, 'backend' | 'tenant'>,
  { server }: KnownStatement,
  staleness: Staleness,
): void {
  if (staleness === 'check') return;
  backend.session.unprepare(server);
  const registry = registryOf(tenant.organization);
  if (staleness === 'forget') registry.forget(server);
  else registry.invalidate();
}

/**
 * The settings in which a text is looked up. Sessions of the HTTP door have the settings of their login, so a text means the
 * same as in wire sessions that have changed none. In the `schema` placement the HTTP door looks up texts before they are
 * rewritten and the wire door afterwards. Their contexts differ, because one text as written may equal another as rewritten.
 */
function contextOf({ organization }: Tenant): string {
  return organization.placement.kind === 'schema' ? AS_WRITTEN : '';
}

const AS_WRITTEN = 'as written';

/** As `stalenessOf` says of an error of Postgres, and of the encoding of parameters, whose types are remembered. */
function stalenessOfRun(error: unknown, isBound: boolean): Staleness {
  if (error instanceof ServiceError) return error.kind === 'invalid_request' ? 'check' : undefined;
  return error instanceof PostgresError ? stalenessOf(error.fields, isBound) : undefined;
}

/** One statement with its parameters, and the form of its result. */
export interface QueryRequest {
  readonly sql: string;
  readonly params?: readonly JsonValue[] | undefined;
  readonly rowMode: RowMode;
  /** How the result is written. Default: as the reply of `/api/query`. */
  readonly format?: ResultFormat | undefined;
  /** Makes the last bytes of a stream that fails, for formats that can express an error. */
  readonly finalBytes?: ((error: Error) => Uint8Array) | undefined;
  /** How long Postgres may take, by Postern's own clock. The time that a slow reader takes does not count. 0: no limit. */
  readonly timeoutMs: number;
  readonly readOnly?: boolean;
  /** Set for this call alone, before its statement, which then runs in a transaction. */
  readonly settings?: LocalSettings | undefined;
  /** Signals that the client has disconnected, which cancels the statement. */
  readonly disconnect?: DisconnectSignal;
  /** The reservation for a result that is part of a kept reply. */
  readonly results?: MemoryReservation | undefined;
}

export interface QueryReply {
  /**
   * The reply in its format, in UTF-8: a Buffer if it is small, else a stream with backpressure up to the backend. Reading the
   * stream slowly slows Postgres down, and destroying it cancels the statement. A failure destroys the stream with the error, or
   * ends it with {@link QueryRequest.finalBytes}, so that a partial reply never looks complete.
   */
  readonly body: Buffer | Readable;
  /** How the statement ended, if the body is a Buffer. */
  readonly outcome?: StatementOutcome;
  /** How the statement ended. The lease has been given back once this settles. A rejection may go unhandled. */
  readonly done: Promise<StatementOutcome>;
}
