import { isIdentifier, Lexer, Token } from '../../../../../src/syntax/scanner.ts';

const UNKNOWN = 'table_name';

/** The first table of FROM as it is written, for INSERT statements made from the result. */
export function insertTableOf(statement: string): string {
  const lexer = new Lexer(statement);
  let depth = 0;
  for (let kind = lexer.next(); kind !== Token.End; kind = lexer.next()) {
    const text = statement.slice(lexer.start, lexer.end);
    if (text === '(') depth += 1;
    else if (text === ')') depth -= 1;
    else if (depth === 0 && kind === Token.Word && ['FROM', 'TABLE', 'INTO', 'UPDATE'].includes(text.toUpperCase()))
      return nameAfter(lexer) ?? UNKNOWN;
  }
  return UNKNOWN;
}

function nameAfter(lexer: Lexer): string | undefined {
  const { text } = lexer;
  if (!isIdentifier(lexer.next())) return undefined;
  const { start } = lexer;
  let { end } = lexer;
  while (lexer.next() === Token.Punctuation && text[lexer.start] === '.' && isIdentifier(lexer.next())) end = lexer.end;
  // What is called like a function is none.
  return text[lexer.start] === '(' ? undefined : text.slice(start, end);
}
