import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import { ServiceError } from '../../src/errors.ts';
import { type MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import type { ConnectionLimit } from '../connections/connection-limit.ts';
import { holdBody } from '../plugins/admission.ts';

/** RFC 6455 section 7.4.1 and the registry that it founds: https://www.iana.org/assignments/websocket */
const [NORMAL, UNSUPPORTED_DATA, TRY_AGAIN_LATER] = [1000, 1003, 1013];

/** So much each client may send before it is known who it is: more than a login takes. */
export const LOGIN_BYTES = 16_384;
/** All clients of whom it is not known yet who they are count as one organization. */
const UNAUTHENTICATED = '';

/**
 * Where what clients send counts. Nobody can tell what is in a frame before all of it is there, and honest clients send their
 * first statement, whatever its size, in one frame with their login: so there is room for large ones of clients that are not
 * known yet, which all of them share.
 */
export interface FrameBudgets {
  /** With the bodies of the organization's requests. */
  readonly bodies: MemoryBudget;
  readonly unauthenticated: MemoryBudget;
  readonly connections: Pick<ConnectionLimit, 'authenticated'>;
}

/** As much as comes from a socket at a time: more of a frame is not handed out before it is asked for. */
const PIECE_BYTES = 65_536;
/** Of a control frame from a client, which is masked. */
const CONTROL_HEAD_BYTES = 6;

/**
 * The bytes that go over a WebSocket in binary frames; frames mean nothing. Whoever does not read stops the client, and a
 * client that does not read is seen by `writableLength`, as with a socket.
 */
export class WebSocketStream extends Duplex {
  readonly #webSocket: WebSocket;
  readonly #socket: Socket;
  readonly #rooms: FrameBudgets;
  #held: MemoryReservation;
  #isAuthenticated = false;
  /** Bytes of a frame that has not come whole. */
  #come = 0;
  /** Frames that have come whole, how much they are together, and what has been handed out of the first one. */
  readonly #frames: Buffer[] = [];
  #waiting = 0;
  #handedOut = 0;
  #isFull = false;
  #hasEnded = false;

  /** @param socket below the WebSocket */
  constructor(webSocket: WebSocket, socket: Socket, rooms: FrameBudgets) {
    super({ allowHalfOpen: false });
    this.#webSocket = webSocket;
    this.#socket = socket;
    this.#rooms = rooms;
    this.#held = new MemoryReservation(rooms.unauthenticated, UNAUTHENTICATED, LOGIN_BYTES);
    socket.prependListener('data', ({ length }: Buffer) => this.#arrived(length));
    webSocket.on('message', (data: Buffer, isBinary) => this.#received(data, isBinary));
    for (const control of ['ping', 'pong']) webSocket.on(control, ({ length }: Buffer) => this.#arrived(-length - CONTROL_HEAD_BYTES));
    webSocket.on('close', () => {
      this.#hasEnded = true;
      this.#handOut();
    });
    // The WebSocket closes by itself, with the code that says what was wrong.
    webSocket.on('error', () => {});
  }

  /** To be called when it is known whose client it is: what it sends takes room as the bodies of their requests do. */
  known(organizationId: string): void {
    this.#held.end();
    this.#rooms.connections.authenticated(this.#socket, organizationId);
    this.#held = new MemoryReservation(this.#rooms.bodies, organizationId);
    this.#isAuthenticated = true;
    this.#count();
  }

  /** Calls back when nothing has moved for so long. */
  setTimeout(timeoutMs: number, callback: () => void): void {
    this.#socket.setTimeout(timeoutMs, callback);
  }

  #arrived(bytes: number): void {
    this.#come = Math.max(0, this.#come + bytes);
    this.#count();
  }

  #received(data: Buffer, isBinary: boolean): void {
    this.#come = 0;
    if (!isBinary) this.#webSocket.close(UNSUPPORTED_DATA, 'binary frames are expected');
    else if (!this.destroyed) {
      this.#frames.push(data);
      this.#waiting += data.length;
      this.#handOut();
    }
  }

  #handOut(): void {
    while (!this.#isFull && this.#frames.length > 0) this.#isFull = !this.push(this.#nextPiece());
    this.#count();
    if (this.#frames.length === 0 && this.#hasEnded && !this.destroyed) this.push(null);
    else if (this.#isFull) this.#webSocket.pause();
  }

  /** A copy: who keeps a piece is not to keep all of a large frame with it. */
  #nextPiece(): Buffer {
    const [frame = NOTHING] = this.#frames;
    const start = this.#handedOut;
    const end = Math.min(start + PIECE_BYTES, frame.length);
    this.#handedOut = end;
    if (end === frame.length) {
      this.#frames.shift();
      this.#waiting -= end;
      this.#handedOut = 0;
    }
    return frame.length <= PIECE_BYTES ? frame : Buffer.from(frame.subarray(start, end));
  }

  /** What is held of all that the client has sent. */
  #count(): void {
    if (this.destroyed) return;
    try {
      holdBody(this.#held, this.#come + this.#waiting);
    } catch (error) {
      if (this.#isAuthenticated) this.#webSocket.close(TRY_AGAIN_LATER, error instanceof ServiceError ? error.message : '');
      // An answer to that would come behind the rest of the frame.
      this.destroy();
    }
  }

  override _read(): void {
    this.#isFull = false;
    this.#handOut();
    if (!this.#isFull) this.#webSocket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#webSocket.send(chunk, callback);
  }

  override _final(callback: (error?: Error | null) => void): void {
    const webSocket = this.#webSocket;
    if (webSocket.readyState === webSocket.CLOSED) {
      callback();
      return;
    }
    webSocket.once('close', () => callback());
    // The client's answer has to be heard.
    webSocket.resume();
    webSocket.close(NORMAL);
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#webSocket.terminate();
    this.#frames.length = 0;
    this.#held.end();
    callback(error);
  }
}

const NOTHING = Buffer.alloc(0);
