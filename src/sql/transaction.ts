import { ServiceError } from '../errors.ts';
import type { DisconnectSignal, Lease } from '../router/lease.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import type { MemoryReservation } from '../runtime/memory-budget.ts';
import { checkStatement } from '../syntax/http-restrictions.ts';
import { SideEffectsCache } from '../syntax/side-effects.ts';
import {
  type BatchResult,
  type BatchStatement,
  checkConstraints,
  inTransaction,
  type LocalSettings,
  runBatch,
  setLocally,
} from './batch.ts';
import { setOutputSettings } from './description.ts';
import { failureAt } from './failures.ts';
import { jsonFormat, type RowMode } from './formats.ts';
import { type IdempotentRequest, keptReplyLimit, type OnceReply, once } from './idempotency.ts';
import { checkParameterLimit } from './parameters.ts';
import { outcomeOf, type StatementOutcome } from './result-budget.ts';
import { SqlSession } from './session.ts';

export interface TransactionRequest extends TransactionModes {
  /** There must be 1 to 1,000. */
  readonly statements: readonly BatchStatement[];
  /** Set for this call alone, before its statements. */
  readonly settings?: LocalSettings;
  /** A trial: everything runs, deferred constraints are checked, and then it is rolled back. */
  readonly rollback?: boolean;
  readonly rowMode: RowMode;
  /** For the whole transaction, by Postern's own clock. 0: no limit. */
  readonly timeoutMs: number;
  readonly disconnect?: DisconnectSignal;
  readonly results?: MemoryReservation | undefined;
}

interface TransactionReply {
  /** `{results, status, durationMs}` as UTF-8 JSON. The status is `committed`, or `rolled_back` after a trial. */
  readonly body: Buffer;
  readonly results: readonly StatementOutcome[];
  readonly durationMs: number;
}

const STATEMENTS_MAX = 1_000;

/**
 * Runs statements as one transaction and takes over the lease.
 * @throws StatementFailure (a PostgresError or ServiceError with its place); nothing was committed
 * @throws ServiceError `invalid_request`, `backend_lost` and the like, when the error belongs to no single statement
 */
export async function runTransaction(lease: Lease, request: TransactionRequest): Promise<TransactionReply> {
  const session = new SqlSession(lease, request);
  const startedAt = performance.now();
  try {
    return replyOf(await perform(session, request, () => runAll(session, request)), startedAt, request);
  } finally {
    await session.end();
  }
}

async function runAll(session: SqlSession, { statements, rowMode, rollback }: TransactionRequest): Promise<readonly BatchResult[]> {
  const results = await runBatch(session, statements, jsonFormat(rowMode));
  if (rollback === true) await checkConstraints(session);
  return results;
}

/**
 * Runs statements like {@link runTransaction}, but once for each Idempotency-Key, and never as a trial. The reply is committed with the statements,
 * so its duration lacks the time that COMMIT takes.
 * @throws as {@link runTransaction} and {@link once}
 */
export function runTransactionOnce(lease: Lease, request: TransactionRequest, repeatable: IdempotentRequest): Promise<OnceReply> {
  return once(lease, request, repeatable, async (session, keep) => {
    const startedAt = performance.now();
    const { body, results: outcomes } = await perform(session, request, async () => {
      const results = await runBatch(session, request.statements, jsonFormat(request.rowMode), keptReplyLimit(session));
      const reply = replyOf(results, startedAt, request);
      await keep(200, reply.body);
      return reply;
    });
    return { status: 200, body, outcomes };
  });
}

async function perform<T>(session: SqlSession, request: TransactionRequest, work: () => Promise<T>): Promise<T> {
  await checkStatements(request.statements);
  const sideEffects = new SideEffectsCache();
  await Promise.all([setOutputSettings(session), session.expect(...request.statements.map(({ sql }) => sideEffects.of(sql)))]);
  const { settings, rollback } = request;
  const workWithSettings = async () => {
    if (settings !== undefined) await setLocally(session, settings);
    return work();
  };
  return inTransaction(session, beginStatement(request), workWithSettings, rollback === true ? 'ROLLBACK' : 'COMMIT');
}

function replyOf(results: readonly BatchResult[], startedAt: number, { rollback }: TransactionRequest): TransactionReply {
  const { durationMs } = outcomeOf(undefined, startedAt);
  const bodies = results.flatMap(({ body }, index) => (index === 0 ? [body] : [COMMA, body]));
  const end = Buffer.from(`],"status":"${rollback === true ? 'rolled_back' : 'committed'}","durationMs":${durationMs}}`);
  return { body: Buffer.concat([OPENING, ...bodies, end]), results: results.map(({ outcome }) => outcome), durationMs };
}

const OPENING = Buffer.from('{"results":[');
const COMMA = Buffer.from(',');

async function checkStatements(statements: readonly BatchStatement[]): Promise<void> {
  if (statements.length === 0 || statements.length > STATEMENTS_MAX) {
    throw new ServiceError('invalid_request', `statements must have 1 to ${STATEMENTS_MAX} entries`);
  }
  const slices = new TimeSlices();
  for (const [statementIndex, { sql, params = [] }] of statements.entries()) {
    const pause = slices.pause();
    if (pause !== undefined) await pause;
    try {
      checkStatement(sql, 'transaction');
      checkParameterLimit(params);
    } catch (error) {
      throw failureAt(error, { phase: 'statement', statementIndex });
    }
  }
}

export type IsolationLevel = 'read uncommitted' | 'read committed' | 'repeatable read' | 'serializable';

export interface TransactionModes {
  readonly isolationLevel?: IsolationLevel;
  readonly readOnly?: boolean;
  readonly deferrable?: boolean;
}

/**
 * Makes the BEGIN of a transaction. In a READ ONLY one a SELECT takes a snapshot, after which nothing can make it READ WRITE again.
 * @see https://www.postgresql.org/docs/current/sql-set-transaction.html
 */
export function beginStatement({ isolationLevel, readOnly, deferrable }: TransactionModes): string {
  const modes = [
    isolationLevel && `ISOLATION LEVEL ${isolationLevel.toUpperCase()}`,
    readOnly !== undefined && (readOnly ? 'READ ONLY' : 'READ WRITE'),
    deferrable !== undefined && (deferrable ? 'DEFERRABLE' : 'NOT DEFERRABLE'),
  ];
  return `BEGIN ${modes.filter(Boolean).join(', ')}${readOnly ? '; SELECT' : ''}`;
}
