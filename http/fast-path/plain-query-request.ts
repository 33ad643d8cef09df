import { digestText } from '../../src/auth/tokens.ts';
import { bearerTokenOf } from '../plugins/bearer.ts';
import { END_OF_HEAD, END_OF_LINE, HEAD_MAX_BYTES, type Header, readHeaders } from './request-head.ts';

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
  /** The offsets of the beginning and the end of its body. */
  readonly bodyStart: number;
  readonly end: number;
}

/** A larger request is not plain. This much is read before the key is checked. */
export const PLAIN_MAX_BYTES = 65_536;

/** Visible characters and spaces in well-formed lines: a head that has only one interpretation. */
const HEAD = /^POST \/api\/query HTTP\/1\.1\r\n(?:[A-Za-z][A-Za-z0-9-]*:[ -~]*\r\n)+$/;

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
};

/** Headers that nothing here reads. */
const MEANINGLESS =
  'accept-encoding accept-language baggage cache-control cdn-loop cf-connecting-ip cf-ew-via cf-ipcountry cf-ray cf-visitor cf-worker cookie dnt forwarded origin pragma priority referer sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform sec-fetch-dest sec-fetch-mode sec-fetch-site traceparent tracestate via x-amzn-trace-id x-forwarded-host x-forwarded-port x-forwarded-proto x-real-ip'.split(
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
  if (!HEAD.test(head)) return undefined;
  const headers = readHeaders(head, headerOf);
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
    bodyStart,
    end,
  };
}

function headerOf(written: string): Header | undefined {
  return KNOWN.get(written) ?? KNOWN.get(written.toLowerCase());
}
