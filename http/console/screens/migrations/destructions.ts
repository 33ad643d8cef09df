import { findDestruction } from '../../../../src/syntax/destructive-statements.ts';
import { eachStatement } from '../../../../src/syntax/statements.ts';

/** What destroys data, or fails where there is some. */
export interface FoundDestruction {
  readonly line: number;
  readonly message: string;
}

export interface Script {
  readonly statements: number;
  readonly destructions: readonly FoundDestruction[];
}

/** Longer texts are left to the dry run: this is done at every key. */
const READ_MAX_CHARACTERS = 200_000;
const DESTRUCTIONS_MAX = 100;

/** @returns undefined for a text that is too long to be read here */
export function readScript(sql: string): Script | undefined {
  if (sql.length > READ_MAX_CHARACTERS) return undefined;
  const destructions: FoundDestruction[] = [];
  const lines = new LineCounter(sql);
  let statements = 0;
  for (const statement of eachStatement(sql)) {
    if (statement === undefined) continue;
    statements += 1;
    for (const { message, offset } of findDestruction(statement.text)) {
      if (destructions.length < DESTRUCTIONS_MAX) destructions.push({ message, line: lines.at(statement.start + offset) });
    }
  }
  return { statements, destructions };
}

/** The lines of ascending offsets; the text is read once for all of them. */
class LineCounter {
  readonly #sql: string;
  #read = 0;
  #line = 1;

  constructor(sql: string) {
    this.#sql = sql;
  }

  at(offset: number): number {
    for (let next = this.#sql.indexOf('\n', this.#read); next >= 0 && next < offset; next = this.#sql.indexOf('\n', this.#read)) {
      this.#line += 1;
      this.#read = next + 1;
    }
    return this.#line;
  }
}
