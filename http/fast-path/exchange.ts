import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { digestText } from '../../src/auth/tokens.ts';
import type { Config } from '../../src/config.ts';
import type { ServiceError } from '../../src/errors.ts';
import type { Observe, Origin } from '../../src/observation.ts';
import type { Authenticator } from '../../src/router/authenticator.ts';
import type { Tenant } from '../../src/router/lease.ts';
import { HOLD_MS } from '../../src/router/refusal-limit.ts';
import type { Router } from '../../src/router/router.ts';
import { MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { CHUNK_BYTES, giveBack, takeMemory } from '../../src/sql/json-buffer.ts';
import type { QueryRequest } from '../../src/sql/query.ts';
import type { QueryScheduler } from '../../src/sql/query-scheduler.ts';
import { type Admission, rateHeaders } from '../admission.ts';
import { bearerTokenOf, INVALID, MALFORMED, MISSING } from '../bearer.ts';
import { compress, compressed, encodingFor, piecesOf, pipeStream } from '../compression.ts';
import type { ConnectionLimit } from '../connection-limit.ts';
import { renderError } from '../errors.ts';
import { ALWAYS, type ClientAddress, type IsServedHost, JSON_TYPE, replacementHeaders } from '../headers.ts';
import { timeoutOf } from '../operation.ts';
import { problemFor, type RefusalCounter, type RequestOutcomes, throttleRefusal } from '../problems.ts';
import { countReply, errorBody } from '../reply-memory.ts';
import { openContext, originOf, type RequestContext, requestIdOf } from '../request-context.ts';
import type { QueryBody } from '../request-schemas.ts';
import { noRoute, type PathPatterns } from '../unknown-routes.ts';
import { suggestPath } from '../validation.ts';
import type { PlainQueryRequest, RefusableRequest } from './request.ts';

/** The parts of the door that requests on the fast path use. */
export interface ExchangeContext extends RefusalContext {
  readonly authenticator: Pick<Authenticator, 'authenticate' | 'recognize' | 'isInvalid'>;
  readonly router: Pick<Router, 'inputs' | 'results'>;
  readonly queries: QueryScheduler;
  readonly config: Config;
  readonly admission: Admission;
  readonly connections: Pick<ConnectionLimit, 'authenticated'>;
  readonly ends: RequestOutcomes;
  readonly isServedHost: IsServedHost;
  /** Replies to web pages have headers that are not written here. */
  readonly hasCors: boolean;
}

const ACTION = 'query';

/** One request for `/api/query`, and its reply. */
export class QueryExchange {
  readonly #context: ExchangeContext;
  readonly #socket: Socket;
  readonly call: RequestContext;
  readonly #requestId: string;
  readonly #acceptEncoding: string | undefined;
  /** Called when the reply has been sent completely. */
  readonly #done: () => void;
  /** How many seconds the connection is kept open after the reply; undefined: it ends with the reply. */
  keepAliveS: number | undefined;
  /** The reply has `Connection: close`. */
  isLast = false;
  #status: number | undefined;
  #isOver = false;

  constructor(context: ExchangeContext, socket: Socket, request: PlainQueryRequest, keepAliveS: number | undefined, done: () => void) {
    const { clientAddress } = context;
    this.#context = context;
    this.#socket = socket;
    this.#requestId = requestIdOf(request.requestId);
    this.#acceptEncoding = request.acceptEncoding;
    const sourceIp = clientAddress(socket, request.forwardedFor);
    this.call = openContext(originOf(sourceIp, this.#requestId, request.userAgent), request.traceparent);
    this.keepAliveS = keepAliveS;
    this.#done = done;
  }

  /** @param tenant undefined: the key must be looked up */
  start(request: PlainQueryRequest, body: QueryBody, tenant: Tenant | undefined): void {
    this.call.work = this.#perform(request, body, tenant);
  }

  /** The client has disconnected. */
  gone(): void {
    if (this.#isOver) return;
    this.call.disconnect.happen();
    this.#end();
  }

  async #perform({ apiKey, bodyStart, end }: PlainQueryRequest, body: QueryBody, recognized: Tenant | undefined): Promise<void> {
    const { sql, params, rowMode, timeoutMs, readOnly } = body;
    const { authenticator, queries, config } = this.#context;
    const call = this.call;
    const { disconnect } = call;
    try {
      const tenant = recognized ?? (await authenticator.authenticate({ kind: 'bearer', apiKey }, call.origin));
      if (this.#isOver) return;
      call.tenant = tenant;
      this.#context.connections.authenticated(this.#socket, tenant.limitsId);
      const { admission } = this.#context;
      const leave = admission.tryEnter(tenant, call) ?? (await admission.enter(tenant, call));
      if (this.#isOver) {
        leave();
        return;
      }
      call.leave = leave;
      call.traffic.bytesIn = end - bodyStart;
      call.statement = { sql, paramCount: params?.length ?? 0 };
      const wanted: QueryRequest = { sql, params, rowMode, timeoutMs: timeoutOf(timeoutMs, config, tenant), readOnly, disconnect };
      const answer = await queries.run(tenant, wanted);
      if (answer.outcome === undefined) call.ended = answer.done;
      else call.outcome = answer.outcome;
      this.#sendResult(answer.body);
    } catch (error) {
      const held = throttleRefusal(error, call, this.#context.refusals);
      if (held !== undefined) this.keepAliveS = undefined;
      this.#sendProblem(held === undefined ? error : await held);
    }
  }

  #sendProblem(error: unknown): void {
    const { problem, headers } = problemFor(error, this.#context.observe, {
      requestId: this.#requestId,
      method: 'POST',
      path: '/api/query',
      withCredentials: true,
      call: this.call,
      maxBodyBytes: this.#context.config.POSTERN_HTTP_BODY_MAX_BYTES,
      isGone: this.#isOver,
    });
    this.#reserveMemory();
    this.#sendWhole(problem.status, 'application/problem+json', errorBody(this.call, problem), headers);
  }

  #sendResult(body: Buffer | Readable): void {
    if (Buffer.isBuffer(body)) this.#sendWhole(200, JSON_TYPE, body);
    // The stream failed in the turn in which it began: nothing has been sent, so an error reply can be.
    else if (body.errored) throw body.errored;
    else this.#sendStream(body);
  }

  #sendWhole(status: number, contentType: string, body: Buffer, headers?: Readonly<Record<string, string>>): void {
    if (this.#isOver) return;
    if (body.length > CHUNK_BYTES) this.#reserveMemory();
    if (this.#acceptEncoding === undefined) {
      this.#writeWhole(status, contentType, body, headers);
      return;
    }
    const encoding = encodingFor(this.call, this.#acceptEncoding, body.length);
    const { coding } = encoding;
    const allHeaders = { ...headers, ...encoding.headers };
    if (coding === undefined) this.#writeWhole(status, contentType, body, allHeaders);
    else if (body.length > CHUNK_BYTES) this.#writeStream(status, contentType, compressed(piecesOf(body), coding), allHeaders);
    else {
      compress(body, coding).then(
        (smaller) => {
          giveBack(body);
          this.#writeWhole(status, contentType, smaller, allHeaders);
        },
        () => this.#socket.destroy(),
      );
    }
  }

  #writeWhole(status: number, contentType: string, body: Buffer, headers: ReplyHead['headers']): void {
    if (this.#isOver) return;
    this.call.traffic.bytesOut = body.length;
    const head = this.#head(status, contentType, body.length, headers);
    if (body.length > CHUNK_BYTES) {
      countReply(this.call, body.length);
      this.#socket.cork();
      this.#socket.write(head, 'latin1');
      this.#socket.write(body, (error) => {
        giveBack(body);
        this.#sent(error);
      });
      this.#socket.uncork();
      return;
    }
    // A single write is cheaper than Node's list of pending writes.
    const length = head.length + body.length;
    const memory = takeMemory(length);
    memory.write(head, 0, 'latin1');
    memory.set(body, head.length);
    giveBack(body);
    this.#socket.write(memory.subarray(0, length), (error) => {
      giveBack(memory);
      this.#sent(error);
    });
  }

  /** Makes the reservation in the memory budget that a reply which is not small counts in. */
  #reserveMemory(): void {
    const { tenant } = this.call;
    if (tenant === undefined) return;
    const { results } = this.#context.router;
    this.call.results ??= new MemoryReservation(results, tenant.limitsId);
    this.call.compressor ??= new MemoryReservation(results, tenant.limitsId);
  }

  #sendStream(body: Readable): void {
    if (this.#isOver) {
      body.destroy();
      return;
    }
    this.#reserveMemory();
    const { coding, headers } = encodingFor(this.call, this.#acceptEncoding, undefined);
    this.#writeStream(200, JSON_TYPE, coding === undefined ? body : compressed(body, coding), headers);
  }

  #writeStream(status: number, contentType: string, body: Readable, headers: ReplyHead['headers']): void {
    const socket = this.#socket;
    socket.write(this.#head(status, contentType, undefined, headers), 'latin1');
    pipeStream(
      body,
      socket,
      (piece, written) => this.#sendChunk(piece, written),
      () => socket.write('0\r\n\r\n', 'latin1', (error) => this.#sent(error)),
    );
  }

  /** @see https://www.rfc-editor.org/rfc/rfc9112#section-7.1 */
  #sendChunk(chunk: Buffer, written: () => void): boolean {
    const socket = this.#socket;
    this.call.traffic.bytesOut += chunk.length;
    socket.cork();
    socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1');
    socket.write(chunk, written);
    socket.write('\r\n', 'latin1');
    socket.uncork();
    // Before that, all bytes count as unsent.
    return !socket.writableNeedDrain || socket.writableLength === 0;
  }

  #head(status: number, contentType: string, length: number | undefined, more: ReplyHead['headers']): string {
    const { tenant, rate } = this.call;
    let headers = more;
    if (tenant !== undefined && tenant.key.replacedBy !== null) headers = { ...replacementHeaders(tenant), ...headers };
    if (rate !== undefined) headers = { ...rateHeaders(rate), ...headers };
    this.#status = status;
    this.isLast = this.keepAliveS === undefined;
    return writeHead({ status, requestId: this.#requestId, contentType, length, headers, keepAliveS: this.keepAliveS });
  }

  /** When a connection is destroyed, unsent bytes count as sent; the close event reports the request. */
  #sent(error: Error | null | undefined): void {
    if (this.#isOver || error != null || this.#socket.destroyed) return;
    this.call.isReplySent = true;
    this.#end();
    this.#done();
  }

  #end(): void {
    this.#isOver = true;
    this.call.leave?.();
    this.call.results?.end();
    this.call.compressor?.end();
    this.#context.ends.add(ACTION, this.call, this.#status);
  }
}

interface ReplyHead {
  readonly status: number;
  readonly requestId: string;
  readonly contentType: string;
  /** The length of the body; undefined: it is sent in chunks. */
  readonly length: number | undefined;
  /** Headers in addition to those of every reply. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Undefined: the connection ends with the reply. */
  readonly keepAliveS: number | undefined;
}

const ALWAYS_TEXT = linesOf(ALWAYS);

/** The head of a reply as Node writes it, in Latin-1. */
function writeHead({ status, requestId, contentType, length, headers, keepAliveS }: ReplyHead): string {
  const framing = length === undefined ? 'Transfer-Encoding: chunked' : `content-length: ${length}`;
  const connection = keepAliveS === undefined ? 'Connection: close' : `Connection: keep-alive\r\nKeep-Alive: timeout=${keepAliveS}`;
  const more = headers === undefined ? '' : linesOf(headers);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\nx-request-id: ${requestId}\r\n${ALWAYS_TEXT}content-type: ${contentType}\r\n${more}${framing}\r\nDate: ${dateNow()}\r\n${connection}\r\n\r\n`;
}

function linesOf(headers: Readonly<Record<string, string>>): string {
  return Object.entries(headers)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('');
}

let date = { second: 0, text: '' };

/** @see https://www.rfc-editor.org/rfc/rfc9110#field.date */
function dateNow(): string {
  const second = Math.floor(Date.now() / 1_000);
  if (second !== date.second) date = { second, text: new Date(second * 1_000).toUTCString() };
  return date.text;
}

/** Which requests need a key. */
interface RouteTable {
  /** All paths, of any method. */
  readonly paths: Pick<PathPatterns, 'has' | 'plain'>;
  /** The actions that need a key, by method, space and path. */
  readonly withKey: ReadonlyMap<string, string>;
}

/** The parts of the door that refusals use. */
interface RefusalContext {
  readonly authenticator: Pick<Authenticator, 'isInvalid'>;
  readonly observe: Observe;
  readonly clientAddress: ClientAddress;
  readonly refusals: RefusalCounter;
  readonly routes: RouteTable;
}

/** Why a request is refused. */
export interface Refusal {
  readonly reason: Reason;
  readonly path: string;
  readonly withCredentials: boolean;
  /** Undefined if it has not reached an operation. */
  readonly action: string | undefined;
}

/** An error and its replies, with placeholders for the parts that differ between requests. */
interface Reason {
  readonly error: ServiceError;
  readonly withCredentials: RenderedRefusal;
  readonly without: RenderedRefusal;
}

interface RenderedRefusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Placeholders; neither can occur in a request id or in a path that is parsed here. */
const ID = '<id>';
const PATH = '<path>';

const [NO_KEY, NO_BEARER, NO_SUCH_KEY] = [MISSING, MALFORMED, INVALID].map(reasonOf) as [Reason, Reason, Reason];

/** By the path that the client may have meant. */
const NO_ROUTE = new Map<string | undefined, Reason>();

function noRouteReason(path: string, paths: RouteTable['paths']): Reason {
  const meant = suggestPath(path, paths.plain);
  const known = NO_ROUTE.get(meant);
  if (known !== undefined) return known;
  const reason = reasonOf(noRoute(PATH, meant));
  NO_ROUTE.set(meant, reason);
  return reason;
}

function reasonOf(error: ServiceError): Reason {
  return { error, withCredentials: render(error, true), without: render(error, false) };
}

function render(error: ServiceError, withCredentials: boolean): RenderedRefusal {
  const { problem, headers } = renderError(error, { requestId: ID, path: PATH, withCredentials });
  return { status: problem.status, headers, body: JSON.stringify(problem) };
}

/** @returns undefined if the request may be served, or this cannot be decided here */
export function refusalOf({ authenticator, routes }: RefusalContext, request: RefusableRequest): Refusal | undefined {
  const { method, path, authorization } = request;
  const withCredentials = authorization !== undefined;
  if (!routes.paths.has(path)) return { reason: noRouteReason(path, routes.paths), path, withCredentials, action: undefined };
  const action = routes.withKey.get(`${method} ${path}`);
  const reason = action === undefined ? undefined : reasonFor(authorization, authenticator);
  return reason && { reason, path, withCredentials, action };
}

/** As {@link refusalOf}. */
export function refusalOfQuery({ authenticator }: RefusalContext, { apiKey, keyDigest }: PlainQueryRequest): Refusal | undefined {
  if (!authenticator.isInvalid(apiKey, keyDigest)) return undefined;
  return { reason: NO_SUCH_KEY, path: '/api/query', withCredentials: true, action: 'query' };
}

function reasonFor(authorization: string | undefined, authenticator: RefusalContext['authenticator']): Reason | undefined {
  if (authorization === undefined) return NO_KEY;
  const apiKey = bearerTokenOf(authorization);
  if (apiKey === undefined) return NO_BEARER;
  return authenticator.isInvalid(apiKey, digestText(apiKey)) ? NO_SUCH_KEY : undefined;
}

/** A request that is refused, and its reply. */
export class RefusedExchange {
  readonly #context: RefusalContext;
  readonly #socket: Socket;
  readonly #refusal: Refusal;
  readonly #origin: Origin;
  readonly #requestId: string;
  readonly #startedAt = performance.now();
  /** Called when the reply has been sent completely. */
  readonly #done: () => void;
  /** As in {@link QueryExchange}. */
  keepAliveS: number | undefined;
  isLast = false;
  #held: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(
    context: RefusalContext,
    socket: Socket,
    request: PlainQueryRequest | RefusableRequest,
    refusal: Refusal,
    keepAliveS: number | undefined,
    done: () => void,
  ) {
    this.#context = context;
    this.#socket = socket;
    this.#refusal = refusal;
    this.#requestId = requestIdOf(request.requestId);
    this.#origin = originOf(context.clientAddress(socket, request.forwardedFor), this.#requestId, request.userAgent);
    this.keepAliveS = keepAliveS;
    this.#done = done;
  }

  start(): void {
    const { refusals, observe } = this.#context;
    const { reason, withCredentials } = this.#refusal;
    const instead = refusals.count(this.#origin.sourceIp);
    if (instead === undefined) {
      const { kind, sqlstate } = reason.error;
      if (reason === NO_SUCH_KEY) observe({ name: 'login.failed', origin: this.#origin, kind, sqlstate });
      this.#send(withCredentials ? reason.withCredentials : reason.without, sqlstate);
      return;
    }
    this.#held = setTimeout(() => {
      this.keepAliveS = undefined;
      this.#send(render(instead, withCredentials), instead.sqlstate);
    }, HOLD_MS);
  }

  /** The client has disconnected. */
  gone(): void {
    clearTimeout(this.#held);
    this.#isOver = true;
  }

  #send({ status, headers, body }: RenderedRefusal, sqlstate: string): void {
    const { path, action } = this.#refusal;
    const text = body.replaceAll(PATH, path).replaceAll(ID, this.#requestId);
    this.isLast = this.keepAliveS === undefined;
    const head = writeHead({
      status,
      requestId: this.#requestId,
      contentType: 'application/problem+json',
      length: text.length,
      headers,
      keepAliveS: this.keepAliveS,
    });
    // ASCII only, as is everything that a refusal contains.
    this.#socket.write(head + text, 'latin1', (failed) => {
      if (this.#isOver || failed != null || this.#socket.destroyed) return;
      this.#isOver = true;
      if (action !== undefined) this.#report(action, status, sqlstate);
      this.#done();
    });
  }

  #report(action: string, httpStatus: number, sqlstate: string): void {
    const durationMs = Math.round((performance.now() - this.#startedAt) * 1_000) / 1_000;
    const outcome = { status: 'error', httpStatus, durationMs, sqlstate, rowCount: undefined } as const;
    this.#context.observe({ name: 'http.request', action, origin: this.#origin, actor: undefined, statement: undefined, outcome });
  }
}
