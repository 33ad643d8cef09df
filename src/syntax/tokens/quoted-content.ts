import { lowerCase } from './characters.ts';
import { Lexer, type LexerOptions, Token, type TokenKind } from './scanner.ts';
import { continuation, dollarTagEnd } from './token-ends.ts';

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
  const { text, start, kind, close, terminated } = lexer;
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
  return body.length > DECODED_MAX_CHARACTERS ? undefined : decode({ text, open, end, quote, mark, kind });
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
}

function decode(encoded: Encoded): Content {
  const { text, open, end, quote, mark } = encoded;
  const segments: Segment[] = [];
  let decoded = '';
  for (let at = open; at < end; ) {
    const special = nextOf(text, at, end, quote, mark);
    if (special > at || special === end) segments.push({ index: decoded.length, offset: at, width: 0 });
    decoded += text.slice(at, special);
    if (special === end) break;
    if (text[special] === quote && text[special + 1] !== quote) {
      const next = continuation(text, special + 1);
      if (next < 0) break;
      at = next + 1;
      continue;
    }
    const [decodedText, width] = text[special] === quote ? [quote, 2] : escaped(encoded, special);
    segments.push({ index: decoded.length, offset: special, width });
    decoded += decodedText;
    at = special + width;
  }
  return new Content(decoded, segments.length > 0 ? segments : [{ index: 0, offset: open, width: 0 }], quote === "'");
}

function nextOf(text: string, from: number, end: number, quote: string, mark: string | undefined): number {
  let at = from;
  while (at < end && text[at] !== quote && text[at] !== mark) at++;
  return at;
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
