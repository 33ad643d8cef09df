import { Code } from './characters.ts';
import { Lexer, Token } from './scanner.ts';
import { skipBlank } from './token-ends.ts';

/** So much of a text is looked at for its first words. */
export const BEGINNING_MAX_CHARACTERS = 262_144;

/** Of a long text the part in which its first words have to stand. */
export function beginningOf(sql: string): string {
  return sql.length > BEGINNING_MAX_CHARACTERS ? sql.slice(0, BEGINNING_MAX_CHARACTERS) : sql;
}

/**
 * Where the first token stands that is no semicolon, which count for nothing there; the end of the text, or of its
 * {@link beginningOf beginning}, where there is none.
 */
export function startOfStatement(sql: string): number {
  const text = beginningOf(sql);
  let start = skipBlank(text, 0);
  while (text.charCodeAt(start) === Code.Semicolon) start = skipBlank(text, start + 1);
  return start;
}

/** The words with which the text begins, in upper case, as far as they stand side by side, and in its {@link beginningOf beginning}. */
export function leadingWords(sql: string, count: number): readonly string[] {
  const words: string[] = [];
  const text = beginningOf(sql);
  const lexer = new Lexer(text, { offset: startOfStatement(text) });
  while (words.length < count && lexer.next() === Token.Word) words.push(text.slice(lexer.start, lexer.end).toUpperCase());
  return words;
}
