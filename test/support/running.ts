import pg from 'pg';
import { inject } from 'vitest';
import { eventually } from './eventually.ts';

/**
 * Waits until the server runs so many statements with this text. A server that has not read a statement yet ignores a request to
 * cancel it.
 */
export async function untilServerRuns(text: string, count = 1): Promise<void> {
  const client = new pg.Client(inject('cluster'));
  await client.connect();
  try {
    await eventually(`the server runs ${text}`, async () => {
      const { rows } = await client.query("SELECT FROM pg_stat_activity WHERE state = 'active' AND query = $1", [text]);
      return rows.length === count;
    });
  } finally {
    await client.end();
  }
}
