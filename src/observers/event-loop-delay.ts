import type { Registry } from 'prom-client';
import { QuickHistogram } from './door-metrics.ts';

/** Short enough to meet every turn that others would notice, and rare enough to cost nothing. */
const LOOKS_EVERY_MS = 10;
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/**
 * Measures how late the event loop gets to what is due. A turn that takes long makes every client wait, of whatever
 * organization.
 * @returns stops it
 */
export function measureEventLoopDelay(registry: Registry): () => void {
  const name = 'postern_event_loop_delay_seconds';
  const delays = new QuickHistogram(name, 'How late the event loop got to what was due', undefined, SECONDS, registry);
  let before = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    delays.count('', Math.max(0, now - before - LOOKS_EVERY_MS) / 1_000);
    before = now;
  }, LOOKS_EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}
