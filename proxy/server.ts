import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { ServiceError } from '../src/errors.ts';
import type { Observe, Origin } from '../src/observation.ts';
import { PostgresError } from '../src/protocol/backend.ts';
import type { StartupMessage } from '../src/protocol/startup.ts';
import type { Router } from '../src/router/router.ts';
import { authenticate, type LoginMethod } from './authentication.ts';
import { ClientConnection, ClientGone } from './connection.ts';
import { errorResponse } from './errors.ts';
import { handshake, type TlsPolicy } from './handshake.ts';
import { serve } from './session.ts';
import { TenantDirectory } from './tenant-sessions.ts';
import { Watchdog, type WatchdogLimits } from './watchdog.ts';

export interface WireServerOptions extends WatchdogLimits {
  readonly router: Router;
  readonly observe: Observe;
  readonly tls: TlsPolicy;
  readonly loginTimeoutMs: number;
  /** Client connections at once: all, and each organization's. */
  readonly clientsMax: number;
  readonly clientsPerTenant: number;
}

const KEEPALIVE_MS = 30_000;
const MAX_NAME_BYTES = 63;

/** The wire door: PostgreSQL's protocol on a TCP port. */
export class WireServer {
  readonly #options: WireServerOptions;
  readonly #server: Server;
  readonly #clients = new Set<Socket>();
  readonly #tenants = new TenantDirectory();
  readonly #stopping = new AbortController();
  readonly #watchdog: Watchdog;

  constructor(options: WireServerOptions) {
    this.#options = options;
    this.#watchdog = new Watchdog(options);
    this.#server = createServer({ allowHalfOpen: true, noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_MS }, (socket) => {
      void this.#accept(socket);
    });
  }

  /** @returns the port, which is another than asked for where 0 was */
  async listen(host: string, port: number): Promise<number> {
    this.#server.listen(port, host);
    await once(this.#server, 'listening');
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : port;
  }

  /** Stops listening, ends all sessions with 57P01, and resolves when the last has gone or `deadlineMs` have passed. */
  async close(deadlineMs: number): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#stopping.abort(new ServiceError('shutting_down', 'terminating connection due to administrator command'));
    const timer = setTimeout(() => {
      for (const socket of this.#clients) socket.destroy();
    }, deadlineMs);
    await closed;
    clearTimeout(timer);
  }

  async #accept(socket: Socket): Promise<void> {
    const { observe } = this.#options;
    this.#clients.add(socket);
    observe({ name: 'wire.connected' });
    socket.once('close', () => {
      this.#clients.delete(socket);
      observe({ name: 'wire.disconnected' });
    });
    const client = new ClientConnection(socket);
    try {
      await this.#converse(client);
      client.end();
    } catch (error) {
      this.#tell(client, error);
    }
  }

  /** A connection's whole life, from its first byte. */
  async #converse(client: ClientConnection): Promise<void> {
    const deadline = setTimeout(() => client.destroy(), this.#options.loginTimeoutMs);
    try {
      const opening = await handshake(client, this.#options.tls);
      if (opening.name === 'CancelRequest') {
        await this.#options.router.cancelKeys.cancel({ processId: opening.processId, secret: opening.secretKey });
        return;
      }
      await this.#login(client, opening, deadline);
    } finally {
      clearTimeout(deadline);
    }
  }

  async #login(client: ClientConnection, startup: StartupMessage, deadline: NodeJS.Timeout): Promise<void> {
    const { router, observe } = this.#options;
    if (this.#clients.size > this.#options.clientsMax) throw new ServiceError('too_many_connections', 'sorry, too many clients already');
    const user = requiredUser(startup);
    const replication = wantsReplication(startup);
    const origin = originOf(client, startup);
    const tenant = await authenticate(client, user, router, loginMethod(client), origin);
    clearTimeout(deadline);
    if (replication) throw new ServiceError('unsupported_protocol', 'replication connections are not supported');
    const database = startup.parameters.get('database') || user;
    if (database !== tenant.organization.id) throw new ServiceError('unknown_database', `database "${database}" does not exist`);
    observe({ name: 'login.succeeded', origin, actor: { organizationId: user, keyId: tenant.key.id, keyPrefix: tenant.key.prefix } });
    const shared = this.#tenants.enter(user);
    try {
      if (shared.count > this.#options.clientsPerTenant) {
        throw new ServiceError('too_many_connections', `too many connections for organization "${user}"`);
      }
      await serve(client, tenant, startup, origin, { router, observe, shared, watchdog: this.#watchdog, stopping: this.#stopping.signal });
    } finally {
      this.#tenants.leave(shared);
    }
  }

  #tell(client: ClientConnection, error: unknown): void {
    if (error instanceof ClientGone) {
      if (!client.ended) client.destroy();
      return;
    }
    if (error instanceof PostgresError || error instanceof ServiceError) {
      client.end(errorResponse(error, 'FATAL'));
      return;
    }
    this.#options.observe({ name: 'service.failure', message: 'a wire connection failed', cause: error });
    client.end(errorResponse(error, 'FATAL'));
  }
}

function loginMethod({ channelBinding }: ClientConnection): LoginMethod {
  return { method: 'scram', channelBinding };
}

/** As in Postgres, what is longer than a name can be is cut. */
function requiredUser({ parameters }: StartupMessage): string {
  const user = Buffer.from(parameters.get('user') ?? '')
    .subarray(0, MAX_NAME_BYTES)
    .toString();
  if (user === '') throw new ServiceError('not_allowed', 'no PostgreSQL user name specified in startup packet');
  return user;
}

/** @returns whether the client wants to be a replica */
function wantsReplication({ parameters }: StartupMessage): boolean {
  const value = parameters.get('replication') ?? 'false';
  if (/^(?:f|fa|fal|fals|false|n|no|of|off|0)$/i.test(value)) return false;
  if (/^(?:t|tr|tru|true|y|ye|yes|on|1|database)$/i.test(value)) return true;
  throw new ServiceError('invalid_request', `invalid value for parameter "replication": "${value}"`, {
    hint: 'Valid values are: "false", 0, "true", 1, "database".',
  });
}

function originOf(client: ClientConnection, { parameters }: StartupMessage): Origin {
  const applicationName = parameters.get('application_name');
  return { surface: 'wire', sourceIp: client.remoteAddress, ...(applicationName === undefined ? {} : { applicationName }) };
}
