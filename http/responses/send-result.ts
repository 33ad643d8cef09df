import type { ServerResponse } from 'node:http';
import type { Readable, Writable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { giveBack } from '../../src/sql/json/chunk-pool.ts';
import { keepResults } from '../../src/sql/result/result-budget.ts';
import type { RequestContext } from '../request-context.ts';
import { JSON_TYPE } from '../routes/route-context.ts';
import { countReply } from './reply-memory.ts';

/** Beyond this size, copying a reply costs more than a second write. */
const ONE_PIECE_MAX_BYTES = 8_192;

/**
 * Sends a document that may be large. Until the client has received it, it counts with the organization's results in memory.
 * @throws ServiceError `too_many_requests`
 */
export function sendDocument({ call }: FastifyRequest, reply: FastifyReply, document: object): FastifyReply {
  const body = Buffer.from(JSON.stringify(document));
  const refusal = keepResults(call.results, body.length);
  if (refusal !== undefined) throw refusal;
  return reply.type(JSON_TYPE).send(body);
}

/**
 * Sends the result of a query without Fastify's handling of replies. Its memory is then used again.
 * @param body the whole reply, or a stream that has begun
 * @throws the stream's error
 */
export function sendResult(reply: FastifyReply, contentType: string, body: Buffer | Readable): void {
  if (Buffer.isBuffer(body)) countReply(reply.request.call, body.length);
  // The stream failed in the turn in which it began: nothing has been sent, so an error reply can be.
  if (!Buffer.isBuffer(body) && body.errored) throw body.errored;
  const head = [...headersOf(reply), 'content-type', contentType];
  const { raw } = reply.hijack();
  if (Buffer.isBuffer(body)) sendWhole(raw, head, body);
  else sendStream(raw, head, body, reply.request.call);
}

/** Names and values; Node itself says whether the connection stays. */
function headersOf(reply: FastifyReply): string[] {
  const headers = Object.entries(reply.getHeaders()).filter(([name]) => name !== 'connection');
  return headers.flat().map(String);
}

/**
 * Node writes a head and a Buffer in two writes, but a head and a string in one; Latin-1 has a character for every
 * byte. Node delays that write until `end`, unless the socket is uncorked.
 */
function sendWhole(raw: ServerResponse, head: string[], body: Buffer): void {
  head.push('content-length', String(body.length));
  raw.writeHead(200, head);
  if (body.length > ONE_PIECE_MAX_BYTES) {
    raw.end(body, () => giveBack(body));
    return;
  }
  raw.write(body.toString('latin1'), 'latin1');
  raw.socket?.uncork();
  raw.end();
  giveBack(body);
}

function sendStream(raw: ServerResponse, head: string[], body: Readable, call: RequestContext): void {
  raw.writeHead(200, head);
  pour(
    body,
    raw,
    (chunk, written) => raw.write(chunk, written),
    // Without its last chunk the reply is incomplete to every client.
    () => (call.isBroken ? raw.socket?.destroySoon() : raw.end()),
  );
}

/**
 * Sends a stream in pieces, with backpressure. If the stream fails, the connection is destroyed, so that the client notices that the
 * reply is incomplete; if the connection is closed, the stream is destroyed.
 * @param write reports when a piece has been written, and whether more may be written
 */
export function pour(body: Readable, into: Writable, write: (piece: Buffer, written: () => void) => boolean, end: () => void): void {
  const resume = () => body.resume();
  const stop = () => body.destroy();
  into.on('drain', resume);
  into.on('close', stop);
  body.on('error', () => into.destroy());
  body.on('end', () => {
    into.off('drain', resume);
    into.off('close', stop);
    end();
  });
  body.on('data', (piece: Buffer) => {
    if (!write(piece, () => giveBack(piece))) body.pause();
  });
}
