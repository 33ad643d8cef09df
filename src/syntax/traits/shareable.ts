import { lowerCase } from '../characters.ts';
import { isQuoted, Lexer, Token } from '../scanner.ts';
import { ONLY_READS } from './harmless-functions.ts';

const READ = /^\s*select\b/i;
/** Behind FOR these lock rows. */
const LOCKS = new Set(['update', 'share', 'no', 'key']);
const IN_QUOTES = '"';

/**
 * Whether a text only reads, as far as can be told: another client's request may already be behind it in the same session,
 * and it may have to be run twice. What is overlooked, in a view say, does what it would do in any pool of sessions.
 */
export function mayShare(text: string): boolean {
  // With `standard_conforming_strings` off, a string with a backslash may end elsewhere.
  if (!READ.test(text) || text.includes('\\')) return false;
  const lexer = new Lexer(text);
  let [before, previous] = ['', ''];
  for (let behind = 0; ; behind = lexer.end) {
    lexer.next();
    if (isComment(text, behind, lexer.start)) return false;
    if (lexer.kind === Token.End) return true;
    const token = tokenText(lexer);
    if (previous === ';' || !isHarmless(lexer, token) || (previous === 'for' && LOCKS.has(token))) return false;
    if (token === '(' && !mayStandBeforeParenthesis(previous, before)) return false;
    [before, previous] = [previous, token];
  }
}

/** What stands between two tokens. Texts with comments may be different each time. */
function isComment(text: string, from: number, to: number): boolean {
  return to > from && /\S/.test(text.slice(from, to));
}

/** Of words in lower case, of strings and names in quotes a quote, of everything else the first character. */
function tokenText({ text, kind, start, end }: Lexer): string {
  if (kind === Token.Word) return lowerCase(text.slice(start, end));
  return isQuoted(kind) ? IN_QUOTES : text.charAt(start);
}

function isHarmless({ kind }: Lexer, token: string): boolean {
  if (kind === Token.DollarString || kind === Token.Unknown) return false;
  return token !== 'into' && !(kind === Token.Word && token.includes('$'));
}

const NAME = /^[\w\u0080-\uffff]/;

function mayStandBeforeParenthesis(name: string, before: string): boolean {
  if (!NAME.test(name)) return name !== IN_QUOTES;
  return before !== '.' && ONLY_READS.has(name);
}
