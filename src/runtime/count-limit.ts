import { MemoryBudget } from './memory-budget.ts';

/**
 * How many may be there at once, of each key: clients, or the requests of an organization. Those that are let in leave again.
 */
export interface CountLimit {
  /** The most of each key that has no limit of its own. */
  readonly max: number;
  /**
   * @param max the most of this key; default: as of others. Those that are there already stay
   * @returns whether it is let in; false also if it is not known at once: {@link enter} tells
   */
  tryEnter(key: string, max?: number): boolean;
  /** Whether it is known that nothing is left. */
  isFull(key: string): boolean;
  /** @returns whether it is let in, when that is known */
  enter(key: string, how?: Entry): Promise<boolean>;
  leave(key: string): void;
}

export interface Entry {
  /** Whether another process may have to close one for it. */
  readonly mayEvict?: boolean;
  /** As in {@link CountLimit.tryEnter}. */
  readonly max?: number | undefined;
}

/** The limit of one process. */
export class LocalLimit implements CountLimit {
  readonly max: number;
  readonly #counts = new Map<string, number>();

  constructor(max: number) {
    this.max = max;
  }

  tryEnter(key: string, max = this.max): boolean {
    const count = this.#counts.get(key) ?? 0;
    if (count >= max) return false;
    this.#counts.set(key, count + 1);
    return true;
  }

  isFull(key: string): boolean {
    return (this.#counts.get(key) ?? 0) >= this.max;
  }

  async enter(key: string, how?: Entry): Promise<boolean> {
    return this.tryEnter(key, how?.max);
  }

  leave(key: string): void {
    const count = (this.#counts.get(key) ?? 0) - 1;
    if (count > 0) this.#counts.set(key, count);
    else this.#counts.delete(key);
  }
}

/** The limit of one process for all keys together: none may have more than are left for the others. */
export class SharedLimit implements CountLimit {
  readonly max: number;
  readonly #budget: MemoryBudget;

  constructor(max: number) {
    this.max = max;
    this.#budget = new MemoryBudget({ perOrganizationBytes: max, allBytes: max });
  }

  tryEnter(key: string): boolean {
    if (this.isFull(key)) return false;
    this.#budget.count(key, 1);
    return true;
  }

  isFull(key: string): boolean {
    return this.#budget.exhaustedBy(key, 1) !== undefined;
  }

  async enter(key: string): Promise<boolean> {
    return this.tryEnter(key);
  }

  leave(key: string): void {
    this.#budget.count(key, -1);
  }
}

/** Two limits that both apply. */
export class BothLimits implements CountLimit {
  readonly max: number;
  /** It knows at once. */
  readonly #local: CountLimit;
  readonly #other: CountLimit;

  constructor(local: CountLimit, other: CountLimit) {
    this.max = Math.min(local.max, other.max);
    this.#local = local;
    this.#other = other;
  }

  tryEnter(key: string): boolean {
    if (!this.#local.tryEnter(key)) return false;
    if (this.#other.tryEnter(key)) return true;
    this.#local.leave(key);
    return false;
  }

  isFull(key: string): boolean {
    return this.#local.isFull(key) || this.#other.isFull(key);
  }

  async enter(key: string, how?: Entry): Promise<boolean> {
    if (!this.#local.tryEnter(key)) return false;
    if (await this.#other.enter(key, how)) return true;
    this.#local.leave(key);
    return false;
  }

  leave(key: string): void {
    this.#local.leave(key);
    this.#other.leave(key);
  }
}

/** @param evict closes one for another process. @returns whether it did */
export type OpenCountLimit = (evict: () => boolean) => CountLimit;

interface ConnectionCountEvents<T> {
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
    const isLetIn = await this.#limit.enter(ALL, { mayEvict });
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
