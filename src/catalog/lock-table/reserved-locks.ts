import { setTimeout as delay } from 'node:timers/promises';
import { ADVISORY_LOCKS } from '../database/advisory-locks.ts';
import { type ControlConnection, ControlSession } from '../database/control-connection.ts';

/** More than a login and a few statements need. A server has space for some ten thousand. */
const LOCKS = 128;
const TAKE_LOCKS = `select count(pg_catalog.pg_advisory_xact_lock(${ADVISORY_LOCKS.reserved}, pg_catalog.pg_backend_pid() * ${LOCKS} + n))
  from pg_catalog.generate_series(0, ${LOCKS - 1}) n`;
const TIMEOUT_MS = 5_000;
const RETRY_MS = 100;

/**
 * Advisory locks that reserve space in the server's lock table. When the table is full they are released, because without free
 * space not even an operator could log in to free some. They are transaction-level locks on a session of their own: ending a
 * transaction needs no further lock, while calling pg_advisory_unlock may (its privileges are looked up in shared catalogs).
 */
export class ReservedLocks {
  readonly #connection: ControlConnection;
  #session: ControlSession | undefined;
  #taking: Promise<void> | undefined;
  #closed = false;

  constructor(connection: ControlConnection) {
    this.#connection = connection;
  }

  /** Takes the locks as soon as there is space, and again whenever they are lost. Resolves when they are held. */
  hold(): Promise<void> {
    this.#taking ??= this.#take().finally(() => {
      this.#taking = undefined;
    });
    return this.#taking;
  }

  /** Releases the locks during `work`, which needs locks while the table may be full. */
  async releaseDuring<T>(work: () => Promise<T>): Promise<T> {
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
        // In one Query message, so that no rollback can come in between.
        await sql.script(`set idle_in_transaction_session_timeout = 0; begin; ${TAKE_LOCKS}`);
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
      applicationName: 'postern reserved locks',
      statementTimeoutMs: TIMEOUT_MS,
      connectTimeoutMs: TIMEOUT_MS,
      onClose: () => {
        this.#session = undefined;
        void this.hold();
      },
    });
  }
}
