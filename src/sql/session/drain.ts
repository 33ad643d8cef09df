import { setTimeout as delay } from 'node:timers/promises';
import { DISCARD_CANCEL_AFTER_MS } from '../../multiplex/shareable-sql.ts';
import type { Lease } from '../../router/lease.ts';
import type { Pipeline } from './pipeline.ts';

/**
 * All requests are answered, or will never be. One that nobody waits for is canceled where it takes its time, lest it keep
 * the backend: no caller could have that done any more. No cancel request is on its way when this resolves.
 */
export async function drained(pipeline: Pipeline, lease: Lease): Promise<void> {
  const all = pipeline.drained();
  for (let left = pipeline.discarded; left > 0; left = pipeline.discarded) {
    await Promise.race([all, delay(DISCARD_CANCEL_AFTER_MS)]);
    if (pipeline.discarded === left) await lease.cancel();
  }
  await all;
}
