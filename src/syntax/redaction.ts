import {
  commentEnd,
  isIdentifier,
  isQuoted,
  isQuotedIdentifier,
  isString,
  Lexer,
  type LexerOptions,
  Token,
  type TokenKind,
} from './scanner.ts';

const REDACTED = "'***'";

const API_KEY = /pst_[0-9A-Za-z]{8,}/g;
/** The user and the password of a URL, as libpq reads one: neither contains `@` or `/`. */
const URL_PASSWORD = /(:\/\/[^\s:@/]*):[^\s@/]*@/g;

/**
 * Masks API keys, passwords in URLs, and literals that may be passwords.
 * @param holdsPassword the result of {@link mayHoldPassword} for the whole text, where `sql` is only its beginning
 */
export function redactSecrets(sql: string, holdsPassword = mayHoldPassword(sql)): string {
  const redacted = holdsPassword ? redactLiterals(sql, 0) : sql;
  return redacted.replace(API_KEY, 'pst_***').replace(URL_PASSWORD, '$1:***@');
}

/** One pattern for all secrets, because a text may be long. */
const SECRET = /passw|pst_[0-9A-Za-z]{8}|:\/\/[^\s:@/]*:[^\s@/]*@/i;

export function mayHoldSecret(sql: string): boolean {
  return SECRET.test(sql);
}

/**
 * Masks literals that may be passwords. The text does not show which literal is one: `PASSWORD 'x'` has one, but so have
 * `format('… PASSWORD %L', 'x')`, `set password_hash = crypt('x', …)`, `insert into users (name, password) values
 * ('n', 'x')` and `p := 'x'; execute '… PASSWORD ' || p`. So if "passw" occurs anywhere, every literal becomes `'***'`
 * and comments are removed. Code remains, in dollar-quoted function bodies too.
 */
export function redactPasswords(sql: string): string {
  return mayHoldPassword(sql) ? redactLiterals(sql, 0) : sql;
}

/** Function bodies nest in function bodies. A body nested more deeply is masked as a whole, which limits the recursion. */
const NESTED_MAX = 20;

export function mayHoldPassword(sql: string): boolean {
  return /passw/i.test(sql);
}

function redactLiterals(sql: string, depth: number): string {
  const out: string[] = [];
  const lexer = new Lexer(sql);
  let previous = '';
  let first = '';
  for (let tokenEnd = 0; ; tokenEnd = lexer.end) {
    const kind = lexer.next();
    out.push(withoutComments(sql, tokenEnd, lexer.start));
    if (kind === Token.End) break;
    const text = sql.slice(lexer.start, lexer.end);
    if (kind === Token.DollarString)
      out.push(depth < NESTED_MAX && isFunctionBody(first, previous) ? redactBody(text, depth + 1) : REDACTED);
    else out.push(isString(kind) || kind === Token.BitString || isMisquotedPassword(kind, previous) ? REDACTED : text);
    // With `standard_conforming_strings` off, a literal with a backslash may end elsewhere. So nothing after it is recorded.
    if (kind === Token.String && text.includes('\\')) break;
    if (isIdentifier(kind)) first ||= text;
    previous = text;
    if (text === ';') first = '';
  }
  return out.join('');
}

/** The text between two tokens, with a space in place of each comment. */
function withoutComments(sql: string, from: number, to: number): string {
  let spaces = '';
  let at = from;
  for (let next = from; next < to; ) {
    const end = commentEnd(sql, next);
    if (end === next) {
      next += 1;
      continue;
    }
    spaces += `${sql.slice(at, next)} `;
    at = next = end;
  }
  return spaces + sql.slice(at, to);
}

/** `PASSWORD "x"` is a syntax error in PostgreSQL, but other databases accept it. The failed statement is recorded too. */
export function isMisquotedPassword(kind: TokenKind, previous: string): boolean {
  return isQuotedIdentifier(kind) && /^password$/i.test(previous);
}

/** Whether a dollar-quoted string is the body of a function or of DO, and not a value. */
function isFunctionBody(firstWord: string, previous: string): boolean {
  return /^do$/i.test(firstWord) || (/^create$/i.test(firstWord) && /^as$/i.test(previous));
}

function redactBody(text: string, depth: number): string {
  const quote = text.slice(0, text.indexOf('$', 1) + 1);
  const end = text.length >= 2 * quote.length && text.endsWith(quote) ? text.length - quote.length : text.length;
  return quote + redactLiterals(text.slice(quote.length, end), depth) + text.slice(end);
}

/** The rest of a longer text stays as it is, because reading it would block the event loop. */
const TOKENS_MAX = 20_000;

/**
 * Changes an SQL text outside its literals. Strings (also function bodies), quoted identifiers and comments stay as they are. So
 * does the part after {@link TOKENS_MAX} tokens.
 * @param change gets the code with a NUL, a number and a NUL in place of each literal
 * @param isCode whether a string or quoted identifier counts as code all the same
 */
export function replaceOutsideLiterals(
  text: string,
  change: (code: string) => string,
  isCode: (token: string, kind: TokenKind) => boolean,
  options?: LexerOptions,
): string {
  // The server refuses a text with NUL, and a NUL could not be told from a placeholder.
  if (text.includes('\0')) return text;
  const kept: string[] = [];
  let code = '';
  let from = 0;
  let inCode = true;
  const add = (end: number) => {
    const piece = text.slice(from, end);
    code += inCode ? piece : `\0${kept.push(piece) - 1}\0`;
    from = end;
  };
  /** Consecutive tokens of the same sort are one piece, because a text may have a million tokens. */
  const switchTo = (at: number, isNowCode: boolean) => {
    if (isNowCode !== inCode) add(at);
    inCode = isNowCode;
  };
  let at = 0;
  const keepComments = (start: number) => {
    if (start > at && /\S/.test(text.slice(at, start))) switchTo(at, false);
  };
  const lexer = new Lexer(text, options);
  let read = 0;
  while (lexer.next() !== Token.End) {
    const { kind, start, end } = lexer;
    keepComments(start);
    read += 1;
    if (read > TOKENS_MAX) {
      switchTo(start, false);
      break;
    }
    switchTo(start, !isQuoted(kind) || isCode(text.slice(start, end), kind));
    at = end;
  }
  if (read <= TOKENS_MAX) keepComments(text.length);
  add(text.length);
  return change(code).replace(/\0(\d+)\0/g, (_, index: string) => kept[Number(index)] ?? '');
}
