import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { ServiceError } from '../src/errors.ts';
import type { TlsIdentity } from './tls.ts';

/** The client has closed its side, or the connection broke, while we were waiting for it to say something. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

/** What carries a conversation: a socket, or what behaves like one. */
export interface ClientStream extends Duplex {
  /** Calls back when nothing has moved for so long. */
  setTimeout(timeoutMs: number, callback: () => void): unknown;
}

/**
 * A client's socket as the login reads it: message by message, on demand. After the login the relay takes the socket
 * itself and these methods are used no more. Nothing is read ahead of what is asked for but the stream's own buffer.
 */
export class ClientConnection {
  readonly remoteAddress: string;
  #socket: ClientStream;
  #tls: TlsIdentity | undefined;

  constructor(socket: ClientStream, remoteAddress: string) {
    this.#socket = socket;
    this.remoteAddress = plainAddress(remoteAddress);
    socket.on('error', () => {});
  }

  get socket(): ClientStream {
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

  /** Whether last words have been sent. */
  get ended(): boolean {
    return this.#socket.writableEnded;
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
  read(length: number): Promise<Buffer> {
    const socket = this.#socket;
    return new Promise((resolve, reject) => {
      // Listens until all is there: to begin listening anew while a part is there would fire at once, again and again.
      const attempt = () => {
        const bytes: Buffer | null = length === 0 ? EMPTY : socket.read(length);
        if (bytes === null && !socket.readableEnded && !socket.destroyed) return;
        for (const event of READ_EVENTS) socket.off(event, attempt);
        if (bytes?.length === length) resolve(bytes);
        else reject(new ClientGone());
      };
      for (const event of READ_EVENTS) socket.on(event, attempt);
      attempt();
    });
  }

  /** Puts bytes back that were read too early. */
  unread(bytes: Buffer): void {
    this.#socket.unshift(bytes);
  }

  /**
   * @param type the only one there may be; another is refused before anything else of it is read
   * @param expected what it is, for the error
   * @returns the body; undefined for one longer than `maxBytes`, which is not read
   * @throws ClientGone, ServiceError `protocol_violation`
   */
  async readMessage(type: number, expected: string, maxBytes: number): Promise<Buffer | undefined> {
    const got = (await this.read(1)).readUInt8(0);
    if (got !== type) throw new ServiceError('protocol_violation', `expected ${expected} response, got message type ${got}`);
    const length = (await this.read(4)).readUInt32BE(0);
    if (length < 4) throw new ServiceError('protocol_violation', 'invalid message length');
    return length - 4 > maxBytes ? undefined : this.read(length - 4);
  }

  /**
   * Turns the connection into TLS, as the server. What has come in already is taken as the beginning of the handshake.
   * @throws ClientGone when the handshake fails; ALPN that does not include `postgresql` makes it fail
   */
  async upgrade(identity: TlsIdentity): Promise<TLSSocket> {
    const secure = new TLSSocket(this.#socket, { isServer: true, secureContext: identity.context, ALPNProtocols: ['postgresql'] });
    // Outside of a tls.Server, what breaks TLS after the handshake is told by this event alone, and closes nothing.
    secure.on('error', () => {}).on('_tlsError', () => secure.destroy());
    // libpq's asynchronous calls stall when a record does not fit their buffer; Postgres' own are no larger.
    secure.setMaxSendFragment(MAX_TLS_RECORD_BYTES);
    if (!(await established(secure))) {
      secure.destroy();
      throw new ClientGone();
    }
    this.#socket = secure;
    this.#tls = identity;
    return secure;
  }
}

const EMPTY = Buffer.alloc(0);
/** More has come, or nothing more will. */
const READ_EVENTS = ['readable', 'end', 'close', 'error'] as const;
const LINGER_MS = 2_000;
const MAX_TLS_RECORD_BYTES = 8_192;

function established(secure: TLSSocket): Promise<boolean> {
  return new Promise((resolve) => {
    secure.once('secure', () => resolve(true));
    secure.once('end', () => resolve(false)).once('close', () => resolve(false));
  });
}

/** An IPv4 address that came in on an IPv6 socket, as IPv4. */
function plainAddress(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}
