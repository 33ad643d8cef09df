import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { ServiceError } from '../../src/errors.ts';
import type { InputSource, OrganizationInput } from '../../src/runtime/input-scheduler.ts';
import type { TlsIdentity } from './tls.ts';

/** The client has closed its side, or the connection broke, while we were waiting for it to say something. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

/** What carries a conversation: a socket, or what behaves like one. */
export interface ClientStream extends Duplex {
  /** Calls back when nothing has moved for so long. */
  setTimeout(timeoutMs: number, callback: () => void): unknown;
  /** Has the system ask a silent peer whether it is still there; absent where something else does. */
  setKeepAlive?(enable: boolean, initialDelayMs: number): unknown;
  /** Is told when it is known whose client it is; absent where that makes no difference. */
  known?(organizationId: string): void;
}

/** Hears what a client does once it is logged in. */
export interface ClientReceiver {
  clientData(chunk: Buffer): void;
  clientDrained(): void;
  /** It has closed its sending side. */
  clientEnded(): void;
  clientClosed(): void;
}

/** Who waits for something to be at hand whole. */
interface Reader {
  /** Looks for it in what has come. @returns whether the wait is over. @throws what it is refused with */
  readonly look: () => boolean;
  readonly reject: (error: unknown) => void;
}

/**
 * A client's socket. The login reads it message by message, on demand; after it a receiver hears of everything, and uses
 * the stream to write and to stop the client. Listeners are set up once for both.
 */
export class ClientConnection implements InputSource {
  readonly remoteAddress: string;
  /** Among the door's clients. */
  index = -1;
  #socket: ClientStream;
  #tls: TlsIdentity | undefined;
  /** What has come and has not been asked for yet. */
  #unread: Buffer = NOTHING;
  #reader: Reader | undefined;
  /** Goes out with what is written next. */
  #held: readonly Uint8Array[] = NONE;
  #receiver: ClientReceiver | undefined;
  /** Whose input it is, once that is known. */
  #input: OrganizationInput | undefined;
  /** What has come and is handled in a later turn; what follows waits behind it. */
  #deferred: Buffer[] | undefined;
  #gone: (client: ClientConnection) => void;

  /** @param gone hears when it has been closed */
  constructor(socket: ClientStream, remoteAddress: string, gone: (client: ClientConnection) => void) {
    this.#socket = socket;
    this.remoteAddress = plainAddress(remoteAddress);
    this.#gone = gone;
    this.#listen(socket);
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
    return this.#unread.length > 0;
  }

  /** For who writes to it, stops it, or wants to know of its end. */
  get stream(): ClientStream {
    return this.#socket;
  }

  /**
   * From now on nothing is read on demand: the receiver hears of what comes, and of what has not been read yet.
   * @param input deals out turns to what comes; left when the connection is closed
   */
  attach(receiver: ClientReceiver, input: OrganizationInput): void {
    const socket = this.#socket;
    const unread = this.#unread;
    this.#receiver = receiver;
    if (socket.closed) input.leave();
    else this.#input = input;
    this.#unread = NOTHING;
    socket.on('drain', () => this.#receiver?.clientDrained());
    if (socket.isPaused()) socket.resume();
    if (unread.length > 0) receiver.clientData(unread);
    if (socket.destroyed) receiver.clientClosed();
    else if (socket.readableEnded) receiver.clientEnded();
  }

  /** To be told more than once costs nothing. */
  keepAlive(): void {
    this.#socket.setKeepAlive?.(true, KEEPALIVE_MS);
  }

  write(bytes: Uint8Array): void {
    this.#socket.write(this.#withHeld(bytes));
  }

  /** Writes bytes that nobody waits for yet: they go with the next ones. */
  hold(...pieces: readonly Uint8Array[]): void {
    this.#held = this.#held.length === 0 ? pieces : [...this.#held, ...pieces];
  }

  /** Whether last words have been sent. */
  get ended(): boolean {
    return this.#socket.writableEnded;
  }

  /** Sends last words and closes; what the client still sends is thrown away, so that it can read them. */
  end(bytes: Uint8Array = NOTHING): void {
    const socket = this.#socket;
    const last = this.#withHeld(bytes);
    if (last.length === 0) socket.end();
    else socket.end(last);
    this.#receiver = NOBODY;
    socket.resume();
    socket.setTimeout(LINGER_MS, () => socket.destroy());
  }

  /** Closes a connection on which the client has said goodbye. */
  leave(): void {
    // TLS and WebSockets say goodbye themselves; a bare socket has nothing to wait for but bytes that are on their way.
    const socket = this.#socket;
    if (socket instanceof Socket && !this.encrypted && socket.writableLength === 0) socket.destroy();
    else this.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** The first byte that comes; it stays to be read. @throws ClientGone */
  firstByte(): Promise<number> {
    return this.#read(() => this.#unread[0]);
  }

  /**
   * @returns what comes behind its own length, which counts itself
   * @throws ClientGone, also when that is less than `minBytes` or more than `maxBytes`
   */
  readPacket(minBytes: number, maxBytes: number): Promise<Buffer> {
    return this.#read(() => {
      const unread = this.#unread;
      if (unread.length < LENGTH_BYTES) return undefined;
      const length = unread.readUInt32BE(0);
      if (length < minBytes || length > maxBytes) throw new ClientGone();
      return unread.length < length ? undefined : this.#take(length).subarray(LENGTH_BYTES);
    });
  }

  /**
   * @param type the only one there may be; another is refused before anything else of it is read
   * @param expected what it is, for the error
   * @param tooLong what to throw for one longer than `maxBytes`, which is not read
   * @returns the body
   * @throws ClientGone, ServiceError `protocol_violation`
   */
  readMessage(type: number, expected: string, maxBytes: number, tooLong: () => ServiceError): Promise<Buffer> {
    return this.#read(() => {
      const unread = this.#unread;
      const got = unread[0];
      if (got === undefined) return undefined;
      if (got !== type) throw new ServiceError('protocol_violation', `expected ${expected} response, got message type ${got}`);
      if (unread.length < HEADER_BYTES) return undefined;
      const length = unread.readUInt32BE(1);
      if (length < LENGTH_BYTES) throw new ServiceError('protocol_violation', 'invalid message length');
      if (length - LENGTH_BYTES > maxBytes) throw tooLong();
      return unread.length < 1 + length ? undefined : this.#take(1 + length).subarray(HEADER_BYTES);
    });
  }

  /**
   * Turns the connection into TLS, as the server. What has come in already is taken as the beginning of the handshake.
   * @throws ClientGone when the handshake fails; ALPN that does not include `postgresql` makes it fail
   */
  async upgrade(identity: TlsIdentity): Promise<TLSSocket> {
    const plain = this.#socket.removeAllListeners('data').pause();
    if (this.hasUnread) plain.unshift(this.#unread);
    this.#unread = NOTHING;
    const secure = new TLSSocket(plain, { isServer: true, secureContext: identity.context, ALPNProtocols: ['postgresql'] });
    // Outside of a tls.Server, what breaks TLS after the handshake is told by this event alone, and closes nothing.
    secure.on('_tlsError', () => secure.destroy());
    // libpq's asynchronous calls stall when a record does not fit their buffer; Postgres' own are no larger.
    secure.setMaxSendFragment(MAX_TLS_RECORD_BYTES);
    this.#socket = secure;
    this.#listen(secure);
    if (!(await established(secure))) {
      secure.destroy();
      throw new ClientGone();
    }
    this.#tls = identity;
    return secure;
  }

  #listen(socket: ClientStream): void {
    socket
      .on('error', ignore)
      .on('data', (chunk: Buffer) => this.#arrived(chunk))
      .on('end', () => this.#ended())
      .on('close', () => this.#closed());
  }

  #arrived(chunk: Buffer): void {
    const input = this.#input;
    if (input !== undefined) {
      this.#received(chunk, input);
      return;
    }
    this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
    if (this.#reader === undefined) this.#socket.pause();
    else this.#lookAgain(this.#reader);
  }

  #received(chunk: Buffer, input: OrganizationInput): void {
    if (this.#deferred !== undefined) {
      this.#deferred.push(chunk);
      this.#socket.pause();
    } else if (input.begin()) {
      this.#receiver?.clientData(chunk);
      input.end();
    } else {
      this.#deferred = [chunk];
      input.defer(this);
    }
  }

  handleInput(): void {
    const deferred = this.#deferred ?? [];
    const socket = this.#socket;
    this.#deferred = undefined;
    if (deferred.length > 1 && socket.isPaused()) socket.resume();
    for (const chunk of deferred) this.#receiver?.clientData(chunk);
    if (socket.readableEnded) this.#receiver?.clientEnded();
    if (socket.closed) this.#forget();
  }

  #lookAgain(reader: Reader): void {
    try {
      if (reader.look()) this.#reader = undefined;
    } catch (error) {
      this.#reader = undefined;
      reader.reject(error);
    }
  }

  #ended(): void {
    this.#disappoint();
    if (this.#deferred === undefined) this.#receiver?.clientEnded();
  }

  #closed(): void {
    this.#disappoint();
    if (this.#deferred === undefined) this.#forget();
  }

  #forget(): void {
    this.#receiver?.clientClosed();
    this.#input?.leave();
    // Node keeps what belongs to a socket for a while, and whoever has listened here is not to be kept with it.
    this.#receiver = NOBODY;
    this.#gone(this);
    this.#gone = ignore;
  }

  /** What is waited for will not come. */
  #disappoint(): void {
    this.#reader?.reject(new ClientGone());
    this.#reader = undefined;
  }

  /** @param take finds it in what has come; undefined as long as more has to come. @throws ClientGone, what `take` throws */
  #read<T>(take: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const found = take();
        if (found !== undefined) resolve(found);
        return found !== undefined;
      };
      if (look()) return;
      const socket = this.#socket;
      if (socket.readableEnded || socket.destroyed) throw new ClientGone();
      if (socket.isPaused()) socket.resume();
      this.#reader = { look, reject };
    });
  }

  #take(length: number): Buffer {
    const all = this.#unread;
    if (length === all.length) {
      this.#unread = NOTHING;
      return all;
    }
    // Who says more than it was asked for is not listened to until it is asked again.
    this.#socket.pause();
    this.#unread = all.subarray(length);
    return all.subarray(0, length);
  }

  #withHeld(bytes: Uint8Array): Uint8Array {
    const held = this.#held;
    if (held.length === 0) return bytes;
    this.#held = NONE;
    return Buffer.concat([...held, bytes]);
  }
}

const NOTHING = Buffer.alloc(0);
const NONE: readonly Uint8Array[] = [];
const LENGTH_BYTES = 4;
/** Type and length. */
const HEADER_BYTES = 1 + LENGTH_BYTES;
const KEEPALIVE_MS = 30_000;
const LINGER_MS = 2_000;
const MAX_TLS_RECORD_BYTES = 8_192;

function ignore(): void {}

const NOBODY: ClientReceiver = { clientData: ignore, clientDrained: ignore, clientEnded: ignore, clientClosed: ignore };

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
