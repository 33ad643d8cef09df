import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';

/**
 * Takes over the connection of an upgrade request.
 * @param head bytes already received after the request
 * @returns false: the protocol is not supported
 */
export type TakeOver = (request: IncomingMessage, socket: Duplex, head: Buffer) => boolean;

/**
 * Lets connections be taken over. Node then emits `upgrade` for every request with an Upgrade header, even for those of clients
 * that offer HTTP/2 (Java's, curl's) and send a body. A server may ignore the header (RFC 9110 section 7.8), so these are
 * served as ordinary requests.
 * @param opened the server's event for a new connection
 */
export function acceptUpgrades(server: Server, opened: string, takeOver: TakeOver): void {
  server.on('upgrade', (request, socket, head) => {
    if (takeOver(request, socket, head)) return;
    socket.unshift(Buffer.concat([withoutUpgrade(request), head]));
    server.emit(opened, socket);
  });
}

const OF_THE_UPGRADE = new Set(['upgrade', 'http2-settings']);

/** The head of the request, without the upgrade headers. */
function withoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const [name = '', value = ''] = rawHeaders.slice(i, i + 2);
    const kept = name.toLowerCase() === 'connection' ? otherOptions(value) : value;
    if (kept !== undefined && !OF_THE_UPGRADE.has(name.toLowerCase())) lines.push(`${name}: ${kept}`);
  }
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
}

/** A Connection header without `upgrade`. */
function otherOptions(connection: string): string | undefined {
  const others = connection.split(',').filter((option) => !OF_THE_UPGRADE.has(option.trim().toLowerCase()));
  return others.length > 0 ? others.join(',') : undefined;
}
