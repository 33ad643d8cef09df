import { lowerCase } from '../../../../src/syntax/characters.ts';
import { isQuotedIdentifier, type Lexer, Token, type TokenKind } from '../../../../src/syntax/scanner.ts';

/** A token. */
export interface Piece {
  readonly kind: TokenKind;
  readonly start: number;
  readonly end: number;
  /** Whether it is a string or a quoted identifier without its end. */
  readonly isOpen: boolean;
  /** An unquoted identifier or a keyword, in upper case; else empty. */
  readonly word: string;
  /** A punctuation character; else empty. */
  readonly mark: string;
  /** What it names, if it is an identifier. */
  readonly name: string | undefined;
}

export function pieceOf({ text, kind, start, end, terminated }: Lexer): Piece {
  const token = kind === Token.Word || kind === Token.Punctuation || isQuotedIdentifier(kind) ? text.slice(start, end) : '';
  return {
    kind,
    start,
    end,
    isOpen: !terminated,
    word: kind === Token.Word ? token.toUpperCase() : '',
    mark: kind === Token.Punctuation ? token : '',
    name: nameOf(kind, token, terminated),
  };
}

function nameOf(kind: TokenKind, token: string, isTerminated: boolean): string | undefined {
  if (kind === Token.Word) return lowerCase(token);
  if (kind === Token.QuotedIdentifier) return token.slice(1, isTerminated ? -1 : undefined).replaceAll('""', '"');
  return kind === Token.UnicodeIdentifier ? token : undefined;
}

/** Names joined by dots, without white space between them. */
export function pathFrom(pieces: readonly Piece[], at: number): { readonly names: readonly string[]; readonly next: number } {
  const names: string[] = [];
  let next = at;
  for (;;) {
    const { name } = pieces[next] ?? {};
    if (name === undefined) return { names, next };
    names.push(name);
    next += 1;
    if (!isDotBetween(pieces, next)) return { names, next };
    next += 1;
  }
}

/** Whether this is a dot with a name on both sides. */
function isDotBetween(pieces: readonly Piece[], at: number): boolean {
  const [before, dot, after] = [pieces[at - 1], pieces[at], pieces[at + 1]];
  return dot?.mark === '.' && before?.end === dot.start && after?.start === dot.end && after.name !== undefined;
}

/** Where the names begin that are joined by dots, and end before this piece with a dot. */
export function pathStart(pieces: readonly Piece[], at: number): number {
  let start = at;
  for (;;) {
    const [name, dot, next] = [pieces[start - 2], pieces[start - 1], pieces[start]];
    const joins = dot?.mark === '.' && name?.name !== undefined && name.end === dot.start && (start === at || next?.start === dot.end);
    if (!joins) return start;
    start -= 2;
  }
}
