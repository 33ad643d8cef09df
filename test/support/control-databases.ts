import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, inject } from 'vitest';

/** Those of the test file that runs now. */
const made = new Set<string>();

/** Two services that are given the same one are two processes of one Postern. */
export function newControlDatabase(): string {
  const name = `control_${randomBytes(6).toString('hex')}`;
  made.add(name);
  return name;
}

/**
 * Drops the databases of the organizations that the file's services had, and their control databases, when its tests have run: the
 * shared cluster is in memory, and a whole run makes a thousand of them.
 */
export function dropAfterTests(): void {
  afterAll(async () => {
    if (made.size === 0) return;
    const server = await connect('postgres');
    const { rows } = await server.query('SELECT datname FROM pg_database WHERE datname = ANY ($1)', [[...made]]);
    made.clear();
    for (const { datname } of rows) {
      for (const database of [...(await databasesOf(datname)), datname])
        await server.query(`DROP DATABASE IF EXISTS "${database}" (FORCE)`);
    }
    await server.end();
  });
}

/** @returns none where the service did not get as far as making its tables */
async function databasesOf(controlDatabase: string): Promise<string[]> {
  const control = await connect(controlDatabase);
  try {
    const { rows } = await control.query("SELECT id FROM postern.organizations WHERE placement->>'kind' = 'database'");
    return rows.map(({ id }) => id);
  } catch (error) {
    if (error instanceof pg.DatabaseError && error.code === '42P01') return [];
    throw error;
  } finally {
    await control.end();
  }
}

async function connect(database: string): Promise<pg.Client> {
  const client = new pg.Client({ ...inject('cluster'), database });
  client.on('error', () => {});
  await client.connect();
  return client;
}
