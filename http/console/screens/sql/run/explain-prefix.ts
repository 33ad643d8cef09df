import { Lexer, Token } from '../../../../../src/syntax/scanner.ts';
import type { Statement } from './statements.ts';

export const EXPLAIN_PREFIX = 'EXPLAIN (FORMAT JSON) ';
export const ANALYZE_PREFIX = 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ';

export interface Explained {
  /** What is explained; of any other statement, the statement itself. */
  readonly statement: Statement;
  /** Whether it runs as the text stands. */
  readonly runs: boolean;
}

/** The statement behind `EXPLAIN`, `EXPLAIN ANALYZE VERBOSE`, `EXPLAIN (…)`. */
export function withoutExplain({ text, start }: Statement): Explained {
  const lexer = new Lexer(text);
  const word = () => text.slice(lexer.start, lexer.end).toUpperCase();
  lexer.next();
  if (word() !== 'EXPLAIN') return { statement: { text, start }, runs: true };
  let runs = false;
  let depth = 0;
  while (lexer.next() !== Token.End) {
    const here = word();
    if (here === 'ANALYZE' || here === 'ANALYSE') runs = true;
    else if (here === '(') depth += 1;
    else if (here === ')') depth -= 1;
    else if (depth === 0 && here !== 'VERBOSE') break;
    // `EXPLAIN (…) (SELECT …)`: the second parenthesis begins the statement.
    if (here === ')' && depth === 0) {
      lexer.next();
      break;
    }
  }
  return { statement: { text: text.slice(lexer.start), start: start + lexer.start }, runs };
}
