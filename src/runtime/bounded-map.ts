export interface Bounds<K, V> {
  readonly maxEntries: number;
  /** In units of {@link weightOf}. Default: no limit. */
  readonly maxWeight?: number;
  /** What an entry counts towards {@link maxWeight}. Default: nothing. */
  readonly weightOf?: (key: K, value: V) => number;
}

interface Entry<K, V> {
  readonly key: K;
  value: V;
  older: Entry<K, V> | undefined;
  newer: Entry<K, V> | undefined;
}

const NONE: readonly never[] = [];

/**
 * A map with a limit, by number and by weight. Beyond the limit it forgets the entries that were added or used longest ago. The newest
 * entry always stays, whatever its weight. Entries do not expire: a caller that wants them to stores the time and checks it.
 *
 * The order of use is a linked list. To move an entry to the end of a `Map`, it would have to be deleted and added, which costs ten
 * times as much.
 */
export class BoundedMap<K, V> {
  readonly #entries = new Map<K, Entry<K, V>>();
  readonly #maxEntries: number;
  readonly #maxWeight: number;
  readonly #weightOf: (key: K, value: V) => number;
  #weight = 0;
  #oldest: Entry<K, V> | undefined;
  #newest: Entry<K, V> | undefined;

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
    return this.#entries.get(key)?.value;
  }

  /** As {@link get}; the entry is forgotten after all others then. */
  use(key: K): V | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#renew(entry);
    return entry.value;
  }

  /** Adds an entry, or replaces the one of that key. @returns the values that have been forgotten for it, oldest first */
  set(key: K, value: V): readonly V[] {
    this.restore(key, value);
    return this.#isFull ? this.#makeRoom() : NONE;
  }

  /** As {@link set}, for what has been here before and had room made for it then: nothing else is forgotten. */
  restore(key: K, value: V): void {
    const known = this.#entries.get(key);
    this.#weight += this.#weightOf(key, value);
    if (known === undefined) {
      const entry = { key, value, older: undefined, newer: undefined };
      this.#entries.set(key, entry);
      this.#append(entry);
    } else {
      this.#weight -= this.#weightOf(key, known.value);
      known.value = value;
      this.#renew(known);
    }
  }

  delete(key: K): boolean {
    const entry = this.#entries.get(key);
    if (entry === undefined) return false;
    this.#weight -= this.#weightOf(key, entry.value);
    this.#remove(entry);
    return this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
    this.#oldest = undefined;
    this.#newest = undefined;
    this.#weight = 0;
  }

  /** What was added or used longest ago comes first. The entry that has just been returned may be deleted. */
  *entries(): IterableIterator<[K, V]> {
    for (let entry = this.#oldest; entry !== undefined; entry = entry.newer) yield [entry.key, entry.value];
  }

  /** As {@link entries}. */
  *values(): IterableIterator<V> {
    for (const [, value] of this.entries()) yield value;
  }

  #renew(entry: Entry<K, V>): void {
    if (entry === this.#newest) return;
    this.#remove(entry);
    this.#append(entry);
  }

  #append(entry: Entry<K, V>): void {
    entry.older = this.#newest;
    entry.newer = undefined;
    if (this.#newest === undefined) this.#oldest = entry;
    else this.#newest.newer = entry;
    this.#newest = entry;
  }

  #remove({ older, newer }: Entry<K, V>): void {
    if (older === undefined) this.#oldest = newer;
    else older.newer = newer;
    if (newer === undefined) this.#newest = older;
    else newer.older = older;
  }

  get #isFull(): boolean {
    const { size } = this.#entries;
    return size > this.#maxEntries || (this.#weight > this.#maxWeight && size > 1);
  }

  #makeRoom(): V[] {
    const forgotten: V[] = [];
    for (const [key, value] of this.entries()) {
      if (!this.#isFull) break;
      this.delete(key);
      forgotten.push(value);
    }
    return forgotten;
  }
}
