import { ApiError, type Problem } from '../../api/api-error.ts';
import { type EditorError, rangeAtPlace } from '../../editor/error-range.ts';
import type { Draft } from './draft.ts';
import type { Place } from './error-excerpt.ts';
import type { Outcome } from './run-migration.ts';

/** What is wrong with one of the texts, unless it has been changed since. */
export function errorIn(name: 'sql' | 'rollbackSql', known: Outcome | undefined, now: Draft): EditorError | undefined {
  if (known?.state !== 'failed' || !(known.error instanceof ApiError) || known.request[name] !== now[name]) return undefined;
  const { problem, message } = known.error;
  const place = placeOf(problem);
  if (place === undefined || (problem.phase === 'rollback') !== (name === 'rollbackSql')) return undefined;
  return { ...rangeAtPlace(now[name], place.line, place.column), message };
}

/** Where it failed. Errors of PostgreSQL have the place beside their position. */
export function placeOf({ line, column, postgres }: Problem): Place | undefined {
  const at = line ?? postgres?.line;
  return at === undefined ? undefined : { line: at, column: column ?? postgres?.column ?? 1 };
}
