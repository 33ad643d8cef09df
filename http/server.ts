import { randomUUID } from 'node:crypto';
import {
  createServer as createPlainServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerOptions,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { Server as NetServer, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type ConnectionErrorCode, renderConnectionError } from './errors.ts';
import { ScheduledInput } from './scheduled-input.ts';

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
  /** Resolves when the requests that have been read are known. */
  caughtUp(): Promise<void>;
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
      if (!server.listening) return;
      // The http module's own close would end idle connections at once. Bun's servers have no other.
      const isOfNet: boolean = server instanceof NetServer;
      if (isOfNet) NetServer.prototype.close.call(server);
      else server.close();
    },
    caughtUp: () => replies.caughtUp(),
    drain: () => replies.drain(),
    closeAll: () => replies.closeAll(),
  };
}

/** Removes HTTP's timeouts; another protocol has its own. */
function withoutTimeout(socket: Duplex): Duplex {
  if (socket instanceof Socket) socket.setTimeout(0);
  return socket;
}

/**
 * Takes over the connection of an upgrade request.
 * @param head bytes already received after the request
 * @returns false: the protocol is not supported
 */
export type TakeOver = (request: IncomingMessage, socket: Duplex, head: Buffer) => boolean;

/**
 * Lets connections be taken over. Node then emits `upgrade` for every request with an Upgrade header, even for those of clients
 * that offer HTTP/2 (Java's, curl's) and send a body. A server may ignore the header (RFC 9110 section 7.8), so these are
 * served as ordinary requests.
 * @param opened the server's event for a new connection
 */
function acceptUpgrades(server: Server, opened: string, takeOver: TakeOver): void {
  server.on('upgrade', (request, socket, head) => {
    if (takeOver(request, socket, head)) return;
    socket.unshift(Buffer.concat([withoutUpgrade(request), head]));
    server.emit(opened, socket);
  });
}

const OF_THE_UPGRADE = new Set(['upgrade', 'http2-settings']);

/** The head of the request, without the upgrade headers. */
function withoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const [name = '', value = ''] = rawHeaders.slice(i, i + 2);
    const kept = name.toLowerCase() === 'connection' ? otherOptions(value) : value;
    if (kept !== undefined && !OF_THE_UPGRADE.has(name.toLowerCase())) lines.push(`${name}: ${kept}`);
  }
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
}

/** A Connection header without `upgrade`. */
function otherOptions(connection: string): string | undefined {
  const others = connection.split(',').filter((option) => !OF_THE_UPGRADE.has(option.trim().toLowerCase()));
  return others.length > 0 ? others.join(',') : undefined;
}

/** Parse errors, except those for a request that ends early. */
function isMalformedRequest({ code }: NodeJS.ErrnoException): boolean {
  return code?.startsWith('HPE_') === true && code !== 'HPE_INVALID_EOF_STATE';
}

/** Handles malformed or too slow requests. An error reply is written only if it cannot be mistaken for another reply or a part of one. */
function refuseConnection(error: NodeJS.ErrnoException, socket: Duplex, due: readonly ServerResponse[]): void {
  const isOtherDue = due.some(isAnswered);
  if (socket.writable && !isOtherDue && error.code !== 'ECONNRESET') socket.write(refusal(error));
  socket.destroy();
}

/** Closes a connection whose request has not arrived completely in time. */
export function refuseTimedOut(socket: Socket): void {
  if (socket.writable) socket.write(tooLate());
  socket.destroy();
}

/** Closes a connection that the client has ended within a request. */
export function refuseIncomplete(socket: Socket): void {
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

/** How many requests may wait on one connection before it is not read any more. All requests of the last chunk may exceed it. */
const WAITING_MAX = 100;
const NONE: readonly ServerResponse[] = [];

/**
 * The pending replies of each open connection. There is mostly one, so no Set is made for it. Pipelined requests are
 * carried out one after another, because one may depend on the one before.
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-9.3.2
 */
class PipelinedResponses {
  readonly #handler: RequestListener;
  /** On each connection the first request is being carried out; the others wait. */
  readonly #due = new Map<Duplex, ServerResponse[]>();
  readonly #held = new WeakSet<Duplex>();
  readonly #ending = new WeakSet<Duplex>();
  #isEnding = false;

  /** @param opened the server's event for a new connection */
  constructor(server: Server, opened: string, handler: RequestListener) {
    this.#handler = handler;
    server.on(opened, (socket: Duplex) => {
      // The event is repeated after a request to upgrade to another protocol.
      if (this.#due.has(socket)) return;
      this.#due.set(socket, []);
      socket.on('close', () => this.forget(socket));
    });
    server.on('request', (_, reply) => this.#add(reply));
  }

  get size(): number {
    return this.#due.size;
  }

  on(socket: Duplex): readonly ServerResponse[] {
    return this.#due.get(socket) ?? NONE;
  }

  forget(socket: Duplex): boolean {
    return this.#due.delete(socket);
  }

  /**
   * Closes the connection after the last reply to a complete request, because the bytes after that are malformed: a body that is
   * longer than its Content-Length gets the reply to the part within it.
   * @returns false if no such reply is pending
   */
  closeAfterLast(socket: Duplex): boolean {
    if (this.#ending.has(socket)) return true;
    const last = this.on(socket).findLast(isAnswered);
    if (last === undefined) return false;
    this.#ending.add(socket);
    last.shouldKeepAlive = false;
    last.once('close', () => (socket instanceof Socket ? socket.destroySoon() : socket.destroy()));
    // Node would report the end of the stream as another parse error.
    socket.once('end', () => socket.destroy());
    return true;
  }

  announceEnd(): void {
    this.#isEnding = true;
    for (const due of this.#due.values()) {
      const last = due.at(-1);
      if (last !== undefined) last.shouldKeepAlive = false;
    }
  }

  async caughtUp(): Promise<void> {
    await Promise.all([...this.#due.keys()].map((socket) => ScheduledInput.of(socket)?.caughtUp()));
  }

  drain(): void {
    this.announceEnd();
    for (const [socket, due] of this.#due) if (due.length === 0) socket.destroy();
  }

  closeAll(): void {
    for (const [socket, due] of this.#due) {
      this.forget(socket);
      // Node emits the event after the listeners have been removed.
      due[0]?.emit('close');
      socket.destroy();
    }
  }

  #add(reply: ServerResponse): void {
    const { socket } = reply.req;
    const due = this.#due.get(socket);
    if (due === undefined) {
      this.#handler(reply.req, reply);
      return;
    }
    due.push(reply);
    if (this.#isEnding) reply.shouldKeepAlive = false;
    if (due.length === 1) this.#begin(socket, due, reply);
    else if (due.length >= WAITING_MAX && !this.#held.has(socket)) this.#hold(socket);
  }

  #begin(socket: Socket, due: ServerResponse[], reply: ServerResponse): void {
    reply.once('close', () => this.#done(socket, due));
    this.#handler(reply.req, reply);
  }

  #done(socket: Socket, due: ServerResponse[]): void {
    due.shift();
    const next = due[0];
    if (next === undefined) {
      if (this.#isEnding) socket.destroySoon();
      return;
    }
    // Other connections are served in between, however many requests wait here.
    const begin = () => {
      if (socket.writable && this.#due.has(socket)) this.#begin(socket, due, next);
    };
    const input = ScheduledInput.of(socket);
    if (input === undefined) setImmediate(begin);
    else input.schedule(begin);
    if (due.length === WAITING_MAX / 2 && this.#held.delete(socket)) socket.resume();
  }

  /** Stops reading from the client until some requests are answered. Node resumes reading after each request that it parses. */
  #hold(socket: Socket): void {
    this.#held.add(socket);
    process.nextTick(() => socket.pause());
  }
}

/** Whether a reply has begun, or will be made because its request has arrived completely. */
function isAnswered(reply: ServerResponse): boolean {
  return reply.headersSent ? !reply.writableFinished : reply.req.complete;
}
