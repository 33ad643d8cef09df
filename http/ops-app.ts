import Fastify, { type FastifyInstance } from 'fastify';
import type { Observe } from '../src/observation.ts';
import { LocalLimit, SharedLimit } from '../src/runtime/count-limit.ts';
import { ConnectionLimit } from './connection-limit.ts';
import { type IsServedHost, refuseAmbiguousHeads, refuseOtherHosts, setHeadersAlways } from './headers.ts';
import type { DocumentedOperation } from './operation.ts';
import { answerProblems } from './problems.ts';
import { healthReply } from './reply-schemas.ts';
import { requestIdOf } from './request-context.ts';
import { noBody, noQuery } from './request-schemas.ts';
import { clientErrorHandler, createServer, DEADLINES, type HttpServer } from './server.ts';
import { refuseUnknownRoutes } from './unknown-routes.ts';

interface OpsAppOptions {
  /** Whether PostgreSQL answers. */
  readonly ready: () => Promise<void>;
  /** The metrics in Prometheus' text format. */
  readonly metrics: () => Promise<{ readonly contentType: string; readonly body: string }>;
  readonly observe?: Observe;
  readonly isServedHost?: IsServedHost;
}

const CONNECTIONS_MAX = 64;

/** The operator's port: health and metrics, no data of organizations. Closing it does not wait for clients. */
export function createOpsApp({ ready, metrics, observe = () => {}, isServedHost = () => true }: OpsAppOptions): FastifyInstance {
  let door: HttpServer | undefined;
  const fullMessage = `the ops port has ${CONNECTIONS_MAX} connections, as many as it may have: the oldest are closed`;
  const connections = new ConnectionLimit({
    limit: () => new LocalLimit(CONNECTIONS_MAX),
    authenticated: new SharedLimit(CONNECTIONS_MAX),
    deadlines: DEADLINES,
    observe,
    fullMessage,
  });
  const app = Fastify({
    serverFactory: (handler) => {
      door = createServer(handler, DEADLINES);
      connections.watch(door);
      return door.server;
    },
    clientErrorHandler,
    genReqId: ({ headers }) => requestIdOf(headers['x-request-id']),
  });
  app.addHook('preClose', async () => door?.closeAll());
  setHeadersAlways(app);
  refuseAmbiguousHeads(app);
  refuseOtherHosts(app, isServedHost);
  answerProblems(app, observe);
  refuseUnknownRoutes(app);
  healthRoutes(app, ready);
  app.get('/metrics', async (_request, reply) => {
    const { contentType, body } = await metrics();
    return reply.type(contentType).send(body);
  });
  return app;
}

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
