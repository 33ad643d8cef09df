import type { Config } from '../../src/config.ts';

/** The headers that let a page of this origin read a reply; undefined: it may not. */
export type Cors = (origin: string | undefined) => Readonly<Record<string, string>> | undefined;

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
