export interface Bounds<K, V> {
  readonly maxEntries: number;
  /** In units of {@link weightOf}. Default: no limit. */
  readonly maxWeight?: number;
  /** What an entry counts towards {@link maxWeight}. Default: nothing. */
  readonly weightOf?: (key: K, value: V) => number;
}

const NONE: readonly never[] = [];

/**
 * A map that forgets the entries that were added or used longest ago, when it has more than it may. The last one stays,
 * whatever its weight. Who keeps entries for a time only asks of those found how old they are.
 */
export class BoundedMap<K, V> {
  readonly #entries = new Map<K, V>();
  readonly #maxEntries: number;
  readonly #maxWeight: number;
  readonly #weightOf: (key: K, value: V) => number;
  #weight = 0;

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
    if (value === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, value);
    return value;
  }

  /** Adds an entry, or replaces the one of that key. @returns the values that have been forgotten for it, oldest first */
  set(key: K, value: V): readonly V[] {
    this.restore(key, value);
    return this.#isFull ? this.#makeRoom() : NONE;
  }

  /** As {@link set}, for what has been here before and had room made for it then: nothing else is forgotten. */
  restore(key: K, value: V): void {
    this.delete(key);
    this.#entries.set(key, value);
    this.#weight += this.#weightOf(key, value);
  }

  delete(key: K): boolean {
    const value = this.#entries.get(key);
    if (value === undefined) return false;
    this.#weight -= this.#weightOf(key, value);
    return this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
    this.#weight = 0;
  }

  /** What was added or used longest ago comes first. */
  entries(): IterableIterator<[K, V]> {
    return this.#entries.entries();
  }

  values(): IterableIterator<V> {
    return this.#entries.values();
  }

  get #isFull(): boolean {
    const { size } = this.#entries;
    return size > this.#maxEntries || (this.#weight > this.#maxWeight && size > 1);
  }

  #makeRoom(): V[] {
    const forgotten: V[] = [];
    for (const [key, value] of this.#entries) {
      if (!this.#isFull) break;
      this.delete(key);
      forgotten.push(value);
    }
    return forgotten;
  }
}
