import { signal } from '@preact/signals';
import { ApiError, isAbort, type Problem } from '../../api/problem.ts';
import type { EditorError } from '../../editor/editor.tsx';
import { rangeAtPlace } from '../../editor/error-range.ts';
import { type Draft, requestOf } from './draft.ts';
import type { Place } from './error-excerpt.ts';
import { type MigrationReply, type MigrationRequest, runMigration } from './migrations.ts';

export type Outcome =
  | { readonly state: 'running'; readonly request: MigrationRequest; readonly cancel: () => void }
  | { readonly state: 'done'; readonly request: MigrationRequest; readonly reply: MigrationReply }
  | { readonly state: 'failed'; readonly request: MigrationRequest; readonly error: unknown };

export const outcome = signal<Outcome | undefined>(undefined);

export async function run(request: MigrationRequest): Promise<void> {
  const canceled = new AbortController();
  outcome.value = { state: 'running', request, cancel: () => canceled.abort() };
  try {
    outcome.value = { state: 'done', request, reply: await runMigration(request, canceled.signal) };
  } catch (error) {
    outcome.value = isAbort(error) ? undefined : { state: 'failed', request, error };
  }
}

/** Whether it is what comes of this draft. */
export function isOf({ request }: Outcome, now: Draft): boolean {
  return JSON.stringify(request) === JSON.stringify(requestOf(now, request.dryRun));
}

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
