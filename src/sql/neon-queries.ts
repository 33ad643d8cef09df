import { ServiceError } from '../errors.ts';
import type { Lease } from '../router/lease.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import { checkStatement, type StatementContext } from '../syntax/http-restrictions.ts';
import { SideEffectsCache } from '../syntax/side-effects.ts';
import { type BatchResult, checkInTransaction, inTransaction } from './batch.ts';
import { setOutputSettings } from './description.ts';
import { withCompletion } from './failures.ts';
import type { ResultFormat } from './formats.ts';
import { checkParameterLimit, type ParameterText } from './parameters.ts';
import type { Completion } from './pipeline.ts';
import { BufferedResult, ReplySizeLimit } from './result.ts';
import { outcomeOf, RESULTS_MAX_BYTES } from './result-budget.ts';
import { type SessionOptions, SqlSession } from './session.ts';
import { beginStatement, type TransactionModes } from './transaction.ts';
import { TypeCatalog } from './types.ts';

/** A statement whose values are in Postgres' text format already, so that it runs without being described first. */
export interface TextStatement {
  readonly sql: string;
  readonly values: readonly ParameterText[];
  /** How its result is written. */
  readonly format: ResultFormat;
}

/**
 * Runs one statement in one round trip, keeps its result in memory as a whole, and takes over the lease.
 * @throws PostgresError
 * @throws ServiceError `invalid_request`, `unsupported_statement`, `statement_timeout`, `query_canceled`, `response_too_large`, `backend_lost`
 */
export function runTextStatement(lease: Lease, statement: TextStatement, options: SessionOptions): Promise<BatchResult> {
  return inSession(lease, options, async (session) => {
    check(statement, 'single');
    await prepare(session, [statement]);
    const ran = await run(session, [statement]);
    try {
      if (ran.some(({ result }) => result.isCut)) session.throwIfAborted();
      const [result] = await settle(session, ran);
      if (result === undefined) throw new Error('a statement has no result');
      return result;
    } catch (error) {
      throw error instanceof ServiceError ? withCompletion(error) : error;
    }
  });
}

/**
 * Runs statements as one transaction, all of them in one write, and takes over the lease.
 * @throws as {@link runTextStatement}: the first error, and the transaction had no effect; a StatementFailure when COMMIT fails
 */
export function runTextTransaction(
  lease: Lease,
  statements: readonly TextStatement[],
  modes: TransactionModes,
  options: SessionOptions,
): Promise<readonly BatchResult[]> {
  return inSession(lease, options, async (session) => {
    for (const statement of statements) check(statement, 'transaction');
    const work = async () => {
      const ran = await run(session, statements);
      session.throwIfAborted();
      for (const { completion } of ran) checkInTransaction(completion);
      return settle(session, ran);
    };
    await prepare(session, statements);
    return inTransaction(session, beginStatement(modes), work);
  });
}

async function inSession<T>(lease: Lease, options: SessionOptions, work: (session: SqlSession) => Promise<T>): Promise<T> {
  const session = new SqlSession(lease, options);
  try {
    return await work(session);
  } finally {
    await session.end();
  }
}

function check({ sql, values }: TextStatement, context: StatementContext): void {
  checkStatement(sql, context);
  checkParameterLimit(values);
}

/** Mostly there is nothing to do. */
async function prepare(session: SqlSession, statements: readonly TextStatement[]): Promise<void> {
  const sideEffects = new SideEffectsCache();
  await Promise.all([setOutputSettings(session), session.expect(...statements.map(({ sql }) => sideEffects.of(sql)))]);
}

interface ExecutedStatement {
  readonly result: BufferedResult;
  readonly completion: Completion;
  readonly startedAt: number;
}

/**
 * Runs statements without waiting in between. After a failure Postgres refuses the rest; the first failure is reported.
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING
 */
async function run(session: SqlSession, statements: readonly TextStatement[]): Promise<readonly ExecutedStatement[]> {
  const sizeLimit = new ReplySizeLimit(session, RESULTS_MAX_BYTES);
  const startedAt = performance.now();
  await session.rewriteAhead(...statements.map(({ sql }) => sql));
  const running: Promise<ExecutedStatement>[] = [];
  const slices = new TimeSlices();
  let [previousEnd, hasFailed] = [startedAt, false];
  const start = async ({ sql, values, format }: TextStatement): Promise<ExecutedStatement> => {
    const result = new BufferedResult(session, format, sizeLimit);
    try {
      const completion = await session.run(sql, values, result);
      session.count(sql, previousEnd, completion.tag?.rowCount, result.bytes);
      previousEnd = performance.now();
      return { result, completion, startedAt };
    } catch (error) {
      // Postgres only refuses those behind it.
      if (!hasFailed) session.countFailure(sql, previousEnd, error);
      hasFailed = true;
      throw error;
    }
  };
  for (const statement of statements) {
    if (session.awaitsStrings(statement.sql)) {
      await Promise.allSettled(running.slice(-1));
      await session.rewriteAhead(statement.sql);
    }
    const ran = start(statement);
    ran.catch(() => {});
    running.push(ran);
    const pause = slices.pause();
    if (pause !== undefined) await pause;
  }
  await Promise.allSettled(running);
  return Promise.all(running);
}

async function settle(session: SqlSession, ran: readonly ExecutedStatement[]): Promise<readonly BatchResult[]> {
  const oids = ran.flatMap(({ result }) => result.oids);
  const types = TypeCatalog.of(session);
  await types.learn(session, oids);
  const results: BatchResult[] = [];
  for (const { result, completion, startedAt } of ran) {
    const outcome = outcomeOf(completion.tag, startedAt);
    results.push({ body: await result.settle(outcome, completion.warnings, types), outcome });
  }
  return results;
}
