import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../src/errors.ts';
import type { Tenant } from '../../src/router/lease.ts';
import type { CountLimit } from '../../src/runtime/count-limit.ts';
import { type MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import type { ConnectionLimit } from '../connections/connection-limit.ts';
import { countBody } from './body-memory.ts';

type AdmittedTenant = Pick<Tenant, 'limitsId'> & { readonly organization: Pick<Tenant['organization'], 'id'> };

/**
 * Limits the requests of one organization in progress. Admitted requests wait for a database session in the pool, which
 * serves the organization with the fewest sessions first.
 */
export class Admission {
  readonly #limit: CountLimit;
  readonly #underWay = new Map<string, { count: number }>();

  /** @param limit of each organization */
  constructor(limit: CountLimit) {
    this.#limit = limit;
  }

  /** How many are in progress, of all organizations. */
  get requests(): number {
    return [...this.#underWay.values()].reduce((sum, { count }) => sum + count, 0);
  }

  /** How many of one organization are in progress. */
  requestsOf(organizationId: string): number {
    return this.#underWay.get(organizationId)?.count ?? 0;
  }

  /** @returns a function that ends the admission; undefined if it is not known at once whether the request is admitted: {@link enter} tells */
  tryEnter(tenant: AdmittedTenant): (() => void) | undefined {
    return this.#limit.tryEnter(tenant.limitsId) ? this.#entered(tenant) : undefined;
  }

  /**
   * @returns a function that ends the admission
   * @throws ServiceError `too_many_requests`
   */
  async enter(tenant: AdmittedTenant): Promise<() => void> {
    if (!(await this.#limit.enter(tenant.limitsId))) throw tooMany(this.#limit.max);
    return this.#entered(tenant);
  }

  #entered({ limitsId, organization: { id: organizationId } }: AdmittedTenant): () => void {
    const underWay = this.#underWay.get(organizationId) ?? { count: 0 };
    if (underWay.count === 0) this.#underWay.set(organizationId, underWay);
    underWay.count += 1;
    return () => {
      this.#limit.leave(limitsId);
      underWay.count -= 1;
      if (underWay.count === 0) this.#underWay.delete(organizationId);
    };
  }
}

/** The limits for requests. */
export interface RequestLimits {
  readonly admission: Admission;
  readonly connections: Pick<ConnectionLimit, 'authenticated'>;
  readonly bodies: MemoryBudget;
  readonly results: MemoryBudget;
}

/** Runs before the body is read, so that the bodies of many requests cannot fill the memory. */
export function limitRequests(app: FastifyInstance, { admission, connections, bodies, results }: RequestLimits): void {
  // The first hook after authentication, and the last before the body.
  app.addHook('preParsing', (request, _reply, body, done) => {
    const { call } = request;
    const { tenant } = call;
    const admitted = (id: string, leave: () => void) => {
      // The admission ends when the client disconnects, so a client that has already disconnected is not admitted.
      if (call.disconnect.reason !== undefined) {
        leave();
        throw call.disconnect.reason;
      }
      call.leave = leave;
      call.results = new MemoryReservation(results, id);
      call.compressor = new MemoryReservation(results, id);
      countBody(request, body, id, bodies);
    };
    const admit = (one: Tenant): Promise<void> | undefined => {
      const leave = admission.tryEnter(one);
      if (leave === undefined) return admission.enter(one).then((entered) => admitted(one.limitsId, entered));
      admitted(one.limitsId, leave);
      return undefined;
    };
    try {
      if (call.disconnect.reason !== undefined) throw call.disconnect.reason;
      if (tenant !== undefined) connections.authenticated(request.raw.socket, tenant.limitsId);
      const admitting = tenant === undefined ? undefined : admit(tenant);
      if (admitting === undefined) done();
      else admitting.then(() => done(), done);
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
