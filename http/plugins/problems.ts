import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Observe } from '../../src/observation.ts';
import { type RenderedError, renderError } from '../errors.ts';
import type { RequestContext } from '../request-context.ts';
import { errorBody } from '../responses/reply-memory.ts';
import { type RefusalCounter, throttleRefusal } from './refusals/refusal-throttle.ts';

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

export function sendProblem(error: unknown, request: FastifyRequest, reply: FastifyReply, observe: Observe): FastifyReply {
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
export interface FailedRequest {
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
  const isReader = tenant?.key.scope === 'read';
  const rendered = renderError(error, {
    requestId,
    path,
    withCredentials,
    sql: statement?.sql,
    atomic,
    isRepeatable,
    isReader,
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
