import { Code, Lexer, type LexerOptions, skipWhitespace, Token, Whitespace } from './scanner.ts';

export interface SqlStatement {
  /** The statement without its semicolon, and without comments before its first token. */
  readonly text: string;
  /** The offset in the whole text, in UTF-16 units. */
  readonly start: number;
}

/** Reading this much takes some tenths of a millisecond. */
const TOKENS_AT_ONCE = 1_024;
const WHITESPACE_AT_ONCE_CHARACTERS = 65_536;

/**
 * Splits SQL text into statements as psql does: at semicolons outside quotes, comments, parentheses and the
 * `BEGIN ATOMIC … END` bodies of CREATE FUNCTION and CREATE PROCEDURE. Empty statements are omitted. A command of psql between two
 * statements, such as `\\restrict` in the files of pg_dump, is one by itself, up to the end of its line. If a statement is long, the
 * generator also yields `undefined` from time to time, so that the caller can give way to other work.
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
    if (start < 0 && kind === Token.Unknown && sql.charCodeAt(lexer.start) === Code.Backslash) {
      const text = psqlCommandAt(sql, lexer.start);
      yield { text, start: lexer.start };
      lexer.moveTo(lexer.start + text.length);
      continue;
    }
    if (start < 0) start = lexer.start;
    end = lexer.end;
    if (kind === Token.Word && nesting.readsKeywords) nesting.word(sql.slice(lexer.start, end).toUpperCase());
    else nesting.other(mark);
  }
  if (start >= 0) yield { text: sql.slice(start, end), start };
}

/** The line of a command of psql, without white space at its end. */
function psqlCommandAt(sql: string, start: number): string {
  const end = sql.indexOf('\n', start);
  return sql.slice(start, end < 0 ? sql.length : end).trimEnd();
}

/** Yields the lexer at each token. In long white space and comments it yields `undefined` after each part. */
function* eachToken(sql: string, options: LexerOptions): Generator<Lexer | undefined, void> {
  const lexer = new Lexer(sql, options);
  const whitespace = new Whitespace();
  for (;;) {
    const { end } = lexer;
    lexer.moveTo(whitespace.skip(sql, end, Math.min(end + WHITESPACE_AT_ONCE_CHARACTERS, sql.length)));
    if (whitespace.isInComment && lexer.end >= sql.length) return;
    if (whitespace.isInComment || lexer.end - end >= WHITESPACE_AT_ONCE_CHARACTERS) yield undefined;
    else if (lexer.next() === Token.End) return;
    else yield lexer;
  }
}

const ROUTINE = /^CREATE (OR REPLACE )?(FUNCTION|PROCEDURE) /;
const ROUTINE_KEYWORDS = 4;

/** How deeply the current token is nested in parentheses and `BEGIN ATOMIC` bodies. */
class Nesting {
  #parentheses = 0;
  #blocks = 0;
  #words = 0;
  #opening = '';
  #previous = '';

  get isOutside(): boolean {
    return this.#parentheses === 0 && this.#blocks === 0;
  }

  /** Whether the statement has, or may still turn out to have, a `BEGIN ATOMIC` body. */
  get readsKeywords(): boolean {
    return this.#words < ROUTINE_KEYWORDS || ROUTINE.test(this.#opening);
  }

  word(word: string): void {
    this.#words += 1;
    if (this.#words <= ROUTINE_KEYWORDS) this.#opening += `${word} `;
    if (this.#parentheses === 0 && ROUTINE.test(this.#opening)) this.#block(word);
    this.#previous = word;
  }

  /** Reads a token that is not a keyword or identifier. @param mark the character of a punctuation token, else 0 */
  other(mark: number): void {
    if (mark === Code.Open) this.#parentheses += 1;
    else if (mark === Code.Close && this.#parentheses > 0) this.#parentheses -= 1;
    this.#previous = '';
  }

  /** END closes CASE too, so CASE is counted inside a block. */
  #block(word: string): void {
    if (word === 'ATOMIC' && this.#previous === 'BEGIN') this.#blocks += 1;
    else if (this.#blocks > 0 && word === 'CASE') this.#blocks += 1;
    else if (this.#blocks > 0 && word === 'END') this.#blocks -= 1;
  }
}

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
