import { ServiceError } from '../errors.ts';
import { PostgresError, type TransactionStatus } from '../protocol/backend.ts';
import { bindAndExecute } from '../protocol/frontend.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import { type LineAndColumn, lineAndColumn } from '../syntax/line-and-column.ts';
import { optionsAmong } from '../syntax/session-traits.ts';
import { SideEffectsCache } from '../syntax/side-effects.ts';
import { describeStatement } from './description.ts';
import { failureAt } from './failures.ts';
import type { ResultFormat } from './formats.ts';
import type { PostgresType } from './json-values.ts';
import { areMany, checkParameterCount, encodeAnyOf, encodeInSlices, encodeParameters, type JsonValue, needsType } from './parameters.ts';
import type { Completion } from './pipeline.ts';
import { BufferedResult, ReplySizeLimit } from './result.ts';
import { outcomeOf, RESULTS_MAX_BYTES, type StatementOutcome } from './result-budget.ts';
import type { SqlSession } from './session.ts';
import { TypeCatalog } from './types.ts';

export interface BatchStatement {
  readonly sql: string;
  readonly params?: readonly JsonValue[];
}

export interface BatchResult {
  /** The result as its format writes it. */
  readonly body: Buffer;
  readonly outcome: StatementOutcome;
}

interface ExecutedStatement {
  readonly result: BufferedResult;
  readonly completion: Completion;
  readonly outcome: StatementOutcome;
}

/** The parameters' types of statements that have been described, by the statements' texts. */
type ParameterTypes = Map<string, readonly PostgresType[]>;

/**
 * Runs statements inside a transaction block. They are pipelined, except that a statement with a parameter whose type is unknown is
 * described and run before the next one is sent. After a failure Postgres refuses the rest; the first failure is reported.
 * @throws StatementFailure
 */
export async function runBatch(
  session: SqlSession,
  statements: readonly BatchStatement[],
  format: ResultFormat,
  sizeLimit = new ReplySizeLimit(session, RESULTS_MAX_BYTES),
): Promise<readonly BatchResult[]> {
  const running: Promise<ExecutedStatement>[] = [];
  const described: ParameterTypes = new Map();
  const sideEffects = new SideEffectsCache();
  let startedAt = performance.now();
  let failure: unknown;
  await session.rewriteAhead(...statements.map(({ sql }) => sql));
  const slices = new TimeSlices();
  for (const [statementIndex, statement] of statements.entries()) {
    if (session.awaitsStrings(statement.sql)) {
      await Promise.allSettled(running.slice(-1));
      await session.rewriteAhead(statement.sql);
      if (failure !== undefined) break;
    }
    const result = new BufferedResult(session, format, sizeLimit);
    const mustDescribe = needsTypes(statement) && !described.has(statement.sql);
    const run = runStatement(session, statement, result, described).then((completion) => {
      session.count(statement.sql, startedAt, completion.tag?.rowCount, result.bytes);
      if (completion.warnings.length > 0) sizeLimit.spend(JSON.stringify(completion.warnings).length);
      const outcome = outcomeOf(completion.tag, startedAt);
      startedAt = performance.now();
      return { result, completion, outcome };
    });
    running.push(run);
    run.catch((error: unknown) => {
      // Postgres only refuses those behind it.
      if (failure === undefined) session.countFailure(statement.sql, startedAt, error);
      failure ??= failureAt(error, { phase: 'statement', statementIndex, ...placeIn(statement.sql, error) });
    });
    const pause = slices.pause();
    if (pause !== undefined) await pause;
    // The statements behind this one must not overtake it.
    if (mustDescribe || areMany(statement.params ?? [])) await Promise.allSettled([run]);
    if (failure !== undefined) break;
    // Others cannot change the described objects, which are locked until the transaction ends. The transaction's own statements can.
    if (described.size > 0 && sideEffects.of(statement.sql).leavesState !== 'no') described.clear();
  }
  await Promise.allSettled(running);
  if (failure !== undefined) throw failure;
  return settle(session, await Promise.all(running));
}

function needsTypes({ params = [] }: BatchStatement): boolean {
  return params.some(needsType);
}

async function runStatement(
  session: SqlSession,
  statement: BatchStatement,
  result: BufferedResult,
  described: ParameterTypes,
): Promise<Completion> {
  const types = needsTypes(statement) ? described.get(statement.sql) : [];
  const completion = await (types === undefined
    ? runDescribed(session, statement, result, described)
    : runUndescribed(session, statement, result, types));
  checkInTransaction(completion);
  session.throwIfAborted();
  return completion;
}

async function runDescribed(
  session: SqlSession,
  { sql, params = [] }: BatchStatement,
  result: BufferedResult,
  described: ParameterTypes,
): Promise<Completion> {
  const { parameters, fields } = await describeStatement(session, sql);
  checkParameterCount(params.length, parameters.length);
  const types = TypeCatalog.of(session);
  await types.learn(session, parameters);
  const parameterTypes = parameters.map((oid) => types.get(oid));
  described.set(sql, parameterTypes);
  result.fields(fields);
  const values = await encodeAnyOf({ parameters: parameterTypes }, params);
  const replies = session.repliesTo(sql, values, { row: (...row) => result.row(...row), largeRow: (...row) => result.largeRow(...row) });
  return session.request([bindAndExecute(values)], replies);
}

/** Runs a statement without waiting for its description, which arrives with the result. */
async function runUndescribed(
  session: SqlSession,
  { sql, params = [] }: BatchStatement,
  result: BufferedResult,
  parameterTypes: readonly PostgresType[],
): Promise<Completion> {
  let wanted = params.length;
  try {
    // Few values are encoded without an await, so that the next statement is sent in the same turn.
    const values = areMany(params) ? await encodeInSlices(params, parameterTypes) : encodeParameters(params, parameterTypes);
    return await session.run(sql, values, {
      parameters: (types) => {
        wanted = types.length;
      },
      fields: (fields) => result.fields(fields),
      row: (...row) => result.row(...row),
      largeRow: (...row) => result.largeRow(...row),
    });
  } catch (error) {
    if (error instanceof PostgresError) checkParameterCount(params.length, wanted);
    throw error;
  }
}

async function settle(session: SqlSession, ran: readonly ExecutedStatement[]): Promise<readonly BatchResult[]> {
  const types = TypeCatalog.of(session);
  await types.learn(
    session,
    ran.flatMap(({ result }) => result.oids),
  );
  const results: BatchResult[] = [];
  for (const { result, completion, outcome } of ran)
    results.push({ body: await result.settle(outcome, completion.warnings, types), outcome });
  return results;
}

function placeIn(sql: string, error: unknown): LineAndColumn | undefined {
  const position = error instanceof PostgresError ? error.fields.position : undefined;
  return position === undefined ? undefined : lineAndColumn(sql, position);
}

/** Customized options with their values. */
export type LocalSettings = Readonly<Record<string, string>>;

/**
 * Sets options until the end of the transaction that the session is in. The values are parameters, so they are in no text that the server
 * shows or logs.
 */
export async function setLocally(session: SqlSession, settings: LocalSettings): Promise<void> {
  const entries = Object.entries(settings);
  if (entries.length === 0) return;
  session.makesOptions(optionsAmong(entries.map(([name]) => name)));
  const calls = entries.map((_, at) => `pg_catalog.set_config($${2 * at + 1}, $${2 * at + 2}, true)`);
  await session.rows(`SELECT ${calls.join()}`, entries.flat());
}

/**
 * Does work between BEGIN and COMMIT. When anything fails, the transaction stays open, and the end of the session rolls it back.
 * @param begin the BEGIN, which is awaited: if a cancel request stopped it, the statements of the work would be committed one by one
 * @param end ROLLBACK for a trial
 * @throws StatementFailure with phase `commit` when COMMIT fails; whatever the work throws
 */
export async function inTransaction<T>(
  session: SqlSession,
  begin: string,
  work: () => Promise<T>,
  end: 'COMMIT' | 'ROLLBACK' = 'COMMIT',
): Promise<T> {
  await session.query(begin);
  const result = await work();
  session.throwIfAborted();
  checkInTransaction(session);
  const { tag } = await session.query(end).catch((error: unknown) => {
    if (end === 'ROLLBACK') throw error;
    throw failureAt(session.isLost ? unknownOutcome(error) : error, { phase: 'commit' });
  });
  if (tag?.command !== end) throw new ServiceError('internal', `${end} was answered with ${tag?.command}`);
  return result;
}

/**
 * Checks deferred constraints, for a trial: otherwise only COMMIT would.
 * @throws StatementFailure with phase `commit`
 */
export async function checkConstraints(session: SqlSession): Promise<void> {
  await session.query('SET CONSTRAINTS ALL IMMEDIATE').catch((error: unknown) => {
    throw failureAt(error, { phase: 'commit' });
  });
}

/** @throws ServiceError when a statement has ended the transaction, since those after it would be committed by themselves */
export function checkInTransaction({ status }: { readonly status: TransactionStatus }): void {
  if (status !== 'T') throw new ServiceError('unsupported_statement', 'the transaction was ended by one of its statements');
}

function unknownOutcome(cause: unknown): ServiceError {
  return new ServiceError('backend_lost', 'the connection to the database was lost during COMMIT', {
    detail: 'It is not known whether the transaction was committed.',
    cause,
  });
}
