import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import { MemoryBudget } from '../../src/runtime/memory-budget.ts';
import type { ConnectionLimit } from '../connections/connection-limit.ts';
import type { TakeOver } from '../connections/upgrade.ts';
import { type FrameBudgets, LOGIN_BYTES, WebSocketStream } from './websocket-stream.ts';

/** Begins a conversation in PostgreSQL's protocol, which asks for the key in the clear: these clients send it without waiting. */
export type OpenWire = (stream: WebSocketStream, client: { readonly remoteAddress: string }) => void;

export interface WireSocketsOptions {
  readonly openWire: OpenWire;
  readonly clientAddress: (socketAddress: string, forwardedFor: string | undefined) => string;
  readonly maxFrameBytes: number;
  /** Whether a request for a WebSocket is answered as one that asks for none is. */
  readonly isRefused: (request: IncomingMessage) => boolean;
  readonly connections: Pick<ConnectionLimit, 'authenticated'>;
  /** For what organizations send. */
  readonly bodies: MemoryBudget;
  /** How often clients are asked for a sign of life; one that has been asked twice and gave none by the next time is gone. */
  readonly keepAliveMs?: number;
}

interface Client {
  readonly socket: Socket;
  /** How much had come from it when it was last looked at. */
  bytesRead: number;
  /** Pings since it gave a sign of life. */
  unanswered: number;
}

const PATH = '/v2';
/** So many frames of the largest size may come at once from clients that have not logged in, each with a login. */
const UNAUTHENTICATED_FRAMES = 4;
const KEEPALIVE_MS = 30_000;
const UNANSWERED_MAX = 2;

/** WebSockets at `/v2` that carry PostgreSQL's protocol, for the `Client` and `Pool` of `@neondatabase/serverless`. */
export class WireSockets {
  readonly #options: WireSocketsOptions;
  readonly #server: WebSocketServer;
  readonly #rooms: FrameBudgets;
  readonly #clients = new Map<WebSocket, Client>();
  #pinging: NodeJS.Timeout | undefined;
  #closing = false;
  #deadline: NodeJS.Timeout | undefined;

  constructor(options: WireSocketsOptions) {
    this.#options = options;
    const maxPayload = options.maxFrameBytes;
    const { bodies, connections } = options;
    const unauthenticatedBytes = UNAUTHENTICATED_FRAMES * (maxPayload + LOGIN_BYTES);
    const unauthenticated = new MemoryBudget({ perOrganizationBytes: unauthenticatedBytes, allBytes: Number.POSITIVE_INFINITY });
    this.#rooms = { bodies, connections, unauthenticated };
    this.#server = new WebSocketServer({ noServer: true, clientTracking: false, perMessageDeflate: false, maxPayload });
  }

  readonly takeOver: TakeOver = (request, socket, head) => {
    if (this.#closing || !isForUs(request) || this.#options.isRefused(request) || !(socket instanceof Socket)) return false;
    this.#server.handleUpgrade(request, socket, head, (webSocket) => this.#open(webSocket, socket, request));
    return true;
  };

  /** Takes no more clients, and drops those that the other end of their stream has not said good-bye to by then. */
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
    openWire(new WebSocketStream(webSocket, socket, this.#rooms), { remoteAddress });
  }

  /** Any byte is a sign of life: a pong has to wait behind the frame that the client is sending. */
  #ping(): void {
    for (const [webSocket, client] of this.#clients) {
      const { bytesRead, writableLength } = client.socket;
      // From a client that is not being read nothing can be heard; one that is behind has not come to the ping yet.
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
