import type { Server, Socket } from 'node:net';
import type { Observe } from '../src/observation.ts';
import { decodeProxyHeader, type ProxyHeader, ProxyHeaderError } from '../src/protocol/proxy-header.ts';
import type { ConnectionLimit } from './connection-limit.ts';
import type { HttpServer } from './server.ts';

interface ProxiedConnectionsOptions {
  /** Whether connections from this address begin with a PROXY header. */
  readonly isProxy: (address: string) => boolean;
  readonly timeoutMs: number;
  readonly connections: Pick<ConnectionLimit, 'announced'>;
  readonly observe: Observe;
}

/**
 * Connections from proxies, until their PROXY header has been read: it comes before TLS. Then the server gets them, as if they had
 * just been opened. Those from elsewhere it gets at once.
 */
export class ProxiedConnections {
  readonly #options: ProxiedConnectionsOptions;
  readonly #isTls: boolean;
  readonly #pass: (socket: Socket) => void;
  readonly #waiting = new Set<Socket>();
  readonly #read = new WeakSet<Socket>();

  /** Must be made after all others that listen for the server's connections, except those that count them. */
  constructor({ server, opened }: Pick<HttpServer, 'server' | 'opened'>, options: ProxiedConnectionsOptions) {
    this.#options = options;
    this.#isTls = opened === 'secureConnection';
    const others = (server as Server).listeners('connection');
    this.#pass = (socket) => {
      for (const listener of others) listener.call(server, socket);
    };
    server.removeAllListeners('connection');
    server.on('connection', (socket: Socket) => {
      // The event is repeated for a request to upgrade to an unknown protocol.
      if (this.#read.has(socket) || !options.isProxy(socket.remoteAddress ?? '')) this.#pass(socket);
      else this.#await(socket);
    });
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** Nothing has been asked yet. */
  announceEnd(): void {}

  /** The server does. */
  stopListening(): void {}

  /** No request has been read. */
  async caughtUp(): Promise<void> {}

  drain(): void {
    this.closeAll();
  }

  closeAll(): void {
    for (const socket of this.#waiting) socket.destroy();
  }

  #await(socket: Socket): void {
    let received: Buffer = NOTHING;
    const arrived = (chunk: Buffer) => {
      received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
      try {
        const header = decodeProxyHeader(received);
        if (header === undefined) return;
        over();
        this.#begin(socket, header, received.subarray(header.bytes));
      } catch (error) {
        if (!(error instanceof ProxyHeaderError)) throw error;
        this.#refuse(socket, error.message);
      }
    };
    // A health check that only connects has sent nothing.
    const ended = () => (received.length === 0 ? socket.destroy() : this.#refuse(socket, 'the connection ended within it'));
    const late = setTimeout(() => this.#refuse(socket, 'it did not arrive in time'), this.#options.timeoutMs);
    const over = () => {
      clearTimeout(late);
      this.#waiting.delete(socket);
      socket.off('data', arrived).off('end', ended).off('error', ignore).off('close', over);
    };
    this.#waiting.add(socket);
    socket.on('data', arrived).on('end', ended).on('error', ignore).on('close', over);
  }

  /** @param rest what the client has sent already */
  #begin(socket: Socket, { source }: ProxyHeader, rest: Buffer): void {
    this.#read.add(socket);
    if (source !== undefined) this.#options.connections.announced(socket, source);
    socket.pause();
    if (rest.length > 0) socket.unshift(rest);
    this.#pass(socket);
    // With TLS another socket reads from this one.
    if (!this.#isTls) socket.resume();
  }

  /** Sends nothing: whoever it is does not speak HTTP yet. */
  #refuse(socket: Socket, reason: string): void {
    socket.destroy();
    this.#options.observe({ name: 'proxy_header.refused', door: 'http', reason });
  }
}

const NOTHING = Buffer.alloc(0);

/** A socket error closes the socket. */
function ignore(): void {}
