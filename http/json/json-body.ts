import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../src/errors.ts';
import type { DisconnectSignal } from '../../src/router/lease.ts';
import { TimeSlices } from '../../src/runtime/event-loop.ts';
import { takeIdempotencyFingerprint } from '../plugins/idempotency-key.ts';
import type { RequestContext } from '../request-context.ts';
import { JsonReader } from './incremental-json-reader.ts';
import { parseJson, startOfText } from './parse-json.ts';

/** Bodies up to this size are parsed at once, which takes a few milliseconds at most. */
const AT_ONCE_MAX_BYTES = 256 * 1_024;
/** How much is parsed between two looks at the clock. */
const TOKENS_AT_ONCE = 1_024;

/** Accepts only `application/json`; for other types Fastify answers 415. */
export function acceptJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    try {
      request.call.traffic.bytesIn = body.length;
      takeIdempotencyFingerprint(request, body);
      refuseEncodings(request.headers['content-type'], request.headers['content-encoding']);
      // Some clients send this type with every request. Where a body is needed, validation reports that it is missing.
      if (body.length === 0) done(null, undefined);
      else readJson(body, request.call, done);
    } catch (error) {
      done(error instanceof Error ? error : new Error('the body could not be read', { cause: error }));
    }
  });
}

/** @see https://www.rfc-editor.org/rfc/rfc8259#section-8.1 */
export function refuseEncodings(contentType = '', contentEncoding = 'identity'): void {
  if (contentEncoding.toLowerCase() !== 'identity') {
    throw new ServiceError('unsupported_media_type', `a body with Content-Encoding ${contentEncoding.slice(0, 40)} is not accepted`);
  }
  const charset = /;\s*charset\s*=\s*"?([^\s";]+)/i.exec(contentType)?.[1] ?? 'utf-8';
  if (!/^utf-?8$/i.test(charset)) throw new ServiceError('unsupported_media_type', 'JSON must be sent as UTF-8');
}

/**
 * The value of a JSON body, as of {@link parseJson}; a large one is parsed in time slices.
 * @throws ServiceError `invalid_request`
 */
export function readJson(body: Buffer, call: RequestContext, done: (error: Error | null, value?: unknown) => void): void {
  if (body.length <= AT_ONCE_MAX_BYTES) {
    done(null, parseJson(body));
    return;
  }
  const reading = readJsonInSlices(body, call.disconnect);
  call.work = reading;
  reading.then((value) => done(null, value), done);
}

/** @throws ServiceError `invalid_request`, `query_canceled` */
export async function readJsonInSlices(body: Buffer, disconnect?: DisconnectSignal): Promise<unknown> {
  const reader = new JsonReader(body, startOfText(body));
  const slices = new TimeSlices();
  while (!reader.run(TOKENS_AT_ONCE)) {
    await slices.pause();
    if (disconnect?.reason !== undefined) throw disconnect.reason;
  }
  await slices.pause();
  return reader.value;
}
