import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../src/errors.ts';

/**
 * How many requests of one organization may be under way. Those that are let in wait their turn for a database session in
 * the pool, where the organization with the fewest sessions goes first.
 */
export class Admission {
  readonly #maxPerTenant: number;
  readonly #underWay = new Map<string, { count: number }>();

  constructor(maxPerTenant: number) {
    this.#maxPerTenant = maxPerTenant;
  }

  /**
   * @returns gives the place back
   * @throws ServiceError `too_many_requests`
   */
  enter(organizationId: string): () => void {
    const crowd = this.#underWay.get(organizationId) ?? { count: 0 };
    if (crowd.count >= this.#maxPerTenant) throw tooMany(crowd.count);
    if (crowd.count === 0) this.#underWay.set(organizationId, crowd);
    crowd.count += 1;
    return () => {
      crowd.count -= 1;
      if (crowd.count === 0) this.#underWay.delete(organizationId);
    };
  }
}

/** Decided before the body is read, so that a crowd of requests does not fill the memory with theirs. */
export function limitRequests(app: FastifyInstance, admission: Admission): void {
  // The first hook behind authentication, and the last before the body.
  app.addHook('preParsing', ({ call }, _reply, _body, done) => {
    try {
      if (call.tenant !== undefined) call.leave = admission.enter(call.tenant.organization.id);
      done();
    } catch (error) {
      done(error as Error);
    }
  });
}

function tooMany(count: number): ServiceError {
  return new ServiceError('too_many_requests', `the organization has as many requests under way as it may have: ${count}`, {
    hint: 'Wait for some of them to end.',
    retryAfterS: 1,
  });
}
