import type { Socket } from 'node:net';
import { IndexedSet } from '../../src/runtime/indexed-set.ts';
import { MemoryBudget } from '../../src/runtime/memory-budget.ts';
import { checkEveryMs, type HttpServer, type ServerDeadlines } from '../connections/server.ts';
import { FastPathConnection, type FastPathHost } from './connection.ts';
import type { ExchangeContext } from './query-exchange.ts';

/**
 * What all connections together may take for requests of which there is only a part, with a key that is known; one
 * organization's no more than is left for the others. What finds no room goes to the server, which counts bodies.
 */
const PARTS_MAX_BYTES = 16 * 1_048_576;

/**
 * A way past Node's HTTP server and Fastify for plain requests for `/api/query`, which are nearly all there are and cost
 * the processor a fifth less without them. Every connection begins here; with the first request that is not of that kind
 * it goes to the server, with that request and for good, as if it had just been opened.
 */
export class FastPath implements FastPathHost {
  readonly context: ExchangeContext;
  readonly deadlines: ServerDeadlines;
  readonly parts = new MemoryBudget({ perOrganizationBytes: PARTS_MAX_BYTES, allBytes: PARTS_MAX_BYTES });
  readonly #connections = new IndexedSet<FastPathConnection>();
  readonly #serveElsewhere: (socket: Socket) => void;
  readonly #checking: NodeJS.Timeout;
  #isEnding = false;
  #isDraining = false;

  constructor({ server, opened }: HttpServer, deadlines: ServerDeadlines, context: ExchangeContext) {
    this.context = context;
    this.deadlines = deadlines;
    const others = server.listeners(opened);
    this.#serveElsewhere = (socket) => {
      for (const listener of others) listener.call(server, socket);
    };
    server.removeAllListeners(opened);
    server.on(opened, (socket: Socket) => this.#connections.add(new FastPathConnection(socket, this)));
    this.#checking = setInterval(() => this.#checkDeadlines(), checkEveryMs(deadlines)).unref();
    server.on('close', () => clearInterval(this.#checking));
  }

  get isEnding(): boolean {
    return this.#isEnding;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  get size(): number {
    return this.#connections.size;
  }

  /** From now on replies say that their connection ends with them; those on which none is due wait for one. */
  announceEnd(): void {
    this.#isEnding = true;
    for (const connection of this.#connections.all()) connection.announceEnd();
  }

  /** From now on every connection ends with the reply that is due on it, and those on which none is due end at once. */
  drain(): void {
    this.announceEnd();
    this.#isDraining = true;
    for (const connection of this.#connections.all()) connection.drain();
  }

  closeAll(): void {
    for (const connection of this.#connections.all()) connection.cutOff();
  }

  leave(connection: FastPathConnection, bytes: Buffer): void {
    const { socket } = connection;
    this.#connections.delete(connection);
    socket.unshift(bytes);
    this.#serveElsewhere(socket);
    socket.resume();
  }

  closed(connection: FastPathConnection): void {
    this.#connections.delete(connection);
  }

  #checkDeadlines(): void {
    const now = performance.now();
    for (const connection of this.#connections.all()) connection.checkDeadline(now);
  }
}
