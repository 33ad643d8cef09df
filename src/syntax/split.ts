import { Code } from './characters.ts';
import { Lexer, type LexerOptions, Token } from './scanner.ts';
import { Blank } from './token-ends.ts';

export interface SqlStatement {
  /** Without the semicolon that ends it and without comments before its first token. */
  readonly text: string;
  /** Where it begins in the whole text, in UTF-16 units. */
  readonly start: number;
}

/** What is read until then takes some tenths of a millisecond. */
const TOKENS_AT_ONCE = 1_024;
const BLANK_CHARACTERS_AT_ONCE = 65_536;

/**
 * Splits SQL text into statements where psql would: at semicolons outside quotes, comments, parentheses and the
 * `BEGIN ATOMIC … END` bodies of CREATE FUNCTION and CREATE PROCEDURE. Empty statements are left out. Yields nothing, too, where it
 * has read for a while without having found one.
 * @see https://www.postgresql.org/docs/current/app-psql.html
 */
export function* eachStatement(sql: string, options: LexerOptions = {}): Generator<SqlStatement | undefined, void> {
  let read = 0;
  let start = -1;
  let end = 0;
  let nesting = new Nesting();
  for (const lexer of eachToken(sql, options)) {
    if (lexer === undefined) {
      yield undefined;
      continue;
    }
    const { kind } = lexer;
    const mark = kind === Token.Punctuation ? sql.charCodeAt(lexer.start) : 0;
    read += 1;
    if (read % TOKENS_AT_ONCE === 0) yield undefined;
    if (mark === Code.Semicolon && nesting.isOutside) {
      if (start >= 0) yield { text: sql.slice(start, end), start };
      start = -1;
      nesting = new Nesting();
      continue;
    }
    if (start < 0) start = lexer.start;
    end = lexer.end;
    if (kind === Token.Word && nesting.caresForWords) nesting.word(sql.slice(lexer.start, end).toUpperCase());
    else nesting.other(mark);
  }
  if (start >= 0) yield { text: sql.slice(start, end), start };
}

/** A lexer that stands at one token after the other; undefined in between, for each part of much white space and comments. */
function* eachToken(sql: string, options: LexerOptions): Generator<Lexer | undefined, void> {
  const lexer = new Lexer(sql, options);
  const blank = new Blank();
  for (;;) {
    const { end } = lexer;
    lexer.moveTo(blank.skip(sql, end, Math.min(end + BLANK_CHARACTERS_AT_ONCE, sql.length)));
    if (blank.isInComment && lexer.end >= sql.length) return;
    if (blank.isInComment || lexer.end - end >= BLANK_CHARACTERS_AT_ONCE) yield undefined;
    else if (lexer.next() === Token.End) return;
    else yield lexer;
  }
}

const ROUTINE = /^CREATE (OR REPLACE )?(FUNCTION|PROCEDURE) /;
const ROUTINE_WORDS = 4;

/** How deep inside parentheses and `BEGIN ATOMIC` the reader of one statement is. */
class Nesting {
  #parentheses = 0;
  #blocks = 0;
  #words = 0;
  #opening = '';
  #previous = '';

  get isOutside(): boolean {
    return this.#parentheses === 0 && this.#blocks === 0;
  }

  /** Whether this can be, or is, a statement with a body. */
  get caresForWords(): boolean {
    return this.#words < ROUTINE_WORDS || ROUTINE.test(this.#opening);
  }

  word(word: string): void {
    this.#words += 1;
    if (this.#words <= ROUTINE_WORDS) this.#opening += `${word} `;
    if (this.#parentheses === 0 && ROUTINE.test(this.#opening)) this.#block(word);
    this.#previous = word;
  }

  /** Anything but a word. @param mark its character; 0 for what is no punctuation */
  other(mark: number): void {
    if (mark === Code.Open) this.#parentheses += 1;
    else if (mark === Code.Close && this.#parentheses > 0) this.#parentheses -= 1;
    this.#previous = '';
  }

  /** CASE is closed by END as well, so inside a block it counts too. */
  #block(word: string): void {
    if (word === 'ATOMIC' && this.#previous === 'BEGIN') this.#blocks += 1;
    else if (this.#blocks > 0 && word === 'CASE') this.#blocks += 1;
    else if (this.#blocks > 0 && word === 'END') this.#blocks -= 1;
  }
}
