import { Lexer, Token } from '../../../../../src/syntax/scanner.ts';
import { leadingKeywords } from '../../../../../src/syntax/statements.ts';
import { statementsIn } from './statements.ts';

/** The value of a parameter as text; null is NULL. */
export type Parameter = string | null;

/** How many fields are shown. A text with more parameters was not written by hand. */
const FIELDS_MAX = 100;
/** Longer texts are not looked through at every key. */
const READ_MAX_CHARACTERS = 200_000;

/** How many parameters a statement has: the highest of its `$1`, `$2`, … */
export function parameterCount(statement: string): number {
  if (hasOwnParameters(statement)) return 0;
  let count = 0;
  const lexer = new Lexer(statement);
  for (let kind = lexer.next(); kind !== Token.End; kind = lexer.next()) {
    if (kind === Token.Parameter) count = Math.max(count, Number(statement.slice(lexer.start + 1, lexer.end)));
  }
  return Math.min(count, FIELDS_MAX);
}

/** The most parameters that a statement of the text has. */
export function parameterCountIn(sql: string): number {
  // Most texts have none, and are not split for that.
  if (sql.length > READ_MAX_CHARACTERS || !/\$\d/.test(sql)) return 0;
  return Math.max(0, ...statementsIn(sql).map(({ text }) => parameterCount(text)));
}

/** The parameters to send with a statement. */
export function parametersFor(statement: string, values: readonly Parameter[]): readonly Parameter[] {
  return Array.from({ length: parameterCount(statement) }, (_, index) => values[index] ?? null);
}

/** In these, `$1` is a parameter of the function or of the prepared statement. */
function hasOwnParameters(statement: string): boolean {
  const words = leadingKeywords(statement, 4);
  const object = words[1] === 'OR' && words[2] === 'REPLACE' ? words[3] : words[1];
  return words[0] === 'PREPARE' || (words[0] === 'CREATE' && (object === 'FUNCTION' || object === 'PROCEDURE'));
}
