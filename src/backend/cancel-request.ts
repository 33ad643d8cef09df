import { isIP, connect as netConnect, type Socket } from 'node:net';
import { connect as tlsConnect } from 'node:tls';
import type pg from 'pg';
import { cancelRequest } from '../protocol/frontend-encoder.ts';

/** Where a server takes cancel requests, and whether by TLS. */
export interface CancelAddress {
  /** Host name or address; a path beginning with `/` is the folder of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly ssl?: pg.ClientConfig['ssl'];
}

const SSL_REQUEST = Buffer.from('0000000804d2162f', 'hex');

/**
 * Sends a cancel request, by TLS where the session is, so that nobody else comes to know its key.
 * @returns false when the server has not closed the connection in time; true also when the request could not be sent at all
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-CANCELING-REQUESTS
 */
export function requestCancel(address: CancelAddress, processId: number, secretKey: number, timeoutMs: number): Promise<boolean> {
  const request = cancelRequest(processId, secretKey);
  return new Promise((resolve) => {
    const socket = openSocket(address);
    const settle = (isOver: boolean) => {
      socket.destroy();
      resolve(isOver);
    };
    socket.setTimeout(timeoutMs, () => settle(false));
    socket.on('error', () => settle(true)).on('close', () => settle(true));
    socket.on('connect', () => {
      if (address.ssl) sendByTls(socket, address, request);
      else socket.resume().end(request);
    });
  });
}

function openSocket({ host, port }: CancelAddress): Socket {
  return host.startsWith('/') ? netConnect(`${host}/.s.PGSQL.${port}`) : netConnect(port, host);
}

/** As the driver logs in: nothing is sent to a server that speaks no TLS, or is not the one that it should be. */
function sendByTls(socket: Socket, { host, ssl }: CancelAddress, request: Buffer): void {
  socket.write(SSL_REQUEST);
  socket.once('data', (answer: Buffer) => {
    if (answer.toString('latin1') !== 'S') {
      socket.destroy();
      return;
    }
    // The driver keeps the key of a client certificate from being copied with the rest.
    const { key, ...given } = typeof ssl === 'object' ? ssl : {};
    const options = { host, ...given, ...(key === undefined ? {} : { key }), ...(isIP(host) === 0 ? { servername: host } : {}) };
    const secure = tlsConnect({ ...options, socket }, () => secure.resume().end(request));
    secure.on('error', () => socket.destroy()).on('close', () => socket.destroy());
  });
}
