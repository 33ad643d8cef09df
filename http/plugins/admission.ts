import type { FastifyInstance, FastifyRequest, RequestPayload } from 'fastify';
import type { Config } from '../../src/config.ts';
import { ServiceError } from '../../src/errors.ts';
import { type MemoryBounds, MemoryBudget } from '../../src/runtime/memory-budget.ts';
import { ResultReservation } from '../../src/sql/result/result-budget.ts';
import type { ConnectionLimit } from '../connections/connection-limit.ts';

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
    const underWay = this.#underWay.get(organizationId) ?? { count: 0 };
    if (underWay.count >= this.#maxPerTenant) throw tooMany(underWay.count);
    if (underWay.count === 0) this.#underWay.set(organizationId, underWay);
    underWay.count += 1;
    return () => {
      underWay.count -= 1;
      if (underWay.count === 0) this.#underWay.delete(organizationId);
    };
  }
}

/** Smaller bodies are not counted: of those there are no more than requests, and WebSockets, may be under way. */
export const UNCOUNTED_MAX_BYTES = 65_536;

type BodySettings = Pick<Config, 'POSTERN_HTTP_BODY_MAX_BYTES' | 'POSTERN_HTTP_BODIES_PER_TENANT_BYTES' | 'POSTERN_HTTP_BODIES_BYTES'>;

/** As set, or a multiple of the largest body. Where there is nobody else there is room for that, and for as much again that is left. */
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

/** Counts the bytes of bodies of requests under way, and of frames. */
export class BodyBudget {
  readonly #room: MemoryBudget;

  constructor(bounds: MemoryBounds) {
    this.#room = new MemoryBudget(bounds);
  }

  /** @throws ServiceError `too_many_requests` */
  take(organizationId: string, bytes: number): void {
    const full = this.#room.exhaustedBy(organizationId, bytes);
    if (full === 'its own') throw tooLarge("the organization's requests under way are as large as they may be together");
    if (full === 'all') throw tooLarge('the requests under way are as large as there is room for');
    this.#room.count(organizationId, bytes);
  }

  giveBack(organizationId: string, bytes: number): void {
    this.#room.count(organizationId, -bytes);
  }
}

/** What requests count in. */
export interface RequestLimits {
  readonly admission: Admission;
  readonly connections: Pick<ConnectionLimit, 'authenticated'>;
  readonly bodies: BodyBudget;
  readonly results: MemoryBudget;
}

/** Decided before the body is read, so that many requests do not fill the memory with their bodies. */
export function limitRequests(app: FastifyInstance, { admission, connections, bodies, results }: RequestLimits): void {
  // The first hook behind authentication, and the last before the body.
  app.addHook('preParsing', (request, _reply, body, done) => {
    const { call } = request;
    const id = call.tenant?.organization.id;
    try {
      // What is taken is given back when the client goes: it must not have gone before.
      if (call.disconnect.hasHappened) throw new ServiceError('query_canceled', 'the caller has gone away');
      if (id !== undefined) {
        connections.authenticated(request.raw.socket, id);
        call.leave = admission.enter(id);
        call.results = new ResultReservation(results, id);
        countBody(request, body, id, bodies);
      }
      done();
    } catch (error) {
      done(error as Error);
    }
  });
}

/** What has been told of a body's length counts at once, what has not as it comes. */
function countBody({ call, headers, routeOptions }: FastifyRequest, body: RequestPayload, id: string, room: BodyBudget): void {
  let counted = 0;
  const count = (bytes: number) => {
    room.take(id, bytes);
    counted += bytes;
    call.forget ??= () => room.giveBack(id, counted);
  };
  const length = Number(headers['content-length']);
  if (length > UNCOUNTED_MAX_BYTES && length <= routeOptions.bodyLimit) count(length);
  if (headers['transfer-encoding'] === undefined) return;
  const come = ({ length }: Buffer) => {
    try {
      // Without anybody who reads it, it is thrown away.
      if (body.listenerCount('error') > 0) count(length);
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

function tooMany(count: number): ServiceError {
  return new ServiceError('too_many_requests', `the organization has as many requests under way as it may have: ${count}`, {
    hint: 'Wait for some of them to end.',
    retryAfterS: 1,
  });
}
