import { Code } from './tokens/characters.ts';
import { Lexer, Token } from './tokens/scanner.ts';
import { skipWhitespace } from './tokens/whitespace-and-comments.ts';

/** Only this much of a text is searched for its first keywords. */
export const BEGINNING_MAX_CHARACTERS = 262_144;

/** The part of a text in which its first keywords have to stand. */
export function beginningOf(sql: string): string {
  return sql.length > BEGINNING_MAX_CHARACTERS ? sql.slice(0, BEGINNING_MAX_CHARACTERS) : sql;
}

/**
 * The offset of the first token that is not a semicolon: semicolons before it end empty statements. Without such a token this is
 * the end of the text, or of its {@link beginningOf beginning}.
 */
export function startOfStatement(sql: string): number {
  const text = beginningOf(sql);
  let start = skipWhitespace(text, 0);
  while (text.charCodeAt(start) === Code.Semicolon) start = skipWhitespace(text, start + 1);
  return start;
}

/**
 * The keywords and unquoted identifiers with which the text begins, in upper case, up to the first token of another kind. Only the
 * {@link beginningOf beginning} of the text is read.
 */
export function leadingKeywords(sql: string, count: number): readonly string[] {
  const keywords: string[] = [];
  const text = beginningOf(sql);
  const lexer = new Lexer(text, { offset: startOfStatement(text) });
  while (keywords.length < count && lexer.next() === Token.Word) keywords.push(text.slice(lexer.start, lexer.end).toUpperCase());
  return keywords;
}

/** Whether the text begins with EXPLAIN. */
export function isExplain(sql: string): boolean {
  return leadingKeywords(sql, 1)[0] === 'EXPLAIN';
}
