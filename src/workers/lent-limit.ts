import type { CountLimit, Entry } from '../runtime/count-limit.ts';
import type { ToSupervisor } from './messages.ts';
import { tellSupervisor } from './shared-parts.ts';

export interface LentLimitOptions {
  /** The supervisor's allocator. */
  readonly limit: string;
  /** The most of each key that has no limit of its own, in all workers together. */
  readonly max: number;
  /** The most of each key in this worker, if it may not have as many. */
  readonly ownMax?: number;
  readonly workers: number;
  /** How many are asked for at once, and in advance; 0: none but those that are needed. By default, some of `max`. */
  readonly block?: number;
  /** Closes one for another worker. @returns whether it did; then it has left */
  readonly evict?: () => boolean;
  /** Sends to the supervisor. */
  readonly tell?: (message: ToSupervisor) => void;
}

interface Question {
  /** Whether another worker may have to close one for it. */
  readonly mayEvict: boolean;
}

interface Waiting extends Question {
  readonly settle: (isLetIn: boolean) => void;
}

/** What the worker has of a key. */
interface Holding {
  /** What the allocator has lent. */
  held: number;
  /** How much of it is taken. */
  used: number;
  /** The most of this key, in all workers together. */
  max: number;
  /** Nothing has been lent since that became less: what is unused may be too many. */
  isOver: boolean;
  /** Those that wait until the allocator lends more, in their order. */
  waiting: Waiting[];
  /** What the allocator has been asked and has not answered, and what the limit was then. */
  asking: (Question & { readonly max: number }) | undefined;
  /** Nothing was left then. */
  refusedAt: number;
  /** Something has happened since the last sweep. */
  isRecent: boolean;
}

/** The largest block that is asked for at once. */
const BLOCK_MAX = 64;
/** Where nothing was left, nobody asks in advance for so long, and it is full as far as is known. */
const PAUSE_MS = 100;
/** What is not used for so long is given back. */
const SWEEP_EVERY_MS = 1_000;

/**
 * A limit that is that of all workers together. The allocator lends it in blocks, and further ones before they are needed, so that mostly
 * nobody waits for its answer. What is not used goes back: in blocks at once, all of it after a while, or when another worker needs it.
 */
export class LentLimit implements CountLimit {
  readonly max: number;
  readonly #limit: string;
  readonly #ownMax: number;
  readonly #evict: () => boolean;
  readonly #tell: (message: ToSupervisor) => void;
  readonly #block: number;
  readonly #holdings = new Map<string, Holding>();
  #timer: NodeJS.Timeout | undefined;

  constructor({
    limit,
    max,
    ownMax = Number.POSITIVE_INFINITY,
    workers,
    block,
    evict = () => false,
    tell = tellSupervisor,
  }: LentLimitOptions) {
    this.max = max;
    this.#limit = limit;
    this.#ownMax = ownMax;
    this.#evict = evict;
    this.#tell = tell;
    this.#block = block ?? Math.max(1, Math.min(BLOCK_MAX, Math.floor(max / (8 * workers))));
  }

  tryEnter(key: string, max = this.max): boolean {
    const holding = this.#of(key);
    if (max !== holding.max) this.#limitTo(key, holding, max);
    if (holding.waiting.length > 0 || holding.used >= Math.min(holding.held, this.#mostOf(holding))) return false;
    holding.used += 1;
    if (holding.held - holding.used < this.#block / 2 && !isFull(holding)) this.#ask(key, holding);
    return true;
  }

  isFull(key: string): boolean {
    const holding = this.#holdings.get(key);
    return holding !== undefined && isFull(holding);
  }

  enter(key: string, { mayEvict = false, max }: Entry = {}): Promise<boolean> {
    if (this.tryEnter(key, max)) return Promise.resolve(true);
    const holding = this.#of(key);
    if (holding.used + holding.waiting.length >= this.#mostOf(holding)) return Promise.resolve(false);
    return new Promise((settle) => {
      holding.waiting.push({ settle, mayEvict });
      this.#ask(key, holding);
    });
  }

  leave(key: string): void {
    const holding = this.#of(key);
    holding.used -= 1;
    this.#serve(holding);
    this.#releaseUnused(key, holding);
  }

  /** The allocator has lent so many; 0: there is nothing left. */
  granted(key: string, count: number): void {
    const holding = this.#of(key);
    const { asking } = holding;
    holding.asking = undefined;
    holding.held += count;
    if (holding.isOver && asking?.max !== holding.max) {
      // The allocator has answered by the former limit.
      this.#release(key, holding, count);
      this.#askAgain(key, holding);
      return;
    }
    if (count > 0) holding.isOver = false;
    this.#serve(holding);
    if (count === 0) {
      holding.refusedAt = performance.now();
      const isRefused = ({ mayEvict }: Waiting) => !mayEvict || asking?.mayEvict === true;
      const refused = holding.waiting.filter(isRefused);
      holding.waiting = holding.waiting.filter((one) => !isRefused(one));
      for (const { settle } of refused) settle(false);
    }
    this.#askAgain(key, holding);
    this.#releaseUnused(key, holding);
  }

  /** Another worker needs some. Half of what is unused is left for those who come here, if some came lately. @returns whether there was any */
  giveUp(key: string, mayEvict: boolean): boolean {
    const holding = this.#holdings.get(key);
    if (holding === undefined) return false;
    if (holding.held === holding.used && mayEvict) this.#evict();
    if (holding.held === holding.used) return false;
    const unused = holding.held - holding.used;
    this.#release(key, holding, holding.isRecent ? Math.ceil(unused / 2) : unused);
    return true;
  }

  /** The limit of this key has changed. If it has become less, the allocator decides who has what, without what is unused here. */
  #limitTo(key: string, holding: Holding, max: number): void {
    holding.isOver = max < holding.max;
    holding.max = max;
    if (holding.isOver && holding.held > holding.used) this.#release(key, holding, holding.held - holding.used);
  }

  /** How many this worker may have. */
  #mostOf({ max }: Holding): number {
    return Math.min(this.#ownMax, max);
  }

  #serve(holding: Holding): void {
    while (holding.used < holding.held && holding.waiting.length > 0) {
      holding.used += 1;
      holding.waiting.shift()?.settle(true);
    }
  }

  /** For those that still wait. They are refused if the worker has as many as it may have: the limit may have become less meanwhile. */
  #askAgain(key: string, holding: Holding): void {
    if (holding.waiting.length === 0) return;
    if (holding.held < this.#mostOf(holding)) {
      this.#ask(key, holding);
      return;
    }
    const { waiting } = holding;
    holding.waiting = [];
    for (const { settle } of waiting) settle(false);
  }

  #ask(key: string, holding: Holding): void {
    if (holding.asking !== undefined || holding.held >= this.#mostOf(holding)) return;
    const mayEvict = holding.waiting.some((one) => one.mayEvict);
    holding.asking = { mayEvict, max: holding.max };
    const count = Math.min(Math.max(this.#block, holding.waiting.length), this.#mostOf(holding) - holding.held);
    this.#tell({ kind: 'acquire', limit: this.#limit, organizationId: key, count, mayEvict, max: holding.max });
  }

  #releaseUnused(key: string, holding: Holding): void {
    const unused = holding.held - holding.used;
    if (holding.isOver) this.#release(key, holding, unused);
    else if (unused > 2 * this.#block) this.#release(key, holding, unused - this.#block);
  }

  #release(key: string, holding: Holding, count: number): void {
    if (count === 0) return;
    holding.held -= count;
    this.#tell({ kind: 'release', limit: this.#limit, organizationId: key, count });
  }

  #of(key: string): Holding {
    let holding = this.#holdings.get(key);
    if (holding === undefined) {
      holding = {
        held: 0,
        used: 0,
        max: this.max,
        isOver: false,
        waiting: [],
        asking: undefined,
        refusedAt: Number.NEGATIVE_INFINITY,
        isRecent: true,
      };
      this.#holdings.set(key, holding);
      this.#timer ??= setTimeout(() => this.#sweep(), SWEEP_EVERY_MS).unref();
    }
    holding.isRecent = true;
    return holding;
  }

  #sweep(): void {
    for (const [key, holding] of this.#holdings) {
      const { held, used, asking, isRecent } = holding;
      holding.isRecent = false;
      if (used > 0 || asking !== undefined || isRecent) continue;
      if (held > 0) this.#release(key, holding, held);
      this.#holdings.delete(key);
    }
    this.#timer = this.#holdings.size > 0 ? setTimeout(() => this.#sweep(), SWEEP_EVERY_MS).unref() : undefined;
  }
}

function isFull({ refusedAt }: Holding): boolean {
  return refusedAt > performance.now() - PAUSE_MS;
}
