import type { ServerResponse } from 'node:http';
import type { Server, Socket } from 'node:net';
import type { Observe } from '../src/observation.ts';
import { ConnectionCount, type CountLimit, type OpenCountLimit } from '../src/runtime/count-limit.ts';
import { ScheduledInput } from './scheduled-input.ts';
import { checkEveryMs, type HttpServer, type ServerDeadlines } from './server.ts';

export interface ConnectionLimitOptions {
  /** Of all processes that serve the port. */
  readonly limit: OpenCountLimit;
  /** Connections on which a valid key has been seen, by organization, of all processes too. New connections never close these. */
  readonly authenticated: CountLimit;
  readonly deadlines: ServerDeadlines;
  readonly observe: Observe;
  /** The warning for operators when the limit is reached. */
  readonly fullMessage: string;
}

interface Connection {
  readonly socket: Socket;
  readonly server: Server;
  isOpen: boolean;
  /** What a PROXY header said; undefined: there was none. */
  announced: string | undefined;
  /** Undefined while it is unauthenticated. */
  organizationId: string | undefined;
  /** Whether it counts among those of its organization that are kept; false also while that is not known. */
  isKept: boolean;
  /** The last request on it, which may not have arrived completely, and when it began. */
  reply: ServerResponse | undefined;
  since: number;
  /** Its neighbours among those that are unauthenticated. */
  older: Connection | undefined;
  newer: Connection | undefined;
}

const WARN_EVERY_MS = 60_000;

/**
 * All connections to a port, including those taken over by another protocol. At the maximum, the oldest connection on which
 * no valid key has been seen is closed: of this process, or if it has none, of another. An organization may have at most as many
 * authenticated connections as are left for others; further ones count as unauthenticated since their last request.
 */
export class ConnectionLimit {
  readonly #options: ConnectionLimitOptions;
  readonly #bySocket = new WeakMap<Socket, Connection>();
  /** Connections whose TLS handshake has not ended, by remote address and port. */
  readonly #handshakes = new Map<string, Connection>();
  readonly #count: ConnectionCount<Connection>;
  #oldest: Connection | undefined;
  #newest: Connection | undefined;
  #hasAnnounced = false;
  #warnedAt = -WARN_EVERY_MS;

  constructor(options: ConnectionLimitOptions) {
    this.#options = options;
    this.#count = new ConnectionCount(options.limit, {
      evict: (isCounted) => this.#evict(isCounted),
      refuse: (connection) => this.#close(connection),
    });
  }

  /** Must be called after all other listeners for the server's connections have been added. */
  watch({ server, opened }: Pick<HttpServer, 'server' | 'opened'>): void {
    const isTls = opened === 'secureConnection';
    server.on('connection', (socket: Socket) => this.#came(server, socket, isTls));
    if (isTls) server.on(opened, (socket: Socket) => this.#isEncrypted(socket));
    server.on('request', (request, reply) => this.#began(request.socket, reply));
    server.on('error', (cause) => {
      if (server.listening) this.#warn(`connections could not be taken: ${cause.message}`);
    });
    const checking = setInterval(() => this.#checkDeadlines(server), checkEveryMs(this.#options.deadlines)).unref();
    server.on('close', () => clearInterval(checking));
  }

  /** Called when a PROXY header says whose connection it is. */
  announced(socket: Socket, address: string): void {
    const connection = this.#bySocket.get(socket);
    if (connection !== undefined) connection.announced = address;
    this.#hasAnnounced = true;
  }

  /** The client's address: the one that was announced, else the socket's. */
  addressOf(socket: Socket): string {
    const announced = this.#hasAnnounced ? this.#bySocket.get(socket)?.announced : undefined;
    return announced ?? socket.remoteAddress ?? '';
  }

  /** Called when a request on the connection has a valid key of that organization. */
  authenticated(socket: Socket, organizationId: string): void {
    ScheduledInput.of(socket)?.belongsTo(organizationId);
    const connection = this.#bySocket.get(socket);
    if (connection === undefined || connection.organizationId !== undefined || !connection.isOpen) return;
    const { authenticated } = this.#options;
    this.#leaveQueue(connection);
    connection.reply = undefined;
    connection.isKept = authenticated.tryEnter(organizationId);
    if (!connection.isKept && authenticated.isFull(organizationId)) {
      this.#queue(connection);
      return;
    }
    connection.organizationId = organizationId;
    if (!connection.isKept) void this.#keep(connection, organizationId);
  }

  /** Until it is known whether it may be kept, it is. */
  async #keep(connection: Connection, organizationId: string): Promise<void> {
    const { authenticated } = this.#options;
    const isKept = await authenticated.enter(organizationId);
    if (!connection.isOpen) {
      if (isKept) authenticated.leave(organizationId);
      return;
    }
    connection.isKept = isKept;
    if (isKept) return;
    connection.organizationId = undefined;
    this.#queue(connection);
  }

  #came(server: Server, socket: Socket, isTls: boolean): void {
    // The event is repeated for a request to upgrade to an unknown protocol.
    if (this.#bySocket.has(socket)) return;
    const connection = newConnection(server, socket);
    this.#bySocket.set(socket, connection);
    this.#queue(connection);
    const peer = isTls ? peerOf(socket) : undefined;
    if (peer !== undefined) this.#handshakes.set(peer, connection);
    socket.once('close', () => {
      if (peer !== undefined) this.#handshakes.delete(peer);
      this.#leave(connection);
    });
    this.#options.observe({ name: 'http.connected' });
    this.#count.came(connection);
  }

  /** Closes the oldest that is unauthenticated. If it is not counted, the others have come after it. */
  #evict(isCounted: (connection: Connection) => boolean): boolean {
    this.#warn(this.#options.fullMessage);
    const oldest = this.#oldest;
    if (oldest === undefined || !isCounted(oldest)) return false;
    this.#close(oldest);
    return true;
  }

  #close(connection: Connection): void {
    this.#leave(connection);
    connection.socket.destroy();
  }

  /** Called when requests arrive on another socket from now on, which reads from that one. */
  #isEncrypted(socket: Socket): void {
    const connection = this.#handshakes.get(peerOf(socket));
    if (connection !== undefined) this.#bySocket.set(socket, connection);
  }

  #leave(connection: Connection): void {
    if (!connection.isOpen) return;
    connection.isOpen = false;
    this.#count.left(connection);
    if (connection.organizationId === undefined) this.#leaveQueue(connection);
    else if (connection.isKept) this.#options.authenticated.leave(connection.organizationId);
    this.#options.observe({ name: 'http.disconnected' });
  }

  #queue(connection: Connection): void {
    connection.older = this.#newest;
    if (this.#newest === undefined) this.#oldest = connection;
    else this.#newest.newer = connection;
    this.#newest = connection;
  }

  #leaveQueue(connection: Connection): void {
    const { older, newer } = connection;
    if (older === undefined) this.#oldest = newer;
    else older.newer = newer;
    if (newer === undefined) this.#newest = older;
    else newer.older = older;
    connection.older = undefined;
    connection.newer = undefined;
  }

  #began(socket: Socket, reply: ServerResponse): void {
    const connection = this.#bySocket.get(socket);
    if (connection === undefined || connection.organizationId !== undefined) return;
    connection.reply = reply;
    connection.since = performance.now();
  }

  /** While no valid key has been seen, a whole request must arrive within the timeout for headers. */
  #checkDeadlines(server: Server): void {
    const since = performance.now() - this.#options.deadlines.headersTimeoutMs;
    for (let at = this.#oldest; at !== undefined; at = at.newer) {
      if (at.server !== server || at.reply === undefined) continue;
      if (at.reply.req.complete) at.reply = undefined;
      else if (at.since < since) endLate(server, at.reply);
    }
  }

  #warn(message: string): void {
    if (performance.now() - this.#warnedAt < WARN_EVERY_MS) return;
    this.#warnedAt = performance.now();
    this.#options.observe({ name: 'service.warning', message });
  }
}

/** All properties are set from the beginning, because V8 is slow with objects that get more later. */
function newConnection(server: Server, socket: Socket): Connection {
  return {
    socket,
    server,
    isOpen: true,
    announced: undefined,
    organizationId: undefined,
    isKept: false,
    reply: undefined,
    since: 0,
    older: undefined,
    newer: undefined,
  };
}

/** Ends a connection as Node does when a request takes too long; after a reply has begun, without another one. */
function endLate(server: Server, { req, writableEnded }: ServerResponse): void {
  if (writableEnded) req.socket.destroy();
  else server.emit('clientError', Object.assign(new Error('Request timeout'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), req.socket);
}

function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
