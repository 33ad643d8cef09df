import type { Socket } from 'node:net';
import { digestText } from '../../src/auth/tokens.ts';
import type { ServiceError } from '../../src/errors.ts';
import type { Observe, Origin } from '../../src/observation.ts';
import type { Authenticator } from '../../src/router/authenticator.ts';
import { HOLD_MS } from '../../src/router/refusal-limit.ts';
import { renderError } from '../errors.ts';
import { bearerTokenOf, INVALID, MALFORMED, MISSING } from '../plugins/bearer.ts';
import type { ClientAddress } from '../plugins/client-address.ts';
import type { RefusalCounter } from '../plugins/refusals/refusal-throttle.ts';
import { noRoute, type PathPatterns } from '../plugins/refusals/unknown-routes.ts';
import { originOf, requestIdOf } from '../request-context.ts';
import { suggestPath } from '../responses/did-you-mean.ts';
import type { PlainQueryRequest } from './plain-query-request.ts';
import type { RefusableRequest } from './refusable-request.ts';
import { writeHead } from './reply-head.ts';

/** Which requests need a key. */
export interface RouteTable {
  /** All paths, of any method. */
  readonly paths: Pick<PathPatterns, 'has' | 'plain'>;
  /** The actions that need a key, by method, space and path. */
  readonly withKey: ReadonlyMap<string, string>;
}

/** The parts of the door that refusals use. */
export interface RefusalContext {
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
    this.#origin = originOf(context.clientAddress(socket.remoteAddress ?? '', request.forwardedFor), this.#requestId, request.userAgent);
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
