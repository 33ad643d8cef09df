import { setTimeout as delay } from 'node:timers/promises';
import postgres from 'postgres';
import { ServiceError } from '../../errors.ts';
import { type ControlConnection, ControlSession, type SessionOptions, type Sql } from './control-connection.ts';

const SESSIONS_MAX = 4;
const WAITERS_MAX = 10_000;
const LOW_PRIORITY_WAITERS_MAX = 1_000;
/** How many sessions the calls of all organizations may have together. The rest is kept for logins and sign-ups. */
const ORGANIZATIONS_SESSIONS_MAX = SESSIONS_MAX - 1;
/** How many sessions one organization may have: its changes lock its row, so a second one would only wait there. */
const SESSIONS_OF_ONE_MAX = { change: 1, read: 2 } as const;
/** How many calls of one organization may wait. */
const WAITERS_OF_ONE_MAX = 500;
const STATEMENT_TIMEOUT_MS = 10_000;
/** For a whole call: waiting for a session, connecting, all its statements. Longer than the timeout of one statement. */
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

/** Calls of one organization, which wait for each other before they wait for a session. */
interface OrganizationCalls {
  readonly sessionsMax: number;
  readonly waiters: Set<Waiter>;
  inUse: number;
}

/** Gets a session, and is told when it has been given back. */
interface Borrower {
  acquire(deadline: Deadline): Promise<ControlSession>;
  released?(): void;
}

/**
 * A few sessions on the control database, each used by one call at a time. Calls of organizations get them in turn, however many calls one
 * of them makes, and never all. A call whose connection is lost fails as a whole; it
 * never continues on another session. When the database cannot be reached, calls throw ServiceError `not_ready`; other errors of
 * Postgres are passed on as the driver's own.
 */
export class ControlPool {
  readonly #connection: ControlConnection;
  readonly #onOutOfMemory: () => void;
  readonly #idle: ControlSession[] = [];
  readonly #busy = new Set<ControlSession>();
  readonly #waiters = new Set<Waiter>();
  /** These get a session when no other waiter wants one. */
  readonly #lowPriority = new Set<Waiter>();
  /** Calls of organizations, by their kind and organization, in the order of their turns. */
  readonly #organizations = new Map<string, OrganizationCalls>();
  #organizationsInUse = 0;
  #closed = false;
  #allReleased: () => void = () => {};

  /** @param onOutOfMemory called when a statement fails with out_of_memory (53200) */
  constructor(connection: ControlConnection, onOutOfMemory: () => void = () => {}) {
    this.#connection = connection;
    this.#onOutOfMemory = onOutOfMemory;
  }

  /** Runs statements without a transaction. */
  run<T>(work: (sql: Sql) => Promise<T>, timeoutMs = CALL_TIMEOUT_MS): Promise<T> {
    return this.#lend((session) => work(session.sql), timeoutMs, this.#anybody);
  }

  /** As {@link run}, for what an organization asks for. */
  readFor<T>(organizationId: string, work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#lend((session) => work(session.sql), CALL_TIMEOUT_MS, this.#organization('read', organizationId));
  }

  /** As {@link transaction}, for what changes an organization: one at a time. @throws ServiceError `too_many_requests` */
  changeFor<T>(organizationId: string, work: (sql: Sql) => Promise<T>): Promise<T> {
    const change = (session: ControlSession) => inTransaction(session, (sql) => sql`begin`, work);
    return this.#lend(change, CALL_TIMEOUT_MS, this.#organization('change', organizationId));
  }

  /** Runs `work` in a transaction. */
  transaction<T>(work: (sql: Sql) => Promise<T>, timeoutMs = CALL_TIMEOUT_MS): Promise<T> {
    return this.#lend((session) => inTransaction(session, (sql) => sql`begin`, work), timeoutMs, this.#anybody);
  }

  /** As {@link transaction}, for requests of unauthenticated callers and others that nobody must wait for: all other calls go first. */
  lowPriorityTransaction<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.#lend((session) => inTransaction(session, (sql) => sql`begin`, work), CALL_TIMEOUT_MS, this.#patient);
  }

  /** Runs several reads in one snapshot. */
  snapshot<T>(work: (sql: Sql) => Promise<T>, timeoutMs = CALL_TIMEOUT_MS): Promise<T> {
    return this.#lend(
      (session) => inTransaction(session, (sql) => sql`begin isolation level repeatable read read only`, work),
      timeoutMs,
      this.#anybody,
    );
  }

  /** Waits a few seconds for running calls, then ends all sessions. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const queue of [this.#waiters, this.#lowPriority, ...[...this.#organizations.values()].map(({ waiters }) => waiters)]) {
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

  async #lend<T>(work: (session: ControlSession) => Promise<T>, timeoutMs: number, borrower: Borrower): Promise<T> {
    const deadline = new Deadline(timeoutMs);
    try {
      const session = await borrower.acquire(deadline);
      try {
        return await deadline.limit(work(session), () => session.destroy());
      } catch (error) {
        throw this.#failed(session, error);
      } finally {
        borrower.released?.();
        this.#release(session);
      }
    } finally {
      deadline.clear();
    }
  }

  /** When the database could not be reached, the state of the session is unknown, so it is dropped. */
  #failed(session: ControlSession, error: unknown): unknown {
    if (isExhausted(error)) {
      if (error.code === OUT_OF_MEMORY) this.#onOutOfMemory();
      // Otherwise the session is kept: it still works, and opening another might fail now.
      if (error.severity === 'FATAL') session.destroy();
      return new ServiceError('not_ready', 'the database server is out of memory or disk space', { cause: error, retryAfterS: 1 });
    }
    if (!isUnreachable(error)) return error;
    session.destroy();
    if (error instanceof ServiceError) return error;
    const message = isReadOnly(error) ? 'the control database is read-only' : 'the control database cannot be reached';
    return new ServiceError('not_ready', message, { cause: error, retryAfterS: 1 });
  }

  readonly #anybody: Borrower = { acquire: (deadline) => this.#acquire(deadline, this.#waiters) };
  readonly #patient: Borrower = { acquire: (deadline) => this.#acquire(deadline, this.#lowPriority) };

  #organization(kind: keyof typeof SESSIONS_OF_ONE_MAX, organizationId: string): Borrower {
    const key = `${kind} ${organizationId}`;
    const calls = this.#organizations.get(key) ?? { sessionsMax: SESSIONS_OF_ONE_MAX[kind], waiters: new Set(), inUse: 0 };
    this.#organizations.set(key, calls);
    const forgetIfUnused = () => {
      if (calls.inUse === 0 && calls.waiters.size === 0 && this.#organizations.get(key) === calls) this.#organizations.delete(key);
    };
    return {
      acquire: async (deadline) => {
        this.#checkOpen();
        if (calls.waiters.size >= WAITERS_OF_ONE_MAX) {
          throw new ServiceError('too_many_requests', 'too many calls of this organization are waiting for the control database', {
            retryAfterS: 1,
          });
        }
        const { promise, resolve, reject } = newPromise<ControlSession>();
        const waiter: Waiter = { granted: resolve, refused: reject };
        calls.waiters.add(waiter);
        this.#serveOrganizations();
        return deadline.limit(promise, () => {
          calls.waiters.delete(waiter);
          forgetIfUnused();
        });
      },
      released: () => {
        calls.inUse -= 1;
        this.#organizationsInUse -= 1;
        forgetIfUnused();
      },
    };
  }

  #checkOpen(): void {
    if (this.#closed) throw new ServiceError('shutting_down', 'the service is shutting down');
  }

  async #acquire(deadline: Deadline, queue: Set<Waiter>): Promise<ControlSession> {
    this.#checkOpen();
    const idle = this.#takeIdle();
    if (idle !== undefined) return idle;
    if (queue.size >= (queue === this.#lowPriority ? LOW_PRIORITY_WAITERS_MAX : WAITERS_MAX)) {
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
    this.#serveOrganizations();
    this.#serve(this.#lowPriority);
  }

  /** One call of each organization in turn. */
  #serveOrganizations(): void {
    for (let served = true; served; ) {
      served = false;
      for (const [key, calls] of [...this.#organizations]) {
        const [first] = calls.waiters;
        if (first === undefined || calls.inUse >= calls.sessionsMax) continue;
        const next = this.#organizationsInUse < ORGANIZATIONS_SESSIONS_MAX ? this.#takeIdle() : undefined;
        if (next === undefined) return;
        calls.waiters.delete(first);
        calls.inUse += 1;
        this.#organizationsInUse += 1;
        // It is last in the next round.
        this.#organizations.delete(key);
        this.#organizations.set(key, calls);
        first.granted(next);
        served = true;
      }
    }
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

/** The time limit of a whole call. The driver itself waits for an answer until the network reports a failure. */
class Deadline {
  readonly #expired = newPromise<never>();
  readonly #timer: NodeJS.Timeout;

  constructor(timeoutMs: number) {
    const error = new ServiceError('not_ready', 'the control database did not answer in time', { retryAfterS: 1 });
    this.#timer = setTimeout(() => this.#expired.reject(error), timeoutMs);
    this.#expired.promise.catch(() => {});
  }

  /** @param giveUp called when the time is over before `work` has settled */
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

/** SQLSTATEs about the server and not the statement: connection exceptions, shutdown, and query_canceled, which is a timeout here. */
const UNREACHABLE = /^(08...|57P0[1-3]|57014)$/;

const OUT_OF_MEMORY = '53200';

/** disk_full or out_of_memory. */
function isExhausted(error: unknown): error is postgres.PostgresError {
  return error instanceof postgres.PostgresError && /^53[12]00$/.test(error.code);
}

function isUnreachable(error: unknown): boolean {
  if (error instanceof ServiceError) return error.kind === 'not_ready';
  // FATAL: the session was refused or ended, not just a statement.
  if (error instanceof postgres.PostgresError) return error.severity === 'FATAL' || UNREACHABLE.test(error.code) || isReadOnly(error);
  // The driver's codes (CONNECTION_CLOSED, CONNECT_TIMEOUT) and those of sockets and TLS (ECONNREFUSED, CERT_HAS_EXPIRED).
  return (
    error instanceof Error && 'code' in error && /^(CONNECT|E[A-Z]{3}|CERT_|DEPTH_|SELF_SIGNED_|UNABLE_|ABORT_ERR)/.test(String(error.code))
  );
}

/**
 * read_only_sql_transaction: a standby, which may be promoted or replaced under the same name; or a server that its operator has made
 * read-only, for example because its disk is full.
 */
function isReadOnly(error: unknown): boolean {
  return error instanceof postgres.PostgresError && error.code === '25006';
}
