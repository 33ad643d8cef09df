import { type Token, tokens } from '../src/sql/lexer.ts';

/**
 * Changes what is code in an SQL text. Strings (function bodies too), quoted names and comments stay as they are.
 * @param change sees a NUL, a number and a NUL in their places
 * @param isCode strings and quoted names that count as code all the same
 */
export function changeCode(
  text: string,
  change: (code: string) => string,
  isCode: (token: string, kind: Token['kind']) => boolean,
): string {
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
    if (start > at && text.slice(at, start).trim() !== '') turn(at, false);
  };
  for (const { kind, start, end } of tokens(text)) {
    pass(start);
    turn(start, (kind !== 'string' && kind !== 'quotedIdentifier') || isCode(text.slice(start, end), kind));
    at = end;
  }
  pass(text.length);
  add(text.length);
  return change(code).replace(/\0(\d+)\0/g, (_, index: string) => kept[Number(index)] ?? '');
}
