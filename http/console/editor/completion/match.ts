/** How well a name answers what is typed; 0: it does not. Without anything typed all names are equal. */
export function matchScore(name: string, typed: string): number {
  if (typed === '') return 1;
  const lower = name.toLowerCase();
  const at = lower.indexOf(typed);
  if (at === 0) return lower.length === typed.length ? 4 : 3;
  if (at < 0) return 0;
  return WORD_END.test(lower.charAt(at - 1)) ? 2 : typed.length > 1 ? 1 : 0;
}

const WORD_END = /[^a-z0-9]/;
/** More than the difference between two kinds of names. */
const MATCH_WEIGHT = 10;

interface Candidate<T> {
  readonly score: number;
  readonly name: string;
  readonly make: () => T;
}

/** Keeps what answers best. Only of that anything is made. */
export class Ranking<T> {
  readonly #typed: string;
  readonly #candidates: Candidate<T>[] = [];

  constructor(typed: string) {
    this.#typed = typed.toLowerCase();
  }

  /** @param weight of this kind of names, up to 9 */
  add<Item>(items: Iterable<Item>, weight: number, nameOf: (item: Item) => string, make: (item: Item) => T): void {
    for (const item of items) {
      const name = nameOf(item);
      const match = matchScore(name, this.#typed);
      if (match > 0) this.#candidates.push({ score: match * MATCH_WEIGHT + weight, name, make: () => make(item) });
    }
  }

  best(count: number): T[] {
    const ordered = this.#candidates.sort((a, b) => b.score - a.score || a.name.length - b.name.length || (a.name < b.name ? -1 : 1));
    return ordered.slice(0, count).map(({ make }) => make());
  }

  get isEmpty(): boolean {
    return this.#candidates.length === 0;
  }
}
