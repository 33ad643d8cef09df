import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import postgres from 'postgres';
import { inUse, type ServerHosts } from '../backend/server-hosts.ts';
import { ServiceError } from '../errors.ts';
import { ADVISORY_LOCKS } from './advisory-locks.ts';

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
interface WaitQueue {
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

  async #lend<T>(work: (session: ControlSession) => Promise<T>, timeoutMs: number, queue: WaitQueue): Promise<T> {
    const deadline = new Deadline(timeoutMs);
    try {
      const session = await queue.acquire(deadline);
      try {
        return await deadline.limit(work(session), () => session.destroy());
      } catch (error) {
        throw this.#failed(session, error);
      } finally {
        queue.released?.();
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

  readonly #anybody: WaitQueue = { acquire: (deadline) => this.#acquire(deadline, this.#waiters) };
  readonly #patient: WaitQueue = { acquire: (deadline) => this.#acquire(deadline, this.#lowPriority) };

  #organization(kind: keyof typeof SESSIONS_OF_ONE_MAX, organizationId: string): WaitQueue {
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

/** How to reach the control database; `host` may be the folder of a Unix socket. */
export interface ControlConnection {
  readonly host: string;
  readonly port: number;
  /** If the server may be at several hosts, the one in use counts. */
  readonly hosts?: ServerHosts | undefined;
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

interface SessionOptions {
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
    this.#connection = inUse(connection);
    this.#options = options;
    const { hosts: _, ...at } = this.#connection;
    const settings = {
      ...at,
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

async function openSocket({ host, port, hosts }: ControlConnection, timeoutMs: number): Promise<Socket> {
  const socket = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect({ host, port, noDelay: true });
  socket.on('error', () => {});
  hosts?.track(socket);
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

/** A backend that waits for a lock. */
export interface LockWait {
  readonly processId: number;
  /** The role that it is logged in as. */
  readonly role: string;
  /** The kind of what is locked, as `locktype` of pg_locks: `relation`, `transactionid`, `advisory`, … */
  readonly lock: string;
  /** `AccessExclusiveLock` and the like. */
  readonly mode: string;
  /** The OID of the table or index, of whose row it may be, in the backend's database; null: it is something else. */
  readonly relation: number | null;
  /** In milliseconds since 1970; null in the first moment. */
  readonly since: number | null;
  /** The processes that have the lock in a mode that conflicts, or are before it in the queue; 0: a prepared transaction. */
  readonly blockedBy: readonly number[];
}

interface LockRow extends Omit<LockWait, 'processId' | 'role' | 'blockedBy'> {
  readonly pid: number;
  /** Separated by commas. */
  readonly blockedBy: string;
}

/** Reading who waits takes all partitions of the lock table for a moment, so it is done at most this often. */
const WAITS_EVERY_MS = 250;
/** Of more backends at once the rest is asked for the next time. */
const WAITS_MAX = 512;

/** The server's shared lock table, as the platform role sees it in pg_locks. */
export class PgLocks {
  readonly reserved: ReservedLocks;
  readonly #database: ControlPool;
  /** The backends that the next reading is about, and who awaits it. */
  #next: { readonly processIds: Set<number>; readonly waits: Promise<readonly LockWait[]> } | undefined;
  /** Resolves when the next reading may begin. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(connection: ControlConnection, database: ControlPool) {
    this.reserved = new ReservedLocks(connection);
    this.#database = database;
  }

  /**
   * Which of these backends wait for a lock, at a moment after the call. Callers share a reading, of which there is one at a time, at most
   * four times a second. The lock table is only read for those that pg_stat_activity says wait for a lock.
   * @param processIds those of an organization; only the first few hundred count
   * @throws ServiceError `not_ready`
   */
  async waitsOf(processIds: readonly number[]): Promise<readonly LockWait[]> {
    if (processIds.length === 0) return [];
    while (this.#next !== undefined && this.#next.processIds.size + processIds.length > WAITS_MAX) await this.#next.waits.catch(() => {});
    this.#next ??= this.#readNext();
    const { processIds: asked, waits } = this.#next;
    for (const processId of processIds.slice(0, WAITS_MAX)) asked.add(processId);
    const own = new Set(processIds);
    return (await waits).filter(({ processId }) => own.has(processId));
  }

  #readNext() {
    const processIds = new Set<number>();
    const waits = this.#last.then(() => {
      this.#next = undefined;
      return this.#readWaits([...processIds]);
    });
    this.#last = waits.catch(() => {}).then(() => delay(WAITS_EVERY_MS, undefined, { ref: false }));
    return { processIds, waits };
  }

  /** What a session does is hidden from roles that may not see it, which have no state then. A process that helps a query waits for its session. */
  async #readWaits(processIds: readonly number[]): Promise<readonly LockWait[]> {
    const waiting = await this.#database.run(
      (sql) => sql<{ pid: number; session: number; role: string }[]>`
        select pid, coalesce(leader_pid, pid) as session, usename as role from pg_catalog.pg_stat_activity
        where coalesce(leader_pid, pid) = any(${`{${processIds.join()}}`}::int[]) and usename is not null and (wait_event_type = 'Lock' or state is null)`,
    );
    if (waiting.length === 0) return [];
    const rows = await this.#database.run(
      (sql) => sql<LockRow[]>`
        with lock as materialized (
          select pid, locktype, mode, relation, waitstart, granted from pg_catalog.pg_locks
          where pid = any(${`{${waiting.map(({ pid }) => pid).join()}}`}::int[])
        )
        select pid, locktype as lock, mode,
          coalesce(relation, (select held.relation from lock held where held.pid = lock.pid and held.locktype = 'tuple' limit 1))::bigint::float8 as relation,
          (extract(epoch from waitstart) * 1000)::float8 as since,
          pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(pid), ',') as "blockedBy"
        from lock where not granted`,
    );
    const sessions = new Map(waiting.map((one) => [one.pid, one]));
    return rows.flatMap(({ pid, blockedBy, ...wait }) => {
      const found = sessions.get(pid);
      if (found === undefined) return [];
      const processIds = blockedBy === '' ? [] : blockedBy.split(',').map(Number);
      return [{ ...wait, processId: found.session, role: found.role, blockedBy: processIds }];
    });
  }

  /** Whether a backend holds advisory locks. Outside a transaction these are session-level locks. */
  async hasAdvisoryLocks(processId: number): Promise<boolean> {
    const [row] = await this.#database.run(
      (sql) => sql<{ held: boolean }[]>`
        select exists (select from pg_catalog.pg_locks where locktype = 'advisory' and pid = ${processId}) as held`,
    );
    return row?.held ?? true;
  }

  /**
   * The number of locks of each backend that holds more than its part of the table (max_locks_per_transaction), by process id.
   * Fast-path and predicate locks are not in this table and do not count. Empty while half of the table is free: then another
   * kind of memory was exhausted.
   */
  async ofHeavyHolders(): Promise<ReadonlyMap<number, number>> {
    const rows = await this.#database.run(
      (sql) => sql<{ pid: number; locks: number }[]>`
        with held as materialized (
          select pid from pg_catalog.pg_locks where not fastpath and mode <> 'SIReadLock' and pid is not null
        )
        select pid, count(*)::int as locks from held
        where (select count(*) from held) * 2 > current_setting('max_locks_per_transaction')::int * current_setting('max_connections')::int
        group by pid having count(*) > current_setting('max_locks_per_transaction')::int`,
    );
    return new Map(rows.map(({ pid, locks }) => [pid, locks]));
  }
}

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
class ReservedLocks {
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
