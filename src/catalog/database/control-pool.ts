import { setTimeout as delay } from 'node:timers/promises';
import postgres from 'postgres';
import { ServiceError } from '../../errors.ts';
import { type ControlConnection, ControlSession, type SessionOptions, type Sql } from './control-connection.ts';

const SESSIONS_MAX = 4;
const WAITERS_MAX = 10_000;
/** Of those who stand back. */
const PATIENT_MAX = 1_000;
const STATEMENT_TIMEOUT_MS = 10_000;
/** For a whole call: the wait for a session, connecting, all its statements. Longer than a statement's own time. */
const CALL_TIMEOUT_MS = 15_000;
const CLOSE_TIMEOUT_MS = 5_000;

const OPTIONS: SessionOptions = {
  applicationName: 'postern control',
  statementTimeoutMs: STATEMENT_TIMEOUT_MS,
  connectTimeoutMs: 5_000,
};

interface Waiter {
  readonly granted: (session: ControlSession) => void;
  readonly refused: (error: Error) => void;
}

/**
 * The control database: a few sessions, each lent to one call at a time. A call whose connection is lost fails whole; it
 * never goes on with another one. Errors of reaching the database are ServiceErrors `not_ready`; what Postgres says to a
 * statement is passed on as the driver's own error.
 */
export class ControlPool {
  readonly #connection: ControlConnection;
  readonly #outOfRoom: () => void;
  readonly #idle: ControlSession[] = [];
  readonly #busy = new Set<ControlSession>();
  readonly #waiters = new Set<Waiter>();
  /** They get a session when nobody else is waiting for one. */
  readonly #patient = new Set<Waiter>();
  #closed = false;
  #allReleased: () => void = () => {};

  /** @param outOfRoom called when the server has had no memory for a statement */
  constructor(connection: ControlConnection, outOfRoom: () => void = () => {}) {
    this.#connection = connection;
    this.#outOfRoom = outOfRoom;
  }

  /** Statements that need no transaction around them. */
  run<T>(work: (sql: Sql) => Promise<T>, timeoutMs = CALL_TIMEOUT_MS): Promise<T> {
    return this.#lend((session) => work(session.sql), timeoutMs);
  }

  /** Everything that `work` does, or nothing of it. */
  transaction<T>(work: (sql: Sql) => Promise<T>, timeoutMs = CALL_TIMEOUT_MS): Promise<T> {
    return this.#lend((session) => inTransaction(session, (sql) => sql`begin`, work), timeoutMs);
  }

  /** As {@link transaction}, for what unauthenticated callers can ask for: all others go first. */
  patientTransaction<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#lend((session) => inTransaction(session, (sql) => sql`begin`, work), CALL_TIMEOUT_MS, this.#patient);
  }

  /** Several reads of one state of the database. */
  snapshot<T>(work: (sql: Sql) => Promise<T>, timeoutMs = CALL_TIMEOUT_MS): Promise<T> {
    return this.#lend((session) => inTransaction(session, (sql) => sql`begin isolation level repeatable read read only`, work), timeoutMs);
  }

  /** Lets the calls end that are running, for a while, and then all sessions. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const queue of [this.#waiters, this.#patient]) {
      for (const waiter of queue) waiter.refused(new ServiceError('shutting_down', 'the service is shutting down'));
      queue.clear();
    }
    if (this.#busy.size > 0) {
      const released = new Promise<void>((resolve) => {
        this.#allReleased = resolve;
      });
      await Promise.race([released, delay(CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
    }
    for (const session of this.#busy) session.destroy();
    await Promise.all(this.#idle.map((session) => session.end(CLOSE_TIMEOUT_MS)));
  }

  async #lend<T>(work: (session: ControlSession) => Promise<T>, timeoutMs: number, queue = this.#waiters): Promise<T> {
    const deadline = new Deadline(timeoutMs);
    try {
      const session = await this.#acquire(deadline, queue);
      try {
        return await deadline.limit(work(session), () => session.destroy());
      } catch (error) {
        throw this.#failed(session, error);
      } finally {
        this.#release(session);
      }
    } finally {
      deadline.clear();
    }
  }

  /** After a failure to reach the database nobody can say what state the session is in. */
  #failed(session: ControlSession, error: unknown): unknown {
    if (isExhausted(error)) {
      if (error.code === OUT_OF_MEMORY) this.#outOfRoom();
      // Otherwise the session is sound, and another could perhaps not be opened now.
      if (error.severity === 'FATAL') session.destroy();
      return new ServiceError('not_ready', 'the database server has run out of room', { cause: error, retryAfterS: 1 });
    }
    if (!isUnreachable(error)) return error;
    session.destroy();
    if (error instanceof ServiceError) return error;
    const message = isReadOnly(error) ? 'the control database takes no changes yet' : 'the control database cannot be reached';
    return new ServiceError('not_ready', message, { cause: error, retryAfterS: 1 });
  }

  async #acquire(deadline: Deadline, queue: Set<Waiter>): Promise<ControlSession> {
    if (this.#closed) throw new ServiceError('shutting_down', 'the service is shutting down');
    const idle = this.#takeIdle();
    if (idle !== undefined) return idle;
    if (queue.size >= (queue === this.#patient ? PATIENT_MAX : WAITERS_MAX)) {
      throw new ServiceError('not_ready', 'too many calls are waiting for the control database', { retryAfterS: 1 });
    }
    const { promise, resolve, reject } = newPromise<ControlSession>();
    const waiter: Waiter = { granted: resolve, refused: reject };
    queue.add(waiter);
    return deadline.limit(promise, () => queue.delete(waiter));
  }

  #takeIdle(): ControlSession | undefined {
    const session = this.#idle.pop() ?? (this.#busy.size < SESSIONS_MAX ? this.#open() : undefined);
    if (session !== undefined) this.#busy.add(session);
    return session;
  }

  #open(): ControlSession {
    const session = new ControlSession(this.#connection, {
      ...OPTIONS,
      onClose: () => {
        const at = this.#idle.indexOf(session);
        if (at >= 0) this.#idle.splice(at, 1);
      },
    });
    return session;
  }

  #release(session: ControlSession): void {
    this.#busy.delete(session);
    if (session.alive) this.#idle.push(session);
    if (this.#busy.size === 0) this.#allReleased();
    this.#serve(this.#waiters);
    this.#serve(this.#patient);
  }

  #serve(queue: Set<Waiter>): void {
    for (const waiter of queue) {
      const next = this.#takeIdle();
      if (next === undefined) return;
      queue.delete(waiter);
      waiter.granted(next);
    }
  }
}

/** The driver's own `begin` is not used; see {@link ControlSession}. */
async function inTransaction<T>(
  session: ControlSession,
  begin: (sql: Sql) => Promise<unknown>,
  work: (sql: Sql) => Promise<T>,
): Promise<T> {
  const { sql } = session;
  await begin(sql);
  try {
    const result = await work(sql);
    await sql`commit`;
    return result;
  } catch (error) {
    if (session.alive) await sql`rollback`.catch(() => session.destroy());
    throw error;
  }
}

/** What a call may take in all: the driver itself waits for an answer as long as the network lets it. */
class Deadline {
  readonly #expired = newPromise<never>();
  readonly #timer: NodeJS.Timeout;

  constructor(timeoutMs: number) {
    const error = new ServiceError('not_ready', 'the control database did not answer in time', { retryAfterS: 1 });
    this.#timer = setTimeout(() => this.#expired.reject(error), timeoutMs);
    this.#expired.promise.catch(() => {});
  }

  /** @param giveUp what to do about `work` when its time is up */
  async limit<T>(work: Promise<T>, giveUp: () => void): Promise<T> {
    let settled = false;
    const watched = work.finally(() => {
      settled = true;
    });
    try {
      return await Promise.race([watched, this.#expired.promise]);
    } finally {
      if (!settled) giveUp();
    }
  }

  clear(): void {
    clearTimeout(this.#timer);
  }
}

function newPromise<T>(): { promise: Promise<T>; resolve: (value: T) => void; reject: (error: Error) => void } {
  let resolve: (value: T) => void = () => {};
  let reject: (error: Error) => void = () => {};
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}

/** SQLSTATEs that speak of the server rather than of the statement: connection lost, shutting down, no time. */
const UNREACHABLE = /^(08...|57P0[1-3]|57014)$/;

const OUT_OF_MEMORY = '53200';

/** disk_full, out_of_memory: passes when room has been made. */
function isExhausted(error: unknown): error is postgres.PostgresError {
  return error instanceof postgres.PostgresError && /^53[12]00$/.test(error.code);
}

function isUnreachable(error: unknown): boolean {
  if (error instanceof ServiceError) return error.kind === 'not_ready';
  // FATAL: it is the session that was refused or ended, not a statement.
  if (error instanceof postgres.PostgresError) return error.severity === 'FATAL' || UNREACHABLE.test(error.code) || isReadOnly(error);
  // The driver's codes (CONNECTION_CLOSED, CONNECT_TIMEOUT) and those of sockets and TLS (ECONNREFUSED, CERT_HAS_EXPIRED).
  return (
    error instanceof Error && 'code' in error && /^(CONNECT|E[A-Z]{3}|CERT_|DEPTH_|SELF_SIGNED_|UNABLE_|ABORT_ERR)/.test(String(error.code))
  );
}

/**
 * read_only_sql_transaction: a standby that will be promoted, or whose name will be another server's for a new session; or one
 * that its operator lets take no writes, for want of room on its disk, say.
 */
function isReadOnly(error: unknown): boolean {
  return error instanceof postgres.PostgresError && error.code === '25006';
}
