import type { IncomingMessage } from 'node:http';
import { isIPv4, type Socket } from 'node:net';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type IpAddress, inNetworks, parseAddress } from '../src/auth/tokens.ts';
import type { Config } from '../src/config.ts';
import { ServiceError } from '../src/errors.ts';
import type { Tenant } from '../src/router/lease.ts';

/** Adds the headers to every reply, also to those without a route. */
export function setHeadersAlways(app: FastifyInstance, cors?: Cors): void {
  app.addHook('onRequest', (request, reply, done) => {
    setHeaders(request, reply, cors);
    done();
  });
}

export const ALWAYS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
};

/**
 * Caches must not store replies, because these contain keys or data of an organization.
 * @see https://www.rfc-editor.org/rfc/rfc9111#section-5.2.2.5
 */
export function setHeaders({ id, headers }: Pick<FastifyRequest, 'id' | 'headers'>, reply: FastifyReply, cors: Cors | undefined): void {
  reply.header('x-request-id', id).headers(ALWAYS);
  const forPages = cors?.(headers.origin);
  if (forPages !== undefined) reply.headers(forPages);
}

/** Says in the reply that another key takes the place of this one. */
export function warnOfReplacement(tenant: Tenant, reply: FastifyReply): void {
  if (tenant.key.replacedBy !== null) reply.headers(replacementHeaders(tenant));
}

/** Empty for most keys. */
export function replacementHeaders({ key: { replacedBy, expiresAt } }: Tenant): Readonly<Record<string, string>> {
  return replacedBy === null ? NONE : { 'api-key-replaced-by': `${replacedBy}; until="${expiresAt?.toISOString() ?? ''}"` };
}

const NONE: Readonly<Record<string, string>> = {};

/** The headers that let a page of this origin read a reply; undefined: it may not. */
type Cors = (origin: string | undefined) => Readonly<Record<string, string>> | undefined;

/** What a page may read of replies besides their bodies. */
const EXPOSED =
  'X-Request-Id, ETag, Retry-After, RateLimit, RateLimit-Policy, Idempotency-Replayed, API-Key-Replaced-By, Allow, WWW-Authenticate';

/** What a page may send. */
const ALLOWED_HEADERS = [
  'Authorization',
  'Content-Type',
  'Idempotency-Key',
  'If-Match',
  'If-None-Match',
  'X-Request-Id',
  'Traceparent',
  'Neon-Connection-String',
  'Neon-Raw-Text-Output',
  'Neon-Array-Mode',
  'Neon-Pool-Opt-In',
  'Neon-Batch-Isolation-Level',
  'Neon-Batch-Read-Only',
  'Neon-Batch-Deferrable',
].join(', ');

/**
 * Which pages may call Postern from a browser. Cookies play no part, because Postern has none: a page needs a key.
 * @see https://fetch.spec.whatwg.org/#http-cors-protocol
 * @returns undefined if no page may, and nothing is to be said of it
 */
export function corsOf({ POSTERN_CORS_ORIGINS: origins }: Pick<Config, 'POSTERN_CORS_ORIGINS'>): Cors | undefined {
  if (origins === undefined) return undefined;
  const exposed = { 'access-control-expose-headers': EXPOSED };
  if (origins.includes('*')) return () => ({ 'access-control-allow-origin': '*', ...exposed });
  const allowed = new Set(origins);
  // A reply to a page is another one than to a page of another origin.
  return (origin) => {
    if (origin === undefined) return undefined;
    return { vary: 'Origin', ...(allowed.has(origin) ? { 'access-control-allow-origin': origin, ...exposed } : {}) };
  };
}

/** What a preflight request is answered with, besides the headers of every reply. @param allow the methods */
export function preflightHeaders(allow: string): Readonly<Record<string, string>> {
  return {
    allow,
    'access-control-allow-methods': allow,
    'access-control-allow-headers': ALLOWED_HEADERS,
    'access-control-max-age': '86400',
  };
}

const JSON_RANGE = 'application/json';
const CSV_RANGE = 'text/csv';
const HTML_TYPE = 'text/html';

/** In the form of one JSON document, of one document a line, or of comma-separated values. */
type ResultForm = 'json' | 'lines' | 'csv';

/**
 * The form of a result that a caller prefers. Wildcards express no preference.
 * @see https://www.rfc-editor.org/rfc/rfc9110#field.accept
 */
export function preferredForm(accept = ''): ResultForm {
  // Few clients accept another form than JSON, so nothing else is parsed for most.
  if (!/ndjson|csv/i.test(accept)) return 'json';
  const weights = new Map(accept.split(',').map(weighted));
  const [json = 0, lines = 0, csv = 0] = [JSON_RANGE, LINES_TYPE, CSV_RANGE].map((type) => weights.get(type));
  if (csv > Math.max(json, lines)) return 'csv';
  return lines > json ? 'lines' : 'json';
}

/** Whether a caller is a browser, rather than a program that asks for no format or for Markdown. */
export function prefersHtml(accept = ''): boolean {
  const weights = new Map(accept.split(',').map(weighted));
  return (weights.get(HTML_TYPE) ?? 0) > (weights.get(MARKDOWN_TYPE) ?? 0);
}

/** An element of a header that lists what a client takes, with its weight. @see https://www.rfc-editor.org/rfc/rfc9110#section-12.4.2 */
export function weighted(element: string): [name: string, weight: number] {
  const [name = '', ...parameters] = element.split(';').map((part) => part.trim().toLowerCase());
  const weight = parameters.find((parameter) => parameter.startsWith('q='))?.slice(2);
  return [name, weight === undefined ? 1 : Number(weight) || 0];
}

/** The client's address, by the connection and the X-Forwarded-For header. */
export type ClientAddress = (socket: Socket, forwardedFor: string | undefined) => string;

/**
 * The client's address. X-Forwarded-For is believed only as far as trusted proxies have written it: from the connection's address
 * backwards, the first address that is not in the list is the client. An entry that is no address ends the search.
 * @param trusted CIDR ranges or single addresses
 */
export function clientAddresses(trusted: readonly string[]): (connectionAddress: string, forwardedFor: string | undefined) => string {
  const isTrusted = inNetworks(trusted);
  return (connectionAddress, forwardedFor) => {
    if (forwardedFor === undefined && isIPv4(connectionAddress)) return connectionAddress;
    const hops = [connectionAddress, ...(forwardedFor ?? '').split(',').reverse()];
    let client: IpAddress | undefined;
    for (const hop of hops) {
      const address = parse(hop.trim());
      if (address === undefined) break;
      client = address;
      if (!isTrusted(address)) break;
    }
    return client?.toString() ?? connectionAddress;
  };
}

/** Parses an address, also with a port after it, as some proxies write. IPv4-mapped IPv6 becomes IPv4. */
function parse(text: string): IpAddress | undefined {
  const bare = /^\[(.+)\](?::\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text;
  return parseAddress(bare);
}

/** Whether requests with this Host header are answered. */
export type IsServedHost = (host: string | undefined) => boolean;

/**
 * On a loopback address Postern answers only requests for names of that address. Otherwise a web page in a browser on the same machine
 * could make its own name resolve to 127.0.0.1, call Postern and read the replies (DNS rebinding). Browsers always send the Host
 * header.
 */
export function servedHosts({ POSTERN_HOST, POSTERN_PUBLIC_HOST }: Pick<Config, 'POSTERN_HOST' | 'POSTERN_PUBLIC_HOST'>): IsServedHost {
  const own = POSTERN_HOST.toLowerCase();
  if (!isLoopback(own)) return () => true;
  const publicHost = POSTERN_PUBLIC_HOST?.toLowerCase();
  return (host = '') => {
    const name = nameOf(host);
    return name === '' || isLoopback(name) || name === own || name === publicHost;
  };
}

/** Answers 421 to requests for another host. */
export function refuseOtherHosts(app: FastifyInstance, isServedHost: IsServedHost): void {
  app.addHook('onRequest', ({ headers: { host } }, _reply, done) => {
    done(isServedHost(host) ? undefined : misdirected(host));
  });
}

/** @see https://www.rfc-editor.org/rfc/rfc9110#status.421 */
function misdirected(host = ''): ServiceError {
  return new ServiceError('misdirected_request', `"${host.slice(0, 100)}" is no host that is served here`, {
    hint: 'This Postern listens on a loopback address: it answers requests for localhost, for loopback addresses, and for POSTERN_PUBLIC_HOST.',
  });
}

/** The host without port, trailing dot or brackets. */
export function nameOf(host: string): string {
  const name = host.toLowerCase().replace(/:\d*$/, '');
  return name.startsWith('[') ? name.slice(1, -1) : name.replace(/\.$/, '');
}

/** @see https://www.rfc-editor.org/rfc/rfc6761#section-6.3 */
function isLoopback(name: string): boolean {
  return name === 'localhost' || name === '::1' || name.endsWith('.localhost') || (isIPv4(name) && name.startsWith('127.'));
}

/** Node keeps the first of these when they are repeated; a proxy in front of Postern may have acted on another. */
const AT_MOST_ONCE: ReadonlySet<string> = new Set(['host', 'authorization']);

/**
 * Refuses requests whose head can be read in more than one way.
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-3.2
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-6.1
 */
export function refuseAmbiguousHeads(app: FastifyInstance): void {
  app.addHook('onRequest', ({ raw }, reply, done) => {
    const ambiguity = ambiguityOf(raw);
    if (ambiguity === undefined) {
      done();
      return;
    }
    // The sender may also have another view of where the request ends.
    reply.raw.shouldKeepAlive = false;
    done(new ServiceError('invalid_request', ambiguity));
  });
}

export function ambiguityOf({ headers, rawHeaders, httpVersion }: IncomingMessage): string | undefined {
  if (headers.host === undefined && httpVersion === '1.1') return 'the request has no Host header';
  const coding = headers['transfer-encoding'];
  if (coding !== undefined && coding.trim().toLowerCase() !== 'chunked') return 'the only Transfer-Encoding accepted is "chunked"';
  const repeated = repeatedOf(rawHeaders);
  return repeated && `the request has more than one ${repeated} header`;
}

/** @param rawHeaders alternating names and values */
function repeatedOf(rawHeaders: readonly string[]): string | undefined {
  const seen = new Set<string>();
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const written = rawHeaders[at] ?? '';
    const name = written.toLowerCase();
    if (!AT_MOST_ONCE.has(name)) continue;
    if (seen.has(name)) return written;
    seen.add(name);
  }
  return undefined;
}

export const JSON_TYPE = 'application/json; charset=utf-8';
export const LINES_TYPE = 'application/x-ndjson';
/** @see https://www.rfc-editor.org/rfc/rfc4180#section-3 */
export const CSV_TYPE = 'text/csv; charset=utf-8; header=present';
export const MARKDOWN_TYPE = 'text/markdown';
