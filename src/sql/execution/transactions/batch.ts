import { PostgresError } from '../../../protocol/backend.ts';
import { bindAndExecute } from '../../../protocol/frontend-encoder.ts';
import { TimeSlices } from '../../../runtime/event-loop.ts';
import { lineAndColumn, type TextPlace } from '../../../syntax/position.ts';
import { SideEffectsMemory } from '../../../syntax/traits/side-effects.ts';
import type { JsonValue } from '../../parameters/json-value.ts';
import { areMany, checkParameterCount, encodeAnyOf, encodeBitByBit, encodeParameters, needsType } from '../../parameters/parameters.ts';
import { BufferedResult, ReplySizeLimit } from '../../result/buffered-result.ts';
import type { PostgresType } from '../../result/builtin-types.ts';
import { outcomeOf } from '../../result/result.ts';
import { RESULTS_MAX_BYTES } from '../../result/result-budget.ts';
import type { ResultFormat, StatementOutcome } from '../../result/result-format.ts';
import { TypeCatalog } from '../../result/type-catalog.ts';
import type { Completion } from '../../session/pipeline.ts';
import type { Session } from '../../session/session.ts';
import { checkInTransaction, failureAt } from './in-transaction.ts';

export interface BatchStatement {
  readonly sql: string;
  readonly params?: readonly JsonValue[];
}

export interface BatchResult {
  /** As the layout writes it. */
  readonly body: Buffer;
  readonly outcome: StatementOutcome;
}

interface Ran {
  readonly result: BufferedResult;
  readonly completion: Completion;
  readonly outcome: StatementOutcome;
}

/** What the parameters of statements are, by the statements' text. */
type ParameterTypes = Map<string, readonly PostgresType[]>;

/**
 * Runs statements inside a transaction block. They go out one behind the other without waiting, except before one with a
 * parameter whose type must be asked for. After a failure Postgres refuses the rest; the first failure is the one told.
 * @throws StatementFailure
 */
export async function runBatch(
  session: Session,
  statements: readonly BatchStatement[],
  layout: ResultFormat,
  budget = new ReplySizeLimit(session, RESULTS_MAX_BYTES),
): Promise<readonly BatchResult[]> {
  const running: Promise<Ran>[] = [];
  const asked: ParameterTypes = new Map();
  const sideEffects = new SideEffectsMemory();
  let startedAt = performance.now();
  let failure: unknown;
  await session.rewriteAhead(...statements.map(({ sql }) => sql));
  const slices = new TimeSlices();
  for (const [statementIndex, statement] of statements.entries()) {
    const result = new BufferedResult(session, layout, budget);
    const mustAsk = needsTypes(statement) && !asked.has(statement.sql);
    const run = runStatement(session, statement, result, asked).then((completion) => {
      if (completion.warnings.length > 0) budget.spend(JSON.stringify(completion.warnings).length);
      const outcome = outcomeOf(completion.tag, startedAt);
      startedAt = performance.now();
      return { result, completion, outcome };
    });
    running.push(run);
    run.catch((error: unknown) => {
      failure ??= failureAt(error, { phase: 'statement', statementIndex, ...placeIn(statement.sql, error) });
    });
    const pause = slices.pause();
    if (pause !== undefined) await pause;
    // Those that come behind must not overtake it.
    if (mustAsk || areMany(statement.params ?? [])) await Promise.allSettled([run]);
    if (failure !== undefined) break;
    // What is described cannot change behind our back, since it is locked until the transaction ends; but we can change it.
    if (asked.size > 0 && sideEffects.of(statement.sql).leavesState !== 'no') asked.clear();
  }
  await Promise.allSettled(running);
  if (failure !== undefined) throw failure;
  return settle(session, await Promise.all(running));
}

function needsTypes({ params = [] }: BatchStatement): boolean {
  return params.some(needsType);
}

async function runStatement(
  session: Session,
  statement: BatchStatement,
  result: BufferedResult,
  asked: ParameterTypes,
): Promise<Completion> {
  const types = needsTypes(statement) ? asked.get(statement.sql) : [];
  const completion = await (types === undefined
    ? runDescribed(session, statement, result, asked)
    : runBlind(session, statement, result, types));
  checkInTransaction(completion);
  session.throwIfAborted();
  return completion;
}

async function runDescribed(
  session: Session,
  { sql, params = [] }: BatchStatement,
  result: BufferedResult,
  asked: ParameterTypes,
): Promise<Completion> {
  const { parameters, fields } = await session.describe(sql);
  checkParameterCount(params.length, parameters.length);
  const types = TypeCatalog.of(session.lease.backend);
  await types.learn(session, parameters);
  const parameterTypes = parameters.map((oid) => types.get(oid));
  asked.set(sql, parameterTypes);
  result.fields(fields);
  return session.request([bindAndExecute(await encodeAnyOf({ parameters: parameterTypes }, params))], {
    row: (...row) => result.row(...row),
    largeRow: (...row) => result.largeRow(...row),
  });
}

/** Without waiting for the description, which comes all the same. */
async function runBlind(
  session: Session,
  { sql, params = [] }: BatchStatement,
  result: BufferedResult,
  parameterTypes: readonly PostgresType[],
): Promise<Completion> {
  let wanted = params.length;
  try {
    // Not to be waited for where that is not needed: the next statement goes out in the same turn.
    const values = areMany(params) ? await encodeBitByBit(params, parameterTypes) : encodeParameters(params, parameterTypes);
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

async function settle(session: Session, ran: readonly Ran[]): Promise<readonly BatchResult[]> {
  await TypeCatalog.of(session.lease.backend).learn(
    session,
    ran.flatMap(({ result }) => result.oids),
  );
  const results: BatchResult[] = [];
  for (const { result, completion, outcome } of ran) results.push({ body: await result.settle(outcome, completion.warnings), outcome });
  return results;
}

function placeIn(sql: string, error: unknown): TextPlace | undefined {
  const position = error instanceof PostgresError ? error.fields.position : undefined;
  return position === undefined ? undefined : lineAndColumn(sql, position);
}
