import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Origin } from '../../src/observation.ts';
import type { RequestsInProgress } from '../connections/requests-in-progress.ts';
import { openContext, originOf, type RequestContext } from '../request-context.ts';
import type { ClientAddress } from './client-address.ts';
import type { RequestOutcomes } from './request-outcomes.ts';

declare module 'fastify' {
  interface FastifyRequest {
    call: RequestContext;
  }
  interface FastifyContextConfig {
    /** The operation's name in observations and in the audit log. */
    action?: string;
  }
}

/** Opens a {@link RequestContext} for each request, lists it, and reports the outcome of those that reached an operation. */
export function trackRequests(
  app: FastifyInstance,
  ends: RequestOutcomes,
  underWay: RequestsInProgress,
  clientAddress: ClientAddress,
): void {
  app.decorateRequest('call');
  app.addHook('onRequest', (request, reply, done) => {
    const call = openContext(originOfRequest(request, clientAddress));
    const { action } = request.routeOptions.config;
    request.call = call;
    underWay.add(call);
    const { socket } = request.raw;
    // A reply also counts as finished when its connection was destroyed before all of it was sent.
    reply.raw.on('finish', () => {
      call.isReplySent = !socket.destroyed;
    });
    // Fastify's own onResponse is not called for interrupted replies.
    reply.raw.once('close', () => {
      underWay.delete(call);
      if (!call.isReplySent) call.disconnect.happen();
      call.leave?.();
      void whenDone(call.work).then(() => {
        call.body?.end();
        call.results?.end();
        call.compressor?.end();
      });
      if (action !== undefined) ends.add(action, call, reply.raw.headersSent ? reply.statusCode : undefined);
    });
    done();
  });
  // The observers are closed after the door.
  app.addHook('onClose', () => ends.allReported());
}

/** The reservations of a call are kept until its statement has ended, which may be after the client has disconnected. */
async function whenDone(work: Promise<unknown> | undefined): Promise<void> {
  await Promise.allSettled([work]);
}

export function originOfRequest({ headers, socket, id }: FastifyRequest, clientAddress: ClientAddress): Origin {
  const forwardedFor = headers['x-forwarded-for'];
  const sourceIp = clientAddress(socket.remoteAddress ?? '', typeof forwardedFor === 'string' ? forwardedFor : undefined);
  return originOf(sourceIp, id, headers['user-agent']);
}
