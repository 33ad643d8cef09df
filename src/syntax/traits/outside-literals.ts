import { isQuoted, Lexer, Token, type TokenKind } from '../scanner.ts';

/** What is behind so many stays as it is: others wait meanwhile. */
const TOKENS_MAX = 20_000;

/**
 * Changes what is code in an SQL text. Strings (function bodies too), quoted names and comments stay as they are, and so does what
 * is behind more tokens than anybody writes by hand.
 * @param change sees a NUL, a number and a NUL in their places
 * @param isCode strings and quoted names that count as code all the same
 */
export function changeCode(text: string, change: (code: string) => string, isCode: (token: string, kind: TokenKind) => boolean): string {
  // The server refuses it, and pieces could not be told from what stands for them.
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
  /** Neighbours that are alike go together: texts may have a million tokens. */
  const turn = (at: number, toCode: boolean) => {
    if (toCode !== inCode) add(at);
    inCode = toCode;
  };
  let at = 0;
  const pass = (start: number) => {
    if (start > at && /\S/.test(text.slice(at, start))) turn(at, false);
  };
  const lexer = new Lexer(text);
  let read = 0;
  while (lexer.next() !== Token.End) {
    const { kind, start, end } = lexer;
    pass(start);
    read += 1;
    if (read > TOKENS_MAX) {
      turn(start, false);
      break;
    }
    turn(start, !isQuoted(kind) || isCode(text.slice(start, end), kind));
    at = end;
  }
  if (read <= TOKENS_MAX) pass(text.length);
  add(text.length);
  return change(code).replace(/\0(\d+)\0/g, (_, index: string) => kept[Number(index)] ?? '');
}
