import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 20;

/**
 * Looks again and again until it is so.
 * @throws Error that names what was waited for
 */
export async function eventually(what: string, isSo: () => Promise<boolean> | boolean, timeoutMs = 120_000): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await isSo())) {
    if (performance.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain: ${what}`);
    await delay(POLL_MS);
  }
}
