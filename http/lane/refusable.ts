import { END_OF_HEAD, END_OF_LINE, HEAD_MAX_BYTES } from './request.ts';

/** Any request of which enough can be read for refusing it. */
export interface RefusableRequest {
  readonly kind: 'refusable';
  readonly host: string;
  readonly method: string;
  /** Without what is asked there. */
  readonly path: string;
  readonly authorization: string | undefined;
  readonly requestId: string | undefined;
  readonly userAgent: string | undefined;
  readonly forwardedFor: string | undefined;
  readonly bodyStart: number;
  readonly end: number;
}

/** A path of characters that stand for themselves, which no two readers could take for two paths. */
const HEAD = /^(GET|POST|PUT|PATCH|DELETE) (\/[A-Za-z0-9/._~-]*)(?:\?[!-~]*)? HTTP\/1\.1\r\n(?:[A-Za-z][A-Za-z0-9-]*:[ -~]*\r\n)+$/;

/** Read here, each of them at most once. */
const READ: ReadonlySet<string> = new Set([
  'host',
  'authorization',
  'connection',
  'content-length',
  'x-request-id',
  'user-agent',
  'x-forwarded-for',
]);

/** They change what the request is, or where it ends. */
const LEFT: ReadonlySet<string> = new Set(['transfer-encoding', 'upgrade', 'expect']);

/** @returns undefined where somebody else has to look at it */
export function readRefusable(bytes: Buffer): RefusableRequest | undefined {
  const headEnd = bytes.indexOf(END_OF_HEAD, 0, 'latin1') + END_OF_LINE.length;
  if (headEnd < END_OF_HEAD.length || headEnd > HEAD_MAX_BYTES) return undefined;
  const head = bytes.toString('latin1', 0, headEnd);
  const [, method, path] = HEAD.exec(head) ?? [];
  const headers = method === undefined ? undefined : readHeaders(head);
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
    bodyStart,
    end: bodyStart + Number(length),
  };
}

function readHeaders(head: string): ReadonlyMap<string, string> | undefined {
  const headers = new Map<string, string>();
  let at = head.indexOf(END_OF_LINE) + END_OF_LINE.length;
  while (at < head.length) {
    const colon = head.indexOf(':', at);
    const end = head.indexOf(END_OF_LINE, colon);
    const name = head.slice(at, colon).toLowerCase();
    if (LEFT.has(name) || headers.has(name)) return undefined;
    if (READ.has(name)) headers.set(name, head.slice(colon + 1, end).trim());
    at = end + END_OF_LINE.length;
  }
  return headers;
}
