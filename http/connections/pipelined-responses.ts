import type { RequestListener, Server, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** On one connection; what has come with the last of them in one piece waits as well. */
const WAITING_MAX = 100;
const NONE: readonly ServerResponse[] = [];

/**
 * The replies due on each open connection: mostly one, for which a set would be made anew with each request. Requests are
 * carried out one after the other, as many as come at once: one may need what the one before has done.
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-9.3.2
 */
export class PipelinedResponses {
  readonly #handler: RequestListener;
  /** Of each connection the first one's request is being carried out; the others wait. */
  readonly #due = new Map<Duplex, ServerResponse[]>();
  readonly #held = new WeakSet<Duplex>();
  readonly #ending = new WeakSet<Duplex>();
  #isEnding = false;

  /** @param opened the event by which the server learns of a connection */
  constructor(server: Server, opened: string, handler: RequestListener) {
    this.#handler = handler;
    server.on(opened, (socket: Duplex) => {
      // It may come back from a request for another protocol.
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
   * The connection ends with the last reply to what has come as a whole, since what came behind that cannot be understood: a
   * request that is longer than its Content-Length says is told what is wrong with the part that counts.
   * @returns false where no such reply is due
   */
  closeAfterLast(socket: Duplex): boolean {
    if (this.#ending.has(socket)) return true;
    const last = this.on(socket).findLast(isAnswered);
    if (last === undefined) return false;
    this.#ending.add(socket);
    last.shouldKeepAlive = false;
    last.once('close', () => (socket instanceof Socket ? socket.destroySoon() : socket.destroy()));
    // Node takes the end for more of what it could not understand.
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
      // Node tells of it when nobody listens any more.
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
    // Others come between, however many wait here.
    setImmediate(() => {
      if (socket.writable && this.#due.has(socket)) this.#begin(socket, due, next);
    });
    if (due.length === WAITING_MAX / 2 && this.#held.delete(socket)) socket.resume();
  }

  /** No more is read of what its client sends until some are answered. Node reads on after each request that it takes apart. */
  #hold(socket: Socket): void {
    this.#held.add(socket);
    process.nextTick(() => socket.pause());
  }
}

/** Whether a reply has begun, or is going to be made since all of its request has come. */
export function isAnswered(reply: ServerResponse): boolean {
  return reply.headersSent ? !reply.writableFinished : reply.req.complete;
}
