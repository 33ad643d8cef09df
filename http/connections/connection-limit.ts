import type { ServerResponse } from 'node:http';
import type { Server, Socket } from 'node:net';
import type { Observe } from '../../src/observation.ts';
import { MemoryBudget } from '../../src/runtime/memory-budget.ts';
import { checkEveryMs, type HttpServer, type ServerDeadlines } from './server.ts';

export interface ConnectionLimitOptions {
  readonly max: number;
  readonly deadlines: ServerDeadlines;
  readonly observe: Observe;
  /** What an operator hears when there are as many as there may be. */
  readonly fullMessage: string;
}

interface Connection {
  readonly socket: Socket;
  readonly server: Server;
  isOpen: boolean;
  /** Undefined as long as it is unauthenticated. */
  organizationId: string | undefined;
  /** To the last request on it that a server has taken and that may not have come as a whole; and since when. */
  reply: ServerResponse | undefined;
  since: number;
  /** Its neighbours among those that are unauthenticated. */
  older: Connection | undefined;
  newer: Connection | undefined;
}

const WARN_EVERY_MS = 60_000;

/**
 * All connections to a port, those that were taken over for another protocol too. At the maximum, the oldest one goes on which
 * no valid key has been seen. An organization has no more of those that stay than are left for others: what it has beyond that
 * counts as unauthenticated, from its last request on.
 */
export class ConnectionLimit {
  readonly #options: ConnectionLimitOptions;
  readonly #authenticated: MemoryBudget;
  readonly #bySocket = new WeakMap<Socket, Connection>();
  /** Of connections whose TLS handshake is not over, by the address and port at the other end. */
  readonly #handshakes = new Map<string, Connection>();
  #size = 0;
  #oldest: Connection | undefined;
  #newest: Connection | undefined;
  #warnedAt = -WARN_EVERY_MS;

  constructor(options: ConnectionLimitOptions) {
    const { max } = options;
    this.#options = options;
    this.#authenticated = new MemoryBudget({ perOrganizationBytes: max, allBytes: max });
  }

  get size(): number {
    return this.#size;
  }

  /** To be called when all others listen to the server that take connections from it. */
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

  /** A request on it has shown a valid key of that organization. */
  authenticated(socket: Socket, organizationId: string): void {
    const connection = this.#bySocket.get(socket);
    if (connection === undefined || connection.organizationId !== undefined || !connection.isOpen) return;
    this.#leaveQueue(connection);
    connection.reply = undefined;
    if (this.#authenticated.exhaustedBy(organizationId, 1) !== undefined) {
      this.#queue(connection);
      return;
    }
    connection.organizationId = organizationId;
    this.#authenticated.count(organizationId, 1);
  }

  #came(server: Server, socket: Socket, isTls: boolean): void {
    // It comes again from a request for another protocol that nobody here speaks.
    if (this.#bySocket.has(socket)) return;
    if (this.#size >= this.#options.max) this.#makeRoom();
    const connection = newConnection(server, socket);
    this.#size += 1;
    this.#bySocket.set(socket, connection);
    this.#queue(connection);
    const peer = isTls ? peerOf(socket) : undefined;
    if (peer !== undefined) this.#handshakes.set(peer, connection);
    socket.once('close', () => {
      if (peer !== undefined) this.#handshakes.delete(peer);
      this.#leave(connection);
    });
    this.#options.observe({ name: 'http.connected' });
    // All others have shown valid keys.
    if (this.#size > this.#options.max) this.#sendAway(connection);
  }

  #makeRoom(): void {
    this.#warn(this.#options.fullMessage);
    if (this.#oldest !== undefined) this.#sendAway(this.#oldest);
  }

  #sendAway(connection: Connection): void {
    this.#leave(connection);
    connection.socket.destroy();
  }

  /** From now on requests come from another socket, which reads from that one. */
  #isEncrypted(socket: Socket): void {
    const connection = this.#handshakes.get(peerOf(socket));
    if (connection !== undefined) this.#bySocket.set(socket, connection);
  }

  #leave(connection: Connection): void {
    if (!connection.isOpen) return;
    connection.isOpen = false;
    this.#size -= 1;
    if (connection.organizationId === undefined) this.#leaveQueue(connection);
    else this.#authenticated.count(connection.organizationId, -1);
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

  /** As long as no valid key has been seen, all of a request has to come in the time that its headers may take. */
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

/** With all that it may ever have from the beginning: the engine deals slowly with objects that grow. */
function newConnection(server: Server, socket: Socket): Connection {
  return {
    socket,
    server,
    isOpen: true,
    organizationId: undefined,
    reply: undefined,
    since: 0,
    older: undefined,
    newer: undefined,
  };
}

/** As Node ends one whose request takes too long; after its answer without another word. */
function endLate(server: Server, { req, writableEnded }: ServerResponse): void {
  if (writableEnded) req.socket.destroy();
  else server.emit('clientError', Object.assign(new Error('Request timeout'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), req.socket);
}

function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
