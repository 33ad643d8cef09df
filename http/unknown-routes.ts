import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../src/errors.ts';
import { preflightHeaders } from './headers.ts';
import { pathOf } from './problems.ts';
import { suggestPath } from './validation.ts';

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
export function refuseUnknownRoutes(app: FastifyInstance): void {
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
    done(new ServiceError('method_not_allowed', `${request.method} is not allowed for ${path}; allowed: ${allow}`));
  });
}

/** @param meant the path that the client may have meant */
export function noRoute(path: string, meant: string | undefined): ServiceError {
  const question = meant === undefined ? '' : `Did you mean ${meant}? `;
  return new ServiceError('not_found', `there is nothing at ${path}`, { hint: `${question}GET /docs lists every operation.` });
}
