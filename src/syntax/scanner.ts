import { Blank, skipBlank } from './token-ends.ts';

export type TokenKind =
  /** An unquoted identifier or key word. */
  | 'word'
  /** `"name"`, `U&"name"`. */
  | 'quotedIdentifier'
  /** Any string constant: `'…'`, `E'…'`, `B'…'`, `$tag$…$tag$`. */
  | 'string'
  | 'number'
  /** `$1` */
  | 'parameter'
  /** One character of an operator or of punctuation. */
  | 'symbol'
  /** A part of much white space and comments; only where it is asked for. */
  | 'blank';

export interface Token {
  readonly kind: TokenKind;
  /** Offsets in UTF-16 units: `sql.slice(start, end)` is the token. */
  readonly start: number;
  readonly end: number;
}

export interface LexerOptions {
  /** `standard_conforming_strings`: off makes a backslash in `'…'` an escape. Default true. */
  readonly standardStrings?: boolean;
  /** Much white space is told of in parts, for who has to give way meanwhile. */
  readonly blanks?: boolean;
}

const BLANK_CHARACTERS = 65_536;

const IDENTIFIER = /[A-Za-z_\u0080-\uffff][A-Za-z0-9_$\u0080-\uffff]*/y;
const NUMBER = /[0-9][0-9A-Za-z_.]*/y;
const PARAMETER = /\$[0-9]+/y;
const DOLLAR_QUOTE = /\$(?:[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*)?\$/y;
const PREFIXED_QUOTE = /(?:[eEbBxXnN]|[uU]&)(?=')|[uU]&(?=")/y;
/** What may stand between the parts of one string constant: white space with at least one line break. */
const CONTINUATION = /[ \t\f\v]*[\n\r][ \t\n\r\f\v]*'/y;

/**
 * The tokens of SQL text as Postgres' own scanner sees them, without white space and comments. What is never closed (a
 * quote, a comment) reaches to the end of the text: Postgres will say so.
 * @see https://www.postgresql.org/docs/current/sql-syntax-lexical.html
 */
export function* tokens(sql: string, options: LexerOptions = {}, from = 0): Generator<Token, undefined> {
  const { standardStrings = true, blanks = false } = options;
  const most = blanks ? BLANK_CHARACTERS : sql.length;
  const blank = new Blank();
  for (let end = from; ; ) {
    const start = blank.skip(sql, end, Math.min(end + most, sql.length));
    if (start >= sql.length) return;
    const token: Token =
      blank.isInComment || start - end >= most ? { kind: 'blank', start: end, end: start } : tokenAt(sql, start, standardStrings);
    yield token;
    end = token.end;
  }
}

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
  while (text.charCodeAt(start) === SEMICOLON) start = skipBlank(text, start + 1);
  return start;
}

/** The words with which the text begins, in upper case, as far as they stand side by side, and in its {@link beginningOf beginning}. */
export function leadingWords(sql: string, count: number): readonly string[] {
  const words: string[] = [];
  const text = beginningOf(sql);
  let start = startOfStatement(text);
  while (words.length < count && match(IDENTIFIER, text, start) > 0) {
    const { kind, end } = tokenAt(text, start, true);
    if (kind !== 'word') break;
    words.push(text.slice(start, end).toUpperCase());
    start = skipBlank(text, end);
  }
  return words;
}

/** The first character tells nearly everything: scripts of many megabytes come this way. */
function tokenAt(sql: string, start: number, standardStrings: boolean): Token {
  const first = sql.charCodeAt(start);
  if (first === SINGLE_QUOTE) return { kind: 'string', start, end: endOfString(sql, start, !standardStrings) };
  if (first === DOUBLE_QUOTE) return { kind: 'quotedIdentifier', start, end: endOfQuoted(sql, start, DOUBLE_QUOTE, false) };
  if (first === DOLLAR) return dollar(sql, start);
  if (first >= 0x30 && first <= 0x39) return { kind: 'number', start, end: start + match(NUMBER, sql, start) };
  const word = first < 0x41 ? 0 : match(IDENTIFIER, sql, start);
  if (word === 0) return { kind: 'symbol', start, end: start + 1 };
  const prefix = word === 1 ? match(PREFIXED_QUOTE, sql, start) : 0;
  return prefix > 0 ? prefixed(sql, start, start + prefix, standardStrings) : { kind: 'word', start, end: start + word };
}

const [SINGLE_QUOTE, DOUBLE_QUOTE, DOLLAR, SEMICOLON, BACKSLASH] = [0x27, 0x22, 0x24, 0x3b, 0x5c];

/** @param quote where the quote behind the prefix stands */
function prefixed(sql: string, start: number, quote: number, standardStrings: boolean): Token {
  if (sql.charCodeAt(quote) === DOUBLE_QUOTE) return { kind: 'quotedIdentifier', start, end: endOfQuoted(sql, quote, DOUBLE_QUOTE, false) };
  const prefix = sql[start]?.toLowerCase();
  return { kind: 'string', start, end: endOfString(sql, quote, prefix === 'e' || (prefix === 'n' && !standardStrings)) };
}

function dollar(sql: string, start: number): Token {
  const parameter = match(PARAMETER, sql, start);
  if (parameter > 0) return { kind: 'parameter', start, end: start + parameter };
  const tag = match(DOLLAR_QUOTE, sql, start);
  if (tag > 0) return { kind: 'string', start, end: endOfDollarQuoted(sql, start, tag) };
  return { kind: 'symbol', start, end: start + 1 };
}

/** A string may go on after a line break, by the rules of its first part. */
function endOfString(sql: string, quote: number, escapes: boolean): number {
  let end = endOfQuoted(sql, quote, SINGLE_QUOTE, escapes);
  for (let more = match(CONTINUATION, sql, end); more > 0; more = match(CONTINUATION, sql, end)) {
    end = endOfQuoted(sql, end + more - 1, SINGLE_QUOTE, escapes);
  }
  return end;
}

/** A doubled quote stands for itself, and so does what follows a backslash where those are escapes. */
function endOfQuoted(sql: string, open: number, quote: number, escapes: boolean): number {
  for (let at = open + 1; at < sql.length; at += 1) {
    const code = sql.charCodeAt(at);
    if (code === quote && sql.charCodeAt(at + 1) !== quote) return at + 1;
    if (code === quote || (escapes && code === BACKSLASH)) at += 1;
  }
  return sql.length;
}

function endOfDollarQuoted(sql: string, start: number, tagLength: number): number {
  const close = sql.indexOf(sql.slice(start, start + tagLength), start + tagLength);
  return close < 0 ? sql.length : close + tagLength;
}

/** Length of the match at exactly this place, 0 for none. */
function match(pattern: RegExp, sql: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(sql) ? pattern.lastIndex - at : 0;
}
