import { type LexerOptions, tokens } from './scanner.ts';

export interface SqlStatement {
  /** Without the semicolon that ends it and without comments before its first token. */
  readonly text: string;
  /** Where it begins in the whole text, in UTF-16 units. */
  readonly start: number;
}

/** What is read until then takes some tenths of a millisecond. */
const TOKENS_AT_ONCE = 1_024;

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
  for (const token of tokens(sql, { ...options, blanks: true })) {
    if (token.kind === 'blank') {
      yield undefined;
      continue;
    }
    const symbol = token.kind === 'symbol' ? sql[token.start] : undefined;
    read += 1;
    if (read % TOKENS_AT_ONCE === 0) yield undefined;
    if (symbol === ';' && nesting.isOutside) {
      if (start >= 0) yield { text: sql.slice(start, end), start };
      start = -1;
      nesting = new Nesting();
      continue;
    }
    if (start < 0) start = token.start;
    end = token.end;
    if (token.kind === 'word' && nesting.caresForWords) nesting.word(sql.slice(token.start, token.end).toUpperCase());
    else nesting.other(symbol);
  }
  if (start >= 0) yield { text: sql.slice(start, end), start };
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

  /** Anything but a word. */
  other(symbol: string | undefined): void {
    if (symbol === '(') this.#parentheses += 1;
    else if (symbol === ')' && this.#parentheses > 0) this.#parentheses -= 1;
    this.#previous = '';
  }

  /** CASE is closed by END as well, so inside a block it counts too. */
  #block(word: string): void {
    if (word === 'ATOMIC' && this.#previous === 'BEGIN') this.#blocks += 1;
    else if (this.#blocks > 0 && word === 'CASE') this.#blocks += 1;
    else if (this.#blocks > 0 && word === 'END') this.#blocks -= 1;
  }
}
