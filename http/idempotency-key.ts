import { createHash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import * as z from 'zod';
import { ServiceError } from '../src/errors.ts';
import type { IdempotentRequest, OnceReply } from '../src/sql/idempotency.ts';
import { keepResults } from '../src/sql/result-budget.ts';
import { CSV_TYPE, JSON_TYPE, LINES_TYPE } from './headers.ts';

export const IDEMPOTENCY_HEADERS = {
  'Idempotency-Key': z
    .string()
    .regex(/^[!-~]+$/)
    .max(255)
    .exactOptional()
    .describe(
      '1 to 255 visible ASCII characters, new for each request. A request that is sent again with the same key within 24 hours is not carried out again: it gets the reply that was given when it was, which is committed together with what it did. What has failed has left no trace, and is tried again; only a migration without a transaction leaves what came before the failure. Replies of more than 1 MiB are refused. Has no effect with readOnly, rollback and dryRun, where nothing is done, and with read keys. Data keys are refused with it.',
    ),
};

export const REPLAYED_HEADER = { 'Idempotency-Replayed': 'true when nothing was done now, because it has been before' };

/** Computes the digest of a request with a key, before its body is parsed. */
export function takeIdempotencyFingerprint({ headers, method, url, call }: FastifyRequest, body: Buffer): void {
  if (headers['idempotency-key'] === undefined) return;
  call.fingerprint = createHash('sha256').update(`${method} ${url}\n`).update(body).digest('hex');
}

/**
 * The idempotent request, if it has an `Idempotency-Key`.
 * @param contentType the media type of the reply
 * @throws ServiceError `invalid_request`
 * @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
 */
export function idempotentRequest({ headers, call }: FastifyRequest, contentType: string): IdempotentRequest | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || !/^[!-~]{1,255}$/.test(key)) {
    throw new ServiceError('invalid_request', 'Idempotency-Key: must be 1 to 255 visible ASCII characters');
  }
  const scope = call.tenant?.key.scope;
  // A read key changes nothing.
  if (scope === 'read') return undefined;
  // Whoever keeps replies in a table may read all that are in it, and may put in what others are answered.
  if (scope === 'data') {
    throw new ServiceError('invalid_request', 'Idempotency-Key: a key with the scope data has no table in which replies could be kept', {
      hint: 'Put an id of the request into a column with a UNIQUE constraint, with INSERT … ON CONFLICT DO NOTHING.',
    });
  }
  call.isRepeatable = true;
  return { key, fingerprint: call.fingerprint ?? '', contentType };
}

/**
 * Sends the reply, or a stored one. A stored reply is in a table of the organization, which may have changed it, so only known values
 * of status and media type are sent: with a status of 101, a proxy that other clients share would treat the connection as upgraded.
 * If a replay would exceed the memory limit, it is refused and may be requested again.
 */
export function sendNewOrReplayed(reply: FastifyReply, { status, contentType, body, isReplay }: OnceReply): FastifyReply {
  if (isReplay) {
    const refusal = keepResults(reply.request.call.results, body.length);
    if (refusal !== undefined) throw refusal;
    reply.header('idempotency-replayed', 'true');
  }
  return reply
    .code(status === 201 ? 201 : 200)
    .type(contentType === LINES_TYPE || contentType === CSV_TYPE ? contentType : JSON_TYPE)
    .send(body);
}
