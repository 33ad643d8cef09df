import { setTimeout as delay } from 'node:timers/promises';
import { EmbeddedError } from '../embedded-error.ts';
import { isServing, readPostmasterPid } from './postmaster-pid.ts';

const POLL_MS = 25;
const FAST_TIMEOUT_MS = 10_000;
const IMMEDIATE_TIMEOUT_MS = 5_000;

/**
 * Requests a fast shutdown (sessions are ended, then a checkpoint), and if that takes too long an immediate shutdown (the server
 * recovers at the next start).
 * @see https://www.postgresql.org/docs/current/server-shutdown.html
 * @throws EmbeddedError when it does not end
 */
export async function shutDown(send: (signal: 'SIGINT' | 'SIGQUIT') => void, gone: Promise<unknown>): Promise<void> {
  send('SIGINT');
  if (await within(gone, FAST_TIMEOUT_MS)) return;
  send('SIGQUIT');
  if (await within(gone, IMMEDIATE_TIMEOUT_MS)) return;
  throw new EmbeddedError('PostgreSQL does not shut down');
}

/**
 * Ends a server that a killed Postern left running on this cluster.
 * @throws EmbeddedError when it does not end
 */
export async function stopOrphan(cluster: string): Promise<void> {
  const { pid } = await readPostmasterPid(cluster);
  if (pid === undefined || !(await isServing(pid, cluster))) return;
  await shutDown(
    (signal) => {
      try {
        process.kill(pid, signal);
      } catch {
        // The process has just ended.
      }
    },
    untilGone(pid, cluster),
  );
}

async function untilGone(pid: number, cluster: string): Promise<void> {
  while (await isServing(pid, cluster)) await delay(POLL_MS);
}

async function within(event: Promise<unknown>, timeoutMs: number): Promise<boolean> {
  const timer = new AbortController();
  try {
    return await Promise.race([event.then(() => true), delay(timeoutMs, false, { signal: timer.signal })]);
  } finally {
    timer.abort();
  }
}
