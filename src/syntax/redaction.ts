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
  let previous = '';
  let first = '';
  for (let at = 0; at < sql.length; ) {
    const { name, end } = nextToken(sql, at);
    const text = sql.slice(at, end);
    at = end;
    if (name === 'comment') out.push(' ');
    else if (name === 'literal' || isMistaken(text, previous)) out.push(REDACTED);
    else if (name === 'dollar') out.push(depth < NESTED_MAX && isCode(first, previous) ? redactBody(text, depth + 1) : REDACTED);
    else out.push(text);
    // Where `standard_conforming_strings` is off, a literal with a backslash may end elsewhere: nothing behind it is safe.
    if (name === 'literal' && text.startsWith("'") && text.includes('\\')) break;
    if (name === 'word') first ||= text;
    if (name !== 'space' && name !== 'comment') previous = text;
    if (text === ';') first = '';
  }
  return out.join('');
}

/** `PASSWORD "x"` is no SQL, but what people write whose last database took it; it is recorded with the error. */
function isMistaken(text: string, previous: string): boolean {
  return text.startsWith('"') && /^password$/i.test(previous);
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

interface Token {
  readonly name: 'space' | 'comment' | 'literal' | 'dollar' | 'word' | 'other';
  readonly end: number;
}

const SPACE = /\s+/y;
const LITERAL_START = /(?:[eEbBxXnN]|[uU]&)?'/y;
const DOLLAR_QUOTE = /\$(?:[A-Za-z_\x80-\uffff][\w\x80-\uffff]*)?\$/y;
const WORD = /[A-Za-z_\x80-\uffff][\w$\x80-\uffff]*/y;

/**
 * Just enough of Postgres' lexer to know where literals begin and end; one that is not closed reaches to the end.
 * @see https://www.postgresql.org/docs/current/sql-syntax-lexical.html
 */
function nextToken(sql: string, at: number): Token {
  if (sql.startsWith('--', at)) return { name: 'comment', end: endOf(sql, '\n', at) };
  if (sql.startsWith('/*', at)) return { name: 'comment', end: endOfBlockComment(sql, at) };
  if (sql[at] === '"') return { name: 'word', end: endOfQuoted(sql, at, false) };
  const literal = match(LITERAL_START, sql, at);
  if (literal > 0) return { name: 'literal', end: endOfQuoted(sql, at + literal - 1, /e/i.test(sql[at] ?? '')) };
  const dollar = match(DOLLAR_QUOTE, sql, at);
  if (dollar > 0) return { name: 'dollar', end: endOf(sql, sql.slice(at, at + dollar), at + dollar) };
  const space = match(SPACE, sql, at);
  if (space > 0) return { name: 'space', end: at + space };
  const word = match(WORD, sql, at);
  return word > 0 ? { name: 'word', end: at + word } : { name: 'other', end: at + 1 };
}

/** @returns how many characters of `sql` from `at` the pattern takes */
function match(pattern: RegExp, sql: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(sql) ? pattern.lastIndex - at : 0;
}

/** @returns where `mark`, searched for from `from`, is over */
function endOf(sql: string, mark: string, from: number): number {
  const at = sql.indexOf(mark, from);
  return at < 0 ? sql.length : at + mark.length;
}

/** @param open index of the opening quote; a doubled quote does not end, nor does one behind a backslash where that escapes */
function endOfQuoted(sql: string, open: number, backslashEscapes: boolean): number {
  const quote = sql[open] ?? '';
  let at = open + 1;
  for (;;) {
    const end = sql.indexOf(quote, at);
    if (end < 0) return sql.length;
    const escaped = backslashEscapes && backslashesBefore(sql, end) % 2 === 1;
    if (!escaped && sql[end + 1] !== quote) return end + 1;
    at = end + (escaped ? 1 : 2);
  }
}

function backslashesBefore(sql: string, at: number): number {
  let count = 0;
  while (sql[at - 1 - count] === '\\') count += 1;
  return count;
}

/** Block comments nest in Postgres. */
function endOfBlockComment(sql: string, at: number): number {
  const edge = /\/\*|\*\//g;
  edge.lastIndex = at;
  let depth = 0;
  for (let found = edge.exec(sql); found !== null; found = edge.exec(sql)) {
    depth += found[0] === '/*' ? 1 : -1;
    if (depth === 0) return edge.lastIndex;
  }
  return sql.length;
}
