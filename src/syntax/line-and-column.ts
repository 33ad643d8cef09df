import { PostgresError } from '../protocol/backend.ts';

export interface LineAndColumn {
  /** Counts from 1. */
  readonly line: number;
  /** Counts characters, from 1. */
  readonly column: number;
}

/**
 * The line and column of a position in SQL text. ErrorResponse counts positions in characters (code points), from 1.
 * @see https://www.postgresql.org/docs/current/protocol-error-fields.html
 */
export function lineAndColumn(sql: string, position: number): LineAndColumn {
  return new LineCounter(sql).skip(position - 1);
}

/** The line and column of an offset in UTF-16 units. */
export function lineAndColumnAt(sql: string, offset: number): LineAndColumn {
  return new LineCounter(sql).at(offset);
}

/** Gives the lines and columns of several ascending offsets, and reads the text only once for all of them. */
export class LineCounter {
  readonly #sql: string;
  #line = 1;
  #at = 0;
  #column = 1;

  constructor(sql: string) {
    this.#sql = sql;
  }

  /** @param offset in UTF-16 units, not less than that of the previous call */
  at(offset: number): LineAndColumn {
    return this.#read(offset, Number.POSITIVE_INFINITY);
  }

  /** Moves on by that many characters. */
  skip(characters: number): LineAndColumn {
    return this.#read(this.#sql.length, characters);
  }

  /** Moves on to the offset, or by that many characters, whichever comes first. */
  #read(offset: number, characters: number): LineAndColumn {
    const sql = this.#sql;
    const end = Math.min(offset, sql.length);
    let left = characters;
    let at = this.#at;
    let line = this.#line;
    let column = this.#column;
    for (; at < end; at += 1) {
      const code = sql.charCodeAt(at);
      if (code >= 0xdc00 && isLowSurrogate(sql, at, code)) continue;
      if (left <= 0) break;
      left -= 1;
      column += 1;
      if (code !== NEWLINE) continue;
      line += 1;
      column = 1;
    }
    this.#at = at;
    this.#line = line;
    this.#column = column;
    return { line, column };
  }
}

const NEWLINE = 0x0a;

/** Whether this unit ends a surrogate pair, which is one character. */
function isLowSurrogate(sql: string, at: number, code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff && (sql.charCodeAt(at - 1) & 0xfc00) === 0xd800;
}

/**
 * The line and column, in the whole text, of an error in one of its statements. Without a position in the error, it is where the
 * statement begins.
 * @param start offset of the statement, in UTF-16 units
 */
export function lineAndColumnOfError(sql: string, start: number, error: unknown): LineAndColumn {
  const position = error instanceof PostgresError ? error.fields.position : undefined;
  const counter = new LineCounter(sql);
  const statementStart = counter.at(start);
  return position === undefined ? statementStart : counter.skip(position - 1);
}
