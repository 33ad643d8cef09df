import { ApiError } from '../../../api/api-error.ts';
import { say } from '../../../shell/toasts.tsx';
import type { QueryTab, SavedLink } from '../sql-screen-state.ts';
import { saveQuestion } from './save-question.ts';
import { NONE, readSaved, saveQuery } from './saved-query-calls.ts';

/** Saves a tab's text under its name, or asks for one. */
export async function beginSaving(tab: QueryTab, asAnother: boolean): Promise<void> {
  const saved = tab.saved.peek();
  if (saved === undefined || asAnother) saveQuestion.value = { kind: 'name', tab };
  else await replace(tab, saved, saved.tag);
}

/** Saves a new query. @returns false when there is one of that name */
export async function saveNew(tab: QueryTab, name: string, description: string): Promise<boolean> {
  try {
    const link = await saveQuery({ name, sql: tab.text.peek(), description: description.trim() || null, replaces: NONE });
    finish(tab, link);
    return true;
  } catch (error) {
    if (isConflict(error)) return false;
    throw error;
  }
}

/** @param tag the version that is replaced; undefined: whatever there is */
export async function replace(tab: QueryTab, { name, description }: SavedLink, tag: string | undefined): Promise<void> {
  const sql = tab.text.peek();
  try {
    finish(tab, await saveQuery({ name, sql, description, replaces: tag }));
  } catch (error) {
    if (!isConflict(error)) throw error;
    const theirs = await readSaved(name).catch((reading) => {
      if (reading instanceof ApiError && reading.problem.status === 404) return undefined;
      throw reading;
    });
    if (theirs !== undefined) saveQuestion.value = { kind: 'conflict', tab, theirs };
    // Somebody has deleted it: it is saved anew.
    else finish(tab, await saveQuery({ name, sql, description, replaces: NONE }));
  }
}

function finish(tab: QueryTab, link: SavedLink): void {
  tab.saved.value = link;
  saveQuestion.value = undefined;
  say(`“${link.name}” is saved, for all keys of the organization.`);
}

function isConflict(error: unknown): boolean {
  return error instanceof ApiError && error.problem.status === 412;
}
