import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Tenant } from '../../src/router/lease.ts';
import type { Cors } from './cors.ts';

/** Adds the headers to every reply, also to those without a route. */
export function setHeadersAlways(app: FastifyInstance, cors?: Cors): void {
  app.addHook('onRequest', (request, reply, done) => {
    setHeaders(request, reply, cors);
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
 * Caches must not store replies, because these contain keys or data of an organization.
 * @see https://www.rfc-editor.org/rfc/rfc9111#section-5.2.2.5
 */
export function setHeaders({ id, headers }: Pick<FastifyRequest, 'id' | 'headers'>, reply: FastifyReply, cors: Cors | undefined): void {
  reply.header('x-request-id', id).headers(ALWAYS);
  const forPages = cors?.(headers.origin);
  if (forPages !== undefined) reply.headers(forPages);
}

/** Says in the reply that another key takes the place of this one. */
export function warnOfReplacement(tenant: Tenant, reply: FastifyReply): void {
  if (tenant.key.replacedBy !== null) reply.headers(replacementHeaders(tenant));
}

/** Empty for most keys. */
export function replacementHeaders({ key: { replacedBy, expiresAt } }: Tenant): Readonly<Record<string, string>> {
  return replacedBy === null ? NONE : { 'api-key-replaced-by': `${replacedBy}; until="${expiresAt?.toISOString() ?? ''}"` };
}

const NONE: Readonly<Record<string, string>> = {};
