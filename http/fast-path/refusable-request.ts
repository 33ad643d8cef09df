import { END_OF_HEAD, END_OF_LINE, HEAD_MAX_BYTES, type Header, readHeaders } from './request-head.ts';

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
const HEAD = /^(GET|POST|PUT|PATCH|DELETE) (\/[A-Za-z0-9/._~-]*)(?:\?[!-~]*)? HTTP\/1\.1\r\n(?:[A-Za-z][A-Za-z0-9-]*:[ -~]*\r\n)+$/;

/** These change what the request means or where it ends. */
const LEFT: ReadonlySet<string> = new Set(['transfer-encoding', 'upgrade', 'expect']);

/** @returns undefined if the server must parse it */
export function readRefusable(bytes: Buffer): RefusableRequest | undefined {
  const headEnd = bytes.indexOf(END_OF_HEAD, 0, 'latin1') + END_OF_LINE.length;
  if (headEnd < END_OF_HEAD.length || headEnd > HEAD_MAX_BYTES) return undefined;
  const head = bytes.toString('latin1', 0, headEnd);
  const [, method, path] = HEAD.exec(head) ?? [];
  const headers = method === undefined ? undefined : readHeaders(head, headerOf);
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

function headerOf(written: string): Header | undefined {
  const name = written.toLowerCase();
  return LEFT.has(name) ? undefined : { name, pattern: undefined };
}
