import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../src/errors.ts';
import type { Observe } from '../../src/observation.ts';
import { type RenderedError, renderError } from '../errors.ts';
import type { RequestContext } from '../request-context.ts';
import { type RefusalCounter, throttleRefusal } from '../responses/refusal-throttle.ts';
import { errorBody } from '../responses/reply-memory.ts';
import { suggestPath } from '../responses/suggestions.ts';
import { preflightHeaders } from './cors.ts';

const UNCOUNTED: RefusalCounter = { count: () => undefined };

/** Answers every error with `application/problem+json`. Unexpected errors are also logged in full. */
export function answerProblems(app: FastifyInstance, observe: Observe, refusals: RefusalCounter = UNCOUNTED): void {
  app.setErrorHandler((error, request, reply) => {
    const held = throttleRefusal(error, request.call, refusals);
    if (held === undefined) return sendProblem(error, request, reply, observe);
    reply.raw.shouldKeepAlive = false;
    return held.then((instead) => sendProblem(instead, request, reply, observe));
  });
  refuseRoutes(app);
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

/** The paths of routes, in which `:name` stands for any segment. */
export class PathPatterns {
  readonly #plain = new Set<string>();
  readonly #patterns = new Map<string, RegExp>();

  add(url: string): void {
    if (url.includes(':')) this.#patterns.set(url, new RegExp(`^${url.replaceAll(/:\w+/g, '[^/]+')}$`));
    else this.#plain.add(url);
  }

  /** Those without parameters. */
  get plain(): Iterable<string> {
    return this.#plain;
  }

  has(path: string): boolean {
    return this.find(path) !== undefined;
  }

  /** @returns the route's path */
  find(path: string): string | undefined {
    if (this.#plain.has(path)) return path;
    return [...this.#patterns].find(([, pattern]) => pattern.test(path))?.[0];
  }
}

/**
 * Answers 405 for other methods of an existing path (RFC 9110 section 15.5.6), answers OPTIONS, and 404 for other paths. It runs
 * before the body is read, so that unauthenticated callers cannot fill the memory with bodies.
 */
function refuseRoutes(app: FastifyInstance): void {
  const methods = new Map<string, Set<string>>();
  const paths = new PathPatterns();
  app.addHook('onRoute', ({ method, url }) => {
    const known = methods.get(url) ?? new Set(['OPTIONS']);
    for (const one of [method].flat()) known.add(one);
    methods.set(url, known);
    paths.add(url);
  });
  app.addHook('onRequest', (request, reply, done) => {
    if (!request.is404) {
      done();
      return;
    }
    const path = pathOf(request);
    const allow = [...(methods.get(paths.find(path) ?? path) ?? [])].sort().join(', ');
    if (allow === '') {
      done(noRoute(path, suggestPath(path, paths.plain)));
      return;
    }
    if (request.method === 'OPTIONS') {
      const isForPage = reply.hasHeader('access-control-allow-origin');
      reply
        .code(204)
        .headers(isForPage ? preflightHeaders(allow) : { allow })
        .send();
      return;
    }
    reply.header('allow', allow);
    done(new ServiceError('method_not_allowed', `${request.method} is not possible at ${path}; ${allow} are`));
  });
}

/** @param meant the path that the client may have meant */
export function noRoute(path: string, meant: string | undefined): ServiceError {
  const question = meant === undefined ? '' : `Did you mean ${meant}? `;
  return new ServiceError('not_found', `there is nothing at ${path}`, { hint: `${question}GET /docs lists every operation.` });
}

/** Clients may send the absolute URI, as to a proxy (RFC 9112 section 3.2.2). */
function pathOf(request: FastifyRequest): string {
  return request.url.replace(/^https?:\/\/[^/?#]*/i, '').split('?', 1)[0] ?? '';
}
