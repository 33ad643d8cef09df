import { PostgresError } from '../protocol/backend.ts';

export interface TextPlace {
  /** From 1. */
  readonly line: number;
  /** In characters, from 1. */
  readonly column: number;
}

/**
 * The line and column of a position in SQL text, as ErrorResponse counts it: in characters (code points), from 1.
 * @see https://www.postgresql.org/docs/current/protocol-error-fields.html
 */
export function lineAndColumn(sql: string, position: number): TextPlace {
  return new Places(sql).skip(position - 1);
}

/** The line and column of an offset in UTF-16 units. */
export function placeAt(sql: string, offset: number): TextPlace {
  return new Places(sql).at(offset);
}

/** The lines and columns of several offsets, from the first one on: a text is gone through once for all of them. */
export class Places {
  readonly #sql: string;
  #line = 1;
  #at = 0;
  #column = 1;

  constructor(sql: string) {
    this.#sql = sql;
  }

  /** @param offset not before the last one that was asked for */
  at(offset: number): TextPlace {
    return this.#read(offset, Number.POSITIVE_INFINITY);
  }

  /** So many characters on. */
  skip(characters: number): TextPlace {
    return this.#read(this.#sql.length, characters);
  }

  /** Goes on to the offset, or by so many characters if that is less. */
  #read(offset: number, characters: number): TextPlace {
    const sql = this.#sql;
    const end = Math.min(offset, sql.length);
    let left = characters;
    let at = this.#at;
    let line = this.#line;
    let column = this.#column;
    for (; at < end; at += 1) {
      const code = sql.charCodeAt(at);
      if (code >= 0xdc00 && isSecondHalf(sql, at, code)) continue;
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

/** Of a surrogate pair, which is one character. */
function isSecondHalf(sql: string, at: number, code: number): boolean {
  return code >= 0xdc00 && code <= 0xdfff && (sql.charCodeAt(at - 1) & 0xfc00) === 0xd800;
}

/**
 * Where in the whole text one of its statements went wrong: at the position that the error names, else where it begins.
 * @param start where the statement begins, in UTF-16 units
 */
export function placeOfError(sql: string, start: number, error: unknown): TextPlace {
  const position = error instanceof PostgresError ? error.fields.position : undefined;
  const places = new Places(sql);
  const begins = places.at(start);
  return position === undefined ? begins : places.skip(position - 1);
}
