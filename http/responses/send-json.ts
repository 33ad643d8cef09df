import type { FastifyReply, FastifyRequest } from 'fastify';
import { keepResults } from '../../src/sql/result-budget.ts';
import { JSON_TYPE } from './media-types.ts';

/**
 * Sends a JSON document that may be large. Until the client has received it, it counts with the organization's results in memory.
 * @throws ServiceError `too_many_requests`
 */
export function sendJson({ call }: FastifyRequest, reply: FastifyReply, document: object): FastifyReply {
  const body = Buffer.from(JSON.stringify(document));
  const refusal = keepResults(call.results, body.length);
  if (refusal !== undefined) throw refusal;
  return reply.type(JSON_TYPE).send(body);
}
