import type { Duplex } from 'node:stream';
import pg from 'pg';
import { SocketReader } from '../../runtime/reused-read-buffers.ts';

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
  /** As in node:tls `connect`; absent: no TLS towards the backend. */
  readonly ssl?: pg.ClientConfig['ssl'];
  readonly connectTimeoutMs: number;
}

/** A session that has just begun. */
export interface LoggedIn {
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
export function logIn<Session>(login: BackendLogin, begun: (session: LoggedIn) => Session): Promise<Session> {
  const reader = login.ssl ? undefined : new SocketReader();
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
      const { processID: processId, secretKey } = driverKeys(client);
      for (const event of ['data', 'drain', 'end', 'close', 'error']) stream.removeAllListeners(event);
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
