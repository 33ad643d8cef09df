import type { ObservedStatement } from '../../../observation.ts';
import { BoundedMap } from '../../../runtime/bounded-map.ts';

/** Limit of the statements and the texts made of them together. */
const CHARACTERS_MAX = 4_000_000;
const STATEMENT_CHARACTERS_MAX = 10_000;

interface Remembered extends ObservedStatement {
  readonly text: string;
}

/** Caches the text made of each recent statement, because the same few run thousands of times a second. */
export class StatementTextCache {
  readonly #make: (statement: ObservedStatement) => string;
  readonly #mayKeep: (statement: ObservedStatement) => boolean;
  readonly #known = new BoundedMap<string, Remembered>({
    maxEntries: Number.POSITIVE_INFINITY,
    maxWeight: CHARACTERS_MAX,
    weightOf: (sql, { text }) => sql.length + text.length,
  });

  /** @param mayKeep whether a statement may be cached */
  constructor(make: (statement: ObservedStatement) => string, mayKeep: (statement: ObservedStatement) => boolean = () => true) {
    this.#make = make;
    this.#mayKeep = mayKeep;
  }

  textOf(statement: ObservedStatement): string {
    const { sql, sqlHash, command, paramCount } = statement;
    if (sqlHash !== undefined || sql.length > STATEMENT_CHARACTERS_MAX) return this.#make(statement);
    const known = this.#known.use(sql);
    if (known !== undefined && known.command === command && known.paramCount === paramCount) return known.text;
    const text = this.#make(statement);
    if (this.#mayKeep(statement)) this.#known.set(sql, { ...statement, text });
    return text;
  }
}
