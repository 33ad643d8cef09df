import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';

/**
 * Takes over the connection of a request that asks for another protocol.
 * @param head what came behind the request already
 * @returns false: nobody here speaks it
 */
export type TakeOver = (request: IncomingMessage, socket: Duplex, head: Buffer) => boolean;

/**
 * Lets connections be taken over. Node then hands out every request with an Upgrade header, also those of clients that would
 * merely like HTTP/2 (Java's, curl's) and have a body to come: nobody has to upgrade (RFC 9110 section 7.8), so they are
 * served as if they had not asked.
 * @param opened the event by which the server learns of a connection
 */
export function acceptUpgrades(server: Server, opened: string, takeOver: TakeOver): void {
  server.on('upgrade', (request, socket, head) => {
    if (takeOver(request, socket, head)) return;
    socket.unshift(Buffer.concat([withoutUpgrade(request), head]));
    server.emit(opened, socket);
  });
}

const OF_THE_UPGRADE = new Set(['upgrade', 'http2-settings']);

/** The head of the request as it came, but for the headers that ask. */
function withoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const [name = '', value = ''] = rawHeaders.slice(i, i + 2);
    const kept = name.toLowerCase() === 'connection' ? otherOptions(value) : value;
    if (kept !== undefined && !OF_THE_UPGRADE.has(name.toLowerCase())) lines.push(`${name}: ${kept}`);
  }
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
}

/** Of a Connection header: whether it is to be kept does not depend on what it is to become. */
function otherOptions(connection: string): string | undefined {
  const others = connection.split(',').filter((option) => !OF_THE_UPGRADE.has(option.trim().toLowerCase()));
  return others.length > 0 ? others.join(',') : undefined;
}
