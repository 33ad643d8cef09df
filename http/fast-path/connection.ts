import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Tenant } from '../../src/router/lease.ts';
import { turnStartedAt } from '../../src/runtime/event-loop.ts';
import { type Indexed, IndexedSet } from '../../src/runtime/indexed-set.ts';
import type { InputSource, OrganizationInput } from '../../src/runtime/input-scheduler.ts';
import { MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { readIntoSharedBuffer, readThroughStream } from '../../src/runtime/reused-read-buffers.ts';
import { parseJson } from '../json-body.ts';
import type { RequestContext } from '../request-context.ts';
import { type QueryBody, usualQuery } from '../request-schemas.ts';
import { ScheduledInput } from '../scheduled-input.ts';
import { checkEveryMs, type HttpServer, refuseIncomplete, refuseTimedOut, type ServerDeadlines } from '../server.ts';
import { type ExchangeContext, QueryExchange, type Refusal, RefusedExchange, refusalOf, refusalOfQuery } from './exchange.ts';
import { PLAIN_MAX_BYTES, type PlainQueryRequest, type RefusableRequest, readPlainQueryRequest, readRefusable } from './request.ts';

/** The owner of connections on which only plain requests have arrived. */
interface FastPathHost {
  readonly context: ExchangeContext;
  readonly deadlines: ServerDeadlines;
  /** Replies have `Connection: close`. */
  readonly isEnding: boolean;
  /** No more requests are accepted here; the server refuses them. */
  readonly isDraining: boolean;
  /** The memory of requests that have not arrived completely. */
  readonly parts: MemoryBudget;
  /** Passes the connection to the server, with the bytes received of a request. */
  leave(connection: FastPathConnection, bytes: Buffer): void;
  closed(connection: FastPathConnection): void;
}

/** A client's connection, while all its requests are plain queries, or are refused. */
class FastPathConnection implements Indexed, InputSource {
  index = -1;
  readonly socket: Socket;
  readonly #host: FastPathHost;
  #exchange: QueryExchange | RefusedExchange | undefined;
  /** An incomplete request, or bytes received while another request is being answered. */
  #received: Buffer | undefined;
  /** For all of a request whose body has come in part. */
  #reserved: MemoryReservation | undefined;
  /** Schedules the input of the organization; set with its first request. */
  #input: OrganizationInput | undefined;
  /** The digest of the organization's key. */
  #inputKey: string | undefined;
  /** Input is handled in a later turn. */
  #isDeferred = false;
  #lastHead: Buffer | undefined;
  #lastRequest: PlainQueryRequest | RefusableRequest | undefined;
  #hasServed = false;
  #waitsSince = performance.now();

  constructor(socket: Socket, host: FastPathHost) {
    this.socket = socket;
    this.#host = host;
    // A connection that comes back from Node's server has its input through the stream.
    if (!(socket instanceof TLSSocket) && ScheduledInput.of(socket) === undefined) readIntoSharedBuffer(socket);
    socket.on('data', this.#data);
    socket.on('end', this.#ended);
    socket.on('timeout', this.#timedOut);
    socket.on('error', ignore);
    socket.on('close', this.#closed);
    socket.setTimeout(host.deadlines.sendTimeoutMs);
  }

  /** The request that is being served, unless it is being refused. */
  get call(): RequestContext | undefined {
    return this.#exchange instanceof QueryExchange ? this.#exchange.call : undefined;
  }

  /** Ends the connection with the pending reply, or with the next. */
  announceEnd(): void {
    if (this.#exchange !== undefined) this.#exchange.keepAliveS = undefined;
  }

  /** Ends the connection with the pending reply, or at once if there is none. */
  drain(): void {
    if (this.#exchange === undefined && !this.#isDeferred) this.socket.destroy();
  }

  /** Ends the running request and reports it, before the socket's close event. */
  cutOff(): void {
    this.#exchange?.gone();
    this.socket.destroy();
  }

  /** Closes the connection when it has been idle for too long. */
  checkDeadline(now: number): void {
    if (this.#exchange !== undefined || this.#isDeferred) return;
    const { headersTimeoutMs, requestTimeoutMs, keepAliveTimeoutMs } = this.#host.deadlines;
    const waited = now - this.#waitsSince;
    if (this.#received !== undefined) {
      if (waited > requestTimeoutMs) refuseTimedOut(this.socket);
    } else if (!this.#hasServed) {
      if (waited > headersTimeoutMs) refuseTimedOut(this.socket);
    } else if (waited > keepAliveTimeoutMs) {
      this.socket.destroy();
    }
  }

  readonly #data = (chunk: Buffer): void => {
    turnStartedAt();
    const received = this.#received === undefined ? chunk : Buffer.concat([this.#received, chunk]);
    const input = this.#input;
    if (this.#exchange !== undefined || this.#isDeferred) this.#keep(received);
    else if (input === undefined) this.#take(received);
    else if (input.begin()) {
      this.#take(received);
      input.end();
    } else {
      this.#isDeferred = true;
      this.#keep(received);
      input.defer(this);
    }
  };

  handleInput(): void {
    const { socket } = this;
    this.#isDeferred = false;
    if (socket.isPaused()) socket.resume();
    if (this.#received !== undefined && !socket.destroyed) this.#take(this.#received);
    if (socket.readableEnded) this.#ended();
  }

  /** Keeps the bytes until the request that is being served has been answered, or the scheduler has time for them. */
  #keep(bytes: Buffer): void {
    this.#received = bytes;
    if (bytes.length > PLAIN_MAX_BYTES) this.socket.pause();
  }

  #take(bytes: Buffer): void {
    const request = this.#host.isDraining ? undefined : this.#read(bytes);
    if (request === undefined || request.end < bytes.length) this.#leave(bytes);
    else if (request.kind === 'refusable') this.#takeRefusable(request, bytes);
    else this.#takePlain(request, bytes);
  }

  #takeRefusable(request: RefusableRequest, bytes: Buffer): void {
    const refusal = request.end === bytes.length ? refusalOf(this.#host.context, request) : undefined;
    if (refusal === undefined) this.#leave(bytes);
    else this.#refuse(request, refusal);
  }

  #takePlain(request: PlainQueryRequest, bytes: Buffer): void {
    const { authenticator, clientAddress } = this.#host.context;
    const tenant = authenticator.recognize(request.keyDigest, () => clientAddress(this.socket, request.forwardedFor));
    if (request.end > bytes.length) {
      this.#wait(bytes, request, tenant);
      return;
    }
    const refusal = tenant === undefined ? refusalOfQuery(this.#host.context, request) : undefined;
    if (refusal === undefined) this.#serve(request, bytes, tenant);
    else this.#refuse(request, refusal);
  }

  /** Most requests on a connection have the same head. */
  #read(bytes: Buffer): PlainQueryRequest | RefusableRequest | undefined {
    const head = this.#lastHead;
    if (head !== undefined && bytes.length >= head.length && bytes.compare(head, 0, head.length, 0, head.length) === 0)
      return this.#lastRequest;
    const { config, isServedHost, hasCors } = this.#host.context;
    const request = readPlainQueryRequest(bytes, config.POSTERN_HTTP_BODY_MAX_BYTES) ?? readRefusable(bytes);
    if (request !== undefined && (!isServedHost(request.host) || (hasCors && request.origin !== undefined))) return undefined;
    this.#lastRequest = request;
    this.#lastHead = request && Buffer.from(bytes.subarray(0, request.bodyStart));
    return request;
  }

  /** Waits for the rest of a body, if the key is known. Otherwise the server handles the request; it authenticates before it reads the body. */
  #wait(bytes: Buffer, { end }: PlainQueryRequest, tenant: Tenant | undefined): void {
    if (this.#reserved === undefined) {
      const reserved = tenant && new MemoryReservation(this.#host.parts, tenant.limitsId, 0);
      if (reserved === undefined || reserved.tryResize(end) !== undefined) {
        this.#leave(bytes);
        return;
      }
      this.#reserved = reserved;
      this.#waitsSince = performance.now();
    }
    this.#received = bytes;
  }

  #release(): void {
    this.#reserved?.end();
    this.#reserved = undefined;
  }

  /** Starts a request. `#served` is called when its reply has been sent. */
  #serve(request: PlainQueryRequest, bytes: Buffer, tenant: Tenant | undefined): void {
    const body = readBody(bytes.subarray(request.bodyStart));
    if (body === undefined) {
      this.#leave(bytes);
      return;
    }
    this.#release();
    this.#received = undefined;
    this.#scheduleAs(request.keyDigest, tenant);
    const exchange = new QueryExchange(this.#host.context, this.socket, request, this.#keepAliveS, this.#served);
    this.#exchange = exchange;
    exchange.start(request, body, tenant);
  }

  #refuse(request: PlainQueryRequest | RefusableRequest, refusal: Refusal): void {
    this.#release();
    this.#received = undefined;
    const exchange = new RefusedExchange(this.#host.context, this.socket, request, refusal, this.#keepAliveS, this.#served);
    this.#exchange = exchange;
    exchange.start();
  }

  get #keepAliveS(): number | undefined {
    return this.#host.isEnding ? undefined : Math.floor(this.#host.deadlines.keepAliveTimeoutMs / 1_000);
  }

  /** The next request is assumed to be of the same organization. */
  #scheduleAs(keyDigest: string, tenant: Tenant | undefined): void {
    if (keyDigest === this.#inputKey || tenant === undefined) return;
    this.#input?.leave();
    this.#inputKey = keyDigest;
    this.#input = this.#host.context.router.inputs.join(tenant.limitsId);
  }

  readonly #served = (): void => {
    const isLast = this.#exchange?.isLast === true;
    this.#exchange = undefined;
    this.#hasServed = true;
    this.#waitsSince = performance.now();
    // If the reply did not have `Connection: close`, a request received after it gets a reply that has.
    if (isLast || (this.#host.isDraining && this.#received === undefined)) {
      this.socket.destroySoon();
      return;
    }
    if (this.socket.isPaused()) this.socket.resume();
    if (this.#received !== undefined) this.#take(this.#received);
  };

  #leave(bytes: Buffer): void {
    const { socket } = this;
    this.#release();
    this.#input?.leave();
    this.#input = undefined;
    socket.pause();
    socket.off('data', this.#data);
    socket.off('end', this.#ended);
    socket.off('timeout', this.#timedOut);
    socket.off('error', ignore);
    socket.off('close', this.#closed);
    readThroughStream(socket);
    this.#host.leave(this, bytes);
  }

  /** The client has closed its sending side. As in Node's own server, a reply that has not begun is not sent. */
  readonly #ended = (): void => {
    if (this.#isDeferred) return;
    if (this.#exchange === undefined && this.#received !== undefined) refuseIncomplete(this.socket);
    else this.socket.end();
  };

  /** Without unread bytes the client is not at fault: the reply may not be ready yet. */
  readonly #timedOut = (): void => {
    if (this.socket.writableLength > 0) this.socket.destroy();
  };

  readonly #closed = (): void => {
    this.#exchange?.gone();
    this.#release();
    this.#input?.leave();
    this.#host.closed(this);
  };
}

/** A socket error closes the socket. */
function ignore(): void {}

/** @returns undefined for a body of another form, or an invalid one */
function readBody(bytes: Buffer): QueryBody | undefined {
  try {
    return usualQuery(parseJson(bytes));
  } catch {
    return undefined;
  }
}

/**
 * What all connections together may take for requests of which there is only a part, with a key that is known; one
 * organization's no more than is left for the others. What finds no room goes to the server, which counts bodies.
 */
const PARTS_MAX_BYTES = 16 * 1_048_576;

/**
 * Serves plain requests for `/api/query` without Node's HTTP server and Fastify, which saves a fifth of the processor time of the
 * most frequent request. Every connection begins here. With its first request of any other kind the connection is passed to the
 * server for good, as if it had just been opened.
 */
export class FastPath implements FastPathHost {
  readonly context: ExchangeContext;
  readonly deadlines: ServerDeadlines;
  readonly parts = new MemoryBudget({ perOrganizationBytes: PARTS_MAX_BYTES, allBytes: PARTS_MAX_BYTES });
  readonly #connections = new IndexedSet<FastPathConnection>();
  readonly #serveElsewhere: (socket: Socket) => void;
  readonly #checking: NodeJS.Timeout;
  #isEnding = false;
  #isDraining = false;

  constructor({ server, opened }: Pick<HttpServer, 'server' | 'opened'>, deadlines: ServerDeadlines, context: ExchangeContext) {
    this.context = context;
    this.deadlines = deadlines;
    const others = server.listeners(opened);
    this.#serveElsewhere = (socket) => {
      for (const listener of others) listener.call(server, socket);
    };
    server.removeAllListeners(opened);
    server.on(opened, (socket: Socket) => this.#connections.add(new FastPathConnection(socket, this)));
    this.#checking = setInterval(() => this.#checkDeadlines(), checkEveryMs(deadlines)).unref();
    server.on('close', () => clearInterval(this.#checking));
  }

  get isEnding(): boolean {
    return this.#isEnding;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  get size(): number {
    return this.#connections.size;
  }

  /** The requests that are being served. */
  calls(): readonly RequestContext[] {
    return this.#connections.all().flatMap(({ call }) => call ?? []);
  }

  /** Replies have `Connection: close` from now on; idle connections stay open. */
  announceEnd(): void {
    this.#isEnding = true;
    for (const connection of this.#connections.all()) connection.announceEnd();
  }

  /** The server does. */
  stopListening(): void {}

  /** What has been read is known to be pending. */
  async caughtUp(): Promise<void> {}

  /** Closes idle connections at once and the others after their pending reply. */
  drain(): void {
    this.announceEnd();
    this.#isDraining = true;
    for (const connection of this.#connections.all()) connection.drain();
  }

  closeAll(): void {
    for (const connection of this.#connections.all()) connection.cutOff();
  }

  leave(connection: FastPathConnection, bytes: Buffer): void {
    const { socket } = connection;
    this.#connections.delete(connection);
    // Behind these bytes there may be more in the stream: it was paused, or was handed several parts.
    const buffered: Buffer | null = socket.readableLength > 0 ? socket.read() : null;
    this.#serveElsewhere(socket);
    ScheduledInput.start(socket, this.context.router.inputs, buffered === null ? bytes : Buffer.concat([bytes, buffered]));
    socket.resume();
  }

  closed(connection: FastPathConnection): void {
    this.#connections.delete(connection);
  }

  #checkDeadlines(): void {
    const now = performance.now();
    for (const connection of this.#connections.all()) connection.checkDeadline(now);
  }
}
