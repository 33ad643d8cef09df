import type { RequestListener, Server, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { ScheduledInput } from './scheduled-input.ts';

/** How many requests may wait on one connection before it is not read any more. All requests of the last chunk may exceed it. */
const WAITING_MAX = 100;
const NONE: readonly ServerResponse[] = [];

/**
 * The pending replies of each open connection. There is mostly one, so no Set is made for it. Pipelined requests are
 * carried out one after another, because one may depend on the one before.
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-9.3.2
 */
export class PipelinedResponses {
  readonly #handler: RequestListener;
  /** On each connection the first request is being carried out; the others wait. */
  readonly #due = new Map<Duplex, ServerResponse[]>();
  readonly #held = new WeakSet<Duplex>();
  readonly #ending = new WeakSet<Duplex>();
  #isEnding = false;

  /** @param opened the server's event for a new connection */
  constructor(server: Server, opened: string, handler: RequestListener) {
    this.#handler = handler;
    server.on(opened, (socket: Duplex) => {
      // The event is repeated after a request to upgrade to another protocol.
      if (this.#due.has(socket)) return;
      this.#due.set(socket, []);
      socket.on('close', () => this.forget(socket));
    });
    server.on('request', (_, reply) => this.#add(reply));
  }

  get size(): number {
    return this.#due.size;
  }

  on(socket: Duplex): readonly ServerResponse[] {
    return this.#due.get(socket) ?? NONE;
  }

  forget(socket: Duplex): boolean {
    return this.#due.delete(socket);
  }

  /**
   * Closes the connection after the last reply to a complete request, because the bytes after that are malformed: a body that is
   * longer than its Content-Length gets the reply to the part within it.
   * @returns false if no such reply is pending
   */
  closeAfterLast(socket: Duplex): boolean {
    if (this.#ending.has(socket)) return true;
    const last = this.on(socket).findLast(isAnswered);
    if (last === undefined) return false;
    this.#ending.add(socket);
    last.shouldKeepAlive = false;
    last.once('close', () => (socket instanceof Socket ? socket.destroySoon() : socket.destroy()));
    // Node would report the end of the stream as another parse error.
    socket.once('end', () => socket.destroy());
    return true;
  }

  announceEnd(): void {
    this.#isEnding = true;
    for (const due of this.#due.values()) {
      const last = due.at(-1);
      if (last !== undefined) last.shouldKeepAlive = false;
    }
  }

  drain(): void {
    this.announceEnd();
    for (const [socket, due] of this.#due) if (due.length === 0) socket.destroy();
  }

  closeAll(): void {
    for (const [socket, due] of this.#due) {
      this.forget(socket);
      // Node emits the event after the listeners have been removed.
      due[0]?.emit('close');
      socket.destroy();
    }
  }

  #add(reply: ServerResponse): void {
    const { socket } = reply.req;
    const due = this.#due.get(socket);
    if (due === undefined) {
      this.#handler(reply.req, reply);
      return;
    }
    due.push(reply);
    if (this.#isEnding) reply.shouldKeepAlive = false;
    if (due.length === 1) this.#begin(socket, due, reply);
    else if (due.length >= WAITING_MAX && !this.#held.has(socket)) this.#hold(socket);
  }

  #begin(socket: Socket, due: ServerResponse[], reply: ServerResponse): void {
    reply.once('close', () => this.#done(socket, due));
    this.#handler(reply.req, reply);
  }

  #done(socket: Socket, due: ServerResponse[]): void {
    due.shift();
    const next = due[0];
    if (next === undefined) {
      if (this.#isEnding) socket.destroySoon();
      return;
    }
    // Other connections are served in between, however many requests wait here.
    const begin = () => {
      if (socket.writable && this.#due.has(socket)) this.#begin(socket, due, next);
    };
    const input = ScheduledInput.of(socket);
    if (input === undefined) setImmediate(begin);
    else input.schedule(begin);
    if (due.length === WAITING_MAX / 2 && this.#held.delete(socket)) socket.resume();
  }

  /** Stops reading from the client until some requests are answered. Node resumes reading after each request that it parses. */
  #hold(socket: Socket): void {
    this.#held.add(socket);
    process.nextTick(() => socket.pause());
  }
}

/** Whether a reply has begun, or will be made because its request has arrived completely. */
export function isAnswered(reply: ServerResponse): boolean {
  return reply.headersSent ? !reply.writableFinished : reply.req.complete;
}
