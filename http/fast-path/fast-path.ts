import type { Socket } from 'node:net';
import { IndexedSet } from '../../src/runtime/indexed-set.ts';
import { MemoryBudget } from '../../src/runtime/memory-budget.ts';
import { ScheduledInput } from '../connections/scheduled-input.ts';
import { checkEveryMs, type HttpServer, type ServerDeadlines } from '../connections/server.ts';
import type { RequestContext } from '../request-context.ts';
import { FastPathConnection, type FastPathHost } from './connection.ts';
import type { ExchangeContext } from './query-request-and-reply.ts';

/**
 * What all connections together may take for requests of which there is only a part, with a key that is known; one
 * organization's no more than is left for the others. What finds no room goes to the server, which counts bodies.
 */
const PARTS_MAX_BYTES = 16 * 1_048_576;

/**
 * Serves plain requests for `/api/query` without Node's HTTP server and Fastify, which saves a fifth of the processor time of the
 * most frequent request. Every connection begins here. With its first request of any other kind the connection is passed to the
 * server for good, as if it had just been opened.
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

  constructor({ server, opened }: Pick<HttpServer, 'server' | 'opened'>, deadlines: ServerDeadlines, context: ExchangeContext) {
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

  /** The requests that are being served. */
  calls(): readonly RequestContext[] {
    return this.#connections.all().flatMap(({ call }) => call ?? []);
  }

  /** Replies have `Connection: close` from now on; idle connections stay open. */
  announceEnd(): void {
    this.#isEnding = true;
    for (const connection of this.#connections.all()) connection.announceEnd();
  }

  /** The server does. */
  stopListening(): void {}

  /** Closes idle connections at once and the others after their pending reply. */
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
    // Behind these bytes there may be more in the stream: it was paused, or was handed several parts.
    const buffered: Buffer | null = socket.readableLength > 0 ? socket.read() : null;
    this.#serveElsewhere(socket);
    ScheduledInput.start(socket, this.context.router.inputs, buffered === null ? bytes : Buffer.concat([bytes, buffered]));
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
