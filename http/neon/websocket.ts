import http, { type IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { type WebSocket, WebSocketServer } from 'ws';
import { ServiceError } from '../../src/errors.ts';
import { MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { holdBody } from '../admission.ts';
import type { ConnectionLimit } from '../connection-limit.ts';
import type { TakeOver } from '../server.ts';

/** Begins a session of PostgreSQL's protocol with cleartext authentication, because these clients send the key without waiting. */
export type OpenWire = (stream: WebSocketStream, client: { readonly remoteAddress: string }) => void;

interface WebSocketEndpointOptions {
  readonly openWire: OpenWire;
  readonly clientAddress: (socket: Socket, forwardedFor: string | undefined) => string;
  readonly maxFrameBytes: number;
  /** Whether a WebSocket request gets the same answer as an ordinary request. */
  readonly isRefused: (request: IncomingMessage) => boolean;
  readonly connections: Pick<ConnectionLimit, 'authenticated'>;
  /** The memory budget for the organizations' frames. */
  readonly bodies: MemoryBudget;
  /** How often clients are pinged. A client that has sent nothing after two pings is disconnected at the next. */
  readonly keepAliveMs?: number;
}

interface Client {
  readonly socket: Socket;
  /** How many bytes had been received at the last check. */
  bytesRead: number;
  /** The number of pings since the last received byte. */
  unanswered: number;
}

const PATH = '/v2';
/** How many frames of the largest size unauthenticated clients may be sending at once. */
const UNAUTHENTICATED_FRAMES = 4;
const KEEPALIVE_MS = 30_000;
const UNANSWERED_MAX = 2;

/** WebSockets at `/v2` that carry PostgreSQL's protocol, for the `Client` and `Pool` of `@neondatabase/serverless`. */
export class WebSocketEndpoint {
  readonly #options: WebSocketEndpointOptions;
  readonly #server: WebSocketServer;
  readonly #budgets: FrameBudgets;
  readonly #clients = new Map<WebSocket, Client>();
  #pinging: NodeJS.Timeout | undefined;
  #closing = false;
  #deadline: NodeJS.Timeout | undefined;

  constructor(options: WebSocketEndpointOptions) {
    this.#options = options;
    const maxPayload = options.maxFrameBytes;
    const { bodies, connections } = options;
    const unauthenticatedBytes = UNAUTHENTICATED_FRAMES * (maxPayload + LOGIN_BYTES);
    const unauthenticated = new MemoryBudget({ perOrganizationBytes: unauthenticatedBytes, allBytes: Number.POSITIVE_INFINITY });
    this.#budgets = { bodies, connections, unauthenticated };
    this.#server = new WebSocketServer({ noServer: true, clientTracking: false, perMessageDeflate: false, maxPayload });
  }

  readonly takeOver: TakeOver = (request, socket, head) => {
    if (this.#closing || !isForUs(request) || this.#options.isRefused(request) || !(socket instanceof Socket)) return false;
    this.#server.handleUpgrade(request, socket, head, (webSocket) => this.#open(webSocket, socket, request));
    return true;
  };

  /** Accepts no more clients, and drops those that the wire door has not closed by then. */
  close(deadlineMs: number): void {
    this.#closing = true;
    if (this.#clients.size === 0) return;
    this.#deadline = setTimeout(() => {
      for (const webSocket of this.#clients.keys()) webSocket.terminate();
    }, deadlineMs);
  }

  #open(webSocket: WebSocket, socket: Socket, { headers }: IncomingMessage): void {
    this.#clients.set(webSocket, { socket, bytesRead: 0, unanswered: 0 });
    webSocket.on('close', () => this.#closed(webSocket));
    this.#pinging ??= setInterval(() => this.#ping(), this.#options.keepAliveMs ?? KEEPALIVE_MS);
    const forwardedFor = headers['x-forwarded-for'];
    const { openWire, clientAddress } = this.#options;
    const remoteAddress = clientAddress(socket, typeof forwardedFor === 'string' ? forwardedFor : undefined);
    openWire(new WebSocketStream(webSocket, socket, this.#budgets), { remoteAddress });
  }

  /** Any received byte shows that the client is alive, because a pong waits behind the frame that the client is sending. */
  #ping(): void {
    for (const [webSocket, client] of this.#clients) {
      const { bytesRead, writableLength } = client.socket;
      // A client that Postern does not read from is not checked, nor one that has unread bytes before the ping.
      if (webSocket.isPaused || writableLength > 0 || bytesRead > client.bytesRead) client.unanswered = 0;
      client.bytesRead = bytesRead;
      if (client.unanswered === UNANSWERED_MAX) webSocket.terminate();
      else webSocket.ping();
      client.unanswered += 1;
    }
  }

  #closed(webSocket: WebSocket): void {
    this.#clients.delete(webSocket);
    if (this.#clients.size > 0) return;
    clearTimeout(this.#deadline);
    clearInterval(this.#pinging);
    this.#pinging = undefined;
  }
}

function isForUs({ url = '', headers }: IncomingMessage): boolean {
  return headers.upgrade?.toLowerCase() === 'websocket' && url.split('?', 1)[0] === PATH;
}

/** Close codes: RFC 6455 section 7.4.1, and https://www.iana.org/assignments/websocket */
const [NORMAL, UNSUPPORTED_DATA, TRY_AGAIN_LATER] = [1000, 1003, 1013];

/** How much each client may send before it is authenticated; more than a login needs. */
const LOGIN_BYTES = 16_384;
/** All unauthenticated clients count as one organization. */
const UNAUTHENTICATED = '';

/**
 * The memory budgets for frames. A client may send its first statement, of any size, in one frame with its login, and a frame can be
 * read only when it is complete. So unauthenticated clients may send large frames, within one budget that they share.
 */
interface FrameBudgets {
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

/*
 * Masks and unmasks the payload of WebSocket frames (RFC 6455 section 5.3), four bytes at a time. `ws` does it byte by byte where
 * Node has no functions for it: for a frame of 15 MB, the event loop would stand still for 35 to 55 ms in place of 6. It looks for
 * these two when it is loaded, so this module is imported before it.
 */

const WORD_BYTES = 4;

/** Unmasks a payload in place. */
export function unmask(payload: Buffer, mask: Buffer): void {
  maskRange(payload, mask, 0, payload.length);
}

/** Masks the source and writes it to the output at the offset. */
export function mask(source: Buffer, key: Buffer, output: Buffer, offset: number, length: number): void {
  output.set(source.subarray(0, length), offset);
  maskRange(output, key, offset, length);
}

function maskRange(bytes: Buffer, mask: Buffer, start: number, length: number): void {
  const head = (WORD_BYTES - ((bytes.byteOffset + start) % WORD_BYTES)) % WORD_BYTES;
  if (length < head) {
    maskBytes(bytes, mask, start, 0, length);
    return;
  }
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset + start + head, (length - head) >>> 2);
  maskBytes(bytes, mask, start, 0, head);
  maskWords(words, mask, head);
  maskBytes(bytes, mask, start, head + words.byteLength, length);
}

function maskBytes(bytes: Buffer, mask: Buffer, start: number, from: number, to: number): void {
  for (let at = from; at < to; at += 1) bytes[start + at] = (bytes[start + at] ?? 0) ^ (mask[at % WORD_BYTES] ?? 0);
}

/** @param before how many bytes of the payload stand before the words */
function maskWords(words: Uint32Array, mask: Buffer, before: number): void {
  const key = Uint8Array.from(mask, (_, at) => mask[(before + at) % WORD_BYTES] ?? 0);
  const [word = 0] = new Uint32Array(key.buffer);
  for (let at = 0; at < words.length; at += 1) words[at] = (words[at] ?? 0) ^ word;
}

if (!('websocketMask' in http)) Object.assign(http, { websocketMask: mask, websocketUnmask: unmask });
