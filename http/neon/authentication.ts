import type { FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../src/errors.ts';
import type { Origin } from '../../src/observation.ts';
import type { Authenticator } from '../../src/router/authenticator.ts';
import { requireDatabase, type Tenant } from '../../src/router/lease.ts';
import { authenticateBearer, type KeyRing } from '../plugins/bearer.ts';
import { warnOfReplacement } from '../plugins/reply-headers.ts';
import { type ConnectionString, parseConnectionString } from './connection-string.ts';

/**
 * Authenticates a call by `Authorization: Bearer <API key>`, or by the user and password of the connection string in
 * `Neon-Connection-String`. Runs before the body is read.
 */
export function authenticateNeon(authenticator: KeyRing): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  return async (request, reply) => {
    const { call, headers } = request;
    const text = headers['neon-connection-string'];
    const connection = typeof text === 'string' ? parseConnectionString(text) : undefined;
    if (connection?.applicationName !== undefined) call.origin = { ...call.origin, applicationName: connection.applicationName };
    if (headers.authorization !== undefined) await authenticateBearer(authenticator, request, reply);
    else {
      call.tenant = await byPassword(authenticator, connection, call.origin);
      warnOfReplacement(call.tenant, reply);
    }
  };
}

/** As at the wire door, user and database are the organization's id. */
async function byPassword(
  authenticator: Pick<Authenticator, 'authenticate'>,
  connection: ConnectionString | undefined,
  origin: Origin,
): Promise<Tenant> {
  if (connection?.password === undefined) {
    throw new ServiceError('unauthorized', 'an API key is needed, as password in the Neon-Connection-String header or as bearer token');
  }
  const { user, password, database } = connection;
  const tenant = await authenticator.authenticate({ kind: 'password', user, apiKey: password }, origin);
  requireDatabase(tenant, database);
  return tenant;
}
