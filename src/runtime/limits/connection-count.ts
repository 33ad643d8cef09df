import type { CountLimit, OpenCountLimit } from './count-limit.ts';

export interface ConnectionCountEvents<T> {
  /** Closes one that is counted. @returns whether there was one that may be closed */
  evict(isCounted: (connection: T) => boolean): boolean;
  /** Closes this one, since no other may be closed. */
  refuse(connection: T): void;
}

/** The key under which all connections count. */
const ALL = '';

/**
 * Counts the connections that have come until they leave. At the limit, another one has to go for each that comes: one of this process,
 * or if there is none, of another. They are served while it is not known yet whether they can be counted.
 */
export class ConnectionCount<T> {
  readonly #limit: CountLimit;
  readonly #events: ConnectionCountEvents<T>;
  /** In the order in which they came. */
  readonly #uncounted = new Set<T>();
  readonly #isCounted = (connection: T): boolean => !this.#uncounted.has(connection);
  #questions = 0;

  constructor(limit: OpenCountLimit, events: ConnectionCountEvents<T>) {
    this.#events = events;
    this.#limit = limit(() => events.evict(this.#isCounted));
  }

  came(connection: T): void {
    if (this.#limit.tryEnter(ALL)) return;
    this.#uncounted.add(connection);
    if (this.#limit.isFull(ALL)) this.#evict();
    else void this.#ask(false);
  }

  left(connection: T): void {
    if (!this.#uncounted.delete(connection) && !this.#countFirst()) this.#limit.leave(ALL);
  }

  #evict(): void {
    if (!this.#events.evict(this.#isCounted)) void this.#ask(true);
  }

  async #ask(mayEvict: boolean): Promise<void> {
    this.#questions += 1;
    const isLetIn = await this.#limit.enter(ALL, mayEvict);
    this.#questions -= 1;
    if (isLetIn) {
      if (!this.#countFirst()) this.#limit.leave(ALL);
      return;
    }
    // Some may have left meanwhile: then there are more questions than connections that need an answer.
    const [first] = this.#uncounted;
    if (first === undefined || this.#uncounted.size <= this.#questions) return;
    if (mayEvict) this.#events.refuse(first);
    else this.#evict();
  }

  /** What has been counted for another is so for the first that waits. @returns whether one waits */
  #countFirst(): boolean {
    const [first] = this.#uncounted;
    return first !== undefined && this.#uncounted.delete(first);
  }
}
