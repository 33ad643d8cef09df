import { ApiError } from '../../../api/api-error.ts';
import { type EditorError, rangeAtPosition } from '../../../editor/error-range.ts';
import type { Statement } from './statements.ts';

/**
 * Where in the editor's text an error is: the token at its position; where PostgreSQL gives none, nowhere.
 * @param text the editor's text when it was sent
 * @param prefix what was sent before the statement: `EXPLAIN …`
 */
export function placeOf(error: unknown, text: string, { start, text: statement }: Statement, prefix = ''): EditorError | undefined {
  const position = error instanceof ApiError ? error.problem.postgres?.position : undefined;
  if (!(error instanceof ApiError) || position === undefined) return undefined;
  const inStatement = Math.max(1, position - prefix.length);
  const { from, to } = rangeAtPosition(text, inStatement, start);
  const end = start + statement.length;
  // An error at the end of the statement is shown at its last character.
  const isInside = from < end;
  return { from: isInside ? from : end - 1, to: isInside ? Math.min(to, end) : end, message: error.message };
}
