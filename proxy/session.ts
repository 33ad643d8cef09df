import { randomBytes } from 'node:crypto';
import type { BackendConnection } from '../src/backend/connection.ts';
import { abortReason, ServiceError } from '../src/errors.ts';
import type { Actor, Observe, Origin } from '../src/observation.ts';
import { encodeBackendMessage } from '../src/protocol/backend.ts';
import type { StartupMessage } from '../src/protocol/startup.ts';
import type { CancelKey } from '../src/router/cancel.ts';
import { Departure } from '../src/router/departure.ts';
import type { Lease } from '../src/router/lease.ts';
import type { Router } from '../src/router/router.ts';
import { viewOf } from '../src/router/search-path/view.ts';
import type { Tenant } from '../src/router/tenant.ts';
import type { ClientConnection } from './connection.ts';
import { type SessionStart, startSession } from './login.ts';
import { Pins } from './pins.ts';
import { Relay } from './relay.ts';
import type { RelayHost } from './relay-host.ts';
import type { WatchedBatch } from './statement-watch.ts';
import type { TenantSessions } from './tenant-sessions.ts';
import type { Watchdog } from './watchdog.ts';

export interface SessionContext {
  readonly router: Router;
  readonly observe: Observe;
  readonly watchdog: Watchdog;
  /** What the sessions of this organization share. */
  readonly shared: TenantSessions;
  /** Aborts with a ServiceError when the service stops. */
  readonly stopping: AbortSignal;
  /** Aborts with a ServiceError when it waits no longer. */
  readonly stopped: AbortSignal;
}

const SECRET_BYTES = 4;
const SECRET_BYTES_3_2 = 32;

/**
 * Serves an authenticated client until either side ends: gives it what Postgres gives after login, and relays.
 * @throws ServiceError or PostgresError to be told as FATAL, while nothing but the login has been answered
 */
export async function serve(
  client: ClientConnection,
  tenant: Tenant,
  startup: StartupMessage,
  origin: Origin,
  context: SessionContext,
): Promise<void> {
  const { router, shared } = context;
  const view = viewOf(tenant);
  const start = await startSession(startup, shared, view, () => leaseFor(client, tenant, router));
  const secret = randomBytes(startup.minorVersion >= 2 ? SECRET_BYTES_3_2 : SECRET_BYTES);
  let relay: Relay | undefined;
  const key = router.cancelKeys.issue(secret, async () => relay?.cancel());
  const processIds = shared.join(key.processId, {
    get backendProcessId() {
      return relay?.lease?.backend.processId ?? 0;
    },
    cancel: async () => relay?.cancel(),
    terminate: () => relay?.end(new ServiceError('shutting_down', 'terminating connection due to administrator command')),
  });
  const pins = new Pins(start.settings, start.whole, (reason, pinned) =>
    context.observe({ name: pinned ? 'wire.pinned' : 'wire.unpinned', reason }),
  );
  try {
    relay = new Relay(client.socket, { ...host(tenant, origin, context), processIds, view }, pins, start.parameters);
    client.write(welcome(start, key));
    await run(relay, client, tenant, origin, context);
  } finally {
    pins.end();
    shared.part(key.processId);
    router.cancelKeys.forget(key);
  }
}

/** A client that goes away while it waits for a backend gives up its place in the queue. */
async function leaseFor(client: ClientConnection, tenant: Tenant, router: Router): Promise<Lease> {
  const departure = new Departure();
  const onClose = () => departure.happen();
  client.socket.on('close', onClose);
  try {
    return await router.lease(tenant, { door: 'wire', departure });
  } finally {
    client.socket.off('close', onClose);
  }
}

function host(tenant: Tenant, origin: Origin, { router, observe, shared }: SessionContext): Omit<RelayHost, 'processIds' | 'view'> {
  const actor = actorOf(tenant);
  return {
    registry: shared.registry,
    recent: shared.recent,
    sequences: shared.sequences,
    tryLease: (preferred: BackendConnection | undefined) => router.tryLease(tenant, 'wire', preferred),
    enqueue: (settle) => router.enqueue(tenant, 'wire', settle),
    answered: (ok) => observe({ name: 'wire.query', ok }),
    watched: (batch) => observe(watchedStatement(batch, origin, actor)),
    holdsAdvisoryLocks: (processId) => router.holdsAdvisoryLocks(processId),
    defaultsChanged: () => {
      shared.forgetLogins();
      router.retireBackends(tenant);
    },
  };
}

/** What Postgres sends between a successful login and the first query. */
function welcome({ parameters }: SessionStart, { processId, secret }: CancelKey): Buffer {
  return Buffer.concat([
    encodeBackendMessage({ name: 'AuthenticationOk' }),
    ...[...parameters].map(([parameter, value]) => encodeBackendMessage({ name: 'ParameterStatus', parameter, value })),
    encodeBackendMessage({ name: 'BackendKeyData', processId, secretKey: secret }),
    encodeBackendMessage({ name: 'ReadyForQuery', status: 'I' }),
  ]);
}

async function run(relay: Relay, client: ClientConnection, tenant: Tenant, origin: Origin, context: SessionContext): Promise<void> {
  const { observe, stopping, stopped, watchdog } = context;
  const { revoked } = tenant;
  const actor = actorOf(tenant);
  const openedAt = performance.now();
  observe({ name: 'wire.session.opened', origin, actor });
  const onRevoked = () => relay.end(abortReason(revoked));
  const onStopping = () => relay.endAtRest(abortReason(stopping));
  revoked.addEventListener('abort', onRevoked, { once: true });
  const onStopped = () => relay.end(abortReason(stopped));
  stopping.addEventListener('abort', onStopping, { once: true });
  stopped.addEventListener('abort', onStopped, { once: true });
  const unwatch = watchdog.watch(relay);
  try {
    const ended = relay.run();
    if (revoked.aborted) onRevoked();
    if (stopping.aborted) onStopping();
    const { reason, lastWords } = await ended;
    client.end(lastWords);
    const { statements, traffic } = relay;
    observe({ name: 'wire.session.closed', origin, actor, durationMs: performance.now() - openedAt, statements, ...traffic, reason });
  } finally {
    unwatch();
    revoked.removeEventListener('abort', onRevoked);
    stopping.removeEventListener('abort', onStopping);
    stopped.removeEventListener('abort', onStopped);
  }
}

function actorOf({ organization, key }: Tenant): Actor {
  return { organizationId: organization.id, keyId: key.id, keyPrefix: key.prefix };
}

function watchedStatement({ sql, command, sqlstate, durationMs }: WatchedBatch, origin: Origin, actor: Actor) {
  return {
    name: 'wire.statement',
    origin,
    actor,
    statement: { sql, ...(command === undefined ? {} : { command }) },
    outcome: { status: sqlstate === undefined ? 'ok' : 'error', durationMs, ...(sqlstate === undefined ? {} : { sqlstate }) },
  } as const;
}
