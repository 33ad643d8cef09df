import { createServer as createPlainServer, type RequestListener, type Server, type ServerOptions } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { Server as NetServer, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { isMalformedRequest, refuseConnection } from './connection-errors.ts';
import { PipelinedResponses } from './pipelined-responses.ts';
import { acceptUpgrades, type TakeOver } from './upgrade.ts';

/** PEM certificate and key. */
export interface TlsFiles {
  readonly cert: Buffer | string;
  readonly key: Buffer | string;
}

export interface ServerDeadlines {
  /** From the first byte of a request to the end of its headers. */
  readonly headersTimeoutMs: number;
  /** From the first byte of a request to the end of its body. */
  readonly requestTimeoutMs: number;
  /** How long a connection without a request is kept. */
  readonly keepAliveTimeoutMs: number;
  /** How long a client may read nothing of a reply before the connection is closed. */
  readonly sendTimeoutMs: number;
}

/** How often Node checks deadlines. Its default of 30 s would make them imprecise. */
export function checkEveryMs({ headersTimeoutMs }: ServerDeadlines): number {
  return Math.min(1_000, Math.ceil(headersTimeoutMs / 4));
}

/** Deadlines of servers that set none. */
export const DEADLINES: ServerDeadlines = {
  headersTimeoutMs: 15_000,
  requestTimeoutMs: 120_000,
  keepAliveTimeoutMs: 72_000,
  sendTimeoutMs: 60_000,
};

/** A Node server with deadlines. It knows its connections, so that closing need not wait for idle ones. */
export interface HttpServer {
  readonly server: Server;
  /** The server's event for a new connection. */
  readonly opened: 'connection' | 'secureConnection';
  /** The open connections, except those taken over. */
  readonly size: number;
  /** Replies have `Connection: close` from now on; idle connections stay open. */
  announceEnd(): void;
  /** Accepts no more connections. */
  stopListening(): void;
  /**
   * Closes idle connections at once and the others after their last pending reply. Connections that were taken over
   * do not belong to this server any more.
   */
  drain(): void;
  /** Closes all its connections at once. */
  closeAll(): void;
}

/** Keeps Fastify from answering malformed requests; {@link createServer} does. */
export function clientErrorHandler(): void {}

/** @param takeOver called with upgrade requests; without it they are served as ordinary requests */
export function createServer(handler: RequestListener, deadlines: ServerDeadlines, tls?: TlsFiles, takeOver?: TakeOver): HttpServer {
  const options: ServerOptions = {
    // Node refuses a headers timeout that is longer than the request timeout.
    headersTimeout: Math.min(deadlines.headersTimeoutMs, deadlines.requestTimeoutMs),
    requestTimeout: deadlines.requestTimeoutMs,
    keepAliveTimeout: deadlines.keepAliveTimeoutMs,
    connectionsCheckingInterval: checkEveryMs(deadlines),
    // The request handler refuses requests without a Host header, as it does other invalid ones.
    requireHostHeader: false,
  };
  const server =
    tls === undefined ? createPlainServer(options) : createTlsServer({ ...options, ...tls, handshakeTimeout: deadlines.headersTimeoutMs });
  const opened = tls === undefined ? 'connection' : 'secureConnection';
  const replies = new PipelinedResponses(server, opened, handler);
  // Node starts this timeout for a connection and for each request on it; between requests `keepAliveTimeout` counts.
  server.setTimeout(deadlines.sendTimeoutMs, (socket) => {
    // Without unread bytes the client is not at fault: the reply may not be ready yet.
    if (socket.writableLength > 0 || replies.on(socket).length === 0) socket.destroy();
  });
  if (takeOver !== undefined) {
    acceptUpgrades(server, opened, (request, socket, head) => {
      if (replies.on(socket).length === 0) return takeOver(request, withoutTimeout(socket), head) && replies.forget(socket);
      // Earlier requests are not answered yet. No real client does this, and two protocols at the same time cannot be distinguished.
      socket.destroy();
      return true;
    });
  }
  // A server may ignore unknown expectations (RFC 9110 section 10.1.1). Node would refuse them with an empty 417.
  server.on('checkExpectation', (request, reply) => server.emit('request', request, reply));
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (!isMalformedRequest(error) || !replies.closeAfterLast(socket)) refuseConnection(error, socket, replies.on(socket));
  });
  return {
    server,
    opened,
    get size() {
      return replies.size;
    },
    announceEnd: () => replies.announceEnd(),
    stopListening: () => {
      // The http module's own close would end idle connections at once.
      if (server.listening) NetServer.prototype.close.call(server);
    },
    drain: () => replies.drain(),
    closeAll: () => replies.closeAll(),
  };
}

/** Removes HTTP's timeouts; another protocol has its own. */
function withoutTimeout(socket: Duplex): Duplex {
  if (socket instanceof Socket) socket.setTimeout(0);
  return socket;
}
