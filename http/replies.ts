import type { ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { CHUNK_BYTES, giveBack } from '../src/sql/json-buffer.ts';
import { keepResults } from '../src/sql/result-budget.ts';
import { type Coding, compress, compressed, encodingFor, piecesOf, pipeStream, setEncoding } from './compression.ts';
import { JSON_TYPE } from './headers.ts';
import { countReply } from './reply-memory.ts';
import type { RequestContext } from './request-context.ts';

/** Beyond this size, copying a reply costs more than a second write. */
const ONE_PIECE_MAX_BYTES = 8_192;

/**
 * Sends the result of a query without Fastify's handling of replies. Its memory is then used again.
 * @param body the whole reply, or a stream that has begun
 * @throws the stream's error
 */
export function sendResult(reply: FastifyReply, contentType: string, body: Buffer | Readable): void {
  if (Buffer.isBuffer(body)) countReply(reply.request.call, body.length);
  // The stream failed in the turn in which it began: nothing has been sent, so an error reply can be.
  if (!Buffer.isBuffer(body) && body.errored) throw body.errored;
  const { call, headers } = reply.request;
  const accepted = headers['accept-encoding'];
  const encoding = encodingFor(call, typeof accepted === 'string' ? accepted : undefined, Buffer.isBuffer(body) ? body.length : undefined);
  setEncoding(reply, encoding.headers);
  const head = [...headersOf(reply), 'content-type', contentType];
  const { raw } = reply.hijack();
  if (encoding.coding !== undefined) sendCompressed(raw, head, body, encoding.coding, call);
  else if (Buffer.isBuffer(body)) sendWhole(raw, head, body, call);
  else sendStream(raw, head, body, call);
}

function sendCompressed(raw: ServerResponse, head: string[], body: Buffer | Readable, coding: Coding, call: RequestContext): void {
  if (!Buffer.isBuffer(body) || body.length > CHUNK_BYTES) {
    sendStream(raw, head, compressed(Buffer.isBuffer(body) ? piecesOf(body) : body, coding), call);
    return;
  }
  compress(body, coding).then(
    (smaller) => {
      giveBack(body);
      if (!raw.destroyed) sendWhole(raw, head, smaller, call);
    },
    () => raw.destroy(),
  );
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
function sendWhole(raw: ServerResponse, head: string[], body: Buffer, call: RequestContext): void {
  call.traffic.bytesOut = body.length;
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
  pipeStream(
    body,
    raw,
    (chunk, written) => {
      call.traffic.bytesOut += chunk.length;
      return raw.write(chunk, written);
    },
    // Without its last chunk the reply is incomplete to every client.
    () => (call.isBroken ? raw.socket?.destroySoon() : raw.end()),
  );
}

/**
 * Sends a JSON document that may be large. Until the client has received it, it counts with the organization's results in memory.
 * @throws ServiceError `too_many_requests`
 */
export function sendJson({ call }: FastifyRequest, reply: FastifyReply, document: object): FastifyReply {
  const body = Buffer.from(JSON.stringify(document));
  const refusal = keepResults(call.results, body.length);
  if (refusal !== undefined) throw refusal;
  return reply.type(JSON_TYPE).send(body);
}
