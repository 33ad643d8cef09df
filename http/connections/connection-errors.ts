import { randomUUID } from 'node:crypto';
import { type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type ConnectionErrorCode, renderConnectionError } from '../errors.ts';
import { isAnswered } from './pipelined-responses.ts';

/** Parse errors, except those for a request that ends early. */
export function isMalformedRequest({ code }: NodeJS.ErrnoException): boolean {
  return code?.startsWith('HPE_') === true && code !== 'HPE_INVALID_EOF_STATE';
}

/** Handles malformed or too slow requests. An error reply is written only if it cannot be mistaken for another reply or a part of one. */
export function refuseConnection(error: NodeJS.ErrnoException, socket: Duplex, due: readonly ServerResponse[]): void {
  const isOtherDue = due.some(isAnswered);
  if (socket.writable && !isOtherDue && error.code !== 'ECONNRESET') socket.write(refusal(error));
  socket.destroy();
}

/** Closes a connection whose request has not arrived completely in time. */
export function refuseTimedOut(socket: Socket): void {
  if (socket.writable) socket.write(tooLate());
  socket.destroy();
}

/** Closes a connection that the client has ended within a request. */
export function refuseIncomplete(socket: Socket): void {
  if (socket.writable) socket.write(malformed());
  socket.destroy();
}

function malformed(): string {
  return wholeReply('malformed_request', 'the request is not valid HTTP');
}

function tooLate(): string {
  return wholeReply('request_timeout', 'the request did not arrive in time');
}

/** @see https://nodejs.org/api/http.html#event-clienterror */
function refusal(error: NodeJS.ErrnoException): string {
  switch (error.code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return tooLate();
    case 'HPE_HEADER_OVERFLOW':
      return wholeReply('headers_too_large', 'the request headers are too large');
    default:
      return malformed();
  }
}

function wholeReply(code: ConnectionErrorCode, message: string): string {
  const requestId = randomUUID();
  const problem = renderConnectionError(code, message, requestId);
  const body = JSON.stringify(problem);
  return [
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status] ?? ''}`,
    'content-type: application/problem+json',
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${requestId}`,
    'cache-control: no-store',
    'connection: close',
    '',
    body,
  ].join('\r\n');
}
