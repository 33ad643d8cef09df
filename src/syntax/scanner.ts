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

/** What a byte above 127 is: in SJIS those of half-width katakana are letters by themselves; each other takes the next byte along. */
type DoubleBytes = 'sjis' | 'all';

/** The encodings of clients in which the second byte of a letter may be that of an ASCII character, by their names in the server. */
const DOUBLE_BYTES: Readonly<Record<string, DoubleBytes>> = {
  ...{ SJIS: 'sjis', SHIFT_JIS_2004: 'sjis' },
  ...{ BIG5: 'all', GBK: 'all', GB18030: 'all', JOHAB: 'all', UHC: 'all' },
};

/** @param encoding as the server reports `client_encoding` */
export function doubleBytesOf(encoding: string | undefined): DoubleBytes | undefined {
  return encoding === undefined ? undefined : DOUBLE_BYTES[encoding];
}

export interface LexerOptions {
  /** For a text of bytes in such an encoding: whether a byte is a backslash depends on the one before it. */
  readonly doubleBytes?: DoubleBytes | undefined;
  /** The session's standard_conforming_strings. If it is off, a backslash escapes in `'…'` too. Default: on. */
  readonly standardConformingStrings?: boolean;
  /** The offset to begin at, which must not be inside a token or comment. Default: 0. */
  readonly offset?: number;
}

/**
 * Reads one token after the other. `next()` moves to the next token; `kind`, `start` and `end` describe it. The time is linear in
 * the length of the text, and nothing is allocated. Any text is accepted: a string, quoted identifier or comment that is not
 * terminated reaches to the end of the text. The text may also be bytes decoded as Latin-1. Bytes above 127 are letters, as they
 * are for the server. With `doubleBytes`, a letter whose second byte is that of an ASCII letter or bracket may end a word; no quote, comment
 * or semicolon can be a second byte.
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
  readonly doubleBytes: DoubleBytes | undefined;
  readonly #plainString: TokenKind;

  constructor(text: string, options: LexerOptions = {}) {
    this.text = text;
    this.doubleBytes = options.doubleBytes;
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
    return this.#closed(kind, stringEnd(this.text, open, kind === Token.EscapeString, this.doubleBytes));
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

function identifierEnd(text: string, offset: number): number {
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
function numberEnd(text: string, start: number): number {
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
function operatorEnd(text: string, start: number): number {
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
function quotedEnd(text: string, open: number, quote: number): number {
  for (let at = open + 1; at < text.length; at++) {
    if (text.charCodeAt(at) !== quote) continue;
    if (text.charCodeAt(at + 1) !== quote) return at + 1;
    at++;
  }
  return -1;
}

/** As {@link quotedEnd}, for strings: with backslash escapes if `backslashes`, and with continuations on later lines. */
function stringEnd(text: string, open: number, backslashes: boolean, doubleBytes: DoubleBytes | undefined): number {
  for (let piece = open; ; ) {
    const end = backslashes ? escapedEnd(text, piece, doubleBytes) : quotedEnd(text, piece, Code.Quote);
    if (end < 0) return -1;
    piece = continuation(text, end);
    if (piece < 0) return end;
  }
}

/** As {@link quotedEnd}, with backslash escapes. */
function escapedEnd(text: string, open: number, doubleBytes: DoubleBytes | undefined): number {
  for (let at = open + 1; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === Code.Backslash || isFirstOfTwo(code, doubleBytes)) at++;
    else if (code === Code.Quote) {
      if (text.charCodeAt(at + 1) !== Code.Quote) return at + 1;
      at++;
    }
  }
  return -1;
}

function isFirstOfTwo(code: number, doubleBytes: DoubleBytes | undefined): boolean {
  return doubleBytes !== undefined && code >= 0x80 && (doubleBytes === 'all' || code < 0xa1 || code > 0xdf);
}

/**
 * Strings that are separated only by white space with at least one newline are one string. Returns the offset of the quote that
 * continues the string, or -1. Line comments may stand between, block comments may not.
 * @see https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-STRINGS
 */
function continuation(text: string, offset: number): number {
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
function dollarTagEnd(text: string, start: number): number {
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
function escapeClauseEnd(text: string, offset: number): number {
  ESCAPE_CLAUSE.lastIndex = skipWhitespace(text, offset);
  if (!ESCAPE_CLAUSE.test(text)) return -1;
  const quote = skipWhitespace(text, ESCAPE_CLAUSE.lastIndex);
  return text.charCodeAt(quote) === Code.Quote && text.charCodeAt(quote + 2) === Code.Quote ? quote + 3 : -1;
}

/** Offset of the next character at or after `offset` that is neither white space nor comment. */
export function skipWhitespace(text: string, offset: number): number {
  const at = skipSpace(text, offset, text.length);
  return opensComment(text, at) ? new Whitespace().skip(text, at, text.length) : at;
}

/** Skips white space and comments in parts. A comment may continue in the next part. */
export class Whitespace {
  #depth = 0;

  get isInComment(): boolean {
    return this.#depth > 0;
  }

  /**
   * @param offset the end of the previous part
   * @param until the end of this part; a line comment is read to its end all the same
   * @returns as {@link skipWhitespace}
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

  /** Offset after the block comment that begins at `start`. */
  skipComment(text: string, start: number): number {
    this.#depth = 1;
    return this.#comment(text, start + 2, text.length);
  }

  /** Block comments nest, unlike in C. */
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

/** Offset after the comment that begins at `at`; `at` itself if none begins there. */
export function commentEnd(text: string, at: number): number {
  if (opensComment(text, at)) return new Whitespace().skipComment(text, at);
  return text.charCodeAt(at) === Code.Minus && text.charCodeAt(at + 1) === Code.Minus ? lineEnd(text, at + 2) : at;
}

/** Skips white space and line comments. */
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

/** Does without the table of classes, because there may be millions of these characters. */
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

export const Code = {
  Tab: 0x09,
  Newline: 0x0a,
  Return: 0x0d,
  Space: 0x20,
  DoubleQuote: 0x22,
  Dollar: 0x24,
  Ampersand: 0x26,
  Quote: 0x27,
  Open: 0x28,
  Close: 0x29,
  Star: 0x2a,
  Plus: 0x2b,
  Comma: 0x2c,
  Minus: 0x2d,
  Dot: 0x2e,
  Slash: 0x2f,
  Colon: 0x3a,
  Semicolon: 0x3b,
  Equals: 0x3d,
  OpenBracket: 0x5b,
  Backslash: 0x5c,
  CloseBracket: 0x5d,
} as const;

/** The kind of token that a character can begin. */
const CLASS = {
  Unknown: 0,
  Space: 1,
  Letter: 2,
  Digit: 3,
  Operator: 4,
  Punctuation: 5,
  Quote: 6,
  DoubleQuote: 7,
  Dollar: 8,
  Colon: 9,
  Dot: 10,
};

/** The class of each ASCII character. All other characters are letters. */
const CLASSES = classes({
  [CLASS.Space]: ' \t\n\r\f\v',
  [CLASS.Letter]: 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_',
  [CLASS.Digit]: '0123456789',
  [CLASS.Operator]: '+-*/<>=~!@#%^&|`?',
  [CLASS.Punctuation]: '()[],;',
  [CLASS.Quote]: "'",
  [CLASS.DoubleQuote]: '"',
  [CLASS.Dollar]: '$',
  [CLASS.Colon]: ':',
  [CLASS.Dot]: '.',
});

function classes(members: Record<number, string>): Uint8Array {
  const table = new Uint8Array(128);
  for (const [kind, characters] of Object.entries(members)) {
    for (const character of characters) table[character.charCodeAt(0)] = Number(kind);
  }
  return table;
}

/** 1 for each ASCII character that may continue an unquoted identifier (`ident_cont` in the server's scan.l). */
export const IDENTIFIER_PART = CLASSES.map((kind, code) => (kind === CLASS.Letter || kind === CLASS.Digit || code === Code.Dollar ? 1 : 0));

/** The server takes every character above ASCII for a letter, and so does this. */
const classOf = (code: number): number => (code < 128 ? (CLASSES[code] ?? CLASS.Unknown) : CLASS.Letter);

/** Folds an identifier as the server does: only `A` to `Z` change, in every locale. */
export function lowerCase(text: string): string {
  for (let at = 0; at < text.length; at++) {
    if (text.charCodeAt(at) >= 0x80) return text.replace(/[A-Z]+/g, (capitals) => capitals.toLowerCase());
  }
  return text.toLowerCase();
}

/** These are compared with each of millions of characters: a local constant is faster than a property. */
const { Space, Tab, Newline, Return, Star, Minus, Slash } = Code;

/**
 * Finds where the first token of an SQL text begins, after white space and comments. The text arrives in pieces that may be
 * cut anywhere. Megabytes of comments may precede the first token, so each character is read only once.
 */
export class LeadingWhitespace {
  /** The number of open block comments. They nest. */
  #depth = 0;
  #isInLineComment = false;
  /** The previous character, if it may be the first of a pair such as `--` or `/*`; else 0. */
  #previous = 0;
  #hasCode = false;

  /** @returns the offset in this piece of the first token; 0 if an earlier piece had it; -1 if this piece has none either */
  codeStart(piece: string): number {
    for (let at = 0; at < piece.length && !this.#hasCode; at += 1) {
      const code = piece.charCodeAt(at);
      if (this.#isInLineComment) this.#isInLineComment = code !== Newline && code !== Return;
      else if (this.#depth > 0) this.#readBlockComment(code);
      else if (this.#startsCode(code)) return Math.max(0, this.#previous === 0 ? at : at - 1);
    }
    return this.#hasCode ? 0 : -1;
  }

  #readBlockComment(code: number): void {
    const [opens, closes] = [this.#previous === Slash && code === Star, this.#previous === Star && code === Slash];
    if (opens) this.#depth += 1;
    if (closes) this.#depth -= 1;
    // A character of one pair cannot be part of the next pair.
    this.#previous = opens || closes ? 0 : code;
    if (this.#depth === 0) this.#previous = 0;
  }

  /** Reads a character outside comments. @returns whether the first token begins at this character or at the previous one */
  #startsCode(code: number): boolean {
    if (this.#previous === Slash && code === Star) this.#depth = 1;
    else if (this.#previous === Minus && code === Minus) this.#isInLineComment = true;
    else if (this.#previous !== 0) this.#hasCode = true;
    else if (code === Slash || code === Minus) {
      this.#previous = code;
      return false;
    } else this.#hasCode = code !== Space && (code < Tab || code > Return);
    if (!this.#hasCode) this.#previous = 0;
    return this.#hasCode;
  }
}

/** The characters from `index` on are written from `offset` on, one for one. With `width`, the segment is a single escape of that length. */
interface Segment {
  readonly index: number;
  readonly offset: number;
  readonly width: number;
}

/** The decoded content of a string or quoted identifier, with the offset of each character in the outer text. */
export class Content {
  readonly text: string;
  readonly #segments: readonly Segment[];
  readonly #quoted: boolean;

  constructor(text: string, segments: readonly Segment[], quoted: boolean) {
    this.text = text;
    this.#segments = segments;
    this.#quoted = quoted;
  }

  /** Offset in the outer text at which character `index` begins. */
  start(index: number): number {
    if (index >= this.text.length) return this.end(index);
    const segment = this.#segmentOf(index);
    return segment.width > 0 ? segment.offset : segment.offset + index - segment.index;
  }

  /** Offset in the outer text after the character before `index`. */
  end(index: number): number {
    const segment = this.#segmentOf(Math.max(index - 1, 0));
    return segment.offset + (segment.width > 0 ? segment.width : index - segment.index);
  }

  /** Encodes text for insertion into this content. @param text must not contain backslashes */
  written(text: string): string {
    return this.#quoted ? text.replaceAll("'", "''") : text;
  }

  #segmentOf(index: number): Segment {
    let low = 0;
    for (let high = this.#segments.length - 1; low < high; ) {
      const middle = (low + high + 1) >> 1;
      if ((this.#segments[middle] as Segment).index <= index) low = middle;
      else high = middle - 1;
    }
    return this.#segments[low] as Segment;
  }
}

/** Decoding more than this at once would block the event loop. */
const DECODED_MAX_CHARACTERS = 256 * 1024;

/**
 * The content of the lexer's current token, which must be a string or a quoted identifier. Undefined if the token has escapes or
 * quotes in it and more than {@link DECODED_MAX_CHARACTERS}.
 */
export function contentOf(lexer: Lexer): Content | undefined {
  const { text, start, kind, close, terminated, doubleBytes } = lexer;
  if (kind === Token.DollarString) {
    const open = dollarTagEnd(text, start);
    return verbatim(text, open, terminated ? close - (open - start) : close, false);
  }
  const quote = kind === Token.QuotedIdentifier || kind === Token.UnicodeIdentifier ? '"' : "'";
  const mark = escapeCharacter(lexer);
  const open = text.indexOf(quote, start) + 1;
  const end = terminated ? close - 1 : close;
  const body = text.slice(open, end);
  const simple = !body.includes(quote) && (mark === undefined || !body.includes(mark));
  if (simple) return verbatim(text, open, end, quote === "'");
  return body.length > DECODED_MAX_CHARACTERS ? undefined : decode({ text, open, end, quote, mark, kind, doubleBytes });
}

/** The name of the lexer's current token, which must be an identifier of any kind. */
export function identifierText(lexer: Lexer): string {
  return lexer.kind === Token.Word ? lowerCase(lexer.text.slice(lexer.start, lexer.end)) : (contentOf(lexer)?.text ?? '');
}

function verbatim(text: string, open: number, end: number, quoted: boolean): Content {
  return new Content(text.slice(open, end), [{ index: 0, offset: open, width: 0 }], quoted);
}

/** The character with which escapes begin; undefined if there are none. */
function escapeCharacter({ text, kind, close, end }: Lexer): string | undefined {
  if (kind === Token.UnicodeIdentifier || kind === Token.UnicodeString) return end > close ? text[end - 2] : '\\';
  return kind === Token.EscapeString ? '\\' : undefined;
}

/**
 * The text with strings that are read the same whatever `standard_conforming_strings` is: those with a backslash say themselves
 * whether it escapes.
 * @param options how the text is read
 */
export function withExplicitEscapes(text: string, options: LexerOptions): string {
  const lexer = new Lexer(text, options);
  let explicit = '';
  let written = 0;
  for (let [wordStart, wordEnd] = [-1, -1]; lexer.next() !== Token.End; [wordStart, wordEnd] = [lexer.start, lexer.end]) {
    const { start, end, kind } = lexer;
    if (text.charAt(start) !== "'") continue;
    const string = text.slice(start, end);
    if (!string.includes('\\')) continue;
    // `N'…'` is a type and a string, and so is `nchar E'…'`.
    const isNational = wordEnd === start && wordEnd - wordStart === 1 && /n/i.test(text.charAt(wordStart));
    explicit += isNational ? `${text.slice(written, wordStart)}nchar` : text.slice(written, start);
    explicit += ` E${kind === Token.EscapeString ? string : string.replaceAll('\\', '\\\\')}`;
    written = end;
  }
  return explicit + text.slice(written);
}

interface Encoded {
  readonly text: string;
  readonly open: number;
  readonly end: number;
  readonly quote: string;
  readonly mark: string | undefined;
  readonly kind: TokenKind;
  readonly doubleBytes: DoubleBytes | undefined;
}

function decode(encoded: Encoded): Content {
  const { text, open, end } = encoded;
  const segments: Segment[] = [];
  let decoded = '';
  for (let at = open; at < end; ) {
    const special = nextSpecial(encoded, at);
    if (special > at || special === end) segments.push({ index: decoded.length, offset: at, width: 0 });
    decoded += text.slice(at, special);
    if (special === end) break;
    if (text[special] === encoded.quote && text[special + 1] !== encoded.quote) {
      const next = continuation(text, special + 1);
      if (next < 0) break;
      at = next + 1;
      continue;
    }
    const [decodedText, width] = text[special] === encoded.quote ? [encoded.quote, 2] : escaped(encoded, special);
    segments.push({ index: decoded.length, offset: special, width });
    decoded += decodedText;
    at = special + width;
  }
  return new Content(decoded, segments.length > 0 ? segments : [{ index: 0, offset: open, width: 0 }], encoded.quote === "'");
}

/** The offset of the next quote or escape, or of the end. */
function nextSpecial({ text, end, quote, mark, doubleBytes }: Encoded, from: number): number {
  let at = from;
  while (at < end && text[at] !== quote && text[at] !== mark) at += isFirstOfTwo(text.charCodeAt(at), doubleBytes) ? 2 : 1;
  return Math.min(at, end);
}

/** @see https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-STRINGS-ESCAPE */
const BACKSLASHED = /\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([\s\S]))/y;
const CONTROLS: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' };
const UNICODE = /.(?:([0-9A-Fa-f]{4})|\+([0-9A-Fa-f]{6})|([\s\S]))/sy;

function escaped({ text, kind }: Encoded, at: number): [decodedText: string, width: number] {
  const pattern = kind === Token.EscapeString ? BACKSLASHED : UNICODE;
  pattern.lastIndex = at;
  const match = pattern.exec(text);
  if (match === null) return [text.charAt(at), 1];
  const [all, first, second] = match;
  if (kind !== Token.EscapeString) return [character(first ?? second, 16) ?? match[3] ?? '', all.length];
  const letter = match[5];
  const decodedText = character(first, 8) ?? character(second ?? match[3] ?? match[4], 16) ?? (CONTROLS[letter ?? ''] || letter);
  return [decodedText ?? '', all.length];
}

/** The character of a code. An invalid code becomes U+FFFD, which no relevant name contains. */
function character(digits: string | undefined, radix: number): string | undefined {
  if (digits === undefined) return undefined;
  const code = Number.parseInt(digits, radix);
  return code <= 0x10ffff ? String.fromCodePoint(code) : '\u{fffd}';
}
