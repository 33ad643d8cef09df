import { Lexer, Token } from '../../../../../../src/syntax/scanner.ts';
import { STATELESS_NAMES } from '../../../../../../src/syntax/side-effects.ts';

const READS = new Set(['SELECT', 'VALUES', 'TABLE', 'WITH', 'SHOW', '(']);
const WRITES = new Set(['INSERT', 'UPDATE', 'DELETE', 'MERGE', 'INTO']);
/** It leaves nothing in the session, but a notification that is lost when the statement is canceled. */
const NOTIFIES = 'pg_notify';

/**
 * Whether a statement only reads as far as its tokens show, so that nothing is lost when it is canceled before its end. A function that
 * is not known may write.
 */
export function onlyReads(statement: string): boolean {
  const lexer = new Lexer(statement);
  let previous = '';
  let isFirst = true;
  for (let kind = lexer.next(); kind !== Token.End; kind = lexer.next()) {
    const token = kind === Token.QuotedIdentifier || kind === Token.UnicodeIdentifier ? '"' : statement.slice(lexer.start, lexer.end);
    const upper = token.toUpperCase();
    if (isFirst && !READS.has(upper)) return false;
    if (kind === Token.Word && WRITES.has(upper)) return false;
    if (token === '(' && !mayPrecedeParenthesis(previous)) return false;
    previous = token;
    isFirst = false;
  }
  return !isFirst;
}

function mayPrecedeParenthesis(token: string): boolean {
  const name = token.toLowerCase();
  if (name === '"' || name === NOTIFIES) return false;
  return !/^[\w\u0080-\uffff]/.test(name) || STATELESS_NAMES.has(name);
}
