import { isIP, connect as netConnect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as tlsConnect } from 'node:tls';
import type pg from 'pg';
import { cancelRequest } from '../../protocol/frontend.ts';

/** Where to send cancel requests, and whether with TLS. */
export interface CancelAddress {
  /** Host name or address; a path beginning with `/` is the folder of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly ssl?: pg.ClientConfig['ssl'];
}

const SSL_REQUEST = Buffer.from('0000000804d2162f', 'hex');

/** A server with many clients that connect at once may refuse a connection: a Unix socket whose queue is full does so with EAGAIN. */
const ATTEMPTS = 3;
const ATTEMPT_DELAY_MS = 50;

type Outcome = 'taken' | 'timed out' | 'not connected';

/**
 * Sends a cancel request, with TLS if the session uses it, so that the cancel key is not sent in clear. Tries again when the
 * connection cannot be opened.
 * @returns false when the server has not closed the connection in time; true also when the request could not be sent
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-CANCELING-REQUESTS
 */
export async function requestCancel(address: CancelAddress, processId: number, secretKey: number, timeoutMs: number): Promise<boolean> {
  const request = cancelRequest(processId, secretKey);
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    const outcome = await send(address, request, timeoutMs);
    if (outcome !== 'not connected') return outcome === 'taken';
    if (attempt < ATTEMPTS) await delay(ATTEMPT_DELAY_MS);
  }
  return true;
}

function send(address: CancelAddress, request: Buffer, timeoutMs: number): Promise<Outcome> {
  return new Promise((resolve) => {
    const socket = openSocket(address);
    let outcome: Outcome = 'not connected';
    socket.setTimeout(timeoutMs, () => {
      outcome = 'timed out';
      socket.destroy();
    });
    socket.on('error', () => {}).on('close', () => resolve(outcome));
    socket.on('connect', () => {
      outcome = 'taken';
      if (address.ssl) sendWithTls(socket, address, request);
      else socket.resume().end(request);
    });
  });
}

function openSocket({ host, port }: CancelAddress): Socket {
  return host.startsWith('/') ? netConnect(`${host}/.s.PGSQL.${port}`) : netConnect(port, host);
}

/** As the driver does at login: nothing is sent to a server without TLS, or with the wrong certificate. */
function sendWithTls(socket: Socket, { host, ssl }: CancelAddress, request: Buffer): void {
  socket.write(SSL_REQUEST);
  socket.once('data', (answer: Buffer) => {
    if (answer.toString('latin1') !== 'S') {
      socket.destroy();
      return;
    }
    // The driver makes the property `key` non-enumerable, so the spread does not copy it.
    const { key, ...given } = typeof ssl === 'object' ? ssl : {};
    const options = { host, ...given, ...(key === undefined ? {} : { key }), ...(isIP(host) === 0 ? { servername: host } : {}) };
    const secure = tlsConnect({ ...options, socket }, () => secure.resume().end(request));
    secure.on('error', () => socket.destroy()).on('close', () => socket.destroy());
  });
}
