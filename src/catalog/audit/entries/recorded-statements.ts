import type { ObservedStatement } from '../../../observation.ts';

/** Of either generation, in characters of statements and of what was made of them. */
const CHARACTERS_MAX = 2_000_000;
const STATEMENT_CHARACTERS_MAX = 10_000;

interface Remembered extends ObservedStatement {
  readonly text: string;
}

/**
 * Remembers what was made of the statements that came lately: the same few come thousands of times a second. Has two
 * generations; when the younger one is full, it takes the place of the older one, which is forgotten.
 */
export class RecordedStatements {
  readonly #make: (statement: ObservedStatement) => string;
  readonly #mayKeep: (statement: ObservedStatement) => boolean;
  #younger = new Map<string, Remembered>();
  #older = new Map<string, Remembered>();
  #characters = 0;

  /** @param mayKeep asked of what is not remembered yet */
  constructor(make: (statement: ObservedStatement) => string, mayKeep: (statement: ObservedStatement) => boolean = () => true) {
    this.#make = make;
    this.#mayKeep = mayKeep;
  }

  textOf(statement: ObservedStatement): string {
    const { sql, sqlHash, command, paramCount } = statement;
    if (sqlHash !== undefined || sql.length > STATEMENT_CHARACTERS_MAX) return this.#make(statement);
    const young = this.#younger.get(sql);
    const known = young ?? this.#older.get(sql);
    if (known === undefined || known.command !== command || known.paramCount !== paramCount) {
      const text = this.#make(statement);
      return this.#mayKeep(statement) ? this.#remember({ ...statement, text }).text : text;
    }
    return young === undefined ? this.#remember(known).text : known.text;
  }

  #remember(known: Remembered): Remembered {
    this.#characters += known.sql.length + known.text.length;
    if (this.#characters > CHARACTERS_MAX) {
      this.#older = this.#younger;
      this.#younger = new Map();
      this.#characters = known.sql.length + known.text.length;
    }
    this.#younger.set(known.sql, known);
    return known;
  }
}
