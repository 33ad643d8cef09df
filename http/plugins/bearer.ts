import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../src/errors.ts';
import type { Router } from '../../src/router/router.ts';
import type { Tenant } from '../../src/router/tenant.ts';

/**
 * Who calls, by `Authorization: Bearer <API key>`. Runs before the body is read, so that nobody unknown makes us take one in.
 * @see https://www.rfc-editor.org/rfc/rfc6750#section-2.1
 */
export function authenticateBearer(router: Pick<Router, 'authenticate'>): (request: FastifyRequest) => Promise<void> {
  return async ({ headers, call }) => {
    call.tenant = await router.authenticate({ kind: 'bearer', apiKey: bearerToken(headers.authorization) }, call.origin);
  };
}

function bearerToken(authorization: string | undefined): string {
  if (authorization === undefined)
    throw new ServiceError('unauthorized', 'an API key is needed, sent as "Authorization: Bearer <API key>"');
  const token = /^Bearer +([A-Za-z0-9._~+/-]+=*) *$/i.exec(authorization)?.[1];
  if (token === undefined) throw new ServiceError('unauthorized', 'the Authorization header must read "Bearer <API key>"');
  return token;
}

/** The authenticated caller of an operation that needs a key. */
export function tenantOf({ call }: FastifyRequest): Tenant {
  if (call.tenant === undefined) throw new ServiceError('internal', 'an operation that needs a key ran without authentication');
  return call.tenant;
}
