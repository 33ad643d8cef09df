import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import type { Strangers } from './strangers.ts';

/** RFC 6455 section 7.4.1. */
const [NORMAL, UNSUPPORTED_DATA] = [1000, 1003];

/**
 * The bytes that go over a WebSocket in binary frames; frames mean nothing. Whoever does not read stops the client, and a
 * client that does not read is seen by `writableLength`, as with a socket.
 */
export class WebSocketStream extends Duplex {
  readonly #webSocket: WebSocket;
  readonly #socket: Socket;

  /** To be called when it is known who the client is. */
  readonly known: () => void;

  /** @param socket below the WebSocket */
  constructor(webSocket: WebSocket, socket: Socket, strangers: Strangers) {
    super({ allowHalfOpen: false });
    this.#webSocket = webSocket;
    this.#socket = socket;
    this.known = strangers.add(socket, () => webSocket.terminate());
    webSocket.on('message', (data: Buffer, isBinary) => this.#received(data, isBinary));
    webSocket.on('close', () => {
      if (!this.destroyed) this.push(null);
    });
    // The WebSocket closes by itself, with the code that says what was wrong.
    webSocket.on('error', () => {});
  }

  /** Calls back when nothing has moved for so long. */
  setTimeout(timeoutMs: number, callback: () => void): void {
    this.#socket.setTimeout(timeoutMs, callback);
  }

  #received(data: Buffer, isBinary: boolean): void {
    if (!isBinary) this.#webSocket.close(UNSUPPORTED_DATA, 'binary frames are expected');
    else if (!this.destroyed && !this.push(data)) this.#webSocket.pause();
  }

  override _read(): void {
    this.#webSocket.resume();
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
    callback(error);
  }
}
