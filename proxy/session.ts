import { isIP } from 'node:net';
import type { OrganizationUsage } from '../src/catalog/usage.ts';
import { ServiceError } from '../src/errors.ts';
import type { Multiplexer, Multiplexers } from '../src/multiplex/multiplexer.ts';
import { registryOf, type StatementRegistry } from '../src/multiplex/statement-registry.ts';
import type { Actor, Observe, Origin } from '../src/observation.ts';
import type { SlowStatements } from '../src/observers/slow-statements.ts';
import type { Traces } from '../src/observers/traces.ts';
import type { ShownSession } from '../src/placement/hardening.ts';
import { encodeBackendMessage, READY_IDLE } from '../src/protocol/backend.ts';
import { type SchemaRewriter, schemaRewriterOf } from '../src/rewriting/rewriter.ts';
import { DisconnectSignal, type Lease, type Tenant } from '../src/router/lease.ts';
import type { Router, Wait } from '../src/router/router.ts';
import type { PinnedFor, SentStatement, SessionDescription, SessionState, Sessions } from '../src/router/sessions.ts';
import { randomSecretBytes } from '../src/runtime/bytes.ts';
import type { CountLimit } from '../src/runtime/count-limit.ts';
import type { MemoryBudget } from '../src/runtime/memory-budget.ts';
import type { CustomOptions } from '../src/syntax/session-traits.ts';
import type { AuditedBatch } from './audited-text.ts';
import type { ClientConnection } from './client-connection.ts';
import type { AuthenticatedClient } from './login.ts';
import type { OpenSession, OpenSessions, Watchdog } from './open-sessions.ts';
import type { OrganizationDirectory, OrganizationSessions, ReachableSession } from './organization.ts';
import { type PinListener, type PinReason, Pins } from './pins.ts';
import type { Blockers, ProcessIds, SessionAddresses } from './process-ids.ts';
import { Relay } from './relay.ts';
import { BufferBudget, type RelayEnd, type SessionServices } from './session-services.ts';
import { type SessionStart, startSession } from './session-start.ts';
import type { WireSession } from './wire-session.ts';

/** The parts of the service that the sessions of all organizations share. */
export interface SessionContext {
  readonly router: Router;
  readonly observe: Observe;
  readonly pinned: PinListener;
  readonly watchdog: Watchdog;
  readonly open: OpenSessions;
  readonly organizations: OrganizationDirectory;
  /** Those of other processes. */
  readonly sessions: Pick<Sessions, 'blockers' | 'shownElsewhere'>;
  readonly multiplexers: Multiplexers;
  /** The memory budget for incomplete messages that cannot be forwarded yet. */
  readonly messageBudget: MemoryBudget;
  /** Client connections of each organization at once. */
  readonly clientsOfOrganization: CountLimit;
  readonly slow: SlowStatements;
  readonly traces: Traces | undefined;
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
  const max = tenant.organization.limits.sessions ?? undefined;
  if (!clientsOfOrganization.tryEnter(limitsId, max) && !(await clientsOfOrganization.enter(limitsId, { max }))) {
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
  readonly firstOptions: OrganizationSessions['firstOptions'];
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
    this.firstOptions = shared.firstOptions;
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
      statements: relay.statements.count,
      bytesIn: relay.bytesIn,
      bytesOut: relay.toClient.written,
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
    const session = this.#relay;
    const state = stateOf(session);
    if (state === undefined) return undefined;
    return {
      door: 'wire',
      keyPrefix: this.tenant.key.prefix,
      sourceIp: this.#origin.sourceIp,
      applicationName: session.received.parameter('application_name'),
      userAgent: undefined,
      isEncrypted: this.#client.encrypted,
      processId: this.processIds.own,
      connectedAt: this.#openedAt,
      state,
      stateSince: session.since,
      pins: pinsOf(session),
      statement: runningStatement(session),
      endpoints: this.#client.endpoints,
      cipher: this.#client.cipher,
    };
  }

  get isShown(): boolean {
    return this.tenant.isHardened === true;
  }

  shown(): ShownSession | undefined {
    const session = this.#relay;
    const state = stateOf(session);
    if (state === undefined) return undefined;
    const { inet_client_addr: a, inet_client_port: o } = this.addresses;
    const [v = null, e = null] = this.#client.cipher?.split('/') ?? [];
    const beganAt = (Date.now() - performance.now()) / 1_000;
    return {
      ...{ p: this.processIds.own, b: this.backendProcessId, a, o, v, e },
      s: beganAt + this.#openedAt / 1_000,
      c: beganAt + session.since / 1_000,
      n: (session.received.parameter('application_name') ?? '').replace(/[^ -~]/g, '?'),
      w: state === 'waiting for a backend',
    };
  }

  get backendProcessId(): number {
    return this.#relay.lease?.backend.processId ?? 0;
  }

  get addresses(): SessionAddresses {
    const { remotePort, localAddress, localPort } = this.#client.endpoints ?? {};
    return {
      inet_client_addr: inetOf(this.#origin.sourceIp),
      inet_client_port: remotePort ?? null,
      inet_server_addr: inetOf(localAddress),
      inet_server_port: localPort ?? null,
    };
  }

  cancel(): Promise<void> {
    return this.#relay.cancel();
  }

  terminate(): void {
    this.#relay.end(new ServiceError('shutting_down', 'terminating connection due to administrator command'));
  }

  get tellsAfterMs(): number {
    const { slow, traces } = this.#context;
    return traces === undefined ? slow.afterMs : 0;
  }

  answered(durationMs: number, sqlstate: string | undefined, isOfLastText: boolean): void {
    const { slow, traces } = this.#context;
    const { organization } = this.tenant;
    const statement = isOfLastText ? lastStatement(this.#relay) : undefined;
    const sql = statement?.isWhole === true ? statement.text : undefined;
    if (durationMs >= slow.afterMs) slow.tell(organization.id, 'wire', durationMs, sql);
    traces?.answered({ placement: organization.placement, durationMs, sqlstate, sql });
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

  lookForSessions(): Promise<void> {
    return this.#shared.lookElsewhere(() => this.#context.sessions.shownElsewhere(this.tenant.pool));
  }

  blockers(): Promise<Blockers> {
    return this.#context.sessions.blockers(this.tenant.organization);
  }

  defaultsChanged(): void {
    this.registry.defaultsChanged();
    this.#context.router.retireBackends(this.tenant);
  }
}

/** Without a zone, which the type inet does not have. */
function inetOf(address: string | null | undefined): string | null {
  const [plain = ''] = (address ?? '').split('%');
  return isIP(plain) === 0 ? null : plain;
}

/** The organization and key of an authenticated client. */
export function actorOf({ organization, key }: Tenant): Actor {
  return { organizationId: organization.id, keyId: key.id, keyPrefix: key.prefix };
}

/** More is never shown. */
const READ_MAX_BYTES = 8_192;

/** The state of a session, as it is listed; undefined: it has ended. */
function stateOf({ activity, status }: WireSession): SessionState | undefined {
  switch (activity) {
    case 'ended':
      return undefined;
    case 'waiting':
      return 'waiting for a backend';
    case 'idle in transaction':
      return status === 'E' ? 'idle in failed transaction' : activity;
    default:
      return activity;
  }
}

/**
 * The statement that a session runs. Where several were sent together it is the last of them; where others were sent
 * behind them, it is not known until they have been answered.
 */
function runningStatement(session: WireSession): SentStatement | undefined {
  const { activity, statements } = session;
  return activity === 'active' && statements.mayRunSent ? lastStatement(session) : undefined;
}

/** The statement that was sent last; undefined if its text is not known. */
function lastStatement({ statements, services, since }: WireSession): SentStatement | undefined {
  const { sent: text, isSentWhole: isWhole } = statements;
  if (text === undefined) return undefined;
  if (typeof text === 'string') return { text: Buffer.from(text, 'latin1').toString(), isWhole, since };
  // The definition of a statement that is too long to keep is empty.
  const end = text.indexOf(0);
  if (end < 0) return undefined;
  const sql = text.toString('utf8', 0, Math.min(end, READ_MAX_BYTES));
  return { text: services.rewriter?.clientSql(sql) ?? sql, isWhole: end <= READ_MAX_BYTES, since };
}

/** What each pin is, for those who look at their sessions; proxy/README.md describes them. */
const EXPLANATIONS: Readonly<Record<PinReason | 'transaction', string>> = {
  transaction: 'It is in a transaction, or has sent requests without a Sync, and keeps its backend until that ends.',
  session: 'It has asked for a backend of its own with postern.pool=session, and keeps it until it ends.',
  listen: 'It listens to notifications (LISTEN), and keeps its backend until it stops (UNLISTEN).',
  prepared: 'It has prepared a statement in SQL (PREPARE), and keeps its backend until that is deallocated.',
  cursor: 'It has a cursor WITH HOLD, and keeps its backend until that is closed.',
  temp: 'It has a temporary table, or pg_temp in its search_path, and keeps its backend until that is dropped or removed.',
  advisory_lock: 'It holds an advisory lock of the session, and keeps its backend until that is released.',
  sequence: 'It asks for currval or lastval, and keeps its backend until another session would have to wait for one.',
  seed: 'It has set the seed of random(), and keeps its backend until DISCARD ALL or its end.',
  setting:
    'It has set temp_buffers, a setting whose name its text does not show, or more than 100 of its own, and keeps its backend until DISCARD ALL or its end.',
  oversized: 'It has prepared a statement of more than 1 MiB under a name, and keeps its backend until DISCARD ALL or its end.',
  constant: "It has prepared a statement with a constant such as 'now' under a name, and keeps its backend until DISCARD ALL or its end.",
  unknown: 'What it holds could not be found out, so it keeps its backend until that is known.',
};

/** Why a session keeps its backend. */
function pinsOf({ pins, status, isUnsynced, link }: WireSession): PinnedFor[] {
  const isInTransaction = link.lease !== undefined && (status !== 'I' || isUnsynced);
  const reasons = [
    ...(isInTransaction ? (['transaction'] as const) : []),
    ...pins.reasons,
    ...(pins.sequences?.isLasting ? (['sequence'] as const) : []),
  ];
  return reasons.map((reason) => ({ reason, explanation: EXPLANATIONS[reason] }));
}
