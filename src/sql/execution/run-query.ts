import { ServiceError } from '../../errors.ts';
import type { Lease } from '../../router/lease.ts';
import { checkStatement } from '../../syntax/http-restrictions.ts';
import { sideEffectsOf } from '../../syntax/side-effects.ts';
import { checkParameterLimit } from '../parameters/encode-parameters.ts';
import { jsonFormat } from '../result/formats/json-format.ts';
import { ReplyBody } from '../result/reply-body.ts';
import type { StatementOutcome } from '../result/statement-outcome.ts';
import { setOutputSettings } from '../session/output-settings.ts';
import { SqlSession } from '../session/sql-session.ts';
import { withHint } from './error-hint-and-detail.ts';
import { findStatement, forgetIfStale } from './known-statements.ts';
import type { QueryReply, QueryRequest } from './query-request-and-reply.ts';
import { runStatement } from './run-described.ts';
import { PreparedRun } from './run-prepared.ts';
import { StatementFailure } from './statement-failure.ts';
import { runBatch } from './transactions/batch.ts';
import { type IdempotentRequest, type KeepReply, keptReplyLimit, type OnceReply, once } from './transactions/idempotency.ts';
import { inTransaction } from './transactions/in-transaction.ts';

export interface QueryOnceReply extends OnceReply {
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
  const { sql, params = [], rowMode, format = jsonFormat(rowMode) } = request;
  const perform = async (session: SqlSession, keep: KeepReply) => {
    checkStatement(sql, 'single');
    checkParameterLimit(params);
    const work = async () => {
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
