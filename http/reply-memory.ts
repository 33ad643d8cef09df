import type { FastifyInstance } from 'fastify';
import { SMALL_BYTES } from '../src/runtime/memory-budget.ts';
import { keepResults } from '../src/sql/result-budget.ts';
import type { RequestContext } from './request-context.ts';

/*
 * Every reply that is sent as a whole stays in memory until the client has read it, and counts with the organization's results
 * until then; streams count themselves. What exceeds the limit is refused if that is still possible: a result before its
 * transaction is committed, a document before it is sent. An error is shortened.
 */

/** Counts everything that Fastify sends: results, documents, replays, errors. */
export function countReplies(app: FastifyInstance): void {
  app.addHook('onSend', (request, _reply, payload, done) => {
    const bytes = lengthOf(payload);
    if (request.call !== undefined) request.call.traffic.bytesOut = bytes;
    countReply(request.call, bytes);
    done();
  });
}

/** Counts a reply until it is sent, even beyond the limit, because it is already in memory. Results in it count once. */
export function countReply(call: RequestContext | undefined, bytes: number): void {
  const results = call?.results;
  if (results !== undefined && bytes > Math.max(results.bytes, SMALL_BYTES)) results.resize(bytes);
}

function lengthOf(payload: unknown): number {
  if (typeof payload === 'string') return Buffer.byteLength(payload);
  return Buffer.isBuffer(payload) ? payload.length : 0;
}

const SHORT_CHARACTERS = 256;

/** The error to send, in full if the limit allows. @param call undefined for a malformed request */
export function errorBody(call: RequestContext | undefined, document: object): Buffer {
  const body = Buffer.from(JSON.stringify(document));
  if (body.length <= SMALL_BYTES || keepResults(call?.results, body.length) === undefined) return body;
  return Buffer.from(JSON.stringify(document, (_, value) => (typeof value === 'string' ? shortened(value) : value)));
}

function shortened(text: string): string {
  return text.length <= SHORT_CHARACTERS ? text : `${text.slice(0, SHORT_CHARACTERS)}… (cut: too many replies are unread)`;
}
