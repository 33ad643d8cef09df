import { setTimeout as delay } from 'node:timers/promises';
import { codeOf, textOf } from '../../../protocol/backend.ts';
import type { AdminLogin } from './admin-login.ts';
import { withSession } from './admin-session.ts';

/** Temporary errors: the server is starting or shutting down, or its name or network is not available yet. */
const NOT_UP_YET = [
  '57P01',
  '57P02',
  '57P03',
  'EPIPE',
  '53300',
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ETIMEDOUT',
];
/** The driver's messages for a lost connection, which have no code: for the running statement, and for later ones. */
const LOST = /timeout|terminated unexpectedly|not queryable/i;
const BACKOFF_MS = { first: 100, longest: 2_000 };

/**
 * Waits until the server accepts logins.
 * @param waiting called once, with the reason, if it does not at first
 * @throws the last error if it does not in time, or refuses the login
 */
export async function waitForServer(login: AdminLogin, waitMs: number, waiting: (error: unknown) => void = () => {}): Promise<void> {
  const deadline = Date.now() + waitMs;
  for (let pause = BACKOFF_MS.first; ; pause = Math.min(2 * pause, BACKOFF_MS.longest)) {
    try {
      return await withSession(login, async () => {});
    } catch (error) {
      const left = deadline - Date.now();
      if (!isNotUpYet(error) || left <= 0) throw error;
      if (pause === BACKOFF_MS.first) waiting(error);
      await delay(Math.min(pause, left));
    }
  }
}

/** Whether a login failed because the server is not available, and not because of the credentials. */
export function isNotUpYet(error: unknown): boolean {
  return NOT_UP_YET.includes(codeOf(error)) || LOST.test(textOf(error));
}
