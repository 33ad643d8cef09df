import type { Registry } from 'prom-client';
import { QuickHistogram } from './request-metrics.ts';

/** Often enough to notice every turn that delays clients, and rarely enough to cost almost nothing. */
const INTERVAL_MS = 10;
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/**
 * Measures how late the event loop runs timers. A long turn delays the clients of all organizations.
 * @returns a function that stops measuring
 */
export function measureEventLoopDelay(registry: Registry): () => void {
  const name = 'postern_event_loop_delay_seconds';
  const delays = new QuickHistogram(name, 'How late the event loop ran timers', undefined, SECONDS, registry);
  let before = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    delays.count('', Math.max(0, now - before - INTERVAL_MS) / 1_000);
    before = now;
  }, INTERVAL_MS);
  timer.unref();
  return () => clearInterval(timer);
}
