import { setTimeout as delay } from 'node:timers/promises';
import { type BackendConnection, NO_RECEIVER } from './connection.ts';
import { runCommand } from './run-command.ts';

const RESET_TIMEOUT_MS = 5_000;

/**
 * Discards the state of a session: settings, temporary tables, prepared statements,
 * cursors, LISTEN, advisory locks. Settings return to those of the startup packet.
 * @returns false when the session failed or did not answer in time; it must not be used again
 * @see https://www.postgresql.org/docs/current/sql-discard.html
 */
export async function discardState(backend: BackendConnection): Promise<boolean> {
  const timer = new AbortController();
  const late = delay(RESET_TIMEOUT_MS, false, { signal: timer.signal }).catch(() => false);
  // A statement_timeout that expires as DISCARD ALL ends may fail the next statement, so an empty one follows.
  const discarded = runCommand(backend, 'DISCARD ALL', '').then(
    () => true,
    () => false,
  );
  const ok = await Promise.race([discarded, late]);
  timer.abort();
  backend.receiver = NO_RECEIVER;
  if (ok) backend.session.clear();
  return ok;
}
