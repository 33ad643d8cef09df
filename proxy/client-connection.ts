import { constants, createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Duplex, Readable } from 'node:stream';
import { createSecureContext, type SecureContext, TLSSocket } from 'node:tls';
import { tlsServerEndPoint } from '../src/auth/channel-binding.ts';
import type { Endpoints } from '../src/backend/connection.ts';
import { type Config, ConfigError } from '../src/config.ts';
import { ServiceError } from '../src/errors.ts';
import type { Observe } from '../src/observation.ts';
import { decodeProxyHeader, type ProxyHeader } from '../src/protocol/proxy-header.ts';
import type { InputSource, OrganizationInput } from '../src/runtime/input-scheduler.ts';
import { reasonOf } from '../src/system-errors.ts';

/** A socket, or a stream that behaves like one. */
export interface ClientStream extends Duplex {
  /** Calls back when nothing has been sent or received for so long. */
  setTimeout(timeoutMs: number, callback: () => void): unknown;
  /** Enables TCP keepalive; undefined if something else checks the peer. */
  setKeepAlive?(enable: boolean, initialDelayMs: number): unknown;
  /** Something below the stream encrypts it. */
  readonly isEncrypted?: boolean;
  /** Called when the client is authenticated; undefined if the stream does not depend on it. */
  known?(limitsId: string): void;
}

/** Receives a client's input after the login. */
export interface ClientReceiver {
  clientData(chunk: Buffer): void;
  clientDrained(): void;
  /** The client has closed its sending side. */
  clientEnded(): void;
  clientClosed(): void;
}

/** The client of a stream whose listeners have been set up. */
const CLIENT = Symbol('client');
interface Listening extends ClientStream {
  [CLIENT]: ClientConnection;
}

/**
 * A client's socket. The login reads its messages one by one. After that a receiver gets all input, and uses the stream to
 * write and to pause the client. The listeners are set up once for both.
 */
export class ClientConnection implements InputSource {
  /** The address of the socket, until a proxy says another. */
  remoteAddress: string;
  /** Its index among the door's clients. */
  index = -1;
  #socket: ClientStream;
  #tls: TlsIdentity | undefined;
  /** Undefined once a receiver gets the input. */
  #login: LoginMessageReader | undefined;
  /** Bytes that are sent with the next write. */
  #held: readonly Uint8Array[] = NONE;
  #receiver: ClientReceiver | undefined;
  /** The input of the client's organization, once it is authenticated. */
  #input: OrganizationInput | undefined;
  /** Chunks to be handled in a later turn, in order; further chunks are added at the end. */
  #deferred: Buffer[] | undefined;
  #gone: (client: ClientConnection) => void;

  /** @param gone called when the connection has been closed */
  constructor(socket: ClientStream, remoteAddress: string, gone: (client: ClientConnection) => void) {
    this.#socket = socket;
    this.remoteAddress = plainAddress(remoteAddress);
    this.#gone = gone;
    this.#login = new LoginMessageReader(socket);
    this.#listen(socket);
  }

  get encrypted(): boolean {
    return this.#tls !== undefined || this.#socket.isEncrypted === true;
  }

  /** Where the connection begins and ends; undefined where there is no socket. */
  get endpoints(): Endpoints | undefined {
    const socket = this.#socket;
    if (!(socket instanceof Socket)) return undefined;
    const { remotePort = 0, localAddress = '', localPort = 0 } = socket;
    return { remoteAddress: this.remoteAddress, remotePort, localAddress: plainAddress(localAddress), localPort };
  }

  /** The TLS version and cipher, such as `TLSv1.3/TLS_AES_256_GCM_SHA384`. */
  get cipher(): string | undefined {
    return this.#socket instanceof TLSSocket ? `${this.#socket.getProtocol()}/${this.#socket.getCipher().name}` : undefined;
  }

  /** The connection's tls-server-end-point data, to which a login can be bound. */
  get channelBinding(): Buffer | undefined {
    return this.#tls?.channelBinding;
  }

  /** The messages of the login, until a receiver is attached. */
  get login(): LoginMessageReader {
    if (this.#login === undefined) throw new Error('the login is over');
    return this.#login;
  }

  /** The stream, for writing, pausing and its end. */
  get stream(): ClientStream {
    return this.#socket;
  }

  /**
   * Ends the login. The receiver gets all input from now on, including the bytes that have not been read yet.
   * @param input schedules the handling of input; `leave` is called when the connection is closed
   */
  attach(receiver: ClientReceiver, input: OrganizationInput): void {
    const socket = this.#socket;
    const unread = this.login.takeUnread();
    this.#login = undefined;
    this.#receiver = receiver;
    if (socket.closed) input.leave();
    else this.#input = input;
    socket.on('drain', this.#onDrain);
    if (socket.isPaused()) socket.resume();
    if (unread.length > 0) receiver.clientData(unread);
    if (socket.destroyed) receiver.clientClosed();
    else if (socket.readableEnded) receiver.clientEnded();
  }

  /** May be called more than once. */
  keepAlive(): void {
    this.#socket.setKeepAlive?.(true, KEEPALIVE_MS);
  }

  write(bytes: Uint8Array): void {
    this.#socket.write(this.#withHeld(bytes));
  }

  /** Queues bytes that the client does not wait for yet. They are sent with the next write. */
  hold(...pieces: readonly Uint8Array[]): void {
    this.#held = this.#held.length === 0 ? pieces : [...this.#held, ...pieces];
  }

  /** Whether a final message has been sent. */
  get ended(): boolean {
    return this.#socket.writableEnded;
  }

  /** Sends a final message and closes. Further input is discarded, so that the client can still read the message. */
  end(bytes: Uint8Array = NOTHING): void {
    const socket = this.#socket;
    const last = this.#withHeld(bytes);
    if (last.length === 0) socket.end();
    else socket.end(last);
    this.#receiver = NO_RECEIVER;
    socket.resume();
    socket.setTimeout(LINGER_MS, () => socket.destroy());
  }

  /** Closes a connection after the client's Terminate. */
  leave(): void {
    // TLS and WebSockets have a closing handshake. A plain socket can be destroyed as soon as nothing is left to write.
    const socket = this.#socket;
    if (socket instanceof Socket && !this.encrypted && socket.writableLength === 0) socket.destroy();
    else this.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /**
   * Starts TLS, as the server. Bytes already received are the beginning of the handshake.
   * @throws ClientGone when the handshake fails; it fails if ALPN does not include `postgresql`
   */
  async upgrade(identity: TlsIdentity): Promise<TLSSocket> {
    const plain = this.#socket.removeAllListeners('data').pause();
    if (this.login.hasUnread) plain.unshift(this.login.takeUnread());
    const secure = new TLSSocket(plain, { isServer: true, secureContext: identity.context, ALPNProtocols: ['postgresql'] });
    // Outside of a tls.Server, TLS errors after the handshake are reported only by this event, and the socket stays open.
    secure.on('_tlsError', () => secure.destroy());
    // libpq's asynchronous calls stall when a TLS record exceeds their buffer. Postgres' own records are no larger.
    secure.setMaxSendFragment(MAX_TLS_RECORD_BYTES);
    this.#socket = secure;
    this.#login = new LoginMessageReader(secure);
    this.#listen(secure);
    if (!(await established(secure))) {
      secure.destroy();
      throw new ClientGone();
    }
    this.#tls = identity;
    return secure;
  }

  #listen(socket: ClientStream): void {
    Object.assign(socket, { [CLIENT]: this })
      .on('error', ignore)
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('close', this.#onClose);
  }

  /* The listeners, the same functions for all clients: most of these are idle, and many. */

  #onData(this: Listening, chunk: Buffer): void {
    this[CLIENT].#arrived(chunk);
  }

  #onEnd(this: Listening): void {
    this[CLIENT].#ended();
  }

  #onClose(this: Listening): void {
    this[CLIENT].#closed();
  }

  #onDrain(this: Listening): void {
    this[CLIENT].#receiver?.clientDrained();
  }

  #arrived(chunk: Buffer): void {
    const input = this.#input;
    if (input === undefined) this.#login?.arrived(chunk);
    else this.#received(chunk, input);
  }

  #received(chunk: Buffer, input: OrganizationInput): void {
    if (this.#deferred !== undefined) {
      this.#deferred.push(chunk);
      this.#socket.pause();
    } else if (input.begin()) {
      this.#receiver?.clientData(chunk);
      if (input.startedAt !== 0) input.end();
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

  #ended(): void {
    this.#login?.ended();
    if (this.#deferred === undefined) this.#receiver?.clientEnded();
  }

  #closed(): void {
    this.#login?.ended();
    if (this.#deferred === undefined) this.#forget();
  }

  #forget(): void {
    this.#receiver?.clientClosed();
    this.#input?.leave();
    // Node keeps a closed socket in memory for a while; its listeners should not be kept with it.
    this.#receiver = NO_RECEIVER;
    this.#gone(this);
    this.#gone = ignore;
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
const KEEPALIVE_MS = 30_000;
const LINGER_MS = 2_000;
const MAX_TLS_RECORD_BYTES = 8_192;

function ignore(): void {}

const NO_RECEIVER: ClientReceiver = { clientData: ignore, clientDrained: ignore, clientEnded: ignore, clientClosed: ignore };

function established(secure: TLSSocket): Promise<boolean> {
  return new Promise((resolve) => {
    secure.once('secure', () => resolve(true));
    secure.once('end', () => resolve(false)).once('close', () => resolve(false));
  });
}

/** An IPv4-mapped address of an IPv6 socket, as IPv4. */
function plainAddress(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}

/** The client has closed its side, or the connection was lost, while a message was expected. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

/** A wait for a complete message. */
interface PendingRead {
  /** Looks for the message in the received bytes. @returns whether the wait is over. @throws the error that refuses the message */
  readonly look: () => boolean;
  readonly reject: (error: unknown) => void;
}
const LENGTH_BYTES = 4;
/** Type and length. */
const HEADER_BYTES = 1 + LENGTH_BYTES;

/** Reads the messages of a login one by one, on demand. The stream is paused while none is expected. */
class LoginMessageReader {
  readonly #stream: Readable;
  /** Received bytes that have not been read yet. */
  #unread: Buffer = NOTHING;
  #pending: PendingRead | undefined;

  constructor(stream: Readable) {
    this.#stream = stream;
  }

  arrived(chunk: Buffer): void {
    this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
    if (this.#pending === undefined) this.#stream.pause();
    else this.#lookAgain(this.#pending);
  }

  /** The expected message will not arrive. */
  ended(): void {
    this.#pending?.reject(new ClientGone());
    this.#pending = undefined;
  }

  /** Whether there are received bytes that have not been read. */
  get hasUnread(): boolean {
    return this.#unread.length > 0;
  }

  /** @returns the received bytes that have not been read; none are left */
  takeUnread(): Buffer {
    const unread = this.#unread;
    this.#unread = NOTHING;
    return unread;
  }

  /** @throws ProxyHeaderError, ClientGone */
  readProxyHeader(): Promise<ProxyHeader> {
    return this.#read(() => {
      const header = this.hasUnread ? decodeProxyHeader(this.#unread) : undefined;
      if (header !== undefined) this.#take(header.bytes);
      return header;
    });
  }

  /** The first received byte. It can still be read. @throws ClientGone */
  firstByte(): Promise<number> {
    return this.#read(() => this.#unread[0]);
  }

  /**
   * @returns the packet after its length word, which counts itself
   * @throws ClientGone, also when the length is less than `minBytes` or more than `maxBytes`
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
   * @param type the expected type; a message of another type is refused before the rest of it is read
   * @param expected the message's name, for the error
   * @param tooLong the error for a message longer than `maxBytes`, which is not read
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

  /** @param take takes the message from the received bytes; undefined: more are needed. @throws ClientGone, what `take` throws */
  #read<T>(take: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const found = take();
        if (found !== undefined) resolve(found);
        return found !== undefined;
      };
      if (look()) return;
      const stream = this.#stream;
      if (stream.readableEnded || stream.destroyed) throw new ClientGone();
      if (stream.isPaused()) stream.resume();
      this.#pending = { look, reject };
    });
  }

  #lookAgain(pending: PendingRead): void {
    try {
      if (pending.look()) this.#pending = undefined;
    } catch (error) {
      this.#pending = undefined;
      pending.reject(error);
    }
  }

  #take(length: number): Buffer {
    const all = this.#unread;
    if (length === all.length) {
      this.#unread = NOTHING;
      return all;
    }
    // A client that sends more than expected is paused until more is read.
    this.#stream.pause();
    this.#unread = all.subarray(length);
    return all.subarray(0, length);
  }
}

/** The service's certificate and key for TLS handshakes. */
export interface TlsIdentity {
  /** PEM: the certificate, followed by intermediate certificates. */
  readonly cert: Buffer;
  /** PEM. */
  readonly key: Buffer;
  readonly context: SecureContext;
  /** tls-server-end-point data, to which logins are bound; undefined if the certificate has none. */
  readonly channelBinding: Buffer | undefined;
}

type TlsConfig = Pick<Config, 'POSTERN_TLS_CERT' | 'POSTERN_TLS_KEY'>;

/** The certificate and key in the files of POSTERN_TLS_CERT and POSTERN_TLS_KEY, as last read successfully. */
export class TlsFiles {
  readonly #certPath: string;
  readonly #keyPath: string;
  #identity: TlsIdentity;

  private constructor(certPath: string, keyPath: string) {
    this.#certPath = certPath;
    this.#keyPath = keyPath;
    this.#identity = readIdentity(certPath, keyPath);
  }

  /**
   * @returns undefined if none are configured
   * @throws ConfigError naming the variable whose file cannot be used
   */
  static open({ POSTERN_TLS_CERT: certPath, POSTERN_TLS_KEY: keyPath }: TlsConfig): TlsFiles | undefined {
    return certPath === undefined || keyPath === undefined ? undefined : new TlsFiles(certPath, keyPath);
  }

  /** The identity for new handshakes. */
  get identity(): TlsIdentity {
    return this.#identity;
  }

  /** Reads the files again. Open connections keep the old identity. If the files are invalid, new connections use it too. */
  reload(observe: Observe): void {
    try {
      this.#identity = readIdentity(this.#certPath, this.#keyPath);
    } catch (cause) {
      observe({ name: 'service.warning', message: 'the TLS certificate could not be reloaded, the old one stays in use', cause });
    }
  }
}

/** Checks certificate, key and their match one by one, so that the error can name the wrong file. */
function readIdentity(certPath: string, keyPath: string): TlsIdentity {
  const cert = blame(`POSTERN_TLS_CERT: ${certPath} cannot be read`, () => readFileSync(certPath));
  const key = blame(`POSTERN_TLS_KEY: ${keyPath} cannot be read`, () => readFileSync(keyPath));
  const certificate = blame(`POSTERN_TLS_CERT: ${certPath} is no PEM certificate`, () => new X509Certificate(cert));
  const privateKey = blame(`POSTERN_TLS_KEY: ${keyPath} is no unencrypted PEM private key`, () => createPrivateKey(key));
  // OpenSSL itself reports a mismatch only if the key has the same type as the certificate's.
  if (!certificate.checkPrivateKey(privateKey))
    throw new ConfigError('POSTERN_TLS_KEY: is not the key of the certificate in POSTERN_TLS_CERT');
  const context = blame(`POSTERN_TLS_CERT: ${certPath} cannot be used`, () => createSecureContext({ cert, key, ...AS_POSTGRES }));
  return { cert, key, context, channelBinding: tlsServerEndPoint(certificate.raw) };
}

/** The server chooses the cipher, and renegotiation is disabled. */
const AS_POSTGRES = { honorCipherOrder: true, secureOptions: constants.SSL_OP_NO_RENEGOTIATION };

function blame<T>(what: string, attempt: () => T): T {
  try {
    return attempt();
  } catch (error) {
    throw new ConfigError(`${what}: ${reasonOf(error)}`, { cause: error });
  }
}
