import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ErrorKind, ServiceError } from '../src/errors.ts';
import { isOutOfFiles } from '../src/file-descriptors.ts';
import type { Multiplexers } from '../src/multiplex/multiplexer.ts';
import type { Observe } from '../src/observation.ts';
import type { SlowStatements } from '../src/observers/slow-statements.ts';
import type { Traces } from '../src/observers/traces.ts';
import { PostgresError } from '../src/protocol/backend.ts';
import { ProxyHeaderError } from '../src/protocol/proxy-header.ts';
import type { StartupMessage } from '../src/protocol/startup.ts';
import type { Authenticator } from '../src/router/authenticator.ts';
import type { Tenant } from '../src/router/lease.ts';
import { HOLD_MS, type RefusalLimit } from '../src/router/refusal-limit.ts';
import type { Router } from '../src/router/router.ts';
import type { SessionSource, Sessions } from '../src/router/sessions.ts';
import { ConnectionCount, type CountLimit, type OpenCountLimit } from '../src/runtime/count-limit.ts';
import { IndexedSet } from '../src/runtime/indexed-set.ts';
import { MemoryBudget } from '../src/runtime/memory-budget.ts';
import { readIntoSharedBuffer } from '../src/runtime/reused-read-buffers.ts';
import { ClientConnection, ClientGone, type ClientStream } from './client-connection.ts';
import { errorResponse, tooManyClients } from './errors.ts';
import { handshake, type LoginMethod, logIn, logInOperator, type TlsPolicy } from './login.ts';
import { OpenSessions, Watchdog, type WatchdogLimits } from './open-sessions.ts';
import type { OperatorConsole } from './operator-console.ts';
import { OrganizationDirectory } from './organization.ts';
import { actorOf, openSession, type SessionContext } from './session.ts';
import { BUFFER_BOUNDS } from './session-services.ts';

export interface WireServerOptions extends WatchdogLimits {
  readonly authenticator: Authenticator;
  readonly router: Router;
  readonly observe: Observe;
  readonly tls: TlsPolicy;
  /** Whether connections from this address begin with a PROXY header. Default: none do. */
  readonly isProxy?: (address: string) => boolean;
  readonly loginTimeoutMs: number;
  /** Counts failed logins by the client's address. */
  readonly refusals: Pick<RefusalLimit, 'count'>;
  /** Connections that are not authenticated. */
  readonly unauthenticated: OpenCountLimit;
  /** Authenticated clients, of all organizations and of each. */
  readonly clients: CountLimit;
  readonly clientsOfOrganization: CountLimit;
  /** The sessions of all processes, and by whom they are blocked. */
  readonly sessions: Pick<Sessions, 'blockers' | 'shownElsewhere'>;
  /** How an organization's clients share backends. */
  readonly multiplexers: Multiplexers;
  /** Tells of slow statements. */
  readonly slow: SlowStatements;
  /** Makes spans of requests; undefined: nobody wants them. */
  readonly traces?: Traces | undefined;
  /** Undefined: there is no console for operators. */
  readonly console?: OperatorConsole | undefined;
}

/** The settings that depend on how a client connects. */
interface Entrance {
  readonly isProxy?: ((address: string) => boolean) | undefined;
  readonly method: LoginMethod['method'];
  readonly tls: TlsPolicy;
}

/** A client that did not connect to the TCP port. */
interface PeerInfo {
  readonly remoteAddress: string;
  /** `cleartext`: something else encrypts the connection. */
  readonly method: LoginMethod['method'];
}

/** Errors of a login that are not the client's fault. */
const NO_FAULT: Partial<Record<ErrorKind, true>> = {
  too_many_connections: true,
  pool_timeout: true,
  shutting_down: true,
  not_ready: true,
  backend_lost: true,
  internal: true,
};
const NO_TLS: TlsPolicy = { mode: 'off', identity: () => undefined };
/** TCP keepalive is enabled for clients that stay connected longer; it would notice nothing earlier. */
const STAY_MS = 5_000;
/** The key under which all clients count. */
const ALL = '';
/** How long a client may take to read its final error. */
const FINAL_ERROR_MS = 1_000;

/** The wire door: PostgreSQL's protocol on a TCP port. */
export class WireServer {
  readonly #options: WireServerOptions;
  readonly #server: Server;
  readonly #clients = new IndexedSet<ClientConnection>();
  readonly #unauthenticated: UnauthenticatedClients;
  readonly #open = new OpenSessions();
  readonly #context: SessionContext;
  readonly #gone = (client: ClientConnection): void => this.#forget(client);
  #stayTimer: NodeJS.Timeout | undefined;
  /** Called when the last client has disconnected. */
  #onEmpty: (() => void) | undefined;

  constructor(options: WireServerOptions) {
    const { router, observe } = options;
    this.#options = options;
    this.#context = {
      router,
      observe,
      pinned: (reason, pinned) => observe({ name: pinned ? 'wire.pinned' : 'wire.unpinned', reason }),
      watchdog: new Watchdog(options),
      open: this.#open,
      organizations: new OrganizationDirectory(),
      sessions: options.sessions,
      multiplexers: options.multiplexers,
      messageBudget: new MemoryBudget(BUFFER_BOUNDS),
      clientsOfOrganization: options.clientsOfOrganization,
      slow: options.slow,
      traces: options.traces,
    };
    this.#unauthenticated = new UnauthenticatedClients(options.unauthenticated);
    const entrance: Entrance = { method: 'scram', tls: options.tls, isProxy: options.isProxy };
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      readIntoSharedBuffer(socket);
      void this.#serve(new ClientConnection(socket, socket.remoteAddress ?? '', this.#gone), entrance);
    });
  }

  /** @returns the port, which the system chooses if 0 was given */
  async listen(host: string, port: number): Promise<number> {
    this.#server.listen(port, host);
    await once(this.#server, 'listening');
    const { observe } = this.#options;
    this.#server.on('error', (cause) => {
      // There may be thousands of these a second, and src/file-descriptors.ts reports them.
      if (!isOutOfFiles(cause)) observe({ name: 'service.failure', message: 'connections could not be taken', cause });
    });
    this.#stayTimer = setInterval(() => this.#keepAlive(), STAY_MS);
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : port;
  }

  /** Accepts a client that did not connect to the TCP port. The caller is responsible for encryption. */
  accept(stream: ClientStream, { remoteAddress, method }: PeerInfo): void {
    void this.#serve(new ClientConnection(stream, remoteAddress, this.#gone), { method, tls: NO_TLS });
  }

  /** For the list of sessions. */
  get sessions(): SessionSource {
    return this.#context.organizations;
  }

  /** How many sessions are in a transaction, or have requests that are not answered. */
  get transactions(): number {
    return this.#open.transactions;
  }

  /** Accepts no more connections. Those that there are go on. */
  stopListening(): void {
    this.#server.close();
    this.#options.console?.end(shuttingDown());
  }

  /**
   * Stops listening and ends all sessions with 57P01: idle ones at once, the others when their transaction ends or
   * after `deadlineMs`. Unauthenticated connections are closed after a short time. Resolves when the last client has disconnected.
   */
  async close(deadlineMs: number): Promise<void> {
    const closed = this.#server.listening ? once(this.#server, 'close') : undefined;
    clearInterval(this.#stayTimer);
    const empty = new Promise<void>((resolve) => {
      this.#onEmpty = resolve;
    });
    this.#server.close();
    const reason = shuttingDown();
    this.#open.endAtRest(reason);
    this.#options.console?.end(reason);
    const timers = [
      setTimeout(() => destroyAll(this.#unauthenticated.all()), FINAL_ERROR_MS),
      setTimeout(() => this.#open.endNow(reason), deadlineMs),
      setTimeout(() => destroyAll(this.#all), deadlineMs + FINAL_ERROR_MS),
    ];
    await closed;
    if (this.size > 0) await empty;
    for (const timer of timers) clearTimeout(timer);
  }

  /** Enabled later and not on connecting: it needs four system calls, and many clients disconnect at once. */
  #keepAlive(): void {
    for (const client of this.#all) client.keepAlive();
  }

  /** The number of connections. */
  get size(): number {
    return this.#unauthenticated.size + this.#clients.size + (this.#options.console?.size ?? 0);
  }

  get #all(): readonly ClientConnection[] {
    return [...this.#unauthenticated.all(), ...this.#clients.all()];
  }

  /** @throws ServiceError `too_many_connections`; ClientGone */
  async #admit(client: ClientConnection, { limitsId }: Tenant): Promise<void> {
    const { clients } = this.#options;
    if (!clients.tryEnter(ALL) && !(await clients.enter(ALL))) throw tooManyClients();
    if (!this.#unauthenticated.delete(client)) {
      clients.leave(ALL);
      throw new ClientGone();
    }
    this.#clients.add(client);
    client.stream.known?.(limitsId);
  }

  #forget(client: ClientConnection): void {
    if (!this.#unauthenticated.delete(client) && this.#options.console?.forget(client) !== true && this.#clients.delete(client)) {
      this.#options.clients.leave(ALL);
    }
    this.#options.observe({ name: 'wire.disconnected' });
    if (this.size === 0) this.#onEmpty?.();
  }

  /** Handles a connection until its session has started, which then runs by itself. */
  async #serve(client: ClientConnection, entrance: Entrance): Promise<void> {
    this.#unauthenticated.add(client);
    this.#options.observe({ name: 'wire.connected' });
    let isLate = false;
    const deadline = setTimeout(() => {
      isLate = true;
      client.destroy();
    }, this.#options.loginTimeoutMs);
    try {
      if (entrance.isProxy?.(client.remoteAddress)) await this.#readProxyHeader(client, () => isLate);
      const opening = await handshake(client, entrance.tls);
      if (opening.name === 'StartupMessage' && entrance.method === 'scram' && this.#options.console?.isFor(client, opening) === true) {
        await this.#serveOperator(client, opening, this.#options.console);
        clearTimeout(deadline);
      } else if (opening.name === 'StartupMessage') {
        const guest = await logIn(client, opening, entrance.method, this.#options.authenticator);
        await this.#admit(client, guest.tenant);
        this.#options.observe({ name: 'login.succeeded', origin: guest.origin, actor: actorOf(guest.tenant) });
        clearTimeout(deadline);
        await openSession(client, guest, this.#context);
      } else {
        await this.#options.router.cancelKeys.cancel({ processId: opening.processId, secret: opening.secretKey });
        clearTimeout(deadline);
        client.end();
      }
    } catch (error) {
      clearTimeout(deadline);
      if (this.#isRefusal(client, error) && this.#options.refusals.count(client.remoteAddress) !== undefined) await sleep(HOLD_MS);
      this.#report(client, error);
    }
  }

  /** From here on the client's address is the one that the proxy says. @throws ClientGone: whoever it is does not speak PostgreSQL's protocol yet */
  async #readProxyHeader(client: ClientConnection, isLate: () => boolean): Promise<void> {
    try {
      const { source } = await client.login.readProxyHeader();
      client.remoteAddress = source ?? client.remoteAddress;
    } catch (error) {
      // A health check that only connects has sent nothing.
      const reason = error instanceof ProxyHeaderError ? error.message : whyGone(isLate(), client.login.hasUnread);
      if (reason !== undefined) this.#options.observe({ name: 'proxy_header.refused', door: 'wire', reason });
      throw new ClientGone();
    }
  }

  /** Until the operator's session has started, which then runs by itself. */
  async #serveOperator(client: ClientConnection, startup: StartupMessage, console: OperatorConsole): Promise<void> {
    const origin = await logInOperator(client, startup, this.#options.authenticator);
    await console.enter();
    if (!this.#unauthenticated.delete(client)) {
      console.leave();
      throw new ClientGone();
    }
    console.open(client, startup, origin);
  }

  /** Whether the error counts against the client's address. */
  #isRefusal(client: ClientConnection, error: unknown): boolean {
    return error instanceof ServiceError && this.#unauthenticated.has(client) && NO_FAULT[error.kind] !== true;
  }

  /** Handles an error before the session has started. */
  #report(client: ClientConnection, error: unknown): void {
    if (error instanceof ClientGone) {
      if (!client.ended) client.destroy();
      return;
    }
    const isFailure = !(error instanceof PostgresError || (error instanceof ServiceError && error.kind !== 'internal'));
    if (isFailure) this.#options.observe({ name: 'service.failure', message: 'a wire connection failed', cause: error });
    client.end(errorResponse(error, 'FATAL'));
  }
}

function whyGone(isLate: boolean, hasBegun: boolean): string | undefined {
  if (isLate) return 'it did not arrive in time';
  return hasBegun ? 'the connection ended within it' : undefined;
}

function destroyAll(clients: readonly ClientConnection[]): void {
  for (const client of clients) client.destroy();
}

function shuttingDown(): ServiceError {
  return new ServiceError('shutting_down', 'terminating connection due to administrator command');
}

/**
 * The connections that are not authenticated yet. If there are too many, a random one is closed for each that comes. Real clients have
 * mostly logged in before they can be hit.
 */
class UnauthenticatedClients {
  readonly #clients = new IndexedSet<ClientConnection>();
  readonly #count: ConnectionCount<ClientConnection>;

  constructor(limit: OpenCountLimit) {
    this.#count = new ConnectionCount(limit, {
      evict: (isCounted) => this.#evict(isCounted),
      refuse: (client) => this.#refuse(client),
    });
  }

  get size(): number {
    return this.#clients.size;
  }

  all(): readonly ClientConnection[] {
    return this.#clients.all();
  }

  has(client: ClientConnection): boolean {
    return this.#clients.at(client.index) === client;
  }

  add(client: ClientConnection): void {
    this.#clients.add(client);
    this.#count.came(client);
  }

  /** @returns whether it was there */
  delete(client: ClientConnection): boolean {
    // Its index may be that in another set.
    if (!this.has(client)) return false;
    this.#clients.delete(client);
    this.#count.left(client);
    return true;
  }

  #evict(isCounted: (client: ClientConnection) => boolean): boolean {
    const { size } = this.#clients;
    const start = size > 0 ? randomInt(size) : 0;
    for (let n = 0; n < size; n += 1) {
      const client = this.#clients.at((start + n) % size);
      if (client === undefined || !isCounted(client)) continue;
      this.#refuse(client);
      return true;
    }
    return false;
  }

  /** Sends the reason and closes the connection without waiting for the client to read it. */
  #refuse(client: ClientConnection): void {
    client.write(errorResponse(tooManyClients(), 'FATAL'));
    client.destroy();
    this.delete(client);
  }
}
