import { Buffer } from 'node:buffer';
import { type OnReadOpts, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import pg from 'pg';
import { joined } from '../runtime/bytes.ts';
import type { InputSource, OrganizationInput } from '../runtime/input-scheduler.ts';
import type { BusyPoll } from './busy-poll.ts';
import { requestCancel } from './cancel-request.ts';
import { SessionState } from './session-state.ts';

/** Where and as whom to log in to the backing Postgres. */
export interface BackendLogin {
  /** Host name or address; a path beginning with `/` is the folder of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
  /** The startup packet's `options`: outranks `ALTER ROLE … SET`, and is what `RESET ALL` returns to. */
  readonly options?: string;
  /** As in node:tls `connect`; absent: no TLS towards the backend. */
  readonly ssl?: pg.ClientConfig['ssl'];
  readonly connectTimeoutMs: number;
}

/** Whoever holds the connection at the moment: a relay, a statement, or the pool while it is idle. */
export interface BackendReceiver {
  /** Bytes from the backend, cut anywhere. The chunk is the receiver's to keep, unless it says that it does not need to. */
  data(chunk: Buffer): void;
  /** Whether it still needs what `data` was last given. Absent: it may need it for ever. */
  readonly holdsChunk?: boolean;
  /** The write buffer is empty again after a `write` that returned false. */
  drain(): void;
  /** The connection is gone; no call follows. */
  closed(error: Error | undefined): void;
}

const NOBODY: BackendReceiver = { data() {}, holdsChunk: false, drain() {}, closed() {} };

/**
 * One logged-in session on the backing Postgres, as raw protocol bytes both ways. The driver `pg` performs the login
 * (TLS, SCRAM and whatever else the server asks for); from then on nobody parses but the receiver.
 */
export class BackendConnection implements InputSource {
  readonly processId: number;
  /** ParameterStatus values as reported at login. */
  readonly parameters: ReadonlyMap<string, string>;
  /** What the session has come to hold since its login. */
  readonly session = new SessionState();
  /** Told of what the session is asked, and of its answers. */
  busyPoll: BusyPoll | undefined;
  #input: OrganizationInput | undefined;
  /** What is handled in a later turn; what follows waits behind it. */
  #deferred: Buffer[] | undefined;
  #stream: Duplex;
  #login: BackendLogin;
  #secretKey: number;
  #receiver: BackendReceiver = NOBODY;
  #error: Error | undefined;
  #closed = false;
  #isGone = false;
  /** It has been told that nothing follows. */
  #isEnded = false;
  /** Kept when the server has closed the connection: it has ended the session's process, or is not there itself. */
  readonly gone: Promise<void>;
  #isPaused = false;
  /** Something has been written, and nothing has come since. */
  #isAsked = false;
  /** What is to be written at the end of this turn of the event loop. */
  #soon: Uint8Array[] = [];
  #soonBytes = 0;

  private constructor(
    stream: Duplex,
    reader: Reader | undefined,
    login: BackendLogin,
    processId: number,
    secretKey: number,
    parameters: Map<string, string>,
  ) {
    this.#stream = stream;
    this.#login = login;
    this.processId = processId;
    this.#secretKey = secretKey;
    this.parameters = parameters;
    if (reader === undefined)
      stream.on('data', (chunk: Buffer) => {
        this.#answered();
        if (this.#defers(chunk)) return;
        this.#receiver.data(chunk);
        this.#input?.end();
      });
    else reader.deliver = (chunk) => this.#deliver(chunk);
    stream.on('drain', () => this.#receiver.drain());
    stream.on('error', (error: Error) => {
      this.#error = error;
    });
    this.gone = new Promise((resolve) => {
      stream.on('close', () => {
        this.#isGone = true;
        this.#close();
        resolve();
      });
    });
    stream.resume();
  }

  /**
   * @throws pg.DatabaseError when the server refuses the login; any other error when it cannot be reached in time
   */
  static open(login: BackendLogin): Promise<BackendConnection> {
    const reader = login.ssl ? undefined : new Reader();
    const client = new pg.Client({
      ...(reader === undefined ? {} : { stream: () => reader.socket }),
      host: login.host,
      port: login.port,
      user: login.user,
      password: login.password,
      database: login.database,
      connectionTimeoutMillis: login.connectTimeoutMs,
      keepAlive: true,
      ...(login.options === undefined ? {} : { options: login.options }),
      ssl: login.ssl ?? false,
    });
    return new Promise((resolve, reject) => {
      const parameters = new Map<string, string>();
      const driver = driverOf(client);
      driver.on('parameterStatus', (message) => parameters.set(message.parameterName, message.parameterValue));
      client.on('error', () => {});
      client.connect((error: Error | null | undefined) => {
        if (error) {
          driver.stream.destroy();
          reject(error);
          return;
        }
        const { stream } = driver;
        for (const event of ['data', 'drain', 'end', 'close', 'error']) stream.removeAllListeners(event);
        resolve(new BackendConnection(stream, reader, login, driverKeys(client).processID, driverKeys(client).secretKey, parameters));
      });
    });
  }

  /** @returns who still needs the memory of the chunk */
  #deliver(chunk: Buffer): BackendReceiver | undefined {
    this.#answered();
    if (this.#defers(chunk)) return undefined;
    const receiver = this.#receiver;
    receiver.data(receiver.holdsChunk === undefined ? Buffer.from(chunk) : chunk);
    this.#input?.end();
    return receiver.holdsChunk ? receiver : undefined;
  }

  /**
   * Whether this has to wait for a later turn of its organization. Short answers never do: there are no more of them than
   * there are requests, which wait for their turns themselves.
   */
  #defers(chunk: Buffer): boolean {
    // Nobody is to hear it any more.
    if (this.#isEnded) return true;
    const input = this.#input;
    const isFirst = this.#deferred === undefined;
    if (input === undefined || (isFirst && (input.begin() || chunk.length <= SHORT_BYTES))) return false;
    this.#deferred ??= [];
    this.#deferred.push(Buffer.from(chunk));
    this.#stream.pause();
    if (isFirst) input.defer(this);
    return true;
  }

  handleInput(): void {
    const deferred = this.#deferred ?? [];
    this.#deferred = undefined;
    if (!this.#isPaused) this.#stream.resume();
    for (const chunk of deferred) this.#receiver.data(chunk);
    if (this.#closed) this.#ended();
  }

  #ended(): void {
    this.#input?.leave();
    this.#receiver.closed(this.#error);
  }

  /** @param input deals out turns to what the server sends; left when the connection is closed */
  schedule(input: OrganizationInput): void {
    if (this.#closed) input.leave();
    else this.#input = input;
  }

  /** Nothing can be asked any more. */
  get closed(): boolean {
    return this.#closed;
  }

  /** See {@link gone}. */
  get isGone(): boolean {
    return this.#isGone;
  }

  #close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#answered();
    if (this.#deferred === undefined) this.#ended();
  }

  /** Bytes written and not yet taken by the kernel. */
  get pendingBytes(): number {
    return this.#stream.writableLength;
  }

  /** Hands the connection to a receiver; whoever had it hears nothing more. */
  attach(receiver: BackendReceiver): void {
    this.#receiver = receiver;
  }

  detach(): void {
    this.#receiver = NOBODY;
  }

  /** @returns false when the caller should wait for `drain` */
  write(bytes: Uint8Array): boolean {
    if (this.#soon.length > 0) this.#writeSoon();
    return this.#send(bytes, 1);
  }

  /** Writes what comes in one turn of the event loop as one piece, at its end: several clients may have something to say. */
  writeSoon(bytes: Uint8Array): void {
    if (bytes.length > SOON_MAX_BYTES) {
      this.write(bytes);
      return;
    }
    if (this.#soon.length === 0) setImmediate(() => this.#writeSoon());
    this.#soon.push(bytes);
    this.#soonBytes += bytes.length;
  }

  #writeSoon(): void {
    const pieces = this.#soon;
    const [first] = pieces;
    if (first === undefined) return;
    const bytes = this.#soonBytes;
    this.#soon = [];
    this.#soonBytes = 0;
    this.#send(pieces.length === 1 ? first : joined(pieces, bytes), pieces.length);
  }

  /** @param pieces as which the bytes were given */
  #send(bytes: Uint8Array, pieces: number): boolean {
    if (this.#isEnded || this.#closed) return true;
    this.#asked(pieces);
    return this.#stream.write(bytes);
  }

  #asked(pieces: number): void {
    if (this.#isAsked) {
      this.busyPoll?.contended();
      return;
    }
    this.#isAsked = true;
    this.busyPoll?.asked();
    if (pieces > 1) this.busyPoll?.contended();
  }

  #answered(): void {
    if (!this.#isAsked) return;
    this.#isAsked = false;
    this.busyPoll?.answered();
  }

  pause(): void {
    if (this.#isEnded) return;
    this.#isPaused = true;
    this.#stream.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    if (this.#deferred === undefined) this.#stream.resume();
  }

  /** Ends the session in good order (Terminate), behind all that is to be written. */
  end(): void {
    if (this.#isEnded || this.#closed) return;
    this.#writeSoon();
    this.#isEnded = true;
    this.#stream.end(Buffer.from([0x58, 0, 0, 0, 4]));
    this.#stream.resume();
  }

  /** Another session of the same role. @throws as {@link BackendConnection.open} */
  sibling(): Promise<BackendConnection> {
    return BackendConnection.open(this.#login);
  }

  /**
   * Says no more, and hears no more: the server rolls back what is open and ends the session, once it is done with what it
   * runs. Until then the connection stays, which tells when that is; it does not keep our process alive.
   */
  destroy(): void {
    const stream = this.#stream;
    this.#soon = [];
    this.#soonBytes = 0;
    this.#isEnded = true;
    stream.end();
    stream.resume();
    if (stream instanceof Socket) stream.setKeepAlive(true, KEEP_ALIVE_MS).unref();
    process.nextTick(() => this.#close());
  }

  /** Drops the connection: the server has no such session. */
  forget(): void {
    this.#stream.destroy();
  }

  /**
   * Asks the server to cancel whatever this session is running, and resolves once the server has closed the cancel
   * connection, which is when the signal has been sent. Where it does not do so in time, the signal may come at any later
   * moment: the session is not to be lent to anybody else. Never rejects: a cancel is a request, not a promise.
   */
  async cancel(timeoutMs = 5_000): Promise<void> {
    if (!(await requestCancel(this.#login, this.processId, this.#secretKey, timeoutMs))) this.session.retired = true;
  }
}

/** A peer that is silent for longer than that is asked whether it is there. */
const KEEP_ALIVE_MS = 60_000;
/** What is larger is not worth copying to save a write. */
const SOON_MAX_BYTES = 8_192;
/** Larger pieces of a result wait for their organization's turn. */
const SHORT_BYTES = 8_192;
/** A result of 1,000 rows of 100 bytes at once: in two pieces it is dearer. */
const READ_BYTES = 131_072;
/** Less room than that is not worth a read. */
const LEAST_READ_BYTES = 16_384;

/**
 * A socket that reads into the same memory again and again: over what was read, or behind it as long as that is needed. To
 * the driver, during the login, it is a socket like any other.
 * @see https://nodejs.org/api/net.html#new-netsocketoptions `onread`
 */
class Reader {
  readonly socket: Socket;
  /** Who gets what is read; @returns who still needs its memory */
  deliver = (chunk: Buffer): BackendReceiver | undefined => {
    this.socket.emit('data', Buffer.from(chunk));
    return undefined;
  };
  #memory = Buffer.allocUnsafeSlow(READ_BYTES);
  /** Where the next bytes go: all before is needed by the holder. */
  #start = 0;
  #holder: BackendReceiver | undefined;

  constructor() {
    const onread: OnReadOpts = {
      buffer: () => (this.#start === 0 ? this.#memory : this.#memory.subarray(this.#start)),
      callback: (bytes) => {
        this.#read(bytes);
        return true;
      },
    };
    const options = { allowHalfOpen: false, onread };
    this.socket = new Socket(options);
  }

  #read(bytes: number): void {
    const end = this.#start + bytes;
    const holder = this.deliver(this.#memory.subarray(this.#start, end));
    if (holder === undefined) {
      if (this.#holder?.holdsChunk !== true) this.#goOn(undefined, 0);
    } else if ((this.#holder ?? holder) === holder && end + LEAST_READ_BYTES <= READ_BYTES) this.#goOn(holder, end);
    else {
      this.#memory = Buffer.allocUnsafeSlow(READ_BYTES);
      this.#goOn(undefined, 0);
    }
  }

  #goOn(holder: BackendReceiver | undefined, start: number): void {
    this.#holder = holder;
    this.#start = start;
  }
}

/** The parts of `pg`'s client that its types leave out: its connection, and the keys for cancelling. */
interface DriverConnection {
  readonly stream: Duplex;
  on(event: 'parameterStatus', listener: (message: { parameterName: string; parameterValue: string }) => void): void;
}

function driverOf(client: pg.Client): DriverConnection {
  return (client as pg.Client & { readonly connection: DriverConnection }).connection;
}

function driverKeys(client: pg.Client): { readonly processID: number; readonly secretKey: number } {
  return client as pg.Client & { readonly processID: number; readonly secretKey: number };
}
