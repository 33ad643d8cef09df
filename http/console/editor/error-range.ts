import { isIdentifier, Lexer, Token } from '../../../src/syntax/scanner.ts';

/** Offsets in UTF-16 units. */
interface Range {
  readonly from: number;
  readonly to: number;
}

/** What is wrong with a part of the text. */
export interface EditorError extends Range {
  readonly message: string;
}

/** The token at a place of an error, as far as it is in that line. @param line from 1 @param column in characters, from 1 */
export function rangeAtPlace(text: string, line: number, column: number): Range {
  let start = 0;
  for (let number = 1; number < line; number += 1) {
    const next = text.indexOf('\n', start);
    if (next < 0) break;
    start = next + 1;
  }
  return rangeAt(text, skipCharacters(text, start, column - 1));
}

/** The token at a position of an error. @param position as PostgreSQL gives it: in characters, from 1 @param start where its statement begins */
export function rangeAtPosition(text: string, position: number, start = 0): Range {
  return rangeAt(text, skipCharacters(text, start, position - 1));
}

/** The token, and what dots join to it: `orders.total`. */
function rangeAt(text: string, from: number): Range {
  const lineEnd = text.indexOf('\n', from);
  const lexer = new Lexer(text, { offset: from });
  let to = from + 1;
  if (lexer.next() !== Token.End && lexer.start === from) to = lexer.end;
  while (isIdentifier(lexer.kind) && text[to] === '.') {
    lexer.moveTo(to + 1);
    if (!isIdentifier(lexer.next()) || lexer.start !== to + 1) break;
    to = lexer.end;
  }
  return { from, to: Math.max(from, Math.min(to, lineEnd < 0 ? text.length : lineEnd)) };
}

/** @returns the offset in UTF-16 units, which may have two for a character */
function skipCharacters(text: string, from: number, characters: number): number {
  let at = from;
  for (let left = characters; left > 0 && at < text.length; left -= 1) at += (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
  return at;
}
