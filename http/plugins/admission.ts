import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../src/errors.ts';

/**
 * How many requests of one organization may be under way. Those that are let in wait their turn for a database session in
 * the pool, where the organization with the fewest sessions goes first. Decided before the body is read, so that a crowd of
 * requests does not fill the memory with theirs.
 */
export function limitRequests(app: FastifyInstance, maxPerTenant: number): void {
  const underWay = new Map<string, { count: number }>();
  // The first hook behind authentication, and the last before the body.
  app.addHook('preParsing', ({ call }, _reply, _body, done) => {
    const id = call.tenant?.organization.id;
    if (id === undefined) {
      done();
      return;
    }
    const crowd = underWay.get(id) ?? { count: 0 };
    if (crowd.count >= maxPerTenant) {
      done(tooMany(crowd.count));
      return;
    }
    underWay.set(id, crowd);
    crowd.count += 1;
    call.leave = () => {
      crowd.count -= 1;
      if (crowd.count === 0) underWay.delete(id);
    };
    done();
  });
}

function tooMany(count: number): ServiceError {
  return new ServiceError('too_many_requests', `the organization has as many requests under way as it may have: ${count}`, {
    hint: 'Wait for some of them to end.',
    retryAfterS: 1,
  });
}
