import { signal } from '@preact/signals';
import { isAbort } from '../../api/api-error.ts';
import { type Draft, requestOf } from './draft.ts';
import { type MigrationReply, type MigrationRequest, runMigration } from './migration-calls.ts';

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
