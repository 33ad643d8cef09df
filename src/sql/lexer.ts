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
  | 'symbol';

export interface Token {
  readonly kind: TokenKind;
  /** Offsets in UTF-16 units: `sql.slice(start, end)` is the token. */
  readonly start: number;
  readonly end: number;
}

export interface LexerOptions {
  /** `standard_conforming_strings`: off makes a backslash in `'…'` an escape. Default true. */
  readonly standardStrings?: boolean;
}

const WHITESPACE = /[ \t\n\r\f\v]*/y;
const LINE_COMMENT = /--[^\n\r]*/y;
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
  let start = skipBlank(sql, from);
  while (start < sql.length) {
    const token = tokenAt(sql, start, options.standardStrings ?? true);
    yield token;
    start = skipBlank(sql, token.end);
  }
}

/** The words with which the text begins, in upper case, as far as they stand side by side; leading semicolons count for nothing. */
export function leadingWords(sql: string, count: number): readonly string[] {
  const words: string[] = [];
  for (const { kind, start, end } of tokens(sql)) {
    if (words.length === 0 && sql[start] === ';') continue;
    if (kind !== 'word') break;
    words.push(sql.slice(start, end).toUpperCase());
    if (words.length === count) break;
  }
  return words;
}

function tokenAt(sql: string, start: number, standardStrings: boolean): Token {
  const first = sql[start];
  if (first === "'") return { kind: 'string', start, end: endOfString(sql, start, !standardStrings) };
  if (first === '"') return { kind: 'quotedIdentifier', start, end: endOfQuoted(sql, start, '"', false) };
  const prefix = match(PREFIXED_QUOTE, sql, start);
  if (prefix > 0) {
    const quote = start + prefix;
    if (sql[quote] === '"') return { kind: 'quotedIdentifier', start, end: endOfQuoted(sql, quote, '"', false) };
    const escapes = /[eE]/.test(first ?? '') || (!standardStrings && /[nN]/.test(first ?? ''));
    return { kind: 'string', start, end: endOfString(sql, quote, escapes) };
  }
  const word = match(IDENTIFIER, sql, start);
  if (word > 0) return { kind: 'word', start, end: start + word };
  const number = match(NUMBER, sql, start);
  if (number > 0) return { kind: 'number', start, end: start + number };
  const parameter = match(PARAMETER, sql, start);
  if (parameter > 0) return { kind: 'parameter', start, end: start + parameter };
  const tag = match(DOLLAR_QUOTE, sql, start);
  if (tag > 0) return { kind: 'string', start, end: endOfDollarQuoted(sql, start, tag) };
  return { kind: 'symbol', start, end: start + 1 };
}

function skipBlank(sql: string, from: number): number {
  let at = from;
  for (;;) {
    const before = at;
    at += match(WHITESPACE, sql, at);
    at += match(LINE_COMMENT, sql, at);
    if (sql.startsWith('/*', at)) at = endOfBlockComment(sql, at);
    if (at === before) return at;
  }
}

/** Block comments nest. */
function endOfBlockComment(sql: string, start: number): number {
  const marks = /\/\*|\*\//g;
  marks.lastIndex = start;
  let depth = 0;
  for (let mark = marks.exec(sql); mark !== null; mark = marks.exec(sql)) {
    depth += mark[0] === '/*' ? 1 : -1;
    if (depth === 0) return marks.lastIndex;
  }
  return sql.length;
}

/** A string may go on after a line break, by the rules of its first part. */
function endOfString(sql: string, quote: number, escapes: boolean): number {
  let end = endOfQuoted(sql, quote, "'", escapes);
  for (let more = match(CONTINUATION, sql, end); more > 0; more = match(CONTINUATION, sql, end)) {
    end = endOfQuoted(sql, end + more - 1, "'", escapes);
  }
  return end;
}

/** A doubled quote stands for itself, and so does what follows a backslash where those are escapes. */
function endOfQuoted(sql: string, open: number, quote: string, escapes: boolean): number {
  const marks = escapes ? /[\\']/g : new RegExp(quote, 'g');
  marks.lastIndex = open + 1;
  for (let mark = marks.exec(sql); mark !== null; mark = marks.exec(sql)) {
    if (mark[0] !== '\\' && sql[marks.lastIndex] !== quote) return marks.lastIndex;
    marks.lastIndex += 1;
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
  return pattern.exec(sql)?.[0].length ?? 0;
}
