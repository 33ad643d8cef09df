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
  const kept: string[] = [];
  const keep = (piece: string) => `\0${kept.push(piece) - 1}\0`;
  const between = (start: number, end: number) => {
    const piece = text.slice(start, end);
    return piece.trim() === '' ? piece : keep(piece);
  };
  let code = '';
  let at = 0;
  for (const { kind, start, end } of tokens(text)) {
    const token = text.slice(start, end);
    const isPlain = kind !== 'string' && kind !== 'quotedIdentifier';
    code += between(at, start) + (isPlain || isCode(token, kind) ? token : keep(token));
    at = end;
  }
  return change(code + between(at, text.length)).replace(/\0(\d+)\0/g, (_, index: string) => kept[Number(index)] ?? '');
}
