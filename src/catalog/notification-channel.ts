import { setTimeout as delay } from 'node:timers/promises';
import { type ControlConnection, ControlSession, type Sql } from './control-pool.ts';

/** A connection can be dead without having been closed, so it is checked this often and must answer within ANSWER_TIMEOUT_MS. */
const HEARTBEAT_MS = 1_000;
const ANSWER_TIMEOUT_MS = 2_000;
/** Without the end of a session whose machine does not run any more, its process would count as alive for hours. */
const IDLE_TIMEOUT_MS = 15_000;
const CONNECT_TIMEOUT_MS = 5_000;
const OPENED_TIMEOUT_MS = 60_000;
const RETRY_MIN_MS = 50;
const RETRY_MAX_MS = 2_000;

interface ChannelListener {
  /** Listening has begun, or begun again: earlier notifications may have been missed. If this throws, the channel connects again. */
  opened(sql: Sql): Promise<void>;
  notified(payload: string, channel: string): void;
  /** From this moment on notifications may be missed. */
  lost(): void;
}

/**
 * LISTEN on a connection of its own, as long as the process runs. The driver's own `listen` is not used: it reports
 * when it listens again, but not that it has stopped.
 * @see https://www.postgresql.org/docs/current/sql-listen.html
 */
export class NotificationChannel {
  readonly #connection: ControlConnection;
  readonly #channels: readonly string[];
  readonly #listener: ChannelListener;
  readonly #stop = new AbortController();
  #listening: Promise<void> = Promise.resolve();

  /** @param channels lower-case names that need no quotes */
  constructor(connection: ControlConnection, channels: readonly string[], listener: ChannelListener) {
    this.#connection = connection;
    this.#channels = channels;
    this.#listener = listener;
  }

  /** Resolves when it listens, or throws the first connection's error. After later losses it reconnects by itself. */
  async open(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      let opened = false;
      const first = this.#listen(() => {
        opened = true;
        resolve();
      });
      this.#listening = first.catch(reject).then(() => (opened ? this.#reconnect() : undefined));
    });
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#listening;
  }

  async #reconnect(): Promise<void> {
    for (let retryMs = RETRY_MIN_MS; ; retryMs = Math.min(2 * retryMs, RETRY_MAX_MS)) {
      await delay(retryMs, undefined, { signal: this.#stop.signal }).catch(() => {});
      if (this.#stop.signal.aborted) return;
      const opened = () => {
        retryMs = RETRY_MIN_MS;
      };
      // The error is not needed: the next attempt either succeeds or fails again.
      await this.#listen(opened).catch(() => {});
    }
  }

  /** Listens until the connection is lost. */
  async #listen(opened: () => void): Promise<void> {
    const lost = new AbortController();
    const session = new ControlSession(this.#connection, {
      applicationName: 'postern notifications',
      statementTimeoutMs: 0,
      idleTimeoutMs: IDLE_TIMEOUT_MS,
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      onNotification: (payload, channel) => this.#listener.notified(payload, channel),
      onClose: () => {
        this.#listener.lost();
        lost.abort();
      },
    });
    const stop = () => session.destroy();
    this.#stop.signal.addEventListener('abort', stop, { once: true });
    try {
      await answerWithin(CONNECT_TIMEOUT_MS, session, session.sql.script(this.#channels.map((channel) => `listen ${channel}`).join('; ')));
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
