export interface Bounds<K, V> {
  readonly maxEntries: number;
  /** In units of {@link weightOf}. Default: no limit. */
  readonly maxWeight?: number;
  /** What an entry counts towards {@link maxWeight}. Default: nothing. */
  readonly weightOf?: (key: K, value: V) => number;
}

/** A map that forgets the entries that were added or used longest ago, when it has more than it may. */
export class BoundedMap<K, V> {
  readonly #entries = new Map<K, V>();
  readonly #maxEntries: number;
  readonly #maxWeight: number;
  readonly #weightOf: (key: K, value: V) => number;
  #weight = 0;
  /** The entry used last, which is mostly used again: a `Map` that is changed all the time makes garbage. */
  #newest: V | undefined;

  constructor({ maxEntries, maxWeight = Number.POSITIVE_INFINITY, weightOf = () => 0 }: Bounds<K, V>) {
    this.#maxEntries = maxEntries;
    this.#maxWeight = maxWeight;
    this.#weightOf = weightOf;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Without counting as a use. */
  get(key: K): V | undefined {
    return this.#entries.get(key);
  }

  /** As {@link get}; the entry is forgotten after all others then. */
  use(key: K): V | undefined {
    const value = this.#entries.get(key);
    if (value === undefined || value === this.#newest) return value;
    this.#newest = value;
    this.#entries.delete(key);
    this.#entries.set(key, value);
    return value;
  }

  /** Adds an entry, or replaces the one of that key; it may be the first one to be forgotten, if it is too large. */
  set(key: K, value: V): void {
    this.delete(key);
    this.#newest = undefined;
    this.#entries.set(key, value);
    this.#weight += this.#weightOf(key, value);
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#maxEntries && this.#weight <= this.#maxWeight) break;
      this.delete(oldest);
    }
  }

  delete(key: K): boolean {
    const value = this.#entries.get(key);
    if (value === undefined) return false;
    if (value === this.#newest) this.#newest = undefined;
    this.#weight -= this.#weightOf(key, value);
    return this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
    this.#weight = 0;
    this.#newest = undefined;
  }
}
