import { setTimeout as delay } from 'node:timers/promises';
import { type ControlConnection, ControlSession, type Sql } from './control-connection.ts';

/** A connection can be dead without having been closed, so it is asked this often, and must answer within that time. */
const HEARTBEAT_MS = 1_000;
const ANSWER_TIMEOUT_MS = 2_000;
const CONNECT_TIMEOUT_MS = 5_000;
const OPENED_TIMEOUT_MS = 60_000;
const RETRY_MIN_MS = 50;
const RETRY_MAX_MS = 2_000;

export interface ChannelListener {
  /** Listening has begun, or begun again: what was sent before may have been missed. Throwing makes it begin anew. */
  opened(sql: Sql): Promise<void>;
  notified(payload: string): void;
  /** From this moment on notifications may be missed. */
  lost(): void;
}

/**
 * LISTEN on a connection of its own, for as long as the process runs. The driver's own `listen` is not used: it tells
 * when it listens again, but not that it has stopped.
 * @see https://www.postgresql.org/docs/current/sql-listen.html
 */
export class NotificationChannel {
  readonly #connection: ControlConnection;
  readonly #channel: string;
  readonly #listener: ChannelListener;
  readonly #stop = new AbortController();
  #kept: Promise<void> = Promise.resolve();

  /** @param channel a plain lower-case name */
  constructor(connection: ControlConnection, channel: string, listener: ChannelListener) {
    this.#connection = connection;
    this.#channel = channel;
    this.#listener = listener;
  }

  /** Resolves when it listens; throws what kept it from that. Later losses it mends itself. */
  async open(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      let opened = false;
      const first = this.#listen(() => {
        opened = true;
        resolve();
      });
      this.#kept = first.catch(reject).then(() => (opened ? this.#keep() : undefined));
    });
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#kept;
  }

  async #keep(): Promise<void> {
    for (let retryMs = RETRY_MIN_MS; ; retryMs = Math.min(2 * retryMs, RETRY_MAX_MS)) {
      await delay(retryMs, undefined, { signal: this.#stop.signal }).catch(() => {});
      if (this.#stop.signal.aborted) return;
      const opened = () => {
        retryMs = RETRY_MIN_MS;
      };
      // Why an attempt failed the next one shows again, or it has passed.
      await this.#listen(opened).catch(() => {});
    }
  }

  /** Listens until the connection is lost. */
  async #listen(opened: () => void): Promise<void> {
    const lost = new AbortController();
    const session = new ControlSession(this.#connection, {
      applicationName: 'postern notifications',
      statementTimeoutMs: 0,
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      onNotification: (payload) => this.#listener.notified(payload),
      onClose: () => {
        this.#listener.lost();
        lost.abort();
      },
    });
    const stop = () => session.destroy();
    this.#stop.signal.addEventListener('abort', stop, { once: true });
    try {
      await answerWithin(CONNECT_TIMEOUT_MS, session, session.sql.script(`listen ${this.#channel}`));
      await answerWithin(OPENED_TIMEOUT_MS, session, this.#listener.opened(session.sql));
      opened();
      while (session.alive) {
        await delay(HEARTBEAT_MS, undefined, { signal: lost.signal }).catch(() => {});
        if (session.alive) await answerWithin(ANSWER_TIMEOUT_MS, session, session.sql`select 1`);
      }
    } finally {
      this.#stop.signal.removeEventListener('abort', stop);
      session.destroy();
    }
  }
}

/** Drops a session that does not answer in time; its statement then fails. */
async function answerWithin(timeoutMs: number, session: ControlSession, statement: Promise<unknown>): Promise<void> {
  const timer = setTimeout(() => session.destroy(), timeoutMs);
  try {
    await statement;
  } finally {
    clearTimeout(timer);
  }
}
