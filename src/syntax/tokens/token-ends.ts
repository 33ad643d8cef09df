import { CLASS, Code, classOf, IDENTIFIER_PART } from './characters.ts';
import { isSpace, lineEnd, skipWhitespace } from './whitespace-and-comments.ts';

export function identifierEnd(text: string, offset: number): number {
  let at = offset;
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code < 128 && IDENTIFIER_PART[code] === 0) break;
  }
  return at;
}

export function digitsEnd(text: string, offset: number): number {
  let at = offset;
  while (classOf(text.charCodeAt(at)) === CLASS.Digit) at++;
  return at;
}

/** Reads digits with fraction, exponent, `_` and radix prefix. `1..10` is two numbers and `..`; in `1$$x$$` a string follows the number. */
export function numberEnd(text: string, start: number): number {
  let at = digitsAndLettersEnd(text, start);
  if (text.charCodeAt(at) === Code.Dot && text.charCodeAt(at + 1) !== Code.Dot) at = digitsAndLettersEnd(text, at + 1);
  const sign = text.charCodeAt(at);
  const exponent = (text.charCodeAt(at - 1) | 0x20) === 0x65 && (sign === Code.Plus || sign === Code.Minus);
  return exponent && digitsEnd(text, at + 1) > at + 1 ? digitsEnd(text, at + 1) : at;
}

function digitsAndLettersEnd(text: string, offset: number): number {
  let at = offset;
  for (; at < text.length; at++) {
    const kind = classOf(text.charCodeAt(at));
    if (kind !== CLASS.Digit && kind !== CLASS.Letter) break;
  }
  return at;
}

/** An operator ends where a comment begins. */
export function operatorEnd(text: string, start: number): number {
  let at = start + 1;
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (classOf(code) !== CLASS.Operator) break;
    const next = text.charCodeAt(at + 1);
    if ((code === Code.Minus && next === Code.Minus) || (code === Code.Slash && next === Code.Star)) break;
  }
  return at;
}

/**
 * Offset after the closing quote that matches the quote at `open`; -1 if there is none. A doubled quote does not close. The loop
 * reads each character, because a text may have millions of quotes, and one `indexOf` for each would be slower.
 */
export function quotedEnd(text: string, open: number, quote: number): number {
  for (let at = open + 1; at < text.length; at++) {
    if (text.charCodeAt(at) !== quote) continue;
    if (text.charCodeAt(at + 1) !== quote) return at + 1;
    at++;
  }
  return -1;
}

/** As {@link quotedEnd}, for strings: with backslash escapes if `backslashes`, and with continuations on later lines. */
export function stringEnd(text: string, open: number, backslashes: boolean): number {
  for (let piece = open; ; ) {
    const end = backslashes ? escapedEnd(text, piece) : quotedEnd(text, piece, Code.Quote);
    if (end < 0) return -1;
    piece = continuation(text, end);
    if (piece < 0) return end;
  }
}

/** As {@link quotedEnd}, with backslash escapes. */
function escapedEnd(text: string, open: number): number {
  for (let at = open + 1; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === Code.Backslash) at++;
    else if (code === Code.Quote) {
      if (text.charCodeAt(at + 1) !== Code.Quote) return at + 1;
      at++;
    }
  }
  return -1;
}

/**
 * Strings that are separated only by white space with at least one newline are one string. Returns the offset of the quote that
 * continues the string, or -1. Line comments may stand between, block comments may not.
 * @see https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-STRINGS
 */
export function continuation(text: string, offset: number): number {
  let broken = false;
  for (let at = offset; at < text.length; ) {
    const code = text.charCodeAt(at);
    if (code === Code.Quote) return broken ? at : -1;
    if (code === Code.Newline || code === Code.Return) broken = true;
    if (isSpace(code)) at++;
    else if (code === Code.Minus && text.charCodeAt(at + 1) === Code.Minus) at = lineEnd(text, at + 2);
    else break;
  }
  return -1;
}

/** Offset after `$tag$`; -1 if none begins at `start`. A tag is an identifier without `$`. */
export function dollarTagEnd(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === Code.Dollar) return at + 1;
    const kind = classOf(code);
    if (kind !== CLASS.Letter && (kind !== CLASS.Digit || at === start + 1)) break;
  }
  return -1;
}

const ESCAPE_CLAUSE = /uescape/iy;

/** Offset after `UESCAPE 'c'`; -1 if it does not follow. */
export function escapeClauseEnd(text: string, offset: number): number {
  ESCAPE_CLAUSE.lastIndex = skipWhitespace(text, offset);
  if (!ESCAPE_CLAUSE.test(text)) return -1;
  const quote = skipWhitespace(text, ESCAPE_CLAUSE.lastIndex);
  return text.charCodeAt(quote) === Code.Quote && text.charCodeAt(quote + 2) === Code.Quote ? quote + 3 : -1;
}
