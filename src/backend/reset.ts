import { setTimeout as delay } from 'node:timers/promises';
import { runCommand } from './command.ts';
import type { BackendConnection } from './connection.ts';

const RESET_TIMEOUT_MS = 5_000;

/**
 * Drops everything that a session may hold beyond its transaction: settings, temporary tables, prepared statements,
 * cursors, LISTEN, advisory locks. Settings return to the startup packet's.
 * @returns false when the session did not answer as it should and must not be used again
 * @see https://www.postgresql.org/docs/current/sql-discard.html
 */
export async function discardState(backend: BackendConnection): Promise<boolean> {
  const timer = new AbortController();
  const late = delay(RESET_TIMEOUT_MS, false, { signal: timer.signal }).catch(() => false);
  // A time limit that the first one has hardly kept makes Postgres fail the next one: nobody's.
  const discarded = runCommand(backend, 'DISCARD ALL', '').then(
    () => true,
    () => false,
  );
  const ok = await Promise.race([discarded, late]);
  timer.abort();
  backend.detach();
  if (ok) backend.session.clear();
  return ok;
}
