import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../src/errors.ts';

/**
 * How many requests of one organization may be under way. Those that are let in wait their turn for a database session in
 * the pool, where the organization with the fewest sessions goes first. Decided before the body is read, so that a crowd of
 * requests does not fill the memory with theirs.
 */
export function limitRequests(app: FastifyInstance, maxPerTenant: number): void {
  const underWay = new Map<string, number>();
  // The first hook behind authentication, and the last before the body.
  app.addHook('preParsing', async ({ call }, reply) => {
    const id = call.tenant?.organization.id;
    if (id === undefined) return;
    const count = underWay.get(id) ?? 0;
    if (count >= maxPerTenant) throw tooMany(count);
    underWay.set(id, count + 1);
    reply.raw.on('close', () => {
      const left = (underWay.get(id) ?? 1) - 1;
      if (left > 0) underWay.set(id, left);
      else underWay.delete(id);
    });
  });
}

function tooMany(count: number): ServiceError {
  return new ServiceError('too_many_requests', `the organization has as many requests under way as it may have: ${count}`, {
    hint: 'Wait for some of them to end.',
    retryAfterS: 1,
  });
}
