import { type ReadonlySignal, signal } from '@preact/signals';
import { callForResponse, readJson } from './client.ts';
import type { Schema } from './database-schema.ts';

interface Known {
  readonly schema: Schema;
  readonly tag: string | undefined;
  /** When it was asked for; by `performance.now()`. */
  readonly askedAt: number;
}

let known: Known | undefined;
let later: ReturnType<typeof setTimeout> | undefined;
let refreshing: Promise<void> | undefined;
/** How long it took to load it the last time, in milliseconds. */
let tookMs = 0;
/** A schema that takes long to load is loaded less often. */
const REST = 5;
const last = signal<Schema | undefined>(undefined);

/** The one that was loaded last; all screens share it. */
export const schema: ReadonlySignal<Schema | undefined> = last;

/** Loads it. When it has not changed, the one there is stays: the same object. @throws ApiError */
export async function loadSchema(abandoned?: AbortSignal): Promise<Schema> {
  const askedAt = performance.now();
  const former = known;
  const headers: Record<string, string> = former?.tag === undefined ? {} : { 'if-none-match': former.tag };
  const response = await callForResponse('GET', 'api/schema', { headers, signal: abandoned });
  const next =
    response.status === 304 && former !== undefined
      ? { ...former, askedAt }
      : { schema: await readJson<Schema>(response), tag: response.headers.get('etag') ?? undefined, askedAt };
  // Replies may overtake each other.
  if (known === undefined || known.askedAt <= askedAt) known = next;
  tookMs = performance.now() - askedAt;
  last.value = known.schema;
  return next.schema;
}

/** In how many milliseconds it will be older than it may be. */
function freshForMs(maxAgeMs: number): number {
  return known === undefined ? 0 : known.askedAt + Math.max(maxAgeMs, tookMs * REST) - performance.now();
}

/** As {@link refreshSchema}; if it was loaded a moment ago, it is loaded again when it is older. @returns in how many milliseconds that begins */
export function refreshSchemaSoon(maxAgeMs: number): number {
  const waitMs = Math.max(0, freshForMs(maxAgeMs));
  clearTimeout(later);
  // It does not ask again whether it is old enough: timers run up to a millisecond early.
  if (waitMs > 0) later = setTimeout(loadInBackground, waitMs);
  else void loadInBackground();
  return waitMs;
}

/** Loads it unless that was done a moment ago, or goes on. @returns when it is as new as that; errors are left to the next load */
export async function refreshSchema(maxAgeMs: number): Promise<void> {
  if (freshForMs(maxAgeMs) <= 0) await loadInBackground();
}

function loadInBackground(): Promise<void> {
  refreshing ??= loadSchema()
    .then(
      () => undefined,
      () => undefined,
    )
    .finally(() => {
      refreshing = undefined;
    });
  return refreshing;
}
