import { isIdentifier, isQuotedIdentifier, isString, Lexer, Token, type TokenKind } from './scanner.ts';
import { commentEnd } from './token-ends.ts';

const REDACTED = "'***'";

const API_KEY = /pst_[0-9A-Za-z]{8,}/g;
/** The user and the password of a URL, as libpq reads one: no `@` and no `/` stands in them. */
const URL_PASSWORD = /(:\/\/[^\s:@/]*):[^\s@/]*@/g;

/**
 * SQL without passwords in URLs, and API keys, wherever they stand, and without what may be passwords.
 * @param holdsPassword it does, as {@link mayHoldPassword} tells of all of a text of which this is the beginning
 */
export function redactSecrets(sql: string, holdsPassword = mayHoldPassword(sql)): string {
  const redacted = holdsPassword ? redactLiterals(sql, 0) : sql;
  return redacted.replace(API_KEY, 'pst_***').replace(URL_PASSWORD, '$1:***@');
}

/** Any of them, in one search: texts may be long. */
const SECRET = /passw|pst_[0-9A-Za-z]{8}|:\/\/[^\s:@/]*:[^\s@/]*@/i;

export function mayHoldSecret(sql: string): boolean {
  return SECRET.test(sql);
}

/**
 * SQL without literals that may be passwords. Which of them is one, nobody can tell: `PASSWORD 'x'` is, but so are the
 * x of `format('… PASSWORD %L', 'x')`, `set password_hash = crypt('x', …)`, `insert into users (name, password) values
 * ('n', 'x')` and `p := 'x'; execute '… PASSWORD ' || p`. So where "passw" occurs at all, every literal becomes `'***'`
 * and comments go; the code stays, also that between dollar quotes.
 */
export function redactPasswords(sql: string): string {
  return mayHoldPassword(sql) ? redactLiterals(sql, 0) : sql;
}

/** Code stands in code that stands in code; deeper than anybody writes it, it is taken for a value, and the stack has no end. */
const NESTED_MAX = 20;

export function mayHoldPassword(sql: string): boolean {
  return /passw/i.test(sql);
}

function redactLiterals(sql: string, depth: number): string {
  const out: string[] = [];
  const lexer = new Lexer(sql);
  let previous = '';
  let first = '';
  for (let behind = 0; ; behind = lexer.end) {
    const kind = lexer.next();
    out.push(withoutComments(sql, behind, lexer.start));
    if (kind === Token.End) break;
    const text = sql.slice(lexer.start, lexer.end);
    if (kind === Token.DollarString) out.push(depth < NESTED_MAX && isCode(first, previous) ? redactBody(text, depth + 1) : REDACTED);
    else out.push(isString(kind) || kind === Token.BitString || isMistaken(kind, previous) ? REDACTED : text);
    // Where `standard_conforming_strings` is off, a literal with a backslash may end elsewhere: nothing behind it is safe.
    if (kind === Token.String && text.includes('\\')) break;
    if (isIdentifier(kind)) first ||= text;
    previous = text;
    if (text === ';') first = '';
  }
  return out.join('');
}

/** What stands between two tokens, with a space for each comment. */
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

/** `PASSWORD "x"` is no SQL, but what people write whose last database took it; it is recorded with the error. */
function isMistaken(kind: TokenKind, previous: string): boolean {
  return isQuotedIdentifier(kind) && /^password$/i.test(previous);
}

/** Whether a dollar-quoted string is the body of a function or of DO, rather than a value. */
function isCode(firstWord: string, previous: string): boolean {
  return /^do$/i.test(firstWord) || (/^create$/i.test(firstWord) && /^as$/i.test(previous));
}

function redactBody(text: string, depth: number): string {
  const quote = text.slice(0, text.indexOf('$', 1) + 1);
  const end = text.length >= 2 * quote.length && text.endsWith(quote) ? text.length - quote.length : text.length;
  return quote + redactLiterals(text.slice(quote.length, end), depth) + text.slice(end);
}
