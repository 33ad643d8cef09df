import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../src/errors.ts';

/** @see https://www.rfc-editor.org/rfc/rfc9112#section-3.2 */
export function requireHost(app: FastifyInstance): void {
  app.addHook('onRequest', ({ headers, raw }, reply, done) => {
    if (headers.host !== undefined || raw.httpVersion !== '1.1') {
      done();
      return;
    }
    // Who leaves it out may be wrong about where its requests end, too.
    reply.raw.shouldKeepAlive = false;
    done(new ServiceError('invalid_request', 'the request has no Host header'));
  });
}
