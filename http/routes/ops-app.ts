import Fastify, { type FastifyInstance } from 'fastify';
import type { Observe } from '../../src/observation.ts';
import { LocalLimit, SharedLimit } from '../../src/runtime/count-limit.ts';
import { ConnectionLimit } from '../connections/connection-limit.ts';
import { clientErrorHandler, createServer, DEADLINES, type HttpServer } from '../connections/server.ts';
import { answerProblems } from '../plugins/problems.ts';
import { refuseAmbiguousHeads } from '../plugins/refusals/ambiguous-head.ts';
import { type IsServedHost, refuseOtherHosts } from '../plugins/refusals/served-hosts.ts';
import { refuseUnknownRoutes } from '../plugins/refusals/unknown-routes.ts';
import { setHeadersAlways } from '../plugins/reply-headers.ts';
import { requestIdOf } from '../request-context.ts';
import { healthRoutes } from './health.ts';

export interface OpsAppOptions {
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
