import { setTimeout as delay } from 'node:timers/promises';
import type { Observe } from '../../observation.ts';
import { randomDigits } from '../../runtime/bytes.ts';
import type { Sql } from '../database/control-connection.ts';
import type { ControlPool } from '../database/control-pool.ts';
import { enterProcess, insertReply, insertRequest, type ReplyNotice, type RequestNotice, takeReplies } from './request-rows.ts';

/** What other processes have replied. */
export interface Replies {
  /** How many were asked: all others that receive notifications. */
  readonly asked: number;
  readonly replies: readonly string[];
}

export interface Question {
  /** The process that is asked; absent: all others. */
  readonly to?: number;
  readonly request: string;
  /** How long to wait for replies. */
  readonly timeoutMs: number;
}

/** Composes this process's reply to a request. */
export type Responder = (request: string) => Promise<string>;

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
