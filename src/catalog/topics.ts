import type { Observe } from '../observation.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import type { ControlPool, Sql } from './control-pool.ts';

/** How processes that share a control database tell each other something, as PostgreSQL's notifications. */
export interface TopicFormat<Message> {
  /** A lower-case name that needs no quotes. */
  readonly channel: string;
  /**
   * @param messages a hundred at most
   * @returns the payloads, each of fewer than 8,000 bytes
   */
  encode(messages: readonly Message[]): readonly string[];
  /** @returns none for a payload of another version; for what is no JSON it may throw */
  decode(payload: string): readonly Message[];
}

interface TopicParts<Message> extends TopicFormat<Message> {
  /** Called with the messages of all processes, this one too. Others wait behind it, so it only notes what is to be done. */
  receive(message: Message): void;
}

/** How messages wait until the other processes are told. */
interface Batching<Message> {
  /** Messages with the same key are one while they wait. */
  keyOf(message: Message): string;
  /** Default: the later one counts. */
  merge?(waiting: Message, message: Message): Message;
  /** For how long messages are gathered; default: those that come while others are sent go with the next. */
  readonly everyMs?: number;
  /** The warning if the others cannot be told. */
  readonly failure: string;
}

/** How many messages are told together. */
const BATCH_MAX = 100;
/** Anybody can cause messages: while so many wait, the oldest are dropped. */
const WAITING_MAX = 1_000;

interface TopicsOptions {
  /** This process's number. */
  readonly own: number;
  readonly database: ControlPool;
  readonly observe: Observe;
}

/** What the processes that share a control database tell each other; see {@link NotificationChannel}, which receives it. */
export class Topics {
  readonly own: number;
  readonly #options: TopicsOptions;
  readonly #receivers = new Map<string, (payload: string) => void>();
  readonly #batched: { close(): void }[] = [];

  constructor(options: TopicsOptions) {
    this.own = options.own;
    this.#options = options;
  }

  /** A topic of which processes tell in transactions of their own, by {@link announce}. */
  topic<Message>({ receive, ...format }: TopicParts<Message>): void {
    this.#receivers.set(format.channel, (payload) => {
      for (const message of decodeAny(format, payload)) receive(message);
    });
  }

  /** A topic of which processes tell whenever they have something to tell. */
  batched<Message>(parts: TopicParts<Message> & Batching<Message>): BatchedTopic<Message> {
    this.topic(parts);
    const topic = new BatchedTopic(parts, this.#options);
    this.#batched.push(topic);
    return topic;
  }

  get channels(): readonly string[] {
    return [...this.#receivers.keys()];
  }

  received(channel: string, payload: string): void {
    this.#receivers.get(channel)?.(payload);
  }

  /** Gathers no longer. */
  close(): void {
    for (const topic of this.#batched) topic.close();
  }
}

function decodeAny<Message>(format: TopicFormat<Message>, payload: string): readonly Message[] {
  try {
    return format.decode(payload);
  } catch {
    return [];
  }
}

/** Tells all processes, this one too, once the transaction is committed. */
export async function announce<Message>(sql: Sql, { channel, encode }: TopicFormat<Message>, message: Message): Promise<void> {
  for (const payload of encode([message])) await sql`select pg_notify(${channel}, ${payload})`;
}

/** Messages for the other processes, if there are any. They use a session of the control database only when nothing else waits for one. */
export class BatchedTopic<Message> {
  readonly #parts: TopicFormat<Message> & Batching<Message>;
  readonly #options: TopicsOptions;
  readonly #waiting = new BoundedMap<string, Message>({ maxEntries: WAITING_MAX });
  /** The batch that is sent now. */
  #sending: Promise<boolean> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: TopicFormat<Message> & Batching<Message>, options: TopicsOptions) {
    this.#parts = parts;
    this.#options = options;
  }

  /** Resolves when the others have been told, or, where messages are gathered, at once. An error is observed. */
  async tell(message: Message): Promise<void> {
    const { keyOf, merge, everyMs } = this.#parts;
    const key = keyOf(message);
    const waiting = merge && this.#waiting.get(key);
    this.#waiting.set(key, merge === undefined || waiting === undefined ? message : merge(waiting, message));
    if (everyMs === undefined) await this.#sendWaiting();
    else this.#schedule(everyMs);
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #schedule(everyMs: number): void {
    this.#timer ??= setTimeout(() => void this.#sendGathered(everyMs), everyMs).unref();
  }

  async #sendWaiting(): Promise<void> {
    await this.#sending;
    while (this.#waiting.size > 0) {
      this.#sending ??= this.#sendNext().finally(() => {
        this.#sending = undefined;
      });
      await this.#sending;
    }
  }

  /** What could not be sent is lost, and the rest is sent later. */
  async #sendGathered(everyMs: number): Promise<void> {
    while (this.#waiting.size > 0 && (await this.#sendNext()));
    this.#timer = undefined;
    if (this.#waiting.size > 0) this.#schedule(everyMs);
  }

  async #sendNext(): Promise<boolean> {
    const { channel, encode, failure } = this.#parts;
    const { database, own, observe } = this.#options;
    const batch = [...this.#waiting.entries()].slice(0, BATCH_MAX);
    for (const [key] of batch) this.#waiting.delete(key);
    try {
      for (const payload of encode(batch.map(([, message]) => message))) {
        await database.lowPriorityTransaction(
          (sql) => sql`select pg_notify(${channel}, ${payload}) where exists (select from postern.processes where number <> ${own})`,
        );
      }
      return true;
    } catch (cause) {
      observe({ name: 'service.warning', message: failure, cause });
      return false;
    }
  }
}
