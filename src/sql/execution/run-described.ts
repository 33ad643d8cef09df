import { bindAndExecute } from '../../protocol/frontend.ts';
import { checkStatement } from '../../syntax/http-restrictions.ts';
import { type SideEffects, sideEffectsOf } from '../../syntax/side-effects.ts';
import { checkParameterLimit, encodeAnyOf, type ParameterText } from '../parameters/encode-parameters.ts';
import { jsonFormat } from '../result/formats/json-format.ts';
import type { ResultFormat } from '../result/formats/result-format.ts';
import type { ReplyBody } from '../result/reply-body.ts';
import { ResultWriter, typedFields } from '../result/result-writer.ts';
import { outcomeOf, type StatementOutcome } from '../result/statement-outcome.ts';
import { TypeCatalog } from '../result/type-catalog.ts';
import { setOutputSettings } from '../session/output-settings.ts';
import type { SqlSession } from '../session/sql-session.ts';
import { type Description, describeStatement, prepareStatement } from '../session/statement-description.ts';
import { withEndOfSetting } from '../session/warnings.ts';
import { withCompletion } from './error-hint-and-detail.ts';
import {
  DescribedStatement,
  findStatement,
  forgetIfStale,
  type KnownStatement,
  rememberStatement,
  stalenessOfRun,
} from './known-statements.ts';
import type { QueryRequest } from './query-request-and-reply.ts';

/**
 * Runs a statement in a session. One that this backend has prepared runs at once. Any other is described first, because rows cannot
 * be encoded before the types of their columns are known.
 * @param isFresh as in {@link runQuery}
 */
export async function runStatement(
  session: SqlSession,
  request: QueryRequest,
  body: ReplyBody,
  isFresh: boolean,
): Promise<StatementOutcome> {
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

class QueryRun {
  isBound = false;
  hasRows = false;
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
    const { readOnly = false } = this.#request;
    await Promise.all([setOutputSettings(session), session.expect(this.#sideEffects), readOnly && session.query(BEGIN_READ_ONLY)]);
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
    const result = new ResultWriter(statement.shape(this.#format), body.out);
    let isCut = false;
    const row = (source: Buffer, start: number, end: number) => {
      isCut ||= session.abortReason !== undefined || !body.hasRoomFor(end - start);
      if (isCut) return;
      this.hasRows = true;
      result.row(source, start);
      isCut = !body.flow();
    };
    const largeRow = async (source: Buffer, start: number) => {
      isCut ||= session.abortReason !== undefined;
      if (isCut) return;
      this.hasRows = true;
      isCut = !(await body.flowInParts(result.rowInParts(source, start)));
    };
    const bound = () => {
      this.isBound = true;
    };
    const replies = session.repliesTo(this.#request.sql, { bound, row, largeRow, interrupt: () => body.interrupt() });
    const running = session.request([bindAndExecute(values, name)], replies);
    const committed = this.#request.readOnly ? session.query('COMMIT') : undefined;
    await Promise.allSettled([running, committed]);
    const [{ tag, warnings }] = await Promise.all([running, committed]);
    // The statement may have completed before it could be canceled, but not all of its rows were taken.
    if (isCut && session.abortReason !== undefined) throw withCompletion(session.abortReason);
    const outcome = outcomeOf(tag, startedAt);
    result.close(outcome, withEndOfSetting(warnings, outcome.command));
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
