import { lowerCase } from '../tokens/characters.ts';
import { isQuoted, Lexer, Token } from '../tokens/scanner.ts';
import { READ_ONLY_NAMES } from './harmless-functions.ts';

const READ = /^\s*select\b/i;
/** After FOR, these keywords lock rows. */
const LOCKING_KEYWORDS = new Set(['update', 'share', 'no', 'key']);
const IN_QUOTES = '"';

/**
 * Whether a text only reads, as far as its tokens show. This matters because another client's request may already follow it in the
 * same session, and because it may run twice. If a view calls a function that is not seen here, the effect is the same as in any
 * session pool.
 */
export function mayShare(text: string): boolean {
  // With `standard_conforming_strings` off, a string with a backslash may end elsewhere.
  if (!READ.test(text) || text.includes('\\')) return false;
  const lexer = new Lexer(text);
  let [before, previous] = ['', ''];
  for (let tokenEnd = 0; ; tokenEnd = lexer.end) {
    lexer.next();
    if (hasComment(text, tokenEnd, lexer.start)) return false;
    if (lexer.kind === Token.End) return true;
    const token = tokenText(lexer);
    if (previous === ';' || !isHarmless(lexer, token) || (previous === 'for' && LOCKING_KEYWORDS.has(token))) return false;
    if (token === '(' && !mayPrecedeParenthesis(previous, before)) return false;
    // `(x).f` is `f(x)` where `x` has no column `f`.
    if (previous === '.' && !isName(before) && isName(token)) return false;
    [before, previous] = [previous, token];
  }
}

/** Whether there is a comment between two tokens. Texts with comments may be different each time, so they are not shared. */
function hasComment(text: string, from: number, to: number): boolean {
  return to > from && /\S/.test(text.slice(from, to));
}

/** A keyword or unquoted identifier in lower case; {@link IN_QUOTES} for quoted tokens; else the first character of the token. */
function tokenText({ text, kind, start, end }: Lexer): string {
  if (kind === Token.Word) return lowerCase(text.slice(start, end));
  return isQuoted(kind) ? IN_QUOTES : text.charAt(start);
}

function isHarmless({ kind }: Lexer, token: string): boolean {
  if (kind === Token.DollarString || kind === Token.Unknown) return false;
  return token !== 'into' && !(kind === Token.Word && token.includes('$'));
}

const NAME = /^[\w\u0080-\uffff]/;

function isName(token: string): boolean {
  return token === IN_QUOTES || NAME.test(token);
}

function mayPrecedeParenthesis(name: string, before: string): boolean {
  if (!NAME.test(name)) return name !== IN_QUOTES;
  return before !== '.' && READ_ONLY_NAMES.has(name);
}
