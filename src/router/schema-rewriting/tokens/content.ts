import { lowerCase } from '../../../syntax/characters.ts';
import { type Lexer, Token, type TokenKind } from '../../../syntax/scanner.ts';
import { continuation, dollarTagEnd } from '../../../syntax/token-ends.ts';

/** Characters of a content from `index` on that are written at `offset` on, one for one; or, with `width`, one escape. */
interface Run {
  readonly index: number;
  readonly offset: number;
  readonly width: number;
}

/** What a string or quoted identifier says, and where each character of it is written. */
export class Content {
  readonly text: string;
  readonly #runs: readonly Run[];
  readonly #quoted: boolean;

  constructor(text: string, runs: readonly Run[], quoted: boolean) {
    this.text = text;
    this.#runs = runs;
    this.#quoted = quoted;
  }

  /** Offset in the outer text at which character `index` begins. */
  start(index: number): number {
    if (index >= this.text.length) return this.end(index);
    const run = this.#runOf(index);
    return run.width > 0 ? run.offset : run.offset + index - run.index;
  }

  /** Offset in the outer text behind the character before `index`. */
  end(index: number): number {
    const run = this.#runOf(Math.max(index - 1, 0));
    return run.offset + (run.width > 0 ? run.width : index - run.index);
  }

  /** How text without backslashes is written inside this content. */
  written(text: string): string {
    return this.#quoted ? text.replaceAll("'", "''") : text;
  }

  #runOf(index: number): Run {
    let low = 0;
    for (let high = this.#runs.length - 1; low < high; ) {
      const middle = (low + high + 1) >> 1;
      if ((this.#runs[middle] as Run).index <= index) low = middle;
      else high = middle - 1;
    }
    return this.#runs[low] as Run;
  }
}

/** Decoding more than this at once would keep others waiting. */
const DECODED_MAX_CHARACTERS = 256 * 1024;

/**
 * Content of the lexer's current token, which must be a string or a quoted identifier; undefined for one that is longer
 * than 256 KiB and has escapes or quotes in it.
 */
export function contentOf(lexer: Lexer): Content | undefined {
  const { text, start, kind, close, terminated } = lexer;
  if (kind === Token.DollarString) {
    const open = dollarTagEnd(text, start);
    return verbatim(text, open, terminated ? close - (open - start) : close, false);
  }
  const quote = kind === Token.QuotedIdentifier || kind === Token.UnicodeIdentifier ? '"' : "'";
  const mark = escapeMark(lexer);
  const open = text.indexOf(quote, start) + 1;
  const end = terminated ? close - 1 : close;
  const body = text.slice(open, end);
  const simple = !body.includes(quote) && (mark === undefined || !body.includes(mark));
  if (simple) return verbatim(text, open, end, quote === "'");
  return body.length > DECODED_MAX_CHARACTERS ? undefined : decode({ text, open, end, quote, mark, kind });
}

/** The name that the lexer's current token says, an identifier of any kind. */
export function identifierText(lexer: Lexer): string {
  return lexer.kind === Token.Word ? lowerCase(lexer.text.slice(lexer.start, lexer.end)) : (contentOf(lexer)?.text ?? '');
}

function verbatim(text: string, open: number, end: number, quoted: boolean): Content {
  return new Content(text.slice(open, end), [{ index: 0, offset: open, width: 0 }], quoted);
}

/** The character that begins escapes. */
function escapeMark({ text, kind, close, end }: Lexer): string | undefined {
  if (kind === Token.UnicodeIdentifier || kind === Token.UnicodeString) return end > close ? text[end - 2] : '\\';
  return kind === Token.EscapeString ? '\\' : undefined;
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
  const runs: Run[] = [];
  let decoded = '';
  for (let at = open; at < end; ) {
    const special = nextOf(text, at, end, quote, mark);
    if (special > at || special === end) runs.push({ index: decoded.length, offset: at, width: 0 });
    decoded += text.slice(at, special);
    if (special === end) break;
    if (text[special] === quote && text[special + 1] !== quote) {
      const next = continuation(text, special + 1);
      if (next < 0) break;
      at = next + 1;
      continue;
    }
    const [said, width] = text[special] === quote ? [quote, 2] : escaped(encoded, special);
    runs.push({ index: decoded.length, offset: special, width });
    decoded += said;
    at = special + width;
  }
  return new Content(decoded, runs.length > 0 ? runs : [{ index: 0, offset: open, width: 0 }], quote === "'");
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

function escaped({ text, kind }: Encoded, at: number): [said: string, width: number] {
  const pattern = kind === Token.EscapeString ? BACKSLASHED : UNICODE;
  pattern.lastIndex = at;
  const match = pattern.exec(text);
  if (match === null) return [text.charAt(at), 1];
  const [all, first, second] = match;
  if (kind !== Token.EscapeString) return [character(first ?? second, 16) ?? match[3] ?? '', all.length];
  const letter = match[5];
  const said = character(first, 8) ?? character(second ?? match[3] ?? match[4], 16) ?? (CONTROLS[letter ?? ''] || letter);
  return [said ?? '', all.length];
}

/** The character of that code; an impossible code is one that no name contains. */
function character(digits: string | undefined, radix: number): string | undefined {
  if (digits === undefined) return undefined;
  const code = Number.parseInt(digits, radix);
  return code <= 0x10ffff ? String.fromCodePoint(code) : '\u{fffd}';
}
