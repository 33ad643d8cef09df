import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

/** Puts the headers on every reply that a route, or the lack of one, gives. */
export function setHeadersAlways(app: FastifyInstance): void {
  app.addHook('onRequest', (request, reply, done) => {
    setHeaders(request, reply);
    done();
  });
}

export const ALWAYS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
};

/**
 * Nothing is to be kept by caches: replies carry keys or data of an organization.
 * @see https://www.rfc-editor.org/rfc/rfc9111#section-5.2.2.5
 */
export function setHeaders(request: Pick<FastifyRequest, 'id'>, reply: FastifyReply): void {
  reply.header('x-request-id', request.id).headers(ALWAYS);
}
