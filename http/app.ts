import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import { isFrom } from '../src/auth/tokens.ts';
import type { Config } from '../src/config.ts';
import { ServiceError } from '../src/errors.ts';
import type { Origin } from '../src/observation.ts';
import type { Traces } from '../src/observers/traces.ts';
import { LocalLimit, SharedLimit } from '../src/runtime/count-limit.ts';
import { MemoryBudget } from '../src/runtime/memory-budget.ts';
import { Admission, bodyBoundsOf, limitRequests } from './admission.ts';
import { recognizeBearer, requireBearer } from './bearer.ts';
import { compressReplies } from './compression.ts';
import { ConnectionLimit, type ConnectionLimitOptions } from './connection-limit.ts';
import { openApiDocument } from './docs/openapi.ts';
import { FastPath } from './fast-path/connection.ts';
import {
  ambiguityOf,
  type ClientAddress,
  clientAddresses,
  corsOf,
  refuseAmbiguousHeads,
  refuseOtherHosts,
  servedHosts,
  setHeaders,
  setHeadersAlways,
} from './headers.ts';
import { acceptJsonBodies } from './json-body.ts';
import { neonOperation, neonRoutes } from './neon/route.ts';
import { type OpenWire, WebSocketEndpoint } from './neon/websocket.ts';
import { type DocumentedOperation, type Endpoint, type RouteContext, serve } from './operation.ts';
import { HEALTH_OPERATIONS, healthRoutes } from './ops-app.ts';
import { answerProblems, answerRefusedByFastify, RequestOutcomes } from './problems.ts';
import { ProxiedConnections } from './proxied-connections.ts';
import { countReplies } from './reply-memory.ts';
import { openContext, originOf, type RequestContext, requestIdOf } from './request-context.ts';
import { RequestsInProgress } from './requests-in-progress.ts';
import { authEndpoints, consoleSignInEndpoints, organizationEndpoints } from './routes/account.ts';
import { auditEndpoints } from './routes/audit.ts';
import { cloneEndpoints } from './routes/clones.ts';
import { consoleRoutes } from './routes/console.ts';
import { documentationRoutes } from './routes/documentation.ts';
import { adviceEndpoints, queryStatisticsEndpoints, usageEndpoints } from './routes/insights.ts';
import { keyEndpoints } from './routes/keys.ts';
import { migrationEndpoints } from './routes/migrations.ts';
import { queryEndpoints } from './routes/query.ts';
import { savedQueryEndpoints } from './routes/saved-queries.ts';
import { schemaEndpoints } from './routes/schema.ts';
import { sessionEndpoints } from './routes/sessions.ts';
import { transactionEndpoints } from './routes/transaction.ts';
import { clientErrorHandler, createServer, type HttpServer, type ServerDeadlines, type TlsFiles } from './server.ts';
import { PathPatterns, refuseUnknownRoutes } from './unknown-routes.ts';

export interface HttpAppOptions extends RouteContext {
  /** Aborted when the service will stop soon: replies have `Connection: close` from then on. */
  readonly stopping?: AbortSignal;
  /** Aborted when another process has taken over the port: no more connections are accepted. */
  readonly leaving?: AbortSignal;
  /** If set, the door uses TLS. */
  readonly tls?: TlsFiles;
  readonly deadlines?: ServerDeadlines;
  /** Counts requests in progress; the caller may look at it. */
  readonly admission?: Admission;
  /** Lists the requests in progress; the caller may look at them. */
  readonly underWay?: RequestsInProgress;
  /** By default, what the setting says is the limit of this process. */
  readonly connections?: Pick<ConnectionLimitOptions, 'limit' | 'authenticated'>;
  /** Passes WebSockets at `/v2` to the wire door; undefined: they are not served. */
  readonly openWire?: OpenWire;
  /** Makes spans of requests; undefined: nobody wants them. */
  readonly traces?: Traces | undefined;
}

/**
 * The HTTP door. The caller makes it listen, and closes it: `close()` waits for requests in progress and closes idle
 * connections.
 */
export function createHttpApp(options: HttpAppOptions): FastifyInstance {
  const { observe, authenticator, router, queries, refusals, deadlines = deadlinesOf(options.config), tls, openWire } = options;
  const isServedHost = servedHosts(options.config);
  const cors = corsOf(options.config);
  const connectionsMax = options.config.POSTERN_HTTP_CONNECTIONS_MAX;
  const connections = new ConnectionLimit({
    ...(options.connections ?? { limit: () => new LocalLimit(connectionsMax), authenticated: new SharedLimit(connectionsMax) }),
    deadlines,
    observe,
    fullMessage:
      'the HTTP door has as many connections as it may have (POSTERN_HTTP_CONNECTIONS_MAX): the oldest without a valid key are closed',
  });
  const addressBehind = clientAddresses(options.config.POSTERN_TRUST_PROXY ?? []);
  const clientAddress: ClientAddress = (socket, forwardedFor) => addressBehind(connections.addressOf(socket), forwardedFor);
  const bodies = new MemoryBudget(bodyBoundsOf(options.config));
  const sockets =
    openWire &&
    new WebSocketEndpoint({
      openWire,
      clientAddress,
      connections,
      bodies,
      maxFrameBytes: options.config.POSTERN_HTTP_BODY_MAX_BYTES,
      isRefused: (request) => ambiguityOf(request) !== undefined || !isServedHost(request.headers.host),
    });
  const ends = new RequestOutcomes(observe, options.traces);
  const admission = options.admission ?? new Admission(new LocalLimit(options.config.POSTERN_HTTP_REQUESTS_PER_TENANT));
  const underWay = options.underWay ?? new RequestsInProgress();
  const served: Served[] = [];
  const endpoints = endpointsOf(options);
  const routes = { paths: new PathPatterns(), withKey: actionsWithKey(endpoints) };
  const app = Fastify({
    // Called for each address of the host name.
    serverFactory: (handler) => {
      const door = createServer(handler, deadlines, tls, sockets?.takeOver);
      const { config } = options;
      const fastPath = new FastPath(door, deadlines, {
        authenticator,
        router,
        queries,
        refusals,
        routes,
        config,
        observe,
        admission,
        connections,
        isServedHost,
        hasCors: cors !== undefined,
        clientAddress,
        ends,
      });
      served.push(door, fastPath);
      underWay.include(fastPath);
      const proxies = config.POSTERN_PROXY_PROTOCOL_FROM;
      if (proxies !== undefined) {
        const timeoutMs = config.POSTERN_LOGIN_TIMEOUT_MS;
        served.push(new ProxiedConnections(door, { isProxy: isFrom(proxies), timeoutMs, connections, observe }));
      }
      connections.watch(door);
      return door.server;
    },
    bodyLimit: options.config.POSTERN_HTTP_BODY_MAX_BYTES,
    genReqId: ({ headers }) => requestIdOf(headers['x-request-id']),
    return503OnClosing: false,
    // Names of saved queries are percent-encoded in the path.
    routerOptions: { maxParamLength: 1_000 },
    clientErrorHandler,
    frameworkErrors: (error, request, reply) => {
      setHeaders(request, reply, cors);
      const origin = originOfRequest(request, clientAddress);
      const tenant = recognizeBearer(authenticator, request.headers.authorization, origin.sourceIp);
      answerRefusedByFastify(error, request, reply, { origin, tenant, observe, refusals });
    },
  });

  app.addHook('onRoute', ({ url }) => {
    routes.paths.add(url);
  });
  setHeadersAlways(app, cors);
  trackRequests(app, ends, underWay, clientAddress);
  options.leaving?.addEventListener('abort', () => {
    for (const one of served) one.stopListening();
  });
  closeGracefully(app, options.config, served, options.stopping);
  app.addHook('preClose', async () => sockets?.close(options.config.POSTERN_SHUTDOWN_TIMEOUT_MS));
  refuseAmbiguousHeads(app);
  refuseOtherHosts(app, isServedHost);
  answerProblems(app, observe, refusals);
  refuseUnknownRoutes(app);
  countReplies(app);
  compressReplies(app);
  limitRequests(app, { admission, connections, bodies, results: router.results });
  acceptJsonBodies(app);

  healthRoutes(app, options.ready);
  const authenticate = requireBearer(authenticator);
  for (const endpoint of endpoints) serve(app, endpoint, authenticate);
  neonRoutes(app, options);
  consoleRoutes(app, options.config);
  documentationRoutes(app, openApiDocument(documentedOperations(endpoints)), options);
  return app;
}

/** Every call of the API, in the order of its documentation. */
export function endpointsOf(context: RouteContext): Endpoint[] {
  return [
    authEndpoints,
    consoleSignInEndpoints,
    keyEndpoints,
    cloneEndpoints,
    organizationEndpoints,
    queryEndpoints,
    transactionEndpoints,
    migrationEndpoints,
    schemaEndpoints,
    savedQueryEndpoints,
    usageEndpoints,
    queryStatisticsEndpoints,
    adviceEndpoints,
    sessionEndpoints,
    auditEndpoints,
  ].flatMap((of) => of(context));
}

/** The endpoints, and what is served beside them. */
export function documentedOperations(endpoints: readonly Endpoint[]): DocumentedOperation[] {
  return [...endpoints.map(({ operation }) => operation), neonOperation, ...HEALTH_OPERATIONS];
}

function actionsWithKey(endpoints: readonly Endpoint[]): ReadonlyMap<string, string> {
  const needing = endpoints.filter(({ operation }) => operation.needsKey);
  return new Map(needing.map(({ operation: { method, path, action } }) => [`${method} ${path}`, action]));
}

function deadlinesOf(config: Config): ServerDeadlines {
  return {
    headersTimeoutMs: config.POSTERN_HTTP_HEADERS_TIMEOUT_MS,
    requestTimeoutMs: config.POSTERN_HTTP_REQUEST_TIMEOUT_MS,
    keepAliveTimeoutMs: config.POSTERN_HTTP_KEEP_ALIVE_TIMEOUT_MS,
    sendTimeoutMs: config.POSTERN_HTTP_SEND_TIMEOUT_MS,
  };
}

type Served = Pick<HttpServer, 'size' | 'announceEnd' | 'stopListening' | 'caughtUp' | 'drain' | 'closeAll'>;

/** Requests that were sent before the client knew of the shutdown take about as long to arrive as a reply takes to the client. */
const LINGER_MS = 100;

/**
 * Shutdown: once it is announced, every reply has `Connection: close`. On closing, no new connections are accepted, a moment later no
 * new requests, and every connection ends with its last pending reply, or after a timeout without it.
 */
function closeGracefully(app: FastifyInstance, config: Config, served: readonly Served[], announced?: AbortSignal): void {
  let ending = false;
  let closing = false;
  let deadline: NodeJS.Timeout | undefined;
  const announceEnd = () => {
    ending = true;
    for (const one of served) one.announceEnd();
  };
  announced?.addEventListener('abort', announceEnd);
  app.addHook('preClose', async () => {
    const { POSTERN_SHUTDOWN_TIMEOUT_MS: timeoutMs } = config;
    deadline = setTimeout(() => {
      for (const one of served) one.closeAll();
    }, timeoutMs);
    announceEnd();
    for (const one of served) one.stopListening();
    if (served.some(({ size }) => size > 0)) {
      await sleep(Math.min(LINGER_MS, timeoutMs));
      // Timers come first after the process was busy: what has arrived meanwhile is read in one turn, and handled by the next.
      await turn();
      await turn();
      // What was read of one organization may have to wait for more turns, where its input before has taken long.
      await Promise.all(served.map((one) => one.caughtUp()));
    }
    closing = true;
    for (const one of served) one.drain();
  });
  app.addHook('onClose', async () => clearTimeout(deadline));
  app.addHook('onRequest', (_request, reply, done) => {
    // An earlier reply may already have `Connection: close`, after which this request's reply might not be sent.
    const isBehind = ending && reply.raw.socket === null;
    done(closing || isBehind ? new ServiceError('shutting_down', 'the service is shutting down') : undefined);
  });
}

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
    const { traceparent } = request.headers;
    const call = openContext(originOfRequest(request, clientAddress), typeof traceparent === 'string' ? traceparent : undefined);
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

function originOfRequest({ headers, socket, id }: FastifyRequest, clientAddress: ClientAddress): Origin {
  const forwardedFor = headers['x-forwarded-for'];
  const sourceIp = clientAddress(socket, typeof forwardedFor === 'string' ? forwardedFor : undefined);
  return originOf(sourceIp, id, headers['user-agent']);
}
