import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import type { WebSocket } from 'ws';
import { ServiceError } from '../../src/errors.ts';
import { type MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import type { ConnectionLimit } from '../connections/connection-limit.ts';
import { holdBody } from '../plugins/body-memory.ts';

/** Close codes: RFC 6455 section 7.4.1, and https://www.iana.org/assignments/websocket */
const [NORMAL, UNSUPPORTED_DATA, TRY_AGAIN_LATER] = [1000, 1003, 1013];

/** How much each client may send before it is authenticated; more than a login needs. */
export const LOGIN_BYTES = 16_384;
/** All unauthenticated clients count as one organization. */
const UNAUTHENTICATED = '';

/**
 * The memory budgets for frames. A client may send its first statement, of any size, in one frame with its login, and a frame can be
 * read only when it is complete. So unauthenticated clients may send large frames, within one budget that they share.
 */
export interface FrameBudgets {
  /** Shared with the bodies of the organization's requests. */
  readonly bodies: MemoryBudget;
  readonly unauthenticated: MemoryBudget;
  readonly connections: Pick<ConnectionLimit, 'authenticated'>;
}

/** As much as one read of a socket returns. No larger part of a frame is passed on at once. */
const PIECE_BYTES = 65_536;
/** The header of a control frame from a client, which is masked. */
const CONTROL_HEAD_BYTES = 6;

/**
 * The bytes of a WebSocket's binary frames, as a stream; frame boundaries have no meaning. Backpressure works in both directions: an
 * unread stream stops the client, and `writableLength` counts the bytes that the client has not read, as with a socket.
 */
export class WebSocketStream extends Duplex {
  readonly #webSocket: WebSocket;
  readonly #socket: Socket;
  readonly #budgets: FrameBudgets;
  #held: MemoryReservation;
  #isAuthenticated = false;
  /** The length of the incomplete frame. */
  #come = 0;
  /** Complete frames, their length together, and how much of the first has been passed on. */
  readonly #frames: Buffer[] = [];
  #waiting = 0;
  #handedOut = 0;
  #isFull = false;
  #hasEnded = false;

  /** @param socket the WebSocket's socket */
  constructor(webSocket: WebSocket, socket: Socket, budgets: FrameBudgets) {
    super({ allowHalfOpen: false });
    this.#webSocket = webSocket;
    this.#socket = socket;
    this.#budgets = budgets;
    this.#held = new MemoryReservation(budgets.unauthenticated, UNAUTHENTICATED, LOGIN_BYTES);
    socket.prependListener('data', ({ length }: Buffer) => this.#arrived(length));
    webSocket.on('message', (data: Buffer, isBinary) => this.#received(data, isBinary));
    for (const control of ['ping', 'pong']) webSocket.on(control, ({ length }: Buffer) => this.#arrived(-length - CONTROL_HEAD_BYTES));
    webSocket.on('close', () => {
      this.#hasEnded = true;
      this.#handOut();
    });
    // The WebSocket closes by itself, with the code of the error.
    webSocket.on('error', () => {});
  }

  get isEncrypted(): boolean {
    return this.#socket instanceof TLSSocket;
  }

  /** Called when the client is authenticated. Its frames then count in the budget of its organization. */
  known(limitsId: string): void {
    this.#held.end();
    this.#budgets.connections.authenticated(this.#socket, limitsId);
    this.#held = new MemoryReservation(this.#budgets.bodies, limitsId);
    this.#isAuthenticated = true;
    this.#count();
  }

  /** Calls back when nothing has been sent or received for so long. */
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

  /** A copy, so that a reader that keeps a piece does not keep a whole large frame in memory. */
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

  /** Counts the bytes held of the client's frames. */
  #count(): void {
    if (this.destroyed) return;
    try {
      holdBody(this.#held, this.#come + this.#waiting);
    } catch (error) {
      if (this.#isAuthenticated) this.#webSocket.close(TRY_AGAIN_LATER, error instanceof ServiceError ? error.message : '');
      // A close frame would be read only after the rest of the frame.
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
    // The client's close frame must be read.
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
