import { isIdentifier, isQuotedIdentifier, isString, Lexer, Token, type TokenKind } from './tokens/scanner.ts';
import { commentEnd } from './tokens/whitespace-and-comments.ts';

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
