import { signal } from '@preact/signals';
import { ApiError, call, callForResponse, readJson } from '../../api/client.ts';
import { say } from '../../shell/toasts.tsx';
import { type QueryTab, type SavedLink, saveQuestion } from './sql-screen-state.ts';

/** `GET /api/queries` */
export interface SavedQuery {
  readonly name: string;
  readonly sql: string;
  readonly description: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly updatedBy: string;
}

/** Goes up with each change that is made here, so that lists are loaded again. */
export const changes = signal(0);

export async function listSaved(signal: AbortSignal): Promise<readonly SavedQuery[]> {
  const { queries } = await call<{ readonly queries: readonly SavedQuery[] }>('GET', 'api/queries', { signal });
  return queries;
}

/** The query as it is now, with its version. */
export async function readSaved(name: string): Promise<SavedLink> {
  return linkOf(await callForResponse('GET', pathOf(name)));
}

interface Saving {
  readonly name: string;
  readonly sql: string;
  readonly description: string | null;
  /** The version that is replaced; `none`: there must be none yet; undefined: whatever there is. */
  readonly replaces: string | undefined;
}

/** @throws ApiError `precondition_failed` when another version is there */
async function saveQuery({ name, sql, description, replaces }: Saving): Promise<SavedLink> {
  const headers: Record<string, string> =
    replaces === undefined ? {} : replaces === NONE ? { 'if-none-match': '*' } : { 'if-match': replaces };
  const link = await linkOf(await callForResponse('PUT', pathOf(name), { body: { sql, description }, headers }));
  changes.value += 1;
  return link;
}

/** In place of a version: there must be none. */
const NONE = 'none';

export async function deleteSaved(name: string): Promise<void> {
  await call('DELETE', pathOf(name));
  changes.value += 1;
}

/** What is wrong with a name; undefined for one that may be used. */
export function nameError(name: string): string | undefined {
  const trimmed = name.normalize('NFC').trim();
  if (trimmed.length > NAME_MAX_CHARACTERS) return `at most ${NAME_MAX_CHARACTERS} characters`;
  // A URL takes these for parts of its path.
  if (trimmed === '.' || trimmed === '..') return `“${trimmed}” cannot be a name`;
  return /(?!\u200d)[\p{Cc}\p{Surrogate}\p{Cf}\p{Zl}\p{Zp}]/u.test(trimmed) ? 'without control or invisible characters' : undefined;
}

const NAME_MAX_CHARACTERS = 100;

function pathOf(name: string): string {
  return `api/queries/${encodeURIComponent(name)}`;
}

async function linkOf(response: Response): Promise<SavedLink> {
  const tag = response.headers.get('etag') ?? undefined;
  const { name, sql, description } = await readJson<SavedQuery>(response);
  return { name, sql, description, tag };
}

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
