import type { Observe, ObservedStatement, Outcome } from '../../src/observation.ts';
import type { Tenant } from '../../src/router/lease.ts';
import type { StatementOutcome } from '../../src/sql/result-budget.ts';
import { renderError } from '../errors.ts';
import type { RequestContext } from '../request-context.ts';

/** The status for a client that disconnected before its reply began, as in nginx. */
const CLIENT_GONE = 499;

/** Reports the outcomes of calls that reached an operation. */
export class RequestOutcomes {
  readonly #observe: Observe;
  readonly #unreported = new Set<Promise<void>>();

  constructor(observe: Observe) {
    this.#observe = observe;
  }

  /**
   * Called when the reply to a call is complete, or never will be.
   * @param httpStatus undefined if no reply had begun
   */
  add(action: string, call: RequestContext, httpStatus: number = CLIENT_GONE): void {
    if (call.outcome !== undefined) {
      this.#report(action, call, httpStatus, call.outcome);
      return;
    }
    const reporting = this.#reportLater(action, call, httpStatus).finally(() => this.#unreported.delete(reporting));
    this.#unreported.add(reporting);
  }

  /** Resolves when all calls have been reported; a statement may end after its reply. */
  async allReported(): Promise<void> {
    await Promise.all(this.#unreported);
  }

  async #reportLater(action: string, call: RequestContext, httpStatus: number): Promise<void> {
    this.#report(action, call, httpStatus, await endOf(call));
  }

  #report(action: string, call: RequestContext, httpStatus: number, ended: StatementOutcome | undefined): void {
    const { tenant, statement, origin } = call;
    try {
      this.#observe({
        name: 'http.request',
        action,
        origin,
        actor: tenant && actorOf(tenant),
        statement: statement && observed(statement, ended),
        outcome: outcomeOf(call, httpStatus, ended),
        traffic: tenant && call.traffic,
      });
    } catch (cause) {
      this.#observe({ name: 'service.failure', message: `the outcome of ${action} could not be reported`, cause });
    }
  }
}

/** The statement's outcome. If it fails after the reply has begun, its SQLSTATE is noted in the call. */
async function endOf(call: RequestContext): Promise<StatementOutcome | undefined> {
  try {
    await call.work;
    return await call.ended;
  } catch (error) {
    const { sqlstate } = renderError(error, { requestId: '', path: '', withCredentials: true }).problem;
    if (sqlstate !== undefined) call.sqlstate = sqlstate;
    return undefined;
  }
}

function actorOf({ organization, key }: Tenant) {
  return { organizationId: organization.id, keyId: key.id, keyPrefix: key.prefix };
}

function observed({ sql, command, paramCount }: ObservedStatement, ended: StatementOutcome | undefined): ObservedStatement {
  return { sql, command: ended?.command || command, paramCount };
}

function outcomeOf(call: RequestContext, httpStatus: number, ended: StatementOutcome | undefined): Outcome {
  const ok = call.isReplySent && httpStatus < 400 && call.sqlstate === undefined;
  return {
    status: ok ? 'ok' : 'error',
    httpStatus,
    durationMs: Math.round((performance.now() - call.startedAt) * 1_000) / 1_000,
    sqlstate: call.sqlstate,
    rowCount: ended?.rowCount ?? undefined,
  };
}
