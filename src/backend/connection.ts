import { Buffer } from 'node:buffer';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { joined } from '../runtime/bytes.ts';
import type { InputSource, OrganizationInput } from '../runtime/input-scheduler.ts';
import type { BusyPoll } from './busy-poll.ts';
import { SessionState } from './session-state.ts';
import { requestCancel } from './socket/cancel-request.ts';
import { type BackendLogin, type LoggedIn, logIn } from './socket/login.ts';

/** The present user of the connection: a relay, a statement, or the pool while it is idle. */
export interface BackendReceiver {
  /** Receives bytes from the backend, cut anywhere. {@link holdsChunk} tells how long the chunk must stay unchanged. */
  data(chunk: Buffer): void;
  /** Whether the receiver still needs the chunk that `data` was last called with. A receiver without this may keep every chunk for good. */
  readonly holdsChunk?: boolean;
  /** The write buffer is empty again after a `write` that returned false. */
  drain(): void;
  /** The connection is closed; no call follows. */
  closed(error: Error | undefined): void;
}

/** Discards what a backend sends while no session uses it. */
export const NO_RECEIVER: BackendReceiver = { data() {}, holdsChunk: false, drain() {}, closed() {} };

/**
 * One logged-in session of PostgreSQL, as raw protocol bytes in both directions. The driver `pg` performs the login
 * (TLS, SCRAM and other methods that the server may require); after that only the receiver parses messages.
 */
export class BackendConnection implements InputSource {
  readonly processId: number;
  /** ParameterStatus values as reported at login. */
  readonly parameters: ReadonlyMap<string, string>;
  /** The state of the session since its login. */
  readonly session = new SessionState();
  /** Who receives what the backend sends. A former receiver gets no more calls. */
  receiver: BackendReceiver = NO_RECEIVER;
  /* Only this class sets these. */
  /** No request can be sent any more. */
  closed = false;
  /** See {@link gone}. */
  isGone = false;
  isPaused = false;
  /** Notified of requests to the session and of its answers. */
  busyPoll: BusyPoll | undefined;
  #input: OrganizationInput | undefined;
  /** Chunks to be handled in a later turn, in order; further chunks are added at the end. */
  #deferred: Buffer[] | undefined;
  #stream: Duplex;
  #login: BackendLogin;
  #secretKey: number;
  #error: Error | undefined;
  /** Nothing more is sent to the session. */
  #isEnded = false;
  /** Resolves when the server has closed the connection: the session's process has ended, or the whole server has. */
  readonly gone: Promise<void>;
  /** Something has been written, and nothing has been received since. */
  #isAsked = false;
  /** Bytes to be written at the end of this turn of the event loop. */
  #soon: Uint8Array[] = [];
  #soonBytes = 0;

  private constructor({ stream, reader, processId, secretKey, parameters }: LoggedIn, login: BackendLogin) {
    this.#stream = stream;
    this.#login = login;
    this.processId = processId;
    this.#secretKey = secretKey;
    this.parameters = parameters;
    if (reader === undefined)
      stream.on('data', (chunk: Buffer) => {
        this.#answered();
        if (this.#defers(chunk)) return;
        this.receiver.data(chunk);
        this.#input?.end();
      });
    else reader.deliver = (chunk) => this.#deliver(chunk);
    stream.on('drain', () => this.receiver.drain());
    stream.on('error', (error: Error) => {
      this.#error = error;
    });
    this.gone = new Promise((resolve) => {
      stream.on('close', () => {
        this.isGone = true;
        this.#close();
        resolve();
      });
    });
    stream.resume();
  }

  /** @throws pg.DatabaseError when the server refuses the login; any other error when it cannot be reached in time */
  static open(login: BackendLogin): Promise<BackendConnection> {
    return logIn(login, (session) => new BackendConnection(session, login));
  }

  /** @returns the receiver, if it still needs the memory of the chunk */
  #deliver(chunk: Buffer): BackendReceiver | undefined {
    this.#answered();
    if (this.#defers(chunk)) return undefined;
    const receiver = this.receiver;
    receiver.data('holdsChunk' in receiver ? chunk : Buffer.from(chunk));
    if (this.#input !== undefined && this.#input.startedAt !== 0) this.#input.end();
    return receiver.holdsChunk ? receiver : undefined;
  }

  /**
   * Whether this chunk waits for a later turn of its organization. Short answers never wait: there are not more of them than
   * requests, which the input scheduler has already deferred.
   */
  #defers(chunk: Buffer): boolean {
    // The session has been given up, so its input is ignored.
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
    if (!this.isPaused) this.#stream.resume();
    for (const chunk of deferred) this.receiver.data(chunk);
    if (this.closed) this.#ended();
  }

  #ended(): void {
    this.#input?.leave();
    this.receiver.closed(this.#error);
  }

  /** @param input schedules the handling of what the server sends; `leave` is called when the connection is closed */
  schedule(input: OrganizationInput): void {
    if (this.closed) input.leave();
    else this.#input = input;
  }

  #close(): void {
    if (this.closed) return;
    this.closed = true;
    this.#answered();
    if (this.#deferred === undefined) this.#ended();
  }

  /** Bytes written and not yet taken by the kernel. */
  get pendingBytes(): number {
    return this.#stream.writableLength;
  }

  /** @returns false when the caller should wait for `drain` */
  write(bytes: Uint8Array): boolean {
    if (this.#soon.length > 0) this.#writeSoon();
    return this.#send(bytes, 1);
  }

  /** Joins the writes of one turn of the event loop, which may be of several clients, and sends them at its end. */
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

  /** @param pieces how many writes were joined */
  #send(bytes: Uint8Array, pieces: number): boolean {
    if (this.#isEnded || this.closed) return true;
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
    this.isPaused = true;
    this.#stream.pause();
  }

  resume(): void {
    if (!this.isPaused) return;
    this.isPaused = false;
    if (this.#deferred === undefined) this.#stream.resume();
  }

  /** Ends the session with Terminate, after all pending writes. */
  end(): void {
    if (this.#isEnded || this.closed) return;
    this.#writeSoon();
    this.#isEnded = true;
    this.#stream.end(Buffer.from([0x58, 0, 0, 0, 4]));
    this.#stream.resume();
  }

  /** Opens another session of the same role. @throws as {@link BackendConnection.open} */
  sibling(): Promise<BackendConnection> {
    return BackendConnection.open(this.#login);
  }

  /**
   * Sends nothing more and ignores all input. The server rolls back and ends the session when its running statement
   * is done. Until then the connection stays open, because its end shows when the server has ended the session; it does not
   * keep this process alive.
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

  /** Drops the connection, when the server is known to have no such session. */
  forget(): void {
    this.#stream.destroy();
  }

  /**
   * Asks the server to cancel the running statement, and resolves once the server has closed the cancel
   * connection, which it does after it has sent the signal. If it has not closed it in time, the signal may arrive at any later
   * time, so the session is retired. Never rejects: a cancel request has no reply.
   */
  async cancel(timeoutMs = 5_000): Promise<void> {
    if (!(await requestCancel(this.#login, this.processId, this.#secretKey, timeoutMs))) this.session.retired = true;
  }
}

/** TCP keepalive probes start after this long without traffic. */
const KEEP_ALIVE_MS = 60_000;
/** Copying more than this costs more than another write. */
const SOON_MAX_BYTES = 8_192;
/** Larger chunks of a result are subject to the input scheduler. */
const SHORT_BYTES = 8_192;
