import { randomUUID } from 'node:crypto';
import {
  createServer as createPlainServer,
  type RequestListener,
  type Server,
  type ServerOptions,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { Server as NetServer, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type ConnectionErrorCode, renderConnectionError } from '../errors.ts';
import { isAnswered, PipelinedResponses } from './pipelined-responses.ts';
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
  /** How long a client may take nothing of a reply that is waiting for it; then it is taken for gone. */
  readonly sendTimeoutMs: number;
}

/** How often to look for connections past their deadline; Node's default of 30 s would make deadlines vague. */
export function checkEveryMs({ headersTimeoutMs }: ServerDeadlines): number {
  return Math.min(1_000, Math.ceil(headersTimeoutMs / 4));
}

/** For servers whose deadlines nobody has set. */
export const DEADLINES: ServerDeadlines = {
  headersTimeoutMs: 15_000,
  requestTimeoutMs: 120_000,
  keepAliveTimeoutMs: 72_000,
  sendTimeoutMs: 60_000,
};

/** A Node server with deadlines, and with its connections in sight so that closing need not wait for idle ones. */
export interface HttpServer {
  readonly server: Server;
  /** The event by which the server learns of a connection. */
  readonly opened: 'connection' | 'secureConnection';
  /** Open connections that were not taken over. */
  readonly size: number;
  /** No more connections; on those that are open, replies say from now on that it ends with them. Others wait for one. */
  announceEnd(): void;
  /**
   * From now on every connection ends with the last reply that is due on it, and those on which none is due end at once.
   * Connections that were taken over are no longer this server's.
   */
  drain(): void;
  /** Closes all connections of its own, whatever they wait for. */
  closeAll(): void;
}

/** For Fastify, which would answer what is no HTTP in its own words: {@link createServer} sees to that. */
export function clientErrorHandler(): void {}

/** @param takeOver gets the requests that ask for another protocol; without it all are served as if they had not asked */
export function createServer(handler: RequestListener, deadlines: ServerDeadlines, tls?: TlsFiles, takeOver?: TakeOver): HttpServer {
  const options: ServerOptions = {
    // Node takes no longer time for a part than for the whole.
    headersTimeout: Math.min(deadlines.headersTimeoutMs, deadlines.requestTimeoutMs),
    requestTimeout: deadlines.requestTimeoutMs,
    keepAliveTimeout: deadlines.keepAliveTimeoutMs,
    connectionsCheckingInterval: checkEveryMs(deadlines),
    // Whoever handles requests refuses them as all others.
    requireHostHeader: false,
  };
  const server =
    tls === undefined ? createPlainServer(options) : createTlsServer({ ...options, ...tls, handshakeTimeout: deadlines.headersTimeoutMs });
  const opened = tls === undefined ? 'connection' : 'secureConnection';
  const replies = new PipelinedResponses(server, opened, handler);
  // Node starts this clock for a connection and for each request on it; between requests it goes by `keepAliveTimeout`.
  server.setTimeout(deadlines.sendTimeoutMs, (socket) => {
    // Silence alone is no fault of the client's: the reply may not have been made yet.
    if (socket.writableLength > 0 || replies.on(socket).length === 0) socket.destroy();
  });
  if (takeOver !== undefined) {
    acceptUpgrades(server, opened, (request, socket, head) => {
      if (replies.on(socket).length === 0) return takeOver(request, withoutTimeout(socket), head) && replies.forget(socket);
      // Earlier requests are not answered yet. No client asks so soon, and two protocols at a time cannot be kept apart.
      socket.destroy();
      return true;
    });
  }
  // Nobody has to refuse what they do not know to be expected (RFC 9110 section 10.1.1), and Node would do so without a word.
  server.on('checkExpectation', (request, reply) => server.emit('request', request, reply));
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (!isNonsense(error) || !replies.closeAfterLast(socket)) refuseConnection(error, socket, replies.on(socket));
  });
  return {
    server,
    opened,
    get size() {
      return replies.size;
    },
    announceEnd: () => {
      // HTTP's own way to close would not let the others wait.
      if (server.listening) NetServer.prototype.close.call(server);
      replies.announceEnd();
    },
    drain: () => replies.drain(),
    closeAll: () => replies.closeAll(),
  };
}

/** Another protocol has clocks of its own. */
function withoutTimeout(socket: Duplex): Duplex {
  if (socket instanceof Socket) socket.setTimeout(0);
  return socket;
}

/** Bytes that are no HTTP; not those that are missing at the end. */
function isNonsense({ code }: NodeJS.ErrnoException): boolean {
  return code?.startsWith('HPE_') === true && code !== 'HPE_INVALID_EOF_STATE';
}

/** Bytes that are no HTTP, or come too slowly. An answer is written only where it cannot be taken for another one, or for a part of it. */
function refuseConnection(error: NodeJS.ErrnoException, socket: Duplex, due: readonly ServerResponse[]): void {
  const isOtherDue = due.some(isAnswered);
  if (socket.writable && !isOtherDue && error.code !== 'ECONNRESET') socket.write(refusal(error));
  socket.destroy();
}

/** Closes a connection on which nothing, or not all of a request, has come in time. */
export function refuseLate(socket: Socket): void {
  if (socket.writable) socket.write(tooLate());
  socket.destroy();
}

/** Closes a connection on which the end has come before all of a request. */
export function refuseHalf(socket: Socket): void {
  if (socket.writable) socket.write(malformed());
  socket.destroy();
}

function malformed(): string {
  return wholeReply('malformed_request', 'the request is not valid HTTP');
}

function tooLate(): string {
  return wholeReply('request_timeout', 'the request did not arrive in time');
}

/** @see https://nodejs.org/api/http.html#event-clienterror */
function refusal(error: NodeJS.ErrnoException): string {
  switch (error.code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return tooLate();
    case 'HPE_HEADER_OVERFLOW':
      return wholeReply('headers_too_large', 'the request headers are too large');
    default:
      return malformed();
  }
}

function wholeReply(code: ConnectionErrorCode, message: string): string {
  const requestId = randomUUID();
  const problem = renderConnectionError(code, message, requestId);
  const body = JSON.stringify(problem);
  return [
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status] ?? ''}`,
    'content-type: application/problem+json',
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
    'cache-control: no-store',
    'connection: close',
    '',
    body,
  ].join('\r\n');
}
