import { CLASS, Code, classOf, INSIDE_WORD } from './characters.ts';

/** Offset of the next character at or after `offset` that is neither white space nor comment. */
export function skipBlank(text: string, offset: number): number {
  const at = skipSpace(text, offset, text.length);
  return opensComment(text, at) ? new Blank().skip(text, at, text.length) : at;
}

/** White space and comments that are read in parts: a comment may go on in the next one. */
export class Blank {
  #depth = 0;

  get isInComment(): boolean {
    return this.#depth > 0;
  }

  /**
   * @param offset where the part before has ended
   * @param until goes on no farther than that, or the end of the line comment there
   * @returns as {@link skipBlank}
   */
  skip(text: string, offset: number, until: number): number {
    let at = this.#comment(text, offset, until);
    while (this.#depth === 0 && at < until) {
      at = skipSpace(text, at, until);
      if (!opensComment(text, at)) break;
      this.#depth = 1;
      at = this.#comment(text, at + 2, until);
    }
    return at;
  }

  /** Offset behind the block comment that begins at `start`. */
  skipComment(text: string, start: number): number {
    this.#depth = 1;
    return this.#comment(text, start + 2, text.length);
  }

  /** Comments nest, unlike in C. */
  #comment(text: string, offset: number, until: number): number {
    let depth = this.#depth;
    let at = offset;
    for (; at < until && depth > 0; ) {
      const code = text.charCodeAt(at++);
      if (code === Code.Star && text.charCodeAt(at) === Code.Slash) {
        depth--;
        at++;
      } else if (code === Code.Slash && text.charCodeAt(at) === Code.Star) {
        depth++;
        at++;
      }
    }
    this.#depth = depth;
    return at;
  }
}

function opensComment(text: string, at: number): boolean {
  return text.charCodeAt(at) === Code.Slash && text.charCodeAt(at + 1) === Code.Star;
}

/** Offset behind the comment that begins at `at`; `at` where none does. */
export function commentEnd(text: string, at: number): number {
  if (opensComment(text, at)) return new Blank().skipComment(text, at);
  return text.charCodeAt(at) === Code.Minus && text.charCodeAt(at + 1) === Code.Minus ? lineEnd(text, at + 2) : at;
}

/** White space, and comments that a line ends. */
function skipSpace(text: string, offset: number, until: number): number {
  let at = offset;
  for (; at < until; ) {
    const code = text.charCodeAt(at);
    if (isSpace(code)) at++;
    else if (code === Code.Minus && text.charCodeAt(at + 1) === Code.Minus) at = lineEnd(text, at + 2);
    else break;
  }
  return at;
}

/** Without a look into the table, as there may be millions. */
function isSpace(code: number): boolean {
  return code === Code.Space || (code >= Code.Tab && code <= Code.Return);
}

function lineEnd(text: string, offset: number): number {
  let at = offset;
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === Code.Newline || code === Code.Return) break;
  }
  return at;
}

export function wordEnd(text: string, offset: number): number {
  let at = offset;
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code < 128 && INSIDE_WORD[code] === 0) break;
  }
  return at;
}

export function digitsEnd(text: string, offset: number): number {
  let at = offset;
  while (classOf(text.charCodeAt(at)) === CLASS.Digit) at++;
  return at;
}

/** Digits with fraction, exponent, `_` and radix prefix; `1..10` is two numbers around `..`, and `1$$x$$` has a string behind it. */
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
 * Offset behind the closing quote of what opens at `open`, -1 without one; a doubled quote does not close. Each character
 * is looked at: of quotes there may be millions, each of which would be another search.
 */
export function quotedEnd(text: string, open: number, quote: number): number {
  for (let at = open + 1; at < text.length; at++) {
    if (text.charCodeAt(at) !== quote) continue;
    if (text.charCodeAt(at + 1) !== quote) return at + 1;
    at++;
  }
  return -1;
}

/** As {@link quotedEnd}, for strings: with backslash escapes where they count, and with what continues on a later line. */
export function stringEnd(text: string, open: number, backslashes: boolean): number {
  for (let piece = open; ; ) {
    const end = backslashes ? escapedEnd(text, piece) : quotedEnd(text, piece, Code.Quote);
    if (end < 0) return -1;
    piece = continuation(text, end);
    if (piece < 0) return end;
  }
}

/** As {@link quotedEnd}, where what follows a backslash does not count. */
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
 * Strings that only white space with a line break parts are one string: offset of the quote that goes on at or after
 * `offset`, else -1. Of comments only `--` may stand between.
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

/** Offset behind `$tag$`, -1 when none begins at `start`. A tag is an identifier without `$`. */
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

/** Offset behind `UESCAPE 'c'`, -1 when it does not follow. */
export function escapeClauseEnd(text: string, offset: number): number {
  ESCAPE_CLAUSE.lastIndex = skipBlank(text, offset);
  if (!ESCAPE_CLAUSE.test(text)) return -1;
  const quote = skipBlank(text, ESCAPE_CLAUSE.lastIndex);
  return text.charCodeAt(quote) === Code.Quote && text.charCodeAt(quote + 2) === Code.Quote ? quote + 3 : -1;
}
