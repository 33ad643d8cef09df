import { eachStatement } from '../../../../../src/syntax/statements.ts';

/** A statement, and where it stands in the editor's text. */
export interface Statement {
  /** Without its semicolon, and without comments before its first token. */
  readonly text: string;
  /** The offset of its first token, in UTF-16 units. */
  readonly start: number;
}

export function statementsIn(sql: string): readonly Statement[] {
  const statements: Statement[] = [];
  for (const statement of eachStatement(sql)) if (statement !== undefined) statements.push(statement);
  return statements;
}

/**
 * The statement at the cursor. Behind a semicolon this is the one that it ends, unless the next begins in the same line before the cursor.
 * Comments and empty lines belong to what follows them.
 */
export function statementAt(sql: string, offset: number): Statement | undefined {
  let before: Statement | undefined;
  for (const statement of eachStatement(sql)) {
    if (statement === undefined) continue;
    const { text, start } = statement;
    if (offset < start) return before !== undefined && isSameLine(sql, before.start + before.text.length, offset) ? before : statement;
    if (offset <= start + text.length) return statement;
    before = statement;
  }
  return before;
}

/** The statements of a part of the text, with their places in the whole. */
export function statementsBetween(sql: string, from: number, to: number): readonly Statement[] {
  return statementsIn(sql.slice(from, to)).map(({ text, start }) => ({ text, start: start + from }));
}

function isSameLine(sql: string, from: number, to: number): boolean {
  const lineEnd = sql.indexOf('\n', from);
  return lineEnd < 0 || lineEnd >= to;
}
