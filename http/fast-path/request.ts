import { digestText } from '../../src/auth/tokens.ts';
import { bearerTokenOf } from '../bearer.ts';

/** A plain request: for `/api/query`, with headers that are all known, each once, and a body whose length is given. */
export interface PlainQueryRequest {
  readonly kind: 'plain';
  readonly host: string;
  readonly apiKey: string;
  /** The digest of its key, for the router. */
  readonly keyDigest: string;
  /** As the client has sent them. */
  readonly requestId: string | undefined;
  readonly userAgent: string | undefined;
  readonly forwardedFor: string | undefined;
  readonly origin: string | undefined;
  readonly acceptEncoding: string | undefined;
  readonly traceparent: string | undefined;
  /** The offsets of the beginning and the end of its body. */
  readonly bodyStart: number;
  readonly end: number;
}

/** A larger request is not plain. This much is read before the key is checked. */
export const PLAIN_MAX_BYTES = 65_536;

/** Visible characters and spaces in well-formed lines: a head that has only one interpretation. */
const QUERY_HEAD = /^POST \/api\/query HTTP\/1\.1\r\n(?:[A-Za-z][A-Za-z0-9-]*:[ -~]*\r\n)+$/;

/** The headers of a plain request, and the values they may have. */
const MEANINGFUL: Readonly<Record<string, RegExp>> = {
  host: /./,
  authorization: /./,
  'content-type': /^application\/json(?:; ?charset=utf-8)?$/i,
  'content-length': /^[1-9]\d{0,4}$/,
  connection: /^keep-alive$/i,
  accept: /^(?!.*(?:ndjson|csv))/i,
  'user-agent': /^/,
  'x-request-id': /^/,
  'x-forwarded-for': /^/,
  traceparent: /^/,
};

/** Headers that nothing here reads. */
const MEANINGLESS =
  'accept-encoding accept-language baggage cache-control cdn-loop cf-connecting-ip cf-ew-via cf-ipcountry cf-ray cf-visitor cf-worker cookie dnt forwarded origin pragma priority referer sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform sec-fetch-dest sec-fetch-mode sec-fetch-site tracestate via x-amzn-trace-id x-forwarded-host x-forwarded-port x-forwarded-proto x-real-ip'.split(
    ' ',
  );

const HEADERS: readonly Header[] = [
  ...Object.entries(MEANINGFUL).map(([name, pattern]) => ({ name, pattern })),
  ...MEANINGLESS.map((name) => ({ name, pattern: undefined })),
];

/** By the two usual spellings of their names: `content-type` and `Content-Type`. */
const KNOWN = new Map(HEADERS.flatMap((header) => [header.name, inTitleCase(header.name)].map((name) => [name, header] as const)));

function inTitleCase(name: string): string {
  return name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase());
}

/**
 * Parses a request of the simplest form: known headers, each once, and a Content-Length. The server parses all others, so
 * this parser accepts only requests that have a single interpretation.
 * @returns undefined if the request is another, its body exceeds the limit, or its head has not arrived completely
 */
export function readPlainQueryRequest(bytes: Buffer, maxBodyBytes: number): PlainQueryRequest | undefined {
  const headEnd = bytes.indexOf(END_OF_HEAD, 0, 'latin1') + END_OF_LINE.length;
  if (headEnd < END_OF_HEAD.length || headEnd > HEAD_MAX_BYTES) return undefined;
  const head = bytes.toString('latin1', 0, headEnd);
  if (!QUERY_HEAD.test(head)) return undefined;
  const headers = readHeaders(head, queryHeaderOf);
  const apiKey = bearerTokenOf(headers?.get('authorization') ?? '');
  const length = Number(headers?.get('content-length'));
  const host = headers?.get('host');
  if (headers === undefined || apiKey === undefined || host === undefined || !headers.has('content-type')) return undefined;
  const bodyStart = headEnd + END_OF_LINE.length;
  const end = bodyStart + length;
  if (!(length <= maxBodyBytes && end <= PLAIN_MAX_BYTES)) return undefined;
  return {
    kind: 'plain',
    host,
    apiKey,
    keyDigest: digestText(apiKey),
    requestId: headers.get('x-request-id'),
    userAgent: headers.get('user-agent'),
    forwardedFor: headers.get('x-forwarded-for'),
    origin: headers.get('origin'),
    acceptEncoding: headers.get('accept-encoding'),
    traceparent: headers.get('traceparent'),
    bodyStart,
    end,
  };
}

function queryHeaderOf(written: string): Header | undefined {
  return KNOWN.get(written) ?? KNOWN.get(written.toLowerCase());
}

/** A request of which enough can be parsed to refuse it. */
export interface RefusableRequest {
  readonly kind: 'refusable';
  readonly host: string;
  readonly method: string;
  /** Without the query string. */
  readonly path: string;
  readonly authorization: string | undefined;
  readonly requestId: string | undefined;
  readonly userAgent: string | undefined;
  readonly forwardedFor: string | undefined;
  readonly origin: string | undefined;
  readonly bodyStart: number;
  readonly end: number;
}

/** A path of characters without escapes, which has only one interpretation. */
const REFUSABLE_HEAD =
  /^(GET|POST|PUT|PATCH|DELETE) (\/[A-Za-z0-9/._~-]*)(?:\?[!-~]*)? HTTP\/1\.1\r\n(?:[A-Za-z][A-Za-z0-9-]*:[ -~]*\r\n)+$/;

/** These change what the request means or where it ends. */
const LEFT: ReadonlySet<string> = new Set(['transfer-encoding', 'upgrade', 'expect']);

/** @returns undefined if the server must parse it */
export function readRefusable(bytes: Buffer): RefusableRequest | undefined {
  const headEnd = bytes.indexOf(END_OF_HEAD, 0, 'latin1') + END_OF_LINE.length;
  if (headEnd < END_OF_HEAD.length || headEnd > HEAD_MAX_BYTES) return undefined;
  const head = bytes.toString('latin1', 0, headEnd);
  const [, method, path] = REFUSABLE_HEAD.exec(head) ?? [];
  const headers = method === undefined ? undefined : readHeaders(head, refusableHeaderOf);
  const host = headers?.get('host');
  if (method === undefined || path === undefined || headers === undefined || !host) return undefined;
  const length = headers.get('content-length') ?? '0';
  if (!/^\d{1,6}$/.test(length) || !/^keep-alive$/i.test(headers.get('connection') ?? 'keep-alive')) return undefined;
  const bodyStart = headEnd + END_OF_LINE.length;
  return {
    kind: 'refusable',
    host,
    method,
    path,
    authorization: headers.get('authorization'),
    requestId: headers.get('x-request-id'),
    userAgent: headers.get('user-agent'),
    forwardedFor: headers.get('x-forwarded-for'),
    origin: headers.get('origin'),
    bodyStart,
    end: bodyStart + Number(length),
  };
}

function refusableHeaderOf(written: string): Header | undefined {
  const name = written.toLowerCase();
  return LEFT.has(name) ? undefined : { name, pattern: undefined };
}

/** A larger head is left to Node's parser. */
const HEAD_MAX_BYTES = 8_192;

const END_OF_HEAD = '\r\n\r\n';
const END_OF_LINE = '\r\n';

interface Header {
  /** The lower-case name. */
  readonly name: string;
  readonly pattern: RegExp | undefined;
}

/**
 * Reads the headers of a well-formed head.
 * @param known finds the rule for a header's name, as spelled
 * @returns undefined if a header is unknown, occurs twice, or has a value that its pattern does not match
 */
function readHeaders(head: string, known: (written: string) => Header | undefined): ReadonlyMap<string, string> | undefined {
  const headers = new Map<string, string>();
  let at = head.indexOf(END_OF_LINE) + END_OF_LINE.length;
  while (at < head.length) {
    const colon = head.indexOf(':', at);
    const end = head.indexOf(END_OF_LINE, colon);
    const header = known(head.slice(at, colon));
    if (header === undefined || headers.has(header.name)) return undefined;
    const value = head.slice(colon + 1, end).trim();
    if (header.pattern?.test(value) === false) return undefined;
    headers.set(header.name, value);
    at = end + END_OF_LINE.length;
  }
  return headers;
}
