/**
 * How many may be there at once, of each key: clients, or the requests of an organization. Those that are let in leave again.
 */
export interface CountLimit {
  /** The most of each key. */
  readonly max: number;
  /** @returns whether it is let in; false also if it is not known at once: {@link enter} tells */
  tryEnter(key: string): boolean;
  /** @returns whether it is let in, when that is known */
  enter(key: string): Promise<boolean>;
  leave(key: string): void;
}

/** The limit of one process. */
export class LocalLimit implements CountLimit {
  readonly max: number;
  readonly #counts = new Map<string, number>();

  constructor(max: number) {
    this.max = max;
  }

  tryEnter(key: string): boolean {
    const count = this.#counts.get(key) ?? 0;
    if (count >= this.max) return false;
    this.#counts.set(key, count + 1);
    return true;
  }

  async enter(key: string): Promise<boolean> {
    return this.tryEnter(key);
  }

  leave(key: string): void {
    const count = (this.#counts.get(key) ?? 0) - 1;
    if (count > 0) this.#counts.set(key, count);
    else this.#counts.delete(key);
  }
}
