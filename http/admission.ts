import type { FastifyInstance, FastifyRequest, RequestPayload } from 'fastify';
import { requestsOf } from '../src/catalog/limits.ts';
import type { Config } from '../src/config.ts';
import { ServiceError } from '../src/errors.ts';
import type { Tenant } from '../src/router/lease.ts';
import type { CountLimit } from '../src/runtime/count-limit.ts';
import { type MemoryBounds, type MemoryBudget, MemoryReservation } from '../src/runtime/memory-budget.ts';
import { burstOf, LocalRate, type RateLimit } from '../src/runtime/token-buckets.ts';
import type { ConnectionLimit } from './connection-limit.ts';
import type { RateLeft, RequestContext } from './request-context.ts';

type AdmittedTenant = Pick<Tenant, 'limitsId'> & { readonly organization: Pick<Tenant['organization'], 'id' | 'limits'> };

/** Where admission notes what is left. */
type AdmittedCall = Pick<RequestContext, 'rate'>;

/**
 * Limits the requests of one organization in progress, and in a second. Admitted requests wait for a database session in the pool, which
 * serves the organization with the fewest sessions first.
 */
export class Admission {
  readonly #limit: CountLimit;
  readonly #rates: RateLimit;
  readonly #underWay = new Map<string, { count: number }>();

  /** @param limit of each organization @param rates of those that have a limit for them */
  constructor(limit: CountLimit, rates: RateLimit = new LocalRate()) {
    this.#limit = limit;
    this.#rates = rates;
  }

  /** How many are in progress, of all organizations. */
  get requests(): number {
    return [...this.#underWay.values()].reduce((sum, { count }) => sum + count, 0);
  }

  /** How many of one organization are in progress. */
  requestsOf(organizationId: string): number {
    return this.#underWay.get(organizationId)?.count ?? 0;
  }

  /**
   * @returns a function that ends the admission; undefined if it is not known at once whether the request is admitted: {@link enter} tells
   * @throws ServiceError `rate_limited`
   */
  tryEnter(tenant: AdmittedTenant, call: AdmittedCall): (() => void) | undefined {
    const { limitsId, organization } = tenant;
    if (!this.#limit.tryEnter(limitsId, requestsOf(organization, this.#limit.max))) return undefined;
    const perSecond = organization.limits.requestsPerSecond;
    if (perSecond === null) return this.#entered(tenant);
    const left = this.#rates.tryTake(limitsId, perSecond);
    if (left === undefined) {
      this.#limit.leave(limitsId);
      return undefined;
    }
    return this.#taken(tenant, call, perSecond, left);
  }

  /**
   * @returns a function that ends the admission
   * @throws ServiceError `too_many_requests`, `rate_limited`
   */
  async enter(tenant: AdmittedTenant, call: AdmittedCall): Promise<() => void> {
    const { limitsId, organization } = tenant;
    const max = requestsOf(organization, this.#limit.max);
    if (!(await this.#limit.enter(limitsId, { max }))) throw tooMany(max);
    const perSecond = organization.limits.requestsPerSecond;
    return perSecond === null ? this.#entered(tenant) : this.#taken(tenant, call, perSecond, await this.#rates.take(limitsId, perSecond));
  }

  #taken(tenant: AdmittedTenant, call: AdmittedCall, perSecond: number, left: number): () => void {
    call.rate = { perSecond, left: Math.max(0, left) };
    if (left >= 0) return this.#entered(tenant);
    this.#limit.leave(tenant.limitsId);
    throw tooFast(perSecond);
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

/**
 * What is said of a limit for requests in a second. The window is the time in which an empty bucket fills.
 * @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
 */
export function rateHeaders({ perSecond, left }: RateLeft): Readonly<Record<string, string>> {
  const burst = burstOf(perSecond);
  return {
    'ratelimit-policy': `"requests";q=${burst};w=${Math.ceil(burst / perSecond)}`,
    ratelimit: `"requests";r=${left};t=${NEXT_S}`,
  };
}

/** In so many seconds there is one more. */
const NEXT_S = 1;

function tooFast(perSecond: number): ServiceError {
  return new ServiceError('rate_limited', `the organization may send ${perSecond} requests in a second`, {
    hint: 'Send fewer, or several statements in one: POST /api/transaction.',
    retryAfterS: NEXT_S,
  });
}

/** The limits for requests. */
interface RequestLimits {
  readonly admission: Admission;
  readonly connections: Pick<ConnectionLimit, 'authenticated'>;
  readonly bodies: MemoryBudget;
  readonly results: MemoryBudget;
}

/** Runs before the body is read, so that the bodies of many requests cannot fill the memory. */
export function limitRequests(app: FastifyInstance, { admission, connections, bodies, results }: RequestLimits): void {
  // The first hook after authentication, and the last before the body.
  app.addHook('preParsing', (request, reply, body, done) => {
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
      const leave = admission.tryEnter(one, call);
      if (leave === undefined) return admission.enter(one, call).then((entered) => admitted(one.limitsId, entered));
      admitted(one.limitsId, leave);
      return undefined;
    };
    // Also of a request that is refused.
    const tell = () => {
      if (call.rate !== undefined) reply.headers(rateHeaders(call.rate));
    };
    try {
      if (call.disconnect.reason !== undefined) throw call.disconnect.reason;
      if (tenant !== undefined) connections.authenticated(request.raw.socket, tenant.limitsId);
      const admitting = tenant === undefined ? undefined : admit(tenant);
      if (admitting === undefined) {
        tell();
        done();
      } else admitting.finally(tell).then(() => done(), done);
    } catch (error) {
      tell();
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

type BodySettings = Pick<Config, 'POSTERN_HTTP_BODY_MAX_BYTES' | 'POSTERN_HTTP_BODIES_PER_TENANT_BYTES' | 'POSTERN_HTTP_BODIES_BYTES'>;

/** The settings, or multiples of the largest body. One body of the largest size is always allowed, while as much is left for others. */
export function bodyBoundsOf({
  POSTERN_HTTP_BODY_MAX_BYTES: largest,
  POSTERN_HTTP_BODIES_PER_TENANT_BYTES: perTenantBytes,
  POSTERN_HTTP_BODIES_BYTES: allBytes,
}: BodySettings): MemoryBounds {
  return {
    perOrganizationBytes: Math.max(perTenantBytes || 4 * largest, largest),
    allBytes: Math.max(allBytes || 16 * largest, 2 * largest),
  };
}

/**
 * Sets how many bytes of a client's input are held. Small amounts are not counted, because the number of requests and
 * WebSockets is limited.
 * @throws ServiceError `too_many_requests`
 */
export function holdBody(held: MemoryReservation, bytes: number): void {
  const full = held.tryResize(bytes);
  if (full === 'its own') throw tooLarge("the organization's in-flight requests exceed the memory limit");
  if (full === 'all') throw tooLarge('in-flight requests exceed the memory limit');
}

/** Counts a body by its Content-Length at once, or without one as it is received. */
function countBody({ call, headers, routeOptions }: FastifyRequest, body: RequestPayload, id: string, bodies: MemoryBudget): void {
  const held = new MemoryReservation(bodies, id);
  call.body = held;
  const length = Number(headers['content-length']);
  if (length <= routeOptions.bodyLimit) holdBody(held, length);
  if (headers['transfer-encoding'] === undefined) return;
  const come = ({ length }: Buffer) => {
    try {
      // Without a reader the body is discarded.
      if (body.listenerCount('error') > 0) holdBody(held, held.bytes + length);
    } catch (error) {
      body.off('data', come);
      body.emit('error', error);
    }
  };
  body.on('data', come);
}

function tooLarge(message: string): ServiceError {
  return new ServiceError('too_many_requests', message, { hint: 'Wait for some of them to end, or send less at once.', retryAfterS: 1 });
}
