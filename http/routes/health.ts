import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../src/errors.ts';
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
    summary: 'Whether PostgreSQL answers',
    replies: { 200: { description: 'It does, so calls can be served.', schema: healthReply, example: { status: 'ready' } } },
  },
] as const satisfies readonly DocumentedOperation[];

/** `/healthz`: the process is running. `/readyz`: PostgreSQL answers, so calls can be served. */
export function healthRoutes(app: FastifyInstance, ready: () => Promise<boolean>): void {
  app.get('/healthz', async () => ({ status: 'ok' }));
  app.get('/readyz', async () => {
    if (!(await ready().catch(() => false))) throw new ServiceError('not_ready', 'the backing Postgres does not answer');
    return { status: 'ready' };
  });
}
