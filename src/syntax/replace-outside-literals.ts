import { isQuoted, Lexer, type LexerOptions, Token, type TokenKind } from './tokens/scanner.ts';

/** The rest of a longer text stays as it is, because reading it would block the event loop. */
const TOKENS_MAX = 20_000;

/**
 * Changes an SQL text outside its literals. Strings (also function bodies), quoted identifiers and comments stay as they are. So
 * does the part after {@link TOKENS_MAX} tokens.
 * @param change gets the code with a NUL, a number and a NUL in place of each literal
 * @param isCode whether a string or quoted identifier counts as code all the same
 */
export function replaceOutsideLiterals(
  text: string,
  change: (code: string) => string,
  isCode: (token: string, kind: TokenKind) => boolean,
  options?: LexerOptions,
): string {
  // The server refuses a text with NUL, and a NUL could not be told from a placeholder.
  if (text.includes('\0')) return text;
  const kept: string[] = [];
  let code = '';
  let from = 0;
  let inCode = true;
  const add = (end: number) => {
    const piece = text.slice(from, end);
    code += inCode ? piece : `\0${kept.push(piece) - 1}\0`;
    from = end;
  };
  /** Consecutive tokens of the same sort are one piece, because a text may have a million tokens. */
  const switchTo = (at: number, isNowCode: boolean) => {
    if (isNowCode !== inCode) add(at);
    inCode = isNowCode;
  };
  let at = 0;
  const keepComments = (start: number) => {
    if (start > at && /\S/.test(text.slice(at, start))) switchTo(at, false);
  };
  const lexer = new Lexer(text, options);
  let read = 0;
  while (lexer.next() !== Token.End) {
    const { kind, start, end } = lexer;
    keepComments(start);
    read += 1;
    if (read > TOKENS_MAX) {
      switchTo(start, false);
      break;
    }
    switchTo(start, !isQuoted(kind) || isCode(text.slice(start, end), kind));
    at = end;
  }
  if (read <= TOKENS_MAX) keepComments(text.length);
  add(text.length);
  return change(code).replace(/\0(\d+)\0/g, (_, index: string) => kept[Number(index)] ?? '');
}
