import { signal } from '@preact/signals';
import { call, callForResponse, readJson } from '../../../api/client.ts';
import type { SavedLink } from '../sql-screen-state.ts';

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

export interface Saving {
  readonly name: string;
  readonly sql: string;
  readonly description: string | null;
  /** The version that is replaced; `none`: there must be none yet; undefined: whatever there is. */
  readonly replaces: string | undefined;
}

/** @throws ApiError `precondition_failed` when another version is there */
export async function saveQuery({ name, sql, description, replaces }: Saving): Promise<SavedLink> {
  const headers: Record<string, string> =
    replaces === undefined ? {} : replaces === NONE ? { 'if-none-match': '*' } : { 'if-match': replaces };
  const link = await linkOf(await callForResponse('PUT', pathOf(name), { body: { sql, description }, headers }));
  changes.value += 1;
  return link;
}

/** In place of a version: there must be none. */
export const NONE = 'none';

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
