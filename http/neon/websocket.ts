import './websocket-masking.ts';
import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import { MemoryBudget } from '../../src/runtime/memory-budget.ts';
import type { ConnectionLimit } from '../connections/connection-limit.ts';
import type { TakeOver } from '../connections/upgrade.ts';
import { type FrameBudgets, LOGIN_BYTES, WebSocketStream } from './websocket-stream.ts';

/** Begins a session of PostgreSQL's protocol with cleartext authentication, because these clients send the key without waiting. */
export type OpenWire = (stream: WebSocketStream, client: { readonly remoteAddress: string }) => void;

export interface WebSocketEndpointOptions {
  readonly openWire: OpenWire;
  readonly clientAddress: (socketAddress: string, forwardedFor: string | undefined) => string;
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
    const remoteAddress = clientAddress(socket.remoteAddress ?? '', typeof forwardedFor === 'string' ? forwardedFor : undefined);
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
