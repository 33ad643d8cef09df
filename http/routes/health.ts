import type { FastifyInstance } from 'fastify';
import { healthReply } from '../responses/reply-schemas.ts';
import type { DocumentedOperation } from './operation.ts';
import { noBody, noQuery } from './request-schemas.ts';

const BOTH = { method: 'GET', tag: 'Health', needsKey: false, query: noQuery, body: noBody, errors: [] } as const;

/** For the OpenAPI document. */
export const HEALTH_OPERATIONS = [
  {
    ...BOTH,
    path: '/healthz',
    operationId: 'health',
    summary: 'Whether the process is running',
    replies: { 200: { description: 'It is.', schema: healthReply, example: { status: 'ok' } } },
  },
  {
    ...BOTH,
    path: '/readyz',
    operationId: 'readiness',
    summary: 'Whether PostgreSQL answers, and the service is not about to stop',
    replies: { 200: { description: 'Calls can be served.', schema: healthReply, example: { status: 'ready' } } },
  },
] as const satisfies readonly DocumentedOperation[];

/**
 * `/healthz`: the process is running. `/readyz`: PostgreSQL answers, so calls can be served.
 * @param ready throws ServiceError `not_ready` when it does not, `shutting_down` when the service is about to stop
 */
export function healthRoutes(app: FastifyInstance, ready: () => Promise<void>): void {
  app.get('/healthz', async () => ({ status: 'ok' }));
  app.get('/readyz', async () => {
    await ready();
    return { status: 'ready' };
  });
}
