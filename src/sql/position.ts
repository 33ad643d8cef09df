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
  return placeAt(sql, offsetOf(sql, position));
}

/** The line and column of an offset in UTF-16 units. */
export function placeAt(sql: string, offset: number): TextPlace {
  const lines = sql.slice(0, offset).split('\n');
  return { line: lines.length, column: [...(lines.at(-1) ?? '')].length + 1 };
}

/**
 * Where in the whole text one of its statements went wrong: at the position that the error names, else where it begins.
 * @param start where the statement begins, in UTF-16 units
 */
export function placeOfError(sql: string, start: number, error: unknown): TextPlace {
  const position = error instanceof PostgresError ? error.fields.position : undefined;
  return placeAt(sql, position === undefined ? start : start + offsetOf(sql.slice(start), position));
}

/** Characters are code points there, and UTF-16 units here. */
function offsetOf(text: string, position: number): number {
  let offset = 0;
  for (let left = position - 1; left > 0 && offset < text.length; left--) {
    offset += (text.codePointAt(offset) ?? 0) > 0xffff ? 2 : 1;
  }
  return offset;
}
