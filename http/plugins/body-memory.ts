import type { FastifyRequest, RequestPayload } from 'fastify';
import type { Config } from '../../src/config.ts';
import { ServiceError } from '../../src/errors.ts';
import { type MemoryBounds, type MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';

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
export function countBody({ call, headers, routeOptions }: FastifyRequest, body: RequestPayload, id: string, bodies: MemoryBudget): void {
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
