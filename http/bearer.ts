import type { FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify';
import { digestText } from '../src/auth/tokens.ts';
import { ServiceError } from '../src/errors.ts';
import type { Authenticator } from '../src/router/authenticator.ts';
import type { Tenant } from '../src/router/lease.ts';
import { warnOfReplacement } from './headers.ts';

/** What is needed to authenticate a key. */
export type KeyRing = Pick<Authenticator, 'authenticate' | 'recognize'>;

/** Authenticates a call by its key. Runs before the body is read, so that no body of an unauthenticated client is read. */
export function requireBearer(authenticator: KeyRing): onRequestHookHandler {
  return (request, reply, done) => {
    let known: Tenant | undefined;
    try {
      known = authenticator.recognize(digestText(bearerToken(request.headers.authorization)), () => request.call.origin.sourceIp);
    } catch (error) {
      done(error as Error);
      return;
    }
    request.call.tenant = known;
    if (known !== undefined) {
      warnOfReplacement(known, reply);
      done();
    } else authenticateBearer(authenticator, request, reply).then(() => done(), done);
  };
}

/**
 * Authenticates by `Authorization: Bearer <API key>`.
 * @see https://www.rfc-editor.org/rfc/rfc6750#section-2.1
 */
export async function authenticateBearer(authenticator: KeyRing, { headers, call }: FastifyRequest, reply: FastifyReply): Promise<void> {
  call.tenant = await authenticator.authenticate({ kind: 'bearer', apiKey: bearerToken(headers.authorization) }, call.origin);
  warnOfReplacement(call.tenant, reply);
}

/** Whose key a request has, if it is one that is in memory. */
export function recognizeBearer(
  authenticator: Pick<KeyRing, 'recognize'>,
  authorization: string | undefined,
  sourceIp: string,
): Tenant | undefined {
  const token = authorization === undefined ? undefined : bearerTokenOf(authorization);
  return token === undefined ? undefined : authenticator.recognize(digestText(token), () => sourceIp);
}

function bearerToken(authorization: string | undefined): string {
  if (authorization === undefined) throw MISSING;
  const token = bearerTokenOf(authorization);
  if (token === undefined) throw MALFORMED;
  return token;
}

/** Made once, because making an error with its stack takes longer than the rest of a refusal. */
export const MISSING = new ServiceError('unauthorized', 'an API key is needed, sent as "Authorization: Bearer <API key>"');
export const MALFORMED = new ServiceError('unauthorized', 'the Authorization header must read "Bearer <API key>"');
/** The authenticator's message. */
export const INVALID = new ServiceError('unauthorized', 'the API key is not valid');

/** @returns undefined if the header has another scheme or is malformed */
export function bearerTokenOf(authorization: string): string | undefined {
  return /^Bearer +([A-Za-z0-9._~+/-]+=*) *$/i.exec(authorization)?.[1];
}
