import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 20;
const POLL_MAX_MS = 200;

/**
 * Looks again and again until it is so, less often the longer it takes: what is looked at is busy meanwhile.
 * @throws Error that names what was waited for
 */
export async function eventually(what: string, isSo: () => Promise<boolean> | boolean, timeoutMs = 120_000): Promise<void> {
  const began = performance.now();
  while (!(await isSo())) {
    const waited = performance.now() - began;
    if (waited > timeoutMs) throw new Error(`waited ${timeoutMs} ms in vain: ${what}`);
    await delay(Math.min(POLL_MS + waited / 10, POLL_MAX_MS));
  }
}
