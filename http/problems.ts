import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ErrorKind, ServiceError } from '../src/errors.ts';
import type { Observe, ObservedStatement, Outcome } from '../src/observation.ts';
import type { Traces } from '../src/observers/traces.ts';
import type { Tenant } from '../src/router/lease.ts';
import { HOLD_MS, type RefusalLimit } from '../src/router/refusal-limit.ts';
import type { StatementOutcome } from '../src/sql/result-budget.ts';
import { ERRORS, type RenderedError, renderError, serviceError } from './errors.ts';
import { errorBody } from './reply-memory.ts';
import type { RequestContext } from './request-context.ts';

const UNCOUNTED: RefusalCounter = { count: () => undefined };

/** Answers every error with `application/problem+json`. Unexpected errors are also logged in full. */
export function answerProblems(app: FastifyInstance, observe: Observe, refusals: RefusalCounter = UNCOUNTED): void {
  app.setErrorHandler((error, request, reply) => {
    const held = throttleRefusal(error, request.call, refusals);
    if (held === undefined) return sendProblem(error, request, reply, observe);
    reply.raw.shouldKeepAlive = false;
    return held.then((instead) => sendProblem(instead, request, reply, observe));
  });
}

/**
 * Answers what Fastify refuses before a route and its hooks, with the origin that they would have found out.
 * @param tenant whose key it has, if it is one that is in memory
 */
export function answerRefusedByFastify(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  {
    observe,
    refusals,
    ...call
  }: Pick<RequestContext, 'origin' | 'tenant'> & { readonly observe: Observe; readonly refusals: RefusalCounter },
): void {
  const held = throttleRefusal(error, call, refusals);
  if (held === undefined) {
    sendProblem(error, request, reply, observe);
    return;
  }
  reply.raw.shouldKeepAlive = false;
  void held.then((instead) => sendProblem(instead, request, reply, observe));
}

function sendProblem(error: unknown, request: FastifyRequest, reply: FastifyReply, observe: Observe): FastifyReply {
  const { problem, headers } = problemOf(error, request, observe);
  // Fastify closes the connection when a body was refused; a client still sending would then lose the answer. Node
  // discards what remains of the body, for as long as the request timeout lets it. Once a header has been removed, even one
  // that was not there, Node says nothing of the connection.
  if (reply.raw.shouldKeepAlive && reply.hasHeader('connection')) reply.removeHeader('connection');
  return reply.code(problem.status).headers(headers).type('application/problem+json').send(errorBody(request.call, problem));
}

/** The problem document of an error. Internal and unexpected errors are logged. */
export function problemOf(error: unknown, request: FastifyRequest, observe: Observe): RenderedError {
  return problemFor(error, observe, {
    requestId: request.id,
    method: request.method,
    path: pathOf(request),
    withCredentials: request.headers.authorization !== undefined,
    call: request.call,
    maxBodyBytes: request.routeOptions.bodyLimit,
    isGone: request.socket.destroyed,
  });
}

/** What {@link problemFor} needs to know of a failed request. */
interface FailedRequest {
  readonly requestId: string;
  readonly method: string;
  readonly path: string;
  readonly withCredentials: boolean;
  readonly call: RequestContext | undefined;
  readonly maxBodyBytes: number;
  /** The client has disconnected. */
  readonly isGone: boolean;
}

/** As {@link problemOf}. */
export function problemFor(error: unknown, observe: Observe, request: FailedRequest): RenderedError {
  const { requestId, method, path, withCredentials, call, maxBodyBytes, isGone } = request;
  const { statement, atomic, isRepeatable, tenant } = call ?? {};
  const isOverQuota = tenant?.organization.diskState === 'read_only';
  const scope = tenant?.key.scope;
  const isRestricted = scope === 'read' || (scope === 'data' && !isOverQuota);
  const rendered = renderError(error, {
    requestId,
    path,
    withCredentials,
    sql: statement?.sql,
    atomic,
    isRepeatable,
    isRestricted,
    isOverQuota,
    maxBodyBytes,
  });
  const { problem, internal } = rendered;
  // If the client has disconnected, the error is a consequence and is not logged.
  if (internal && !isGone) observe({ name: 'service.failure', message: `${method} ${problem.instance} failed`, cause: error, requestId });
  if (call !== undefined && problem.sqlstate !== undefined) call.sqlstate = problem.sqlstate;
  return rendered;
}

/** Clients may send the absolute URI, as to a proxy (RFC 9112 section 3.2.2). */
export function pathOf(request: FastifyRequest): string {
  return request.url.replace(/^https?:\/\/[^/?#]*/i, '').split('?', 1)[0] ?? '';
}

/** The status for a client that disconnected before its reply began, as in nginx. */
const CLIENT_GONE = 499;

/** Reports the outcomes of calls that reached an operation. */
export class RequestOutcomes {
  readonly #observe: Observe;
  readonly #traces: Traces | undefined;
  readonly #unreported = new Set<Promise<void>>();

  /** @param traces makes spans of calls that run SQL */
  constructor(observe: Observe, traces?: Traces) {
    this.#observe = observe;
    this.#traces = traces;
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
    const { tenant, origin } = call;
    try {
      const statement = call.statement && observed(call.statement, ended);
      const outcome = outcomeOf(call, httpStatus, ended);
      this.#observe({
        name: 'http.request',
        action,
        origin,
        actor: tenant && actorOf(tenant),
        statement,
        outcome,
        traffic: tenant && call.traffic,
      });
      if (this.#traces !== undefined && tenant !== undefined && statement !== undefined) {
        const { placement } = tenant.organization;
        this.#traces.answered({ placement, ...outcome, ...statement, traceparent: call.traceparent });
      }
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

function outcomeOf(call: RequestContext, httpStatus: number, ended: StatementOutcome | undefined) {
  const ok = call.isReplySent && httpStatus < 400 && call.sqlstate === undefined;
  return {
    status: ok ? 'ok' : 'error',
    httpStatus,
    durationMs: Math.round((performance.now() - call.startedAt) * 1_000) / 1_000,
    sqlstate: call.sqlstate,
    rowCount: ended?.rowCount ?? undefined,
  } as const satisfies Outcome;
}

/** Counts refusals by the client's address. */
export type RefusalCounter = Pick<RefusalLimit, 'count'>;

/** The service cannot answer at the moment. An unexpected error is not meant: a request that causes one is like others that are wrong. */
function isOfTheService(kind: ErrorKind): boolean {
  return kind !== 'internal' && ERRORS[kind].status >= 500;
}

/**
 * Counts the refusal of a call without a valid key.
 * @returns resolves after a delay with the error to send instead, after which the connection is closed; undefined: no delay
 */
export function throttleRefusal(
  error: unknown,
  call: Pick<RequestContext, 'tenant' | 'origin'> | undefined,
  refusals: RefusalCounter,
): Promise<ServiceError> | undefined {
  if (call === undefined || call.tenant !== undefined || isOfTheService(serviceError(error).kind)) return undefined;
  const instead = refusals.count(call.origin.sourceIp);
  return instead && sleep(HOLD_MS, instead);
}
