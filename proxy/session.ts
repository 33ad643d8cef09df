import type { OrganizationUsage } from '../src/catalog/usage.ts';
import { ServiceError } from '../src/errors.ts';
import type { Multiplexer, Multiplexers } from '../src/multiplex/multiplexer.ts';
import { registryOf, type StatementRegistry } from '../src/multiplex/statement-registry.ts';
import type { Actor, Observe, Origin } from '../src/observation.ts';
import { encodeBackendMessage, READY_IDLE } from '../src/protocol/backend.ts';
import { type SchemaRewriter, schemaRewriterOf } from '../src/rewriting/rewriter.ts';
import { DisconnectSignal, type Lease, type Tenant } from '../src/router/lease.ts';
import type { Router, Wait } from '../src/router/router.ts';
import type { SessionDescription } from '../src/router/sessions.ts';
import { randomSecretBytes } from '../src/runtime/bytes.ts';
import type { CountLimit } from '../src/runtime/count-limit.ts';
import type { MemoryBudget } from '../src/runtime/memory-budget.ts';
import type { CustomOptions } from '../src/syntax/session-traits.ts';
import type { ClientConnection } from './client-connection.ts';
import type { AuditedBatch } from './inspection/ddl-audit.ts';
import type { AuthenticatedClient } from './login/log-in.ts';
import { type SessionStart, startSession } from './login/session-start.ts';
import { pinsOf } from './pinning/pin-explanations.ts';
import { type PinListener, Pins } from './pinning/pins.ts';
import type { ProcessIds } from './pinning/process-id-translation.ts';
import { Relay } from './relay/relay.ts';
import { BufferBudget } from './sessions/buffer-budget.ts';
import type { OpenSession, OpenSessions } from './sessions/open-sessions.ts';
import type { OrganizationDirectory, OrganizationSessions, ReachableSession } from './sessions/organization-sessions.ts';
import { runningStatement, stateOf } from './sessions/session-description.ts';
import type { RelayEnd, SessionServices } from './sessions/session-services.ts';
import type { Watchdog } from './sessions/watchdog.ts';

/** The parts of the service that the sessions of all organizations share. */
export interface SessionContext {
  readonly router: Router;
  readonly observe: Observe;
  readonly pinned: PinListener;
  readonly watchdog: Watchdog;
  readonly open: OpenSessions;
  readonly organizations: OrganizationDirectory;
  readonly multiplexers: Multiplexers;
  /** The memory budget for incomplete messages that cannot be forwarded yet. */
  readonly messageBudget: MemoryBudget;
  /** Client connections of each organization at once. */
  readonly clientsOfOrganization: CountLimit;
}

const DEPRECATED_FEATURE = '01P01';
const SECRET_BYTES = 4;
const SECRET_BYTES_3_2 = 32;

/**
 * Sends an authenticated client the messages that Postgres sends after a login, and starts its session. The session then runs by
 * itself, without a pending promise, because many sessions are idle.
 * @throws ServiceError or PostgresError to be sent as FATAL; no other reply has been sent then
 */
export async function openSession(
  client: ClientConnection,
  { tenant, startup, origin }: AuthenticatedClient,
  context: SessionContext,
): Promise<void> {
  const { limitsId } = tenant;
  const { clientsOfOrganization, organizations } = context;
  if (!clientsOfOrganization.tryEnter(limitsId) && !(await clientsOfOrganization.enter(limitsId))) {
    throw new ServiceError('too_many_connections', `too many connections for organization "${tenant.organization.id}"`);
  }
  const shared = organizations.enter(tenant);
  try {
    const rewriter = schemaRewriterOf(tenant);
    shared.checkDefaults(registryOf(tenant.organization).defaultsVersion);
    const start = await startSession(startup, shared, rewriter, (options) => leaseFor(client, tenant, context.router, options));
    const secretKey = randomSecretBytes(startup.minorVersion >= 2 ? SECRET_BYTES_3_2 : SECRET_BYTES);
    const session = new Session(client, { tenant, origin, rewriter, start, secretKey, shared, context });
    const keyData = encodeBackendMessage({ name: 'BackendKeyData', processId: session.processIds.own, secretKey });
    client.hold(start.firstMessages, keyData, ...noticeOf(tenant));
    client.write(READY_IDLE);
    session.start();
  } catch (error) {
    organizations.leave(tenant, shared);
    clientsOfOrganization.leave(limitsId);
    throw error;
  }
}

/** Says that another key takes the place of the client's. */
function noticeOf({ key: { replacedBy, expiresAt } }: Tenant): Buffer[] {
  if (replacedBy === null) return [];
  const message = `this API key has been rotated and ends at ${expiresAt?.toISOString() ?? ''}`;
  const fields = { severity: 'NOTICE', code: DEPRECATED_FEATURE, message, hint: `Use the new key, ${replacedBy}.` };
  return [encodeBackendMessage({ name: 'NoticeResponse', fields })];
}

/** A client that disconnects while it waits for a backend leaves the queue. */
async function leaseFor(client: ClientConnection, tenant: Tenant, router: Router, customOptions: CustomOptions): Promise<Lease> {
  const disconnect = new DisconnectSignal();
  const onClose = () => disconnect.happen();
  client.stream.on('close', onClose);
  try {
    return await router.lease(tenant, { door: 'wire', disconnect, customOptions });
  } finally {
    client.stream.off('close', onClose);
  }
}

interface SessionParts {
  readonly tenant: Tenant;
  readonly origin: Origin;
  readonly rewriter: SchemaRewriter | undefined;
  readonly start: SessionStart;
  readonly secretKey: Buffer;
  readonly shared: OrganizationSessions;
  readonly context: SessionContext;
}

/** One client's session: it provides what its relay needs of the service, and is known to the service and the organization's other sessions. */
class Session implements SessionServices, ReachableSession {
  readonly processIds: ProcessIds;
  readonly rewriter: SchemaRewriter | undefined;
  readonly multiplexer: Multiplexer;
  readonly registry: StatementRegistry;
  readonly parseCache: OrganizationSessions['parseCache'];
  readonly statementMemory: OrganizationSessions['statementMemory'];
  readonly bufferBudget: BufferBudget;
  readonly usage: OrganizationUsage;
  readonly router: Router;
  readonly tenant: Tenant;
  readonly observe: Observe;
  readonly #client: ClientConnection;
  readonly #origin: Origin;
  readonly #shared: OrganizationSessions;
  readonly #context: SessionContext;
  readonly #pins: Pins;
  readonly #relay: Relay;
  readonly #openedAt = performance.now();
  readonly #open: OpenSession;

  constructor(client: ClientConnection, { tenant, origin, rewriter, start, secretKey, shared, context }: SessionParts) {
    this.rewriter = rewriter;
    this.multiplexer = context.multiplexers.of(tenant.organization);
    this.registry = this.multiplexer.registry;
    this.parseCache = shared.parseCache;
    this.statementMemory = shared.statementMemory;
    this.bufferBudget = new BufferBudget(context.messageBudget, tenant.limitsId);
    this.#client = client;
    this.router = context.router;
    this.tenant = tenant;
    this.observe = context.observe;
    this.#origin = origin;
    this.#shared = shared;
    this.#context = context;
    this.usage = context.router.catalog.usage.counters.of(tenant.organization.id);
    this.processIds = shared.join(context.router.cancelKeys.issue(secretKey, this), this);
    this.#pins = new Pins(start.settings, start.wantsOwnBackend, context.pinned, shared.sequences);
    this.#relay = new Relay(client.stream, this, this.#pins, start.parameters);
    this.#open = { session: this.#relay, revoked: tenant.revoked, index: -1 };
  }

  start(): void {
    const { observe, open, watchdog, router } = this.#context;
    observe({ name: 'wire.session.opened', origin: this.#origin, actor: actorOf(this.tenant) });
    watchdog.watch(this.#relay);
    this.#client.attach(this.#relay, router.inputs.join(this.tenant.limitsId));
    // Even a session that ends during this call reports its end later.
    open.add(this.#open);
  }

  ended({ reason, finalError }: RelayEnd, failure?: unknown): void {
    const { observe } = this.#context;
    const relay = this.#relay;
    if (reason === 'terminated') this.#client.leave();
    else this.#client.end(finalError);
    if (failure !== undefined) observe({ name: 'service.failure', message: 'a wire session could not be ended well', cause: failure });
    observe({
      name: 'wire.session.closed',
      origin: this.#origin,
      actor: actorOf(this.tenant),
      durationMs: performance.now() - this.#openedAt,
      statements: relay.session.statementCount,
      bytesIn: relay.session.bytesIn,
      bytesOut: relay.session.toClient.written,
      reason,
    });
    this.#forget();
  }

  /** Removes the session from the service. */
  #forget(): void {
    const { router, open, watchdog, organizations, clientsOfOrganization } = this.#context;
    const { own } = this.processIds;
    watchdog.forget(this.#relay);
    open.delete(this.#open);
    this.#pins.end();
    this.#shared.part(own);
    router.cancelKeys.forget(own);
    organizations.leave(this.tenant, this.#shared);
    clientsOfOrganization.leave(this.tenant.limitsId);
  }

  get number(): number {
    return this.processIds.own;
  }

  get keyId(): string {
    return this.tenant.key.id;
  }

  describe(): SessionDescription | undefined {
    const { session } = this.#relay;
    const state = stateOf(session);
    if (state === undefined) return undefined;
    return {
      door: 'wire',
      keyPrefix: this.tenant.key.prefix,
      sourceIp: this.#origin.sourceIp,
      applicationName: (session.reported ?? session.startParameters).get('application_name'),
      userAgent: undefined,
      isEncrypted: this.#client.encrypted,
      processId: this.processIds.own,
      connectedAt: this.#openedAt,
      state,
      stateSince: session.since,
      pins: pinsOf(session),
      statement: runningStatement(session),
    };
  }

  get backendProcessId(): number {
    return this.#relay.lease?.backend.processId ?? 0;
  }

  cancel(): Promise<void> {
    return this.#relay.cancel();
  }

  terminate(): void {
    this.#relay.end(new ServiceError('shutting_down', 'terminating connection due to administrator command'));
  }

  enqueue(settle: (result: Lease | ServiceError) => void): Wait {
    const { router, observe } = this.#context;
    const settled = (result: Lease | ServiceError) => {
      if (result instanceof ServiceError && result.kind === 'internal')
        observe({ name: 'service.failure', message: 'a wire session got no backend', cause: result });
      settle(result);
    };
    return router.enqueue(this.tenant, 'wire', settled, this.#pins.customOptions);
  }

  mayKeepBusy(mayGrow: boolean): boolean {
    return this.#context.router.mayKeepBusy(this.tenant, mayGrow);
  }

  watched({ sql, sqlHash, command, sqlstate, durationMs }: AuditedBatch): void {
    this.#context.observe({
      name: 'wire.statement',
      origin: this.#origin,
      actor: actorOf(this.tenant),
      statement: { sql, sqlHash, ...(command === undefined ? {} : { command }) },
      outcome: { status: sqlstate === undefined ? 'ok' : 'error', durationMs, ...(sqlstate === undefined ? {} : { sqlstate }) },
    });
  }

  holdsAdvisoryLocks(processId: number): Promise<boolean> {
    return this.#context.router.holdsAdvisoryLocks(this.tenant, processId);
  }

  defaultsChanged(): void {
    this.registry.defaultsChanged();
    this.#context.router.retireBackends(this.tenant);
  }
}

/** The organization and key of an authenticated client. */
export function actorOf({ organization, key }: Tenant): Actor {
  return { organizationId: organization.id, keyId: key.id, keyPrefix: key.prefix };
}
