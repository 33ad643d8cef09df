import { setTimeout as delay } from 'node:timers/promises';
import { ADVISORY_LOCKS } from '../database/advisory-locks.ts';
import { type ControlConnection, ControlSession } from '../database/control-connection.ts';

/** More than a login and a statement or two take; of some ten thousand that the server has room for. */
const LOCKS = 128;
const TAKE = `select count(pg_catalog.pg_advisory_xact_lock(${ADVISORY_LOCKS.ballast}, pg_catalog.pg_backend_pid() * ${LOCKS} + n))
  from pg_catalog.generate_series(0, ${LOCKS - 1}) n`;
const TIMEOUT_MS = 5_000;
const RETRY_MS = 100;

/**
 * Locks that nobody wants: room in the server's table of locks that can be given back when there is none, without which
 * nobody could be let in who might make some. They are a transaction's, on a session of its own: to end one never needs a
 * lock, while whatever calls a function may (the function's privileges are looked up, in tables that all databases share).
 */
export class ReservedLocks {
  readonly #connection: ControlConnection;
  #session: ControlSession | undefined;
  #taking: Promise<void> | undefined;
  #closed = false;

  constructor(connection: ControlConnection) {
    this.#connection = connection;
  }

  /** Takes them, as soon as there is room; again whenever they are lost. Resolves when they are held. */
  hold(): Promise<void> {
    this.#taking ??= this.#take().finally(() => {
      this.#taking = undefined;
    });
    return this.#taking;
  }

  /** Does something that needs locks where there may be no room for them. */
  async droppedFor<T>(work: () => Promise<T>): Promise<T> {
    try {
      await this.#drop();
      return await work();
    } finally {
      void this.hold();
    }
  }

  close(): void {
    this.#closed = true;
    this.#session?.destroy();
  }

  async #take(): Promise<void> {
    while (!this.#closed) {
      this.#session ??= this.#open();
      const { sql } = this.#session;
      try {
        // Of one piece, so that no rollback comes between.
        await sql.script(`set idle_in_transaction_session_timeout = 0; begin; ${TAKE}`);
        return;
      } catch {
        await this.#drop();
        await delay(RETRY_MS, undefined, { ref: false });
      }
    }
  }

  async #drop(): Promise<void> {
    const session = this.#session;
    const timer = setTimeout(() => session?.destroy(), TIMEOUT_MS);
    await session?.sql.script('rollback').catch(() => session.destroy());
    clearTimeout(timer);
  }

  #open(): ControlSession {
    return new ControlSession(this.#connection, {
      applicationName: 'postern ballast',
      statementTimeoutMs: TIMEOUT_MS,
      connectTimeoutMs: TIMEOUT_MS,
      onClose: () => {
        this.#session = undefined;
        void this.hold();
      },
    });
  }
}
