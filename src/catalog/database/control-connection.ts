import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import postgres from 'postgres';
import { ServiceError } from '../../errors.ts';

/** How to reach the control database; `host` may be the folder of a Unix socket. */
export interface ControlConnection {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
  /** As the `postgres` package takes it; absent: no TLS. */
  readonly ssl?: boolean | 'require' | 'prefer' | 'verify-full' | object;
}

type SqlValue = postgres.ParameterOrFragment<never>;

/** Runs SQL given as a tagged template on one session. A query may be part of another. */
export interface Sql {
  <Rows extends readonly (object | undefined)[] = postgres.Row[]>(
    text: TemplateStringsArray,
    ...values: readonly SqlValue[]
  ): postgres.PendingQuery<Rows>;
  /** Several statements without parameters. */
  script(text: string): Promise<unknown>;
}

export interface SessionOptions {
  readonly applicationName: string;
  readonly statementTimeoutMs: number;
  /** The server ends a session that has been idle for so long: its client does not run any more. Default: it does not. */
  readonly idleTimeoutMs?: number;
  readonly connectTimeoutMs: number;
  /** Called at most once, as soon as the connection is closed. */
  readonly onClose?: () => void;
  readonly onNotification?: (payload: string, channel: string) => void;
}

/** With an empty search path every name must be qualified, so that no other object can take the place of Postern's. */
const SETTINGS = '-c search_path= -c datestyle=ISO -c timezone=UTC -c client_min_messages=warning';

/**
 * One session on the control database: a client of the `postgres` package that has one connection and is discarded with it.
 * The package's own pool is not used: when a connection is lost inside its `begin` or `reserve`, version 3.4 writes the
 * ROLLBACK to a closed socket, which ends the process, or runs the rest of the transaction on a new connection
 * (github.com/porsager/postgres issues 1208, 1216).
 */
export class ControlSession {
  readonly #client: postgres.Sql;
  readonly #connection: ControlConnection;
  readonly #options: SessionOptions;
  #socket: Socket | undefined;
  #alive = true;
  #opened = false;

  /** Connects with the first statement. */
  constructor(connection: ControlConnection, options: SessionOptions) {
    this.#connection = connection;
    this.#options = options;
    const settings = {
      ...connection,
      max: 1,
      prepare: true,
      fetch_types: false,
      idle_timeout: 0,
      max_lifetime: 0,
      connect_timeout: options.connectTimeoutMs / 1_000,
      socket: () => this.#openSocket(),
      onnotice: () => {},
      onnotify: (channel: string, payload: string) => options.onNotification?.(payload, channel),
      onclose: () => this.#closed(),
      connection: {
        application_name: options.applicationName,
        options: `${SETTINGS} -c statement_timeout=${options.statementTimeoutMs} -c idle_session_timeout=${options.idleTimeoutMs ?? 0}`,
      },
    };
    this.#client = postgres(settings);
  }

  /** False as soon as the connection is closed. */
  get alive(): boolean {
    return this.#alive;
  }

  /** Throws a ServiceError `not_ready` when the connection is closed. */
  readonly sql: Sql = Object.assign(
    <Rows extends readonly (object | undefined)[]>(text: TemplateStringsArray, ...values: readonly SqlValue[]) =>
      this.#liveClient()<Rows>(text, ...values),
    { script: (text: string) => this.#liveClient().unsafe(text) },
  );

  /** Drops the connection at once. A running statement fails. */
  destroy(): void {
    this.#closed();
    void this.#client.end({ timeout: 0 }).finally(() => this.#socket?.destroy());
  }

  /** Ends the session after its running statements, or drops it when they take too long. */
  async end(timeoutMs: number): Promise<void> {
    await this.#client.end({ timeout: timeoutMs / 1_000 });
    this.#closed();
    this.#socket?.destroy();
  }

  #liveClient(): postgres.Sql {
    if (!this.#alive) throw lost();
    return this.#client;
  }

  #closed(): void {
    if (!this.#alive) return;
    this.#alive = false;
    this.#options.onClose?.();
  }

  /** The driver asks for another socket after a loss. It gets none, so that no transaction continues on another session. */
  async #openSocket(): Promise<Socket> {
    try {
      if (this.#opened) throw lost();
      this.#opened = true;
      this.#socket = await openSocket(this.#connection, this.#options.connectTimeoutMs);
      return this.#socket;
    } catch (error) {
      this.#closed();
      throw error;
    }
  }
}

async function openSocket({ host, port }: ControlConnection, timeoutMs: number): Promise<Socket> {
  const socket = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect({ host, port, noDelay: true });
  socket.on('error', () => {});
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(timeoutMs) });
    // The driver reads the name for SNI and certificate verification from here.
    return Object.assign(socket, { host });
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function lost(): ServiceError {
  return new ServiceError('not_ready', 'the connection to the control database was lost', { retryAfterS: 1 });
}
