import { Buffer } from 'node:buffer';
import { isIP, connect as netConnect, Socket } from 'node:net';
import { availableParallelism } from 'node:os';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as tlsConnect } from 'node:tls';
import pg from 'pg';
import { cancelRequest } from '../protocol/frontend.ts';
import { joined } from '../runtime/bytes.ts';
import type { InputSource, OrganizationInput } from '../runtime/input-scheduler.ts';
import { SocketReader } from '../runtime/reused-read-buffers.ts';
import type { ServerHosts } from './server-hosts.ts';
import { SessionState } from './session-state.ts';

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

/** The two ends of a TCP connection. */
export interface Endpoints {
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly localAddress: string;
  readonly localPort: number;
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
  /** When the session was opened, and when it was last leased; on performance.now()'s clock. */
  readonly openedAt = performance.now();
  usedAt = this.openedAt;
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

  /** Where the connection begins and ends; undefined on a Unix socket. */
  get endpoints(): Endpoints | undefined {
    const { remoteAddress, remotePort, localAddress, localPort } = this.#stream instanceof Socket ? this.#stream : ({} as Partial<Socket>);
    if (remoteAddress === undefined || remotePort === undefined) return undefined;
    return { remoteAddress, remotePort, localAddress: localAddress ?? '', localPort: localPort ?? 0 };
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
    // The former host may hang, and its answer would change nothing.
    if (this.isGone && this.#login.hosts?.isInUse(this.#login) === false) return;
    if (!(await requestCancel(this.#login, this.processId, this.#secretKey, timeoutMs))) this.session.retired = true;
  }
}

/** TCP keepalive probes start after this long without traffic. */
const KEEP_ALIVE_MS = 60_000;
/** Copying more than this costs more than another write. */
const SOON_MAX_BYTES = 8_192;
/** Larger chunks of a result are subject to the input scheduler. */
const SHORT_BYTES = 8_192;

/** The address and credentials for a login to PostgreSQL. */
export interface BackendLogin {
  /** Host name or address; a path beginning with `/` is the folder of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
  /** The startup packet's `options`. They take precedence over `ALTER ROLE … SET`, and `RESET ALL` returns to them. */
  readonly options?: string;
  /** `database`: the session is of a walsender, which takes replication commands and SQL. */
  readonly replication?: 'database';
  /** As in node:tls `connect`; absent: no TLS towards the backend. */
  readonly ssl?: pg.ClientConfig['ssl'];
  readonly connectTimeoutMs: number;
  /** If the server may be at several hosts; `host` is the one that was in use. */
  readonly hosts?: ServerHosts | undefined;
}

/** A session that has just begun. */
interface LoggedIn {
  readonly stream: Duplex;
  /** Reads from the socket; absent with TLS. */
  readonly reader: SocketReader | undefined;
  readonly processId: number;
  /** For cancel requests. */
  readonly secretKey: number;
  /** ParameterStatus values. */
  readonly parameters: ReadonlyMap<string, string>;
}

/**
 * Logs in with the driver `pg`, and takes the socket away from it.
 * @param begun is called before the socket can have another event
 * @throws pg.DatabaseError when the server refuses the login; any other error when it cannot be reached in time
 */
function logIn<Session>(login: BackendLogin, begun: (session: LoggedIn) => Session): Promise<Session> {
  const { hosts } = login;
  const reader = login.ssl ? undefined : new SocketReader();
  if (reader !== undefined) hosts?.track(reader.socket);
  const client = new pg.Client({
    ...(reader === undefined ? hosts && { stream: () => hosts.socket() } : { stream: () => reader.socket }),
    host: login.host,
    port: login.port,
    user: login.user,
    password: login.password,
    database: login.database,
    connectionTimeoutMillis: login.connectTimeoutMs,
    keepAlive: true,
    ...(login.options === undefined ? {} : { options: login.options }),
    ...(login.replication === undefined ? {} : { replication: login.replication }),
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
      try {
        hosts?.check(parameters.get('in_hot_standby'));
      } catch (standby) {
        stream.destroy();
        reject(standby);
        return;
      }
      const { processID: processId, secretKey } = driverKeys(client);
      for (const event of ['data', 'drain', 'end', 'close', 'error']) stream.removeAllListeners(event);
      // Its end is listened for anew.
      if (reader !== undefined) hosts?.track(reader.socket);
      resolve(begun({ stream, reader, processId, secretKey, parameters }));
    });
  });
}

/** The parts of `pg`'s client that its types leave out: its connection, and the process id and secret key for cancel requests. */
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

/** Where to send cancel requests, and whether with TLS. */
interface CancelAddress {
  /** Host name or address; a path beginning with `/` is the folder of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly ssl?: pg.ClientConfig['ssl'];
}

const SSL_REQUEST = Buffer.from('0000000804d2162f', 'hex');

/** A server with many clients that connect at once may refuse a connection: a Unix socket whose queue is full does so with EAGAIN. */
const ATTEMPTS = 3;
const ATTEMPT_DELAY_MS = 50;

type Outcome = 'taken' | 'timed out' | 'not connected';

/**
 * Sends a cancel request, with TLS if the session uses it, so that the cancel key is not sent in clear. Tries again when the
 * connection cannot be opened.
 * @returns false when the server has not closed the connection in time; true also when the request could not be sent
 * @see https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-CANCELING-REQUESTS
 */
export async function requestCancel(address: CancelAddress, processId: number, secretKey: number, timeoutMs: number): Promise<boolean> {
  const request = cancelRequest(processId, secretKey);
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    const outcome = await send(address, request, timeoutMs);
    if (outcome !== 'not connected') return outcome === 'taken';
    if (attempt < ATTEMPTS) await delay(ATTEMPT_DELAY_MS);
  }
  return true;
}

function send(address: CancelAddress, request: Buffer, timeoutMs: number): Promise<Outcome> {
  return new Promise((resolve) => {
    const socket = openSocket(address);
    let outcome: Outcome = 'not connected';
    socket.setTimeout(timeoutMs, () => {
      outcome = 'timed out';
      socket.destroy();
    });
    socket.on('error', () => {}).on('close', () => resolve(outcome));
    socket.on('connect', () => {
      outcome = 'taken';
      if (address.ssl) sendWithTls(socket, address, request);
      else socket.resume().end(request);
    });
  });
}

function openSocket({ host, port }: CancelAddress): Socket {
  return host.startsWith('/') ? netConnect(`${host}/.s.PGSQL.${port}`) : netConnect(port, host);
}

/** As the driver does at login: nothing is sent to a server without TLS, or with the wrong certificate. */
function sendWithTls(socket: Socket, { host, ssl }: CancelAddress, request: Buffer): void {
  socket.write(SSL_REQUEST);
  socket.once('data', (answer: Buffer) => {
    if (answer.toString('latin1') !== 'S') {
      socket.destroy();
      return;
    }
    // The driver makes the property `key` non-enumerable, so the spread does not copy it.
    const { key, ...given } = typeof ssl === 'object' ? ssl : {};
    const options = { host, ...given, ...(key === undefined ? {} : { key }), ...(isIP(host) === 0 ? { servername: host } : {}) };
    const secure = tlsConnect({ ...options, socket }, () => secure.resume().end(request));
    secure.on('error', () => socket.destroy()).on('close', () => socket.destroy());
  });
}

/** How many requests in a row must have run without contention for processors. */
const UNCONTENDED_REQUESTS = 100;

/** A kind of input that the event loop waits for. */
interface Wait {
  /** Whether it arrived soon the last time. */
  isShort: boolean;
}

/**
 * Keeps the event loop polling while input is expected soon: the answer to a request, or the next request of a client that
 * has just had an answer. Sleeping and being woken takes longer than many statements do, and other processes replace the
 * contents of the processor's caches meanwhile. Polling costs processor time, so it is done only while there are processors for all
 * busy sessions besides Postern's own, and only for input that arrived soon the last time. The load of other programs is not known.
 * @see https://docs.kernel.org/virt/kvm/halt-polling.html for the same in hypervisors
 */
export class BusyPoll {
  readonly #maxMs: number;
  /** The number of processors, less the one that Postern uses. */
  readonly #others: number;
  readonly #answer: Wait = { isShort: true };
  readonly #request: Wait = { isShort: true };
  /** The number of sessions with a request that they have not begun to answer. */
  #asked = 0;
  /** The number of requests since there were last more busy sessions than processors. */
  #uncontended = 0;
  /** The input that is expected. */
  #wait: Wait | undefined;
  #since = 0;
  #until = 0;
  #isPolling = false;

  /**
   * @param maxMs how long the loop polls for one input; input that takes longer did not arrive soon
   * @param processors the number of processors, including Postern's own
   */
  constructor(maxMs: number, processors = availableParallelism()) {
    this.#maxMs = maxMs;
    this.#others = processors - 1;
  }

  /** Called when a request is sent to an idle session. */
  asked(): void {
    this.#asked += 1;
    if (this.#asked > this.#others) {
      this.contended();
      return;
    }
    this.#uncontended += 1;
    this.#waitFor(this.#answer);
  }

  /** Called when a session has several requests at once: then several clients are active. */
  contended(): void {
    this.#uncontended = 0;
    this.#wait = undefined;
  }

  /** Called when a session begins to answer, or is closed. The rest of a short answer arrives at once; the rest of a long one is not polled for. */
  answered(): void {
    this.#asked -= 1;
    this.#waitFor(this.#asked > 0 ? this.#answer : this.#request);
  }

  #waitFor(next: Wait): void {
    if (this.#uncontended < UNCONTENDED_REQUESTS) return;
    const now = performance.now();
    if (this.#wait !== undefined) this.#wait.isShort = now - this.#since <= this.#maxMs;
    this.#wait = next;
    this.#since = now;
    this.#until = next.isShort ? now + this.#maxMs : 0;
    if (this.#isPolling || !next.isShort) return;
    this.#isPolling = true;
    setImmediate(this.#poll);
  }

  readonly #poll = (): void => {
    if (this.#uncontended >= UNCONTENDED_REQUESTS && performance.now() < this.#until) setImmediate(this.#poll);
    else this.#isPolling = false;
  };
}
