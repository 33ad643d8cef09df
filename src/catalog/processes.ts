import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Observe } from '../observation.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import { randomDigits } from '../runtime/bytes.ts';
import { ADVISORY_LOCKS } from './advisory-locks.ts';
import type { ControlPool, Sql } from './control-pool.ts';

/** What other processes have replied. */
interface Replies {
  /** How many were asked: all others that receive notifications. */
  readonly asked: number;
  readonly replies: readonly string[];
}

interface Question {
  /** The process that is asked; absent: all others. */
  readonly to?: number;
  readonly request: string;
  /** How long to wait for replies. */
  readonly timeoutMs: number;
}

/** Composes this process's reply to a request. */
type Responder = (request: string) => Promise<string>;

/** How many requests of other processes are answered at once, and how many may wait: a busy process leaves the others unanswered. */
const ANSWERED_AT_ONCE = 2;
const UNANSWERED_MAX = 100;

/** A request of this process, and the processes that have replied so far. */
interface Pending {
  readonly replied: Set<number>;
  /** Called with each reply. */
  onReply: () => void;
}

/**
 * Requests between the processes that share a control database. A request is a notification, a reply a row. Both use sessions of
 * the control database only when nothing else waits for one.
 */
export class ProcessRequests {
  /** This process's number. */
  readonly own: number;
  readonly #database: ControlPool;
  readonly #observe: Observe;
  readonly #pending = new Map<string, Pending>();
  readonly #unanswered: RequestNotice[] = [];
  #answering = 0;
  #responder: Responder | undefined;

  constructor(own: number, database: ControlPool, observe: Observe) {
    this.own = own;
    this.#database = database;
    this.#observe = observe;
  }

  /** From now on this process is asked by others. One that never calls this may ask, as commands of the operator do. */
  async serve(responder: Responder): Promise<void> {
    this.#responder = responder;
    await this.#database.run((sql) => enterProcess(sql, this.own));
  }

  /** Called when this process receives notifications, or receives them again. Others may have forgotten it meanwhile. */
  async listening(sql: Sql): Promise<void> {
    if (this.#responder !== undefined) await enterProcess(sql, this.own);
  }

  /** @throws ServiceError `not_ready` */
  async ask({ to, request, timeoutMs }: Question): Promise<Replies> {
    const id = randomDigits(32);
    const pending: Pending = { replied: new Set(), onReply: () => {} };
    this.#pending.set(id, pending);
    try {
      const asked = await this.#database.lowPriorityTransaction((sql) => insertRequest(sql, { id, from: this.own, to, request }));
      if (asked.length === 0) return { asked: 0, replies: [] };
      await allReplied(pending, asked, timeoutMs);
      const rows = await this.#database.run((sql) => takeReplies(sql, id));
      return { asked: asked.length, replies: rows.flatMap(({ reply }) => reply ?? []) };
    } finally {
      this.#pending.delete(id);
    }
  }

  /** Handles a notification. It only notes what is to be done, because others wait behind it. */
  notified(payload: string): void {
    const notice = parseNotice(payload);
    if (notice === undefined) return;
    if ('replied' in notice) {
      const pending = this.#pending.get(notice.id);
      pending?.replied.add(notice.replied);
      pending?.onReply();
    } else if (notice.from !== this.own && (notice.to ?? this.own) === this.own && this.#unanswered.length < UNANSWERED_MAX) {
      this.#unanswered.push(notice);
      this.#answerNext();
    }
  }

  /** Requests that are not answered yet stay unanswered. */
  close(): void {
    this.#responder = undefined;
    this.#unanswered.length = 0;
  }

  #answerNext(): void {
    if (this.#answering === ANSWERED_AT_ONCE) return;
    const next = this.#unanswered.shift();
    if (next === undefined) return;
    this.#answering += 1;
    void this.#answer(next).finally(() => {
      this.#answering -= 1;
      this.#answerNext();
    });
  }

  async #answer({ id, request }: RequestNotice): Promise<void> {
    try {
      const reply = await this.#responder?.(request);
      if (reply !== undefined) await this.#database.lowPriorityTransaction((sql) => insertReply(sql, id, this.own, reply));
    } catch (cause) {
      this.#observe({ name: 'service.warning', message: 'the request of another process could not be answered', cause });
    }
  }
}

/** Resolves when all have replied, or after the timeout. */
async function allReplied(pending: Pending, asked: readonly number[], timeoutMs: number): Promise<void> {
  const timeout = new AbortController();
  pending.onReply = () => {
    if (asked.every((process) => pending.replied.has(process))) timeout.abort();
  };
  // Some may have replied before it was known who was asked.
  pending.onReply();
  await delay(timeoutMs, undefined, { signal: timeout.signal }).catch(() => {});
}

/** @returns undefined for a payload of another version */
function parseNotice(payload: string): RequestNotice | ReplyNotice | undefined {
  try {
    const notice: Partial<RequestNotice & ReplyNotice> = JSON.parse(payload);
    const isKnown = typeof notice.id === 'string' && (typeof notice.replied === 'number' || typeof notice.request === 'string');
    return isKnown ? (notice as RequestNotice | ReplyNotice) : undefined;
  } catch {
    return undefined;
  }
}

/** The channel on which processes tell each other of requests and replies. */
export const PROCESSES_CHANNEL = 'postern_processes';

/** A request to other processes. It has to fit in a notification, which may have 8,000 bytes. */
interface RequestNotice {
  readonly id: string;
  /** The process that asks. */
  readonly from: number;
  /** The process that is asked; absent: all others. */
  readonly to?: number | undefined;
  readonly request: string;
}

/** Sent when the reply of a process is there to be read. Replies are rows, because they may be long, and only one process needs them. */
interface ReplyNotice {
  readonly id: string;
  readonly replied: number;
}

interface Reply {
  readonly process: number;
  /** Null: it has not replied. */
  readonly reply: string | null;
}

/** The process receives notifications from now on. The caller has locked its number. */
async function enterProcess(sql: Sql, number: number): Promise<void> {
  await sql`insert into postern.processes (number) values (${number}) on conflict do nothing`;
}

/**
 * Asks other processes, once the transaction is committed. A process holds a lock on its number as long as it receives notifications;
 * those that do not are forgotten.
 * @returns the processes that are asked
 */
async function insertRequest(sql: Sql, { id, from, to = 0, request }: RequestNotice): Promise<readonly number[]> {
  const rows = await sql<{ process: number }[]>`
    with others as materialized (
      select number, pg_try_advisory_xact_lock(${ADVISORY_LOCKS.process}, number) as has_ended
      from postern.processes where number <> ${from} and ${to}::integer in (0, number)
    ), forgotten as (
      delete from postern.processes using others where processes.number = others.number and others.has_ended
    )
    insert into postern.process_requests (id, process) select ${id}, number from others where not has_ended returning process`;
  if (rows.length > 0) await notify(sql, { id, from, request, ...(to === 0 ? {} : { to }) });
  return rows.map(({ process }) => process);
}

/** Does nothing when nobody waits for the reply any more. */
async function insertReply(sql: Sql, id: string, process: number, reply: string): Promise<void> {
  const updated = await sql`update postern.process_requests set reply = ${reply} where id = ${id} and process = ${process} returning id`;
  if (updated.length > 0) await notify(sql, { id, replied: process });
}

/** Ends a request. @returns the replies that have come */
async function takeReplies(sql: Sql, id: string): Promise<readonly Reply[]> {
  return sql<Reply[]>`delete from postern.process_requests where id = ${id} returning process, reply`;
}

/** Deletes what processes have left that ended while they waited for replies. */
export async function deleteOldRequests(sql: Sql): Promise<void> {
  await sql`delete from postern.process_requests where asked_at < now() - interval '1 minute'`;
}

async function notify(sql: Sql, notice: RequestNotice | ReplyNotice): Promise<void> {
  await sql`select pg_notify(${PROCESSES_CHANNEL}, ${JSON.stringify(notice)})`;
}

/** Notifies the other processes that share the control database, if there are any. @throws ServiceError `not_ready` */
async function notifyOthers(database: ControlPool, own: number, channel: string, payload: string): Promise<void> {
  await database.lowPriorityTransaction(
    (sql) => sql`select pg_notify(${channel}, ${payload}) where exists (select from postern.processes where number <> ${own})`,
  );
}

/** The channel on which processes pass on cancel requests. */
export const CANCELS_CHANNEL = 'postern_cancels';

/** A cancel request for whichever process has the session. Its secret is not passed on, only a digest that proves it. */
export interface ForwardedCancel {
  readonly processId: number;
  /** SHA-256 of the secret, in base64. */
  readonly secretDigest: string;
}

type CancelHandler = (cancel: ForwardedCancel) => void;

/** A notification may have 8,000 bytes; a cancel request takes up to 64 of them. */
const CANCELS_PER_NOTIFICATION = 100;
/** Anybody may send cancel requests: while so many wait, further ones are dropped, as if they had come too late. */
const WAITING_MAX = 1_000;

/**
 * Passes on cancel requests to the other processes that share a control database: a client's cancel request comes on a connection of
 * its own, which a load balancer may send to another process than the session's.
 */
export class CancelForwarding {
  readonly #own: number;
  readonly #database: ControlPool;
  readonly #observe: Observe;
  #waiting: ForwardedCancel[] = [];
  /** The notification that is sent now. */
  #sending: Promise<void> | undefined;
  #handler: CancelHandler = () => {};

  /** @param own this process's number */
  constructor(own: number, database: ControlPool, observe: Observe) {
    this.#own = own;
    this.#database = database;
    this.#observe = observe;
  }

  /** @param handler is called with the cancel requests of other processes, most of which are for none of this one's sessions */
  serve(handler: CancelHandler): void {
    this.#handler = handler;
  }

  /** Resolves when the other processes have been notified, if there are any. An error is observed. */
  async forward(processId: number, secret: Buffer): Promise<void> {
    if (this.#waiting.length >= WAITING_MAX) return;
    this.#waiting.push({ processId, secretDigest: secretDigest(secret) });
    // Those that come while one notification is sent go with the next.
    await this.#sending;
    while (this.#waiting.length > 0) {
      this.#sending ??= this.#sendNext();
      await this.#sending;
    }
  }

  notified(payload: string): void {
    const cancels = parseCancels(payload);
    for (const cancel of cancels) this.#handler(cancel);
  }

  async #sendNext(): Promise<void> {
    const payload = JSON.stringify(this.#waiting.splice(0, CANCELS_PER_NOTIFICATION).map((one) => [one.processId, one.secretDigest]));
    try {
      await notifyOthers(this.#database, this.#own, CANCELS_CHANNEL, payload);
    } catch (cause) {
      this.#observe({ name: 'service.warning', message: 'cancel requests could not be passed on to other processes', cause });
    } finally {
      this.#sending = undefined;
    }
  }
}

/** @param secret as it is in BackendKeyData */
export function secretDigest(secret: Buffer): string {
  return createHash('sha256').update(secret).digest('base64');
}

/** @returns none for a payload of another version */
function parseCancels(payload: string): ForwardedCancel[] {
  try {
    const entries: unknown = JSON.parse(payload);
    if (!Array.isArray(entries)) return [];
    return entries.flatMap((entry) => {
      const [processId, digest] = Array.isArray(entry) ? entry : [];
      return typeof processId === 'number' && typeof digest === 'string' ? [{ processId, secretDigest: digest }] : [];
    });
  } catch {
    return [];
  }
}

/** The channel on which processes ask each other to close an unused session of a server that has no connection slots free. */
export const SLOTS_CHANNEL = 'postern_slots';

/** Called when another process needs a slot of this cluster's server. */
type SlotListener = (cluster: string) => void;

/**
 * Asks the other processes that share a control database for connection slots of a server: each may have more sessions than it uses,
 * while the server refuses one that another process needs.
 */
export class ConnectionSlotRequests {
  readonly #own: number;
  readonly #database: ControlPool;
  readonly #observe: Observe;
  /** The clusters of which the others are being asked now. */
  readonly #asking = new Set<string>();
  #listener: SlotListener = () => {};

  /** @param own this process's number */
  constructor(own: number, database: ControlPool, observe: Observe) {
    this.#own = own;
    this.#database = database;
    this.#observe = observe;
  }

  listen(listener: SlotListener): void {
    this.#listener = listener;
  }

  /** Does nothing while the others are being asked already. */
  ask(cluster: string): void {
    if (this.#asking.has(cluster)) return;
    this.#asking.add(cluster);
    void this.#send(cluster);
  }

  async #send(cluster: string): Promise<void> {
    try {
      await notifyOthers(this.#database, this.#own, SLOTS_CHANNEL, JSON.stringify({ from: this.#own, cluster }));
    } catch (cause) {
      this.#observe({ name: 'service.warning', message: 'other processes could not be asked for connection slots', cause });
    } finally {
      this.#asking.delete(cluster);
    }
  }

  notified(payload: string): void {
    const { from, cluster } = parseRequest(payload);
    if (from !== this.#own && cluster !== undefined) this.#listener(cluster);
  }
}

/** @returns nothing for a payload of another version */
function parseRequest(payload: string): { readonly from?: unknown; readonly cluster?: string } {
  try {
    const { from, cluster }: { from?: unknown; cluster?: unknown } = JSON.parse(payload);
    return typeof cluster === 'string' ? { from, cluster } : {};
  } catch {
    return {};
  }
}

/** The channel on which processes tell each other of logins and requests without a valid key. */
export const FAILURES_CHANNEL = 'postern_failures';

/** `login`: of an address and organization, by their digest. `refusal`: of an address. */
type FailureKind = 'login' | 'refusal';

/** Called for failures in other processes. */
type FailureListener = (key: string, count: number) => void;

const SEND_EVERY_MS = 250;
/** A notification may have 8,000 bytes; a failure takes up to 64 of them. */
const KEYS_PER_NOTIFICATION = 100;

/**
 * Tells the other processes that share a control database of failures, so that limits on them count for all processes together. They
 * are told four times a second, with a number for each key.
 */
export class AuthenticationFailures {
  readonly #own: number;
  readonly #database: ControlPool;
  readonly #observe: Observe;
  readonly #waiting: Record<FailureKind, BoundedMap<string, number>> = {
    login: new BoundedMap({ maxEntries: WAITING_MAX }),
    refusal: new BoundedMap({ maxEntries: WAITING_MAX }),
  };
  readonly #listeners: Partial<Record<FailureKind, FailureListener>> = {};
  #timer: NodeJS.Timeout | undefined;

  /** @param own this process's number */
  constructor(own: number, database: ControlPool, observe: Observe) {
    this.#own = own;
    this.#database = database;
    this.#observe = observe;
  }

  listen(kind: FailureKind, listener: FailureListener): void {
    this.#listeners[kind] = listener;
  }

  /** @param key at most 50 characters of ASCII */
  happened(kind: FailureKind, key: string): void {
    const waiting = this.#waiting[kind];
    waiting.set(key, (waiting.get(key) ?? 0) + 1);
    this.#schedule();
  }

  #schedule(): void {
    this.#timer ??= setTimeout(() => void this.#send(), SEND_EVERY_MS).unref();
  }

  notified(payload: string): void {
    const notice = parseFailureNotice(payload);
    if (notice === undefined || notice.from === this.#own) return;
    for (const [key, count] of notice.failures) this.#listeners[notice.kind]?.(key, count);
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  async #send(): Promise<void> {
    try {
      for (const kind of ['login', 'refusal'] as const) {
        for (let failures = this.#take(kind); failures.length > 0; failures = this.#take(kind)) {
          const payload = JSON.stringify({ from: this.#own, kind, failures } satisfies Notice);
          await notifyOthers(this.#database, this.#own, FAILURES_CHANNEL, payload);
        }
      }
    } catch (cause) {
      this.#observe({ name: 'service.warning', message: 'other processes could not be told of failed logins', cause });
    } finally {
      this.#timer = undefined;
      if (Object.values(this.#waiting).some(({ size }) => size > 0)) this.#schedule();
    }
  }

  #take(kind: FailureKind): (readonly [key: string, count: number])[] {
    const waiting = this.#waiting[kind];
    const failures = [...waiting.entries()].slice(0, KEYS_PER_NOTIFICATION);
    for (const [key] of failures) waiting.delete(key);
    return failures;
  }
}

interface Notice {
  readonly from: number;
  readonly kind: FailureKind;
  readonly failures: readonly (readonly [key: string, count: number])[];
}

/** @returns undefined for a payload of another version */
function parseFailureNotice(payload: string): Notice | undefined {
  try {
    const notice: Partial<Notice> = JSON.parse(payload);
    const isKnown = (notice.kind === 'login' || notice.kind === 'refusal') && Array.isArray(notice.failures);
    return isKnown ? (notice as Notice) : undefined;
  } catch {
    return undefined;
  }
}
