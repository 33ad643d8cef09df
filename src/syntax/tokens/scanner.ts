import { CLASS, Code, classOf } from './characters.ts';
import { digitsEnd, dollarTagEnd, escapeClauseEnd, identifierEnd, numberEnd, operatorEnd, quotedEnd, stringEnd } from './token-ends.ts';
import { skipWhitespace } from './whitespace-and-comments.ts';

/**
 * PostgreSQL's lexical structure. Tokens are offsets in the text, so that nothing is copied.
 * @see https://www.postgresql.org/docs/current/sql-syntax-lexical.html
 * @see https://github.com/postgres/postgres/blob/master/src/backend/parser/scan.l
 */

/** The kinds of token. White space and comments are not tokens. */
export const Token = {
  End: 0,
  /** A keyword or an unquoted identifier: the two have the same lexical structure. */
  Word: 1,
  QuotedIdentifier: 2,
  /** `U&"…"` with its UESCAPE clause. */
  UnicodeIdentifier: 3,
  String: 4,
  /** `E'…'`; also `'…'` if standard_conforming_strings is off. */
  EscapeString: 5,
  /** `U&'…'` with its UESCAPE clause. */
  UnicodeString: 6,
  /** `B'…'` and `X'…'`. */
  BitString: 7,
  DollarString: 8,
  Number: 9,
  /** `$1` */
  Parameter: 10,
  /** A sequence of operator characters; also `::`, `:=`, `:` and `..`. */
  Operator: 11,
  /** One of `( ) [ ] , ; .` */
  Punctuation: 12,
  /** A character with which no token begins. */
  Unknown: 13,
} as const;

export type TokenKind = (typeof Token)[keyof typeof Token];

export interface LexerOptions {
  /** The session's standard_conforming_strings. If it is off, a backslash escapes in `'…'` too. Default: on. */
  readonly standardConformingStrings?: boolean;
  /** The offset to begin at, which must not be inside a token or comment. Default: 0. */
  readonly offset?: number;
}

/**
 * Reads one token after the other. `next()` moves to the next token; `kind`, `start` and `end` describe it. The time is linear in
 * the length of the text, and nothing is allocated. Any text is accepted: a string, quoted identifier or comment that is not
 * terminated reaches to the end of the text. The text may also be bytes decoded as Latin-1. Bytes above 127 are letters, as they
 * are for the server.
 */
export class Lexer {
  readonly text: string;
  kind: TokenKind = Token.End;
  /** Offset of the current token's first character. */
  start: number;
  /** Offset after the current token. */
  end: number;
  /** For a string or quoted identifier, the offset after its closing quote. If a UESCAPE clause follows, `end` is greater. */
  close = 0;
  /** False if the text ends inside the current token, which is a string or a quoted identifier. */
  terminated = true;
  readonly #plainString: TokenKind;

  constructor(text: string, options: LexerOptions = {}) {
    this.text = text;
    this.start = this.end = options.offset ?? 0;
    this.#plainString = options.standardConformingStrings === false ? Token.EscapeString : Token.String;
  }

  /** Moves to the next token and returns its kind; `Token.End` after the last one. */
  next(): TokenKind {
    const start = skipWhitespace(this.text, this.end);
    this.start = start;
    this.terminated = true;
    this.kind = start < this.text.length ? this.#read(start, this.text.charCodeAt(start)) : this.#ending(Token.End, start);
    return this.kind;
  }

  /** Continues at `offset`, which must not be inside a token or comment. */
  moveTo(offset: number): void {
    this.end = offset;
  }

  #read(start: number, code: number): TokenKind {
    switch (classOf(code)) {
      case CLASS.Letter:
        return this.#word(start, code | 0x20);
      case CLASS.Digit:
        return this.#ending(Token.Number, numberEnd(this.text, start));
      case CLASS.Operator:
        return this.#ending(Token.Operator, operatorEnd(this.text, start));
      case CLASS.Quote:
        return this.#string(this.#plainString, start);
      case CLASS.DoubleQuote:
        return this.#closed(Token.QuotedIdentifier, quotedEnd(this.text, start, Code.DoubleQuote));
      case CLASS.Dollar:
        return this.#dollar(start);
      case CLASS.Dot:
        return this.#dot(start);
      case CLASS.Colon:
        return this.#colon(start);
      default:
        return this.#ending(classOf(code) === CLASS.Punctuation ? Token.Punctuation : Token.Unknown, start + 1);
    }
  }

  #ending(kind: TokenKind, end: number): TokenKind {
    this.end = end;
    return kind;
  }

  /** @param end -1 if the closing quote is missing */
  #closed(kind: TokenKind, end: number): TokenKind {
    this.terminated = end >= 0;
    this.close = end < 0 ? this.text.length : end;
    return this.#ending(kind, this.close);
  }

  #word(start: number, letter: number): TokenKind {
    const { text } = this;
    const next = text.charCodeAt(start + 1);
    if (next === Code.Quote) {
      if (letter === 0x65 /* e */) return this.#string(Token.EscapeString, start + 1);
      if (letter === 0x62 /* b */ || letter === 0x78 /* x */) return this.#string(Token.BitString, start + 1);
    } else if (next === Code.Ampersand && letter === 0x75 /* u */) {
      const quote = text.charCodeAt(start + 2);
      if (quote === Code.Quote) return this.#withEscape(this.#string(Token.UnicodeString, start + 2));
      if (quote === Code.DoubleQuote)
        return this.#withEscape(this.#closed(Token.UnicodeIdentifier, quotedEnd(text, start + 2, Code.DoubleQuote)));
    }
    return this.#ending(Token.Word, identifierEnd(text, start + 1));
  }

  #string(kind: TokenKind, open: number): TokenKind {
    return this.#closed(kind, stringEnd(this.text, open, kind === Token.EscapeString));
  }

  #withEscape(kind: TokenKind): TokenKind {
    const clause = escapeClauseEnd(this.text, this.end);
    if (clause >= 0) this.end = clause;
    return kind;
  }

  #dollar(start: number): TokenKind {
    const { text } = this;
    const after = dollarTagEnd(text, start);
    if (after < 0) {
      const end = digitsEnd(text, start + 1);
      return this.#ending(end > start + 1 ? Token.Parameter : Token.Unknown, end);
    }
    const tag = text.slice(start, after);
    const close = text.indexOf(tag, after);
    return this.#closed(Token.DollarString, close < 0 ? -1 : close + tag.length);
  }

  #dot(start: number): TokenKind {
    const next = this.text.charCodeAt(start + 1);
    if (classOf(next) === CLASS.Digit) return this.#ending(Token.Number, numberEnd(this.text, start));
    return next === Code.Dot ? this.#ending(Token.Operator, start + 2) : this.#ending(Token.Punctuation, start + 1);
  }

  #colon(start: number): TokenKind {
    const next = this.text.charCodeAt(start + 1);
    return this.#ending(Token.Operator, start + (next === Code.Colon || next === Code.Equals ? 2 : 1));
  }
}

/** Whether the token is a string constant. Bit strings are not. */
export function isString(kind: TokenKind): boolean {
  return kind === Token.String || kind === Token.EscapeString || kind === Token.UnicodeString || kind === Token.DollarString;
}

export function isIdentifier(kind: TokenKind): boolean {
  return kind === Token.Word || isQuotedIdentifier(kind);
}

export function isQuotedIdentifier(kind: TokenKind): boolean {
  return kind === Token.QuotedIdentifier || kind === Token.UnicodeIdentifier;
}

/** Whether the token is a string, a bit string or a quoted identifier. */
export function isQuoted(kind: TokenKind): boolean {
  return isString(kind) || kind === Token.BitString || isQuotedIdentifier(kind);
}
