import { once } from 'node:events';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { ServiceError } from '../src/errors.ts';
import { MAX_LOGIN_MESSAGE_BYTES } from './limits.ts';
import type { TlsIdentity } from './tls.ts';

/** One message after the startup packet: its type byte and what follows its length. */
export interface ClientMessage {
  readonly type: number;
  readonly body: Buffer;
}

/** The client has closed its side, or the connection broke, while we were waiting for it to say something. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

/**
 * A client's socket as the login reads it: message by message, on demand. After the login the relay takes the socket
 * itself and these methods are used no more. Nothing is read ahead of what is asked for but the stream's own buffer.
 */
export class ClientConnection {
  readonly remoteAddress: string;
  #socket: Socket;
  #tls: TlsIdentity | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    this.remoteAddress = plainAddress(socket.remoteAddress ?? '');
    socket.on('error', () => {});
  }

  get socket(): Socket {
    return this.#socket;
  }

  get encrypted(): boolean {
    return this.#tls !== undefined;
  }

  /** What a login on this connection can be bound to. */
  get channelBinding(): Buffer | undefined {
    return this.#tls?.channelBinding;
  }

  /** Whether the client has sent more than has been asked for. */
  get hasUnread(): boolean {
    return this.#socket.readableLength > 0;
  }

  write(bytes: Uint8Array): void {
    this.#socket.write(bytes);
  }

  /** Sends last words and closes; what the client still sends is thrown away, so that it can read them. */
  end(bytes?: Uint8Array): void {
    const socket = this.#socket;
    if (bytes === undefined) socket.end();
    else socket.end(bytes);
    socket.resume();
    socket.setTimeout(LINGER_MS, () => socket.destroy());
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /**
   * @returns exactly `length` bytes
   * @throws ClientGone
   */
  async read(length: number): Promise<Buffer> {
    for (;;) {
      const bytes: Buffer | null = length === 0 ? EMPTY : this.#socket.read(length);
      if (bytes !== null && bytes.length === length) return bytes;
      if (this.#socket.readableEnded || this.#socket.destroyed || bytes !== null) throw new ClientGone();
      await readableOrOver(this.#socket);
    }
  }

  /** Puts bytes back that were read too early. */
  unread(bytes: Buffer): void {
    this.#socket.unshift(bytes);
  }

  /**
   * @returns the next typed message
   * @throws ClientGone, ServiceError `protocol_violation` when its length cannot be true
   */
  async readMessage(): Promise<ClientMessage> {
    const header = await this.read(5);
    const length = header.readUInt32BE(1);
    if (length < 4 || length > MAX_LOGIN_MESSAGE_BYTES) throw new ServiceError('protocol_violation', 'invalid message length');
    return { type: header.readUInt8(0), body: await this.read(length - 4) };
  }

  /**
   * Turns the connection into TLS, as the server. What has come in already is taken as the beginning of the handshake.
   * @throws ClientGone when the handshake fails; ALPN that does not include `postgresql` makes it fail
   */
  async upgrade(identity: TlsIdentity): Promise<TLSSocket> {
    const plain = this.#socket;
    const secure = new TLSSocket(plain, { isServer: true, secureContext: identity.context, ALPNProtocols: ['postgresql'] });
    secure.on('error', () => {});
    // libpq's asynchronous calls stall when a record does not fit their buffer; Postgres' own are no larger.
    secure.setMaxSendFragment(MAX_TLS_RECORD_BYTES);
    try {
      await Promise.race([once(secure, 'secure'), once(plain, 'close').then(() => Promise.reject(new ClientGone()))]);
    } catch (error) {
      plain.destroy();
      throw error instanceof ClientGone ? error : new ClientGone();
    }
    this.#socket = secure;
    this.#tls = identity;
    return secure;
  }
}

const EMPTY = Buffer.alloc(0);
const LINGER_MS = 2_000;
const MAX_TLS_RECORD_BYTES = 8_192;

function readableOrOver(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const events = ['readable', 'end', 'close', 'error'] as const;
    const done = () => {
      for (const event of events) socket.off(event, done);
      resolve();
    };
    for (const event of events) socket.on(event, done);
  });
}

/** An IPv4 address that came in on an IPv6 socket, as IPv4. */
function plainAddress(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}
