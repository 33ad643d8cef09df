import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../../src/errors.ts';

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
