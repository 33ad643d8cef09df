import { isQuotedIdentifier, type Lexer, lowerCase, Token, type TokenKind } from '../../../../src/syntax/scanner.ts';

/** A token of the text, and what it says. */
export interface SqlToken {
  readonly kind: TokenKind;
  readonly start: number;
  readonly end: number;
  /** Whether it is a string or a quoted identifier without its end. */
  readonly isOpen: boolean;
  /** An unquoted identifier or a keyword, in upper case; else empty. */
  readonly word: string;
  /** A punctuation character; else empty. */
  readonly punctuation: string;
  /** What it names, if it is an identifier. */
  readonly name: string | undefined;
}

export function tokenOf({ text, kind, start, end, terminated }: Lexer): SqlToken {
  const written = kind === Token.Word || kind === Token.Punctuation || isQuotedIdentifier(kind) ? text.slice(start, end) : '';
  return {
    kind,
    start,
    end,
    isOpen: !terminated,
    word: kind === Token.Word ? written.toUpperCase() : '',
    punctuation: kind === Token.Punctuation ? written : '',
    name: nameOf(kind, written, terminated),
  };
}

function nameOf(kind: TokenKind, written: string, isTerminated: boolean): string | undefined {
  if (kind === Token.Word) return lowerCase(written);
  if (kind === Token.QuotedIdentifier) return written.slice(1, isTerminated ? -1 : undefined).replaceAll('""', '"');
  return kind === Token.UnicodeIdentifier ? written : undefined;
}

/** Names joined by dots, without white space between them. */
export function pathFrom(tokens: readonly SqlToken[], at: number): { readonly names: readonly string[]; readonly next: number } {
  const names: string[] = [];
  let next = at;
  for (;;) {
    const { name } = tokens[next] ?? {};
    if (name === undefined) return { names, next };
    names.push(name);
    next += 1;
    if (!isDotBetween(tokens, next)) return { names, next };
    next += 1;
  }
}

/** Whether this is a dot with a name on both sides. */
function isDotBetween(tokens: readonly SqlToken[], at: number): boolean {
  const [before, dot, after] = [tokens[at - 1], tokens[at], tokens[at + 1]];
  return dot?.punctuation === '.' && before?.end === dot.start && after?.start === dot.end && after.name !== undefined;
}

/** Where the names begin that are joined by dots, and end before this token with a dot. */
export function pathStart(tokens: readonly SqlToken[], at: number): number {
  let start = at;
  for (;;) {
    const [name, dot, next] = [tokens[start - 2], tokens[start - 1], tokens[start]];
    const joins =
      dot?.punctuation === '.' && name?.name !== undefined && name.end === dot.start && (start === at || next?.start === dot.end);
    if (!joins) return start;
    start -= 2;
  }
}
