import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../src/errors.ts';

/** `/healthz`: the process is running. `/readyz`: PostgreSQL answers, so calls can be served. */
export function healthRoutes(app: FastifyInstance, ready: () => Promise<boolean>): void {
  app.get('/healthz', async () => ({ status: 'ok' }));
  app.get('/readyz', async () => {
    if (!(await ready().catch(() => false))) throw new ServiceError('not_ready', 'the backing Postgres does not answer');
    return { status: 'ready' };
  });
}
