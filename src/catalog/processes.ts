import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Observe } from '../observation.ts';
import { randomDigits } from '../runtime/bytes.ts';
import { ADVISORY_LOCKS } from './advisory-locks.ts';
import type { ControlPool, Sql } from './control-pool.ts';
import { announce, type BatchedTopic, type TopicFormat, type Topics } from './topics.ts';

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

  constructor(topics: Topics, database: ControlPool, observe: Observe) {
    this.own = topics.own;
    this.#database = database;
    this.#observe = observe;
    topics.topic({ ...PROCESSES, receive: (notice) => this.#notified(notice) });
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

  #notified(notice: Notice): void {
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

type Notice = RequestNotice | ReplyNotice;

const PROCESSES: TopicFormat<Notice> = {
  channel: 'postern_processes',
  encode: (notices) => notices.map((notice) => JSON.stringify(notice)),
  decode(payload) {
    const notice: Partial<RequestNotice & ReplyNotice> = JSON.parse(payload);
    const isKnown = typeof notice.id === 'string' && (typeof notice.replied === 'number' || typeof notice.request === 'string');
    return isKnown ? [notice as Notice] : [];
  },
};

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
  if (rows.length > 0) await announce(sql, PROCESSES, { id, from, request, ...(to === 0 ? {} : { to }) });
  return rows.map(({ process }) => process);
}

/** Does nothing when nobody waits for the reply any more. */
async function insertReply(sql: Sql, id: string, process: number, reply: string): Promise<void> {
  const updated = await sql`update postern.process_requests set reply = ${reply} where id = ${id} and process = ${process} returning id`;
  if (updated.length > 0) await announce(sql, PROCESSES, { id, replied: process });
}

/** Ends a request. @returns the replies that have come */
async function takeReplies(sql: Sql, id: string): Promise<readonly Reply[]> {
  return sql<Reply[]>`delete from postern.process_requests where id = ${id} returning process, reply`;
}

/** Deletes what processes have left that ended while they waited for replies. */
export async function deleteOldRequests(sql: Sql): Promise<void> {
  await sql`delete from postern.process_requests where asked_at < now() - interval '1 minute'`;
}

/** A cancel request for whichever process has the session. Its secret is not passed on, only a digest that proves it. */
export interface ForwardedCancel {
  readonly processId: number;
  /** SHA-256 of the secret, in base64. */
  readonly secretDigest: string;
}

type CancelHandler = (cancel: ForwardedCancel) => void;

/** A notification has up to a hundred cancel requests, each of up to 64 bytes. */
const CANCELS: TopicFormat<ForwardedCancel> = {
  channel: 'postern_cancels',
  encode: (cancels) => [JSON.stringify(cancels.map((one) => [one.processId, one.secretDigest]))],
  decode(payload) {
    const entries: unknown = JSON.parse(payload);
    if (!Array.isArray(entries)) return [];
    return entries.flatMap((entry) => {
      const [processId, digest] = Array.isArray(entry) ? entry : [];
      return typeof processId === 'number' && typeof digest === 'string' ? [{ processId, secretDigest: digest }] : [];
    });
  },
};

/**
 * Passes on cancel requests to the other processes that share a control database: a client's cancel request comes on a connection of
 * its own, which a load balancer may send to another process than the session's.
 */
export class CancelForwarding {
  readonly #topic: BatchedTopic<ForwardedCancel>;
  #handler: CancelHandler = () => {};

  constructor(topics: Topics) {
    this.#topic = topics.batched({
      ...CANCELS,
      receive: (cancel) => this.#handler(cancel),
      keyOf: ({ processId, secretDigest: digest }) => `${processId} ${digest}`,
      failure: 'cancel requests could not be passed on to other processes',
    });
  }

  /** @param handler is called with the cancel requests of other processes, most of which are for none of this one's sessions */
  serve(handler: CancelHandler): void {
    this.#handler = handler;
  }

  /** Resolves when the other processes have been notified, if there are any. An error is observed. */
  forward(processId: number, secret: Buffer): Promise<void> {
    return this.#topic.tell({ processId, secretDigest: secretDigest(secret) });
  }
}

/** @param secret as it is in BackendKeyData */
export function secretDigest(secret: Buffer): string {
  return createHash('sha256').update(secret).digest('base64');
}

/** A process needs a connection slot of a cluster's server. */
interface SlotRequest {
  readonly from: number;
  readonly cluster: string;
}

const SLOTS: TopicFormat<SlotRequest> = {
  channel: 'postern_slots',
  encode: (requests) => requests.map((request) => JSON.stringify(request)),
  decode(payload) {
    const request: Partial<SlotRequest> = JSON.parse(payload);
    return typeof request.cluster === 'string' ? [request as SlotRequest] : [];
  },
};

/** Called when another process needs a slot of this cluster's server. */
type SlotListener = (cluster: string) => void;

/**
 * Asks the other processes that share a control database for connection slots of a server: each may have more sessions than it uses,
 * while the server refuses one that another process needs.
 */
export class ConnectionSlotRequests {
  readonly #own: number;
  readonly #topic: BatchedTopic<SlotRequest>;
  /** The clusters of which the others are being asked now. */
  readonly #asking = new Set<string>();
  #listener: SlotListener = () => {};

  constructor(topics: Topics) {
    this.#own = topics.own;
    this.#topic = topics.batched({
      ...SLOTS,
      receive: ({ from, cluster }) => {
        if (from !== this.#own) this.#listener(cluster);
      },
      keyOf: ({ cluster }) => cluster,
      failure: 'other processes could not be asked for connection slots',
    });
  }

  listen(listener: SlotListener): void {
    this.#listener = listener;
  }

  /** Does nothing while the others are being asked already. */
  ask(cluster: string): void {
    if (this.#asking.has(cluster)) return;
    this.#asking.add(cluster);
    void this.#topic.tell({ from: this.#own, cluster }).finally(() => this.#asking.delete(cluster));
  }
}

/** `login`: of an address and organization, by their digest. `refusal`: of an address. */
const FAILURE_KINDS = ['login', 'refusal'] as const;
type FailureKind = (typeof FAILURE_KINDS)[number];

/** Called for failures in other processes. */
type FailureListener = (key: string, count: number) => void;

interface Failure {
  readonly from: number;
  readonly kind: FailureKind;
  readonly key: string;
  readonly count: number;
}

/** A notification has failures of one kind and process: up to a hundred, each of up to 64 bytes. */
const FAILURES: TopicFormat<Failure> = {
  channel: 'postern_failures',
  encode: (failures) =>
    FAILURE_KINDS.flatMap((kind) => {
      const ofKind = failures.filter((failure) => failure.kind === kind);
      const [first] = ofKind;
      return first === undefined
        ? []
        : [JSON.stringify({ from: first.from, kind, failures: ofKind.map(({ key, count }) => [key, count]) })];
    }),
  decode(payload) {
    const { from, kind, failures }: { from: number; kind: FailureKind; failures: readonly (readonly [string, number])[] } =
      JSON.parse(payload);
    return FAILURE_KINDS.includes(kind) ? failures.map(([key, count]) => ({ from, kind, key, count })) : [];
  },
};

const FAILURES_EVERY_MS = 250;

/**
 * Tells the other processes that share a control database of logins and requests without a valid key, so that limits on them count for
 * all processes together. They are told four times a second, with a number for each key.
 */
export class AuthenticationFailures {
  readonly #own: number;
  readonly #topic: BatchedTopic<Failure>;
  readonly #listeners: Partial<Record<FailureKind, FailureListener>> = {};

  constructor(topics: Topics) {
    this.#own = topics.own;
    this.#topic = topics.batched({
      ...FAILURES,
      receive: ({ from, kind, key, count }) => {
        if (from !== this.#own) this.#listeners[kind]?.(key, count);
      },
      keyOf: ({ kind, key }) => `${kind} ${key}`,
      merge: (waiting, { count }) => ({ ...waiting, count: waiting.count + count }),
      everyMs: FAILURES_EVERY_MS,
      failure: 'other processes could not be told of failed logins',
    });
  }

  listen(kind: FailureKind, listener: FailureListener): void {
    this.#listeners[kind] = listener;
  }

  /** @param key at most 50 characters of ASCII */
  happened(kind: FailureKind, key: string): void {
    void this.#topic.tell({ from: this.#own, kind, key, count: 1 });
  }
}
