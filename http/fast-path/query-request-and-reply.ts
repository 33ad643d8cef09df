import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { Config } from '../../src/config.ts';
import type { Authenticator } from '../../src/router/authenticator.ts';
import type { Tenant } from '../../src/router/lease.ts';
import type { Router } from '../../src/router/router.ts';
import { MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { CHUNK_BYTES, giveBack, takeMemory } from '../../src/sql/json-buffer.ts';
import type { QueryRequest } from '../../src/sql/query.ts';
import type { QueryScheduler } from '../../src/sql/query-scheduler.ts';
import type { ConnectionLimit } from '../connections/connection-limit.ts';
import type { Admission } from '../plugins/admission.ts';
import { problemFor } from '../plugins/problems.ts';
import { throttleRefusal } from '../plugins/refusals/refusal-throttle.ts';
import type { IsServedHost } from '../plugins/refusals/served-hosts.ts';
import { replacementHeaders } from '../plugins/reply-headers.ts';
import type { RequestOutcomes } from '../plugins/request-outcomes.ts';
import { openContext, originOf, type RequestContext, requestIdOf } from '../request-context.ts';
import { compress, compressed, encodingFor, piecesOf } from '../responses/compression.ts';
import { JSON_TYPE } from '../responses/media-types.ts';
import { pipeStream } from '../responses/pipe-stream.ts';
import { countReply, errorBody } from '../responses/reply-memory.ts';
import type { QueryBody } from '../routes/request-schemas.ts';
import { timeoutOf } from '../routes/statement-timeout.ts';
import type { PlainQueryRequest } from './plain-query-request.ts';
import type { RefusalContext } from './refusals.ts';
import { type ReplyHead, writeHead } from './reply-head.ts';

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
    const sourceIp = clientAddress(socket.remoteAddress ?? '', request.forwardedFor);
    this.call = openContext(originOf(sourceIp, this.#requestId, request.userAgent));
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
      const leave = admission.tryEnter(tenant) ?? (await admission.enter(tenant));
      if (this.#isOver) {
        leave();
        return;
      }
      call.leave = leave;
      call.traffic.bytesIn = end - bodyStart;
      call.statement = { sql, paramCount: params?.length ?? 0 };
      const wanted: QueryRequest = { sql, params, rowMode, timeoutMs: timeoutOf(timeoutMs, config), readOnly, disconnect };
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
    const { tenant } = this.call;
    const isReplaced = tenant !== undefined && tenant.key.replacedBy !== null;
    const headers = isReplaced ? { ...replacementHeaders(tenant), ...more } : more;
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
