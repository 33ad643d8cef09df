import type { FastifyReply } from 'fastify';
import { ALWAYS } from './plugins/headers.ts';

/** Beyond this, copying a reply costs more than a second piece to write. */
const ONE_PIECE_MAX_BYTES = 8_192;

const ALWAYS_FLAT = Object.entries(ALWAYS).flat();

/**
 * Sends a reply that is there as a whole, past all that Fastify does for replies of any kind. Node writes a head and a Buffer
 * as two pieces, but a head and a string as one; in Latin-1 there is a character for every byte, whatever the bytes mean.
 */
export function sendWhole(reply: FastifyReply, contentType: string, body: Buffer): void {
  const { request, raw } = reply.hijack();
  const head = ['x-request-id', request.id, ...ALWAYS_FLAT, 'content-type', contentType, 'content-length', String(body.length)];
  raw.writeHead(200, head);
  if (body.length > ONE_PIECE_MAX_BYTES) raw.end(body);
  else raw.end(body.toString('latin1'), 'latin1');
}
