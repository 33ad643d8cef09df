import type pg from 'pg';
import { eventually } from './eventually.ts';

/**
 * A statement that another session of the same organization can see has been run, while the transaction it is part of goes on:
 * what is written cannot be seen before the commit, but a lock can.
 */
export const LANDMARK = landmark(4711);

/** Another one, where there are several transactions to wait for. */
export function landmark(key: number): string {
  return `SELECT pg_advisory_xact_lock(${key})`;
}

/** Resolves when some transaction has passed the {@link LANDMARK}, or the one of that key, and has not ended. */
export async function landmarkPassed(watcher: pg.Client, key = 4711): Promise<void> {
  await eventually('a transaction passes its landmark', async () => {
    const { rows } = await watcher.query<{ free: boolean }>(`SELECT pg_try_advisory_xact_lock(${key}) AS free`);
    return rows[0]?.free === false;
  });
}
