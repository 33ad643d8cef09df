import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { openSession, queryMessage } from '../support/raw-session.ts';
import { testVariables } from '../support/service.ts';

const MIB = 1_048_576;
const VALUE_BYTES = 100 * 1_000_000;
/** What one process may grow by while it carries values of 100 MB: far less than one of them for each session. */
const GROWTH_MAX_BYTES = 120 * MIB;

let installation: Installation;
let postern: PosternProcess;
let organization: TestOrganization;
beforeAll(async () => {
  installation = await makeInstallation();
  postern = await installation.start(testVariables());
  organization = await postern.signUp();
  await postern.query(organization, 'CREATE TABLE blobs (n int, body text)');
});
afterAll(() => installation.remove());

async function residentBytes(): Promise<number> {
  const metrics = await (await fetch(`${postern.opsUrl}/metrics`)).text();
  return Number(/^process_resident_memory_bytes (\S+)$/m.exec(metrics)?.[1]);
}

/** @returns by how much the process grew at most while something went on */
async function growthDuring(work: () => Promise<void>): Promise<number> {
  const before = await residentBytes();
  let most = before;
  let over = false;
  const watch = async () => {
    while (!over) {
      most = Math.max(most, await residentBytes());
      await delay(50);
    }
  };
  const [watched] = await Promise.allSettled([work().finally(() => (over = true)), watch()]);
  if (watched.status === 'rejected') throw watched.reason;
  return most - before;
}

it('values of 100 MB go through both ways, several at once, in little memory', async () => {
  const clients = await Promise.all([1, 2].map(() => postern.connect(organization)));
  const body = 'x'.repeat(VALUE_BYTES);
  const growth = await growthDuring(async () => {
    await Promise.all(
      clients.map(async (client, n) => {
        await client.query('INSERT INTO blobs VALUES ($1, $2)', [n, body]);
        const { rows } = await client.query('SELECT body FROM blobs WHERE n = $1', [n]);
        expect(rows[0].body === body).toBe(true);
      }),
    );
  });
  expect(growth).toBeLessThan(GROWTH_MAX_BYTES);
  await Promise.all(clients.map((client) => client.end()));
});

it('rows of 100 MB together come out of the JSON door in little memory, and one value too large for it is refused', async () => {
  const ask = (sql: string) =>
    fetch(`${postern.httpUrl}/api/query`, {
      method: 'POST',
      headers: { authorization: `Bearer ${organization.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ sql }),
    });
  let received = 0;
  const growth = await growthDuring(async () => {
    const { body } = await ask("SELECT repeat('y', 1000000) AS big FROM generate_series(1, 100)");
    for await (const chunk of body ?? []) received += chunk.length;
  });
  expect(received).toBeGreaterThan(100_000_000);
  expect(growth).toBeLessThan(GROWTH_MAX_BYTES);

  const refused = await ask(`SELECT repeat('y', ${VALUE_BYTES}) AS big`);
  expect([refused.status, await refused.json()]).toMatchObject([400, { code: 'response_too_large', sqlstate: '54000' }]);
});

it('a long answer that takes a rest has gone out as far as the server has sent it', async () => {
  const client = await openSession(postern, organization);
  const holder = await postern.connect(organization);
  await holder.query('SELECT pg_advisory_lock(1)');
  const rest = 'pg_advisory_xact_lock(1)::text';
  const sql = `SELECT repeat('r', 1000) || CASE WHEN n = 1000 THEN ${rest} ELSE '' END FROM generate_series(1, 1010) AS n`;
  await client.write(queryMessage(sql));
  let rows = 0;
  const readUntil = async (isOver: (type: string) => boolean) => {
    for (;;) {
      const message = await client.read();
      if (typeof message !== 'object') throw new Error(`${message} after ${rows} rows`);
      if (message.type === 'D') rows += 1;
      if (isOver(message.type)) return;
    }
  };
  // The server itself keeps up to 8 kB.
  await readUntil(() => rows === 990);
  await holder.query('SELECT pg_advisory_unlock(1)');
  await readUntil((type) => type === 'Z');
  expect(rows).toBe(1010);
  await holder.end();
  client.disconnect();
});

it('a client that asks for a lot and does not read it costs little, and holds up nobody', async () => {
  const clients = await Promise.all([1, 2, 3].map(() => openSession(postern, organization)));
  const growth = await growthDuring(async () => {
    for (const client of clients) {
      client.pause();
      await client.write(queryMessage("SELECT repeat('z', 1000000) FROM generate_series(1, 200)"));
    }
    await servesOthers();
  });
  expect(growth).toBeLessThan(GROWTH_MAX_BYTES);
  for (const client of clients) client.disconnect();
});

it('a client that sends a lot to a backend that does not read costs little, and holds up nobody', async () => {
  const client = await openSession(postern, organization);
  const insert = queryMessage(`INSERT INTO blobs VALUES (-1, '${'w'.repeat(MIB)}')`);
  const growth = await growthDuring(async () => {
    await client.write(queryMessage('SELECT pg_sleep(1.5)'));
    for (let sent = 0; sent < 100; sent += 1) await client.write(insert);
    await servesOthers();
  });
  expect(growth).toBeLessThan(GROWTH_MAX_BYTES);
  await eventually('all of it has arrived', async () => {
    const { body } = await postern.query(organization, 'SELECT count(*)::int AS n FROM blobs WHERE n = -1');
    return body.rows[0].n === 100;
  });
  client.disconnect();
});

/** While the others have every chance to fill the process up. */
async function servesOthers(): Promise<void> {
  const client = await postern.connect(organization);
  for (let round = 0; round < 10; round += 1) {
    expect((await client.query('SELECT $1::int AS n', [round])).rows).toEqual([{ n: round }]);
    expect((await postern.query(organization, 'SELECT 1 AS one')).status).toBe(200);
    await delay(50);
  }
  await client.end();
}
