import { BackendConnection, NO_RECEIVER } from '../backend/connection.ts';
import type { AdminLogin } from '../placement/admin-connection.ts';
import { decodeTextRow, PostgresError } from '../protocol/backend.ts';
import { HEADER_BYTES } from '../protocol/framing.ts';
import { FrontendType, message, queryMessage } from '../protocol/frontend.ts';
import { ReplyReader, replyFrames } from '../protocol/reply-reader.ts';

/** With so many messages of a copy unread, none are taken from the socket. None is longer than 129 kB. */
const UNREAD_MAX = 16;
const CONNECT_TIMEOUT_MS = 10_000;

/** Returned by {@link ReplicationSession.read} when nothing has arrived in time. */
export const NOTHING_YET = Symbol('nothing yet');

/**
 * A session of a walsender. It takes replication commands and SQL, one after the other.
 * @see https://www.postgresql.org/docs/current/protocol-replication.html
 */
export class ReplicationSession {
  readonly #backend: BackendConnection;
  readonly #unread: Buffer[] = [];
  #rows: (string | null)[][] = [];
  #isBusy = false;
  /** Of the last command. */
  #failure: PostgresError | undefined;
  /** The connection is of no use any more. */
  #lost: Error | undefined;
  #wake: () => void = () => {};

  private constructor(backend: BackendConnection) {
    this.#backend = backend;
    const reader = new ReplyReader(replyFrames(), {
      row: (source, start) => this.#rows.push(decodeTextRow(source, start)),
      copied: (source, start, end) => this.#unread.push(source.subarray(start + HEADER_BYTES, end)),
      failed: (fields) => {
        this.#failure ??= new PostgresError(fields);
      },
      ready: () => {
        this.#isBusy = false;
      },
    });
    // Without `holdsChunk` every chunk may be kept for good.
    backend.receiver = {
      data: (chunk) => {
        try {
          reader.push(chunk);
          while (reader.next());
        } catch (error) {
          this.#lost ??= error instanceof Error ? error : new Error(String(error));
        }
        if (this.#unread.length >= UNREAD_MAX) backend.pause();
        this.#wake();
      },
      drain() {},
      closed: (cause) => {
        this.#lost ??= this.#failure ?? cause ?? new Error('the server has closed the replication connection');
        this.#wake();
      },
    };
  }

  /** @throws pg.DatabaseError when the server refuses the login; any other error when it cannot be reached in time */
  static async open({ host, port, user, password, database = 'postgres' }: AdminLogin): Promise<ReplicationSession> {
    const login = { host, port, user, password, database, replication: 'database', connectTimeoutMs: CONNECT_TIMEOUT_MS } as const;
    return new ReplicationSession(await BackendConnection.open(login));
  }

  /** Sends a command whose reply is a copy, which {@link read} reads. */
  begin(command: string): void {
    this.#rows = [];
    this.#failure = undefined;
    this.#isBusy = true;
    this.#backend.write(queryMessage(command));
  }

  /**
   * The next CopyData message of the command that was begun.
   * @param waitMs how long to wait for it; default: for ever
   * @returns its body; undefined when the reply has ended
   * @throws PostgresError; Error when the connection is lost
   */
  async read(waitMs?: number): Promise<Buffer | undefined | typeof NOTHING_YET> {
    const deadline = waitMs === undefined ? undefined : performance.now() + waitMs;
    for (;;) {
      const next = this.#unread.shift();
      if (next !== undefined) {
        if (this.#unread.length === 0) this.#backend.resume();
        return next;
      }
      if (this.#lost !== undefined) throw this.#lost;
      if (!this.#isBusy && this.#failure !== undefined) throw this.#failure;
      if (!this.#isBusy) return undefined;
      const left = deadline === undefined ? undefined : deadline - performance.now();
      if (left !== undefined && left <= 0) return NOTHING_YET;
      await this.#arrival(left);
    }
  }

  /** The rows of the last command, in text format: all rows, if it has several results. */
  get rows(): readonly (readonly (string | null)[])[] {
    return this.#rows;
  }

  /** Runs a command or statement. @returns its rows, in text format @throws as {@link read} */
  async run(command: string): Promise<readonly (readonly (string | null)[])[]> {
    this.begin(command);
    while ((await this.read()) !== undefined);
    return this.#rows;
  }

  /** Sends a CopyData message. */
  send(body: Uint8Array): void {
    this.#backend.write(message(FrontendType.CopyData, body));
  }

  close(): void {
    this.#lost ??= new Error('the replication connection was closed');
    this.#backend.receiver = NO_RECEIVER;
    this.#backend.resume();
    this.#backend.destroy();
    this.#wake();
  }

  #arrival(waitMs: number | undefined): Promise<void> {
    return new Promise((resolve) => {
      const timer = waitMs === undefined ? undefined : setTimeout(resolve, waitMs);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** A position in the WAL, as `16/B374D848`. @returns bytes since its beginning */
export function parseLsn(text: string): number {
  const [high = '', low = ''] = text.split('/');
  return Number.parseInt(high, 16) * 2 ** 32 + Number.parseInt(low, 16);
}

export function formatLsn(position: number): string {
  const high = Math.floor(position / 2 ** 32);
  return `${high.toString(16).toUpperCase()}/${(position % 2 ** 32).toString(16).toUpperCase()}`;
}
