import { PostgresError } from '../../protocol/backend.ts';
import { bindAndExecute } from '../../protocol/frontend-encoder.ts';
import { checkStatement } from '../../syntax/restrictions.ts';
import { type SideEffects, sideEffectsOf } from '../../syntax/traits/side-effects.ts';
import { checkParameterLimit, encodeAnyOf, type ParameterText } from '../parameters/parameters.ts';
import type { ReplyBody } from '../result/reply-body.ts';
import { outcomeOf, ResultWriter, typedFields } from '../result/result.ts';
import { jsonFormat, type ResultFormat, type StatementOutcome } from '../result/result-format.ts';
import { TypeCatalog } from '../result/type-catalog.ts';
import { pinSettings } from '../session/output-settings.ts';
import type { Description, Session } from '../session/session.ts';
import { DescribedStatement, findStatement, forgetStatement, type KnownStatement, rememberStatement } from './known-statements.ts';
import type { QueryRequest } from './query-request.ts';
import { carriedOut } from './statement-failure.ts';

/**
 * A statement that this backend has prepared runs at once. Any other is described first: no row can come before the types
 * of its columns are known.
 */
export async function runStatement(session: Session, request: QueryRequest, body: ReplyBody): Promise<StatementOutcome> {
  const { sql, params = [] } = request;
  const startedAt = performance.now();
  const known = findStatement(session.lease.tenant, sql);
  if (known === undefined) checkStatement(sql, 'single');
  checkParameterLimit(params);
  await session.rewriteAhead(sql);
  const run = new Run(session, request, body, known?.sideEffects ?? sideEffectsOf(sql));
  if (known !== undefined && session.lease.backend.session.prepared.use(known.server)) {
    try {
      return await run.atOnce(known.described, known.server.name, startedAt);
    } catch (error) {
      if (!mayBeStale(error) || run.hasRows || session.status !== 'I') throw error;
      forgetStatement(session.lease, known);
    }
  }
  return run.described(startedAt);
}

/** Once a snapshot is taken, which the SELECT does, nothing can make the transaction READ WRITE again. */
const BEGIN_READ_ONLY = 'BEGIN READ ONLY; SELECT';

class Run {
  hasRows = false;
  readonly #session: Session;
  readonly #request: QueryRequest;
  readonly #layout: ResultFormat;
  readonly #body: ReplyBody;
  readonly #sideEffects: SideEffects;

  constructor(session: Session, request: QueryRequest, body: ReplyBody, sideEffects: SideEffects) {
    this.#session = session;
    this.#request = request;
    this.#layout = request.format ?? jsonFormat(request.rowMode);
    this.#body = body;
    this.#sideEffects = sideEffects;
  }

  async atOnce(statement: DescribedStatement, name: Uint8Array, startedAt: number): Promise<StatementOutcome> {
    const values = await encodeAnyOf(statement, this.#request.params);
    await this.#begin();
    return this.#finish(statement, values, name, startedAt);
  }

  /** What has been run before is likely to be run again: it is prepared. */
  async described(startedAt: number): Promise<StatementOutcome> {
    const session = this.#session;
    const { sql } = this.#request;
    const known = findStatement(session.lease.tenant, sql);
    await this.#begin();
    const description = await (known === undefined ? session.describe(sql) : session.prepare(sql, known.server));
    const statement = await this.#understood(known, description);
    return this.#finish(statement, await encodeAnyOf(statement, this.#request.params), known?.server.name, startedAt);
  }

  async #understood(known: KnownStatement | undefined, description: Description): Promise<DescribedStatement> {
    if (known?.described.isAs(description)) return known.described;
    const session = this.#session;
    // Whatever becomes of this call: what bears the name here is not what others take it for.
    if (known !== undefined) session.unprepare(known.server);
    const statement = await understand(session, description);
    rememberStatement(session, this.#request.sql, this.#sideEffects, statement);
    return statement;
  }

  /** To be waited for: what a cancel request stops here must not be missing from what follows. Mostly there is nothing to be done. */
  async #begin(): Promise<void> {
    const session = this.#session;
    const { readOnly = false } = this.#request;
    await Promise.all([pinSettings(session), session.expect(this.#sideEffects), readOnly && session.query(BEGIN_READ_ONLY)]);
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
    const result = new ResultWriter(statement.shape(this.#layout), body.out);
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
    const running = session.request([bindAndExecute(values, name)], { row, largeRow, interrupt: () => body.interrupt() });
    const ended = this.#request.readOnly ? session.query('COMMIT') : undefined;
    await Promise.allSettled([running, ended]);
    const [{ tag, warnings }] = await Promise.all([running, ended]);
    // The statement may have got to its end in spite of all, but not its rows.
    if (isCut && session.abortReason !== undefined) throw carriedOut(session.abortReason);
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
export function mayBeStale(error: unknown): boolean {
  return error instanceof PostgresError && /^(?:0A000|26000|42...)$/.test(error.fields.code);
}
